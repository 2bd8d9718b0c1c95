// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"time"
)

// Schema names the JSON form of a Report. Fields may be added to it; a change
// of another kind gets another number.
const Schema = "envd-conformance/1"

// Status is how a case went.
type Status string

// The statuses.
const (
	// Pass is a case that holds.
	Pass Status = "pass"
	// Fail is one that does not, which nobody expected.
	Fail Status = "fail"
	// ExpectedFail is a failure that the deviations list.
	ExpectedFail Status = "expected-fail"
	// UnexpectedPass is a case that the deviations list and that passes all the
	// same, so that no list grows stale.
	UnexpectedPass Status = "unexpected-pass"
	// NotRun is a case that makes no sense on this server; Reason says why.
	NotRun Status = "not-run"
)

// OK reports whether the status is one that was to be expected.
func (s Status) OK() bool { return s != Fail && s != UnexpectedPass }

// Result is how one case went over one protocol.
type Result struct {
	// ID, Area, Procedure, Requirement and Level are those of the case.
	ID          string `json:"id"`
	Area        string `json:"area"`
	Procedure   string `json:"procedure"`
	Requirement string `json:"requirement"`
	Level       string `json:"level"`
	// Protocol is what was spoken, and Status how it went.
	Protocol Protocol `json:"protocol"`
	Status   Status   `json:"status"`
	// Reason says why the case was not run, or why it is known to fail.
	Reason string `json:"reason,omitempty"`
	// Message says what was expected and what came.
	Message string `json:"message,omitempty"`
	// Exchange is what was sent and what came, cut to size and without tokens.
	Exchange string `json:"exchange,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// Counts counts results, by status.
type Counts struct {
	// Pass and the others are the numbers of results with that status.
	Pass           int `json:"pass"`
	Fail           int `json:"fail"`
	ExpectedFail   int `json:"expectedFail"`
	UnexpectedPass int `json:"unexpectedPass"`
	NotRun         int `json:"notRun"`
}

func (c *Counts) count(s Status) {
	switch s {
	case Pass:
		c.Pass++
	case Fail:
		c.Fail++
	case ExpectedFail:
		c.ExpectedFail++
	case UnexpectedPass:
		c.UnexpectedPass++
	case NotRun:
		c.NotRun++
	}
}

// Total is the number of results.
func (c Counts) Total() int {
	return c.Pass + c.Fail + c.ExpectedFail + c.UnexpectedPass + c.NotRun
}

// Report is the outcome of a run.
type Report struct {
	// Schema is the constant of that name.
	Schema string `json:"schema"`
	// URL is the server, Started and Seconds when the run was and how long.
	URL     string    `json:"url"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
	// Profile is what the server turned out to be.
	Profile Profile `json:"profile"`
	// Counts counts the results, and Results has them, in the order of Cases.
	Counts  Counts   `json:"counts"`
	Results []Result `json:"results"`
	// LeftBehind is what the server had of the run when it was over.
	LeftBehind LeftBehind `json:"leftBehind"`
}

// OK reports whether nothing unexpected happened.
func (r *Report) OK() bool { return r.Counts.Fail == 0 && r.Counts.UnexpectedPass == 0 }

func (r *run) newReport() *Report {
	return &Report{Schema: Schema, URL: r.target.URL, Started: r.started, Profile: r.profile}
}

func (r *Report) add(results []Result) {
	for i := range results {
		r.Counts.count(results[i].Status)
	}
	r.Results = append(r.Results, results...)
}

// group is a part of the results, with its counts.
type group struct {
	name   string
	counts Counts
	by     map[Protocol]*Counts
}

// areas groups the results by area, in their order.
func (r *Report) areas() []*group {
	var all []*group
	for i := range r.Results {
		res := &r.Results[i]
		if len(all) == 0 || all[len(all)-1].name != res.Area {
			all = append(all, &group{name: res.Area, by: map[Protocol]*Counts{}})
		}
		g := all[len(all)-1]
		g.counts.count(res.Status)
		if g.by[res.Protocol] == nil {
			g.by[res.Protocol] = &Counts{}
		}
		g.by[res.Protocol].count(res.Status)
	}
	return all
}
