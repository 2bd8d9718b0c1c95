// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdversion

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// A Request is one plain HTTP request to a daemon, as probes make them.
type Request struct {
	Method string
	// Path is below the daemon's base URL and may have a query.
	Path   string
	Header http.Header
	Body   []byte
	// Anonymous leaves the user out.
	Anonymous bool
}

// A Reply is the answer to a Request, with the whole body.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// A Caller sends a request with whatever the daemon needs besides: tokens,
// routing headers, the user. It neither follows redirects nor decodes gzip, and
// reads 1 MiB of a body at least.
type Caller func(context.Context, Request) (*Reply, error)

// State is what a probe found out.
type State int

// The states.
const (
	// Unknown: the probe could not tell.
	Unknown State = iota
	// Present: the daemon has the feature.
	Present
	// Absent: it does not.
	Absent
)

// String returns "present", "absent" or "unknown".
func (s State) String() string {
	switch s {
	case Present:
		return "present"
	case Absent:
		return "absent"
	}
	return "unknown"
}

// Finding is what a probe found out about one feature.
type Finding struct {
	Feature Feature
	State   State
	// Evidence is what came, in a few words.
	Evidence string
}

// Survey is what the probes found out about a daemon.
type Survey struct {
	Findings []Finding
	// Since is the oldest version that explains the findings, and Before the
	// first that does not any more; it is zero where the newest known one does.
	// Both are zero where nothing was found out.
	Since, Before Version
	// Conflicts are the findings that do not fit in there, as with a daemon that
	// is no release of envd.
	Conflicts []Finding
}

// Finding returns what the probe of the feature found; Unknown where there is
// none.
func (s *Survey) Finding(f Feature) Finding {
	for _, finding := range s.Findings {
		if finding.Feature == f {
			return finding
		}
	}
	return Finding{Feature: f}
}

// Lacks reports whether the daemon is known not to have the feature: by its own
// probe, or because no version that the daemon may be has it.
func (s *Survey) Lacks(f Feature) bool {
	if state := s.Finding(f).State; state != Unknown {
		return state == Absent
	}
	row := f.Row()
	tooOld := !s.Before.IsZero() && row.Since.Compare(s.Before) >= 0
	tooNew := !row.Until.IsZero() && s.Since.Compare(row.Until) >= 0
	return tooOld || tooNew
}

// Has reports whether the daemon is known to have the feature.
func (s *Survey) Has(f Feature) bool {
	if state := s.Finding(f).State; state != Unknown {
		return state == Present
	}
	row := f.Row()
	return s.Since.Compare(row.Since) >= 0 &&
		(row.Until.IsZero() || !s.Before.IsZero() && s.Before.Compare(row.Until) <= 0)
}

// IsConflict reports whether the finding about f is one of the Conflicts.
func (s *Survey) IsConflict(f Feature) bool {
	return slices.ContainsFunc(s.Conflicts, func(c Finding) bool { return c.Feature == f })
}

// String returns the range of versions for people: "0.6.12 or later",
// "0.3.0 or later, before 0.4.0".
func (s *Survey) String() string {
	switch {
	case s.Since.IsZero():
		return "unknown"
	case s.Before.IsZero():
		return s.Since.String() + " or later"
	}
	return s.Since.String() + " or later, before " + s.Before.String()
}

// ErrNoDaemon says that what answered is no envd that lets us in.
var ErrNoDaemon = errors.New("no envd that can be asked")

// Examine asks a daemon what it can do, by the probes of the table. user is
// the user that call acts as; it may be empty. It runs three short commands and
// writes to a directory of its own below /tmp, which it removes. The error is
// that of the first request, if nothing can be asked.
func Examine(ctx context.Context, call Caller, user string) (*Survey, error) {
	s := &session{call: call, user: user, replies: map[string]*Reply{}}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	defer s.close(ctx)
	survey := &Survey{}
	for _, row := range Features() {
		if row.Probe == nil {
			continue
		}
		survey.Findings = append(survey.Findings, s.run(ctx, row))
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("examine envd: %w", err)
	}
	survey.bound()
	return survey, nil
}

// probeTimeout bounds one probe: a daemon that leaves one without an answer
// must not hold up the rest.
const probeTimeout = 5 * time.Second

func (s *session) run(ctx context.Context, row Row) Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	state, evidence, err := row.Probe(ctx, s)
	if err != nil {
		return Finding{Feature: row.Feature, Evidence: err.Error()}
	}
	return Finding{Feature: row.Feature, State: state, Evidence: evidence}
}

// bound finds the range of versions that agrees with most findings. Every
// version between two that the table names behaves as the first of them.
func (s *Survey) bound() {
	steps := boundaries()
	best := 0
	for i, v := range steps {
		n := s.agreement(v)
		if n == 0 || n < best {
			continue
		}
		if n > best {
			best, s.Since = n, v
		}
		s.Before = Version{}
		if i+1 < len(steps) {
			s.Before = steps[i+1]
		}
	}
	for _, f := range s.Findings {
		if f.State != Unknown && s.Since.Has(f.Feature) != (f.State == Present) {
			s.Conflicts = append(s.Conflicts, f)
		}
	}
}

// agreement counts the findings that are as in version v.
func (s *Survey) agreement(v Version) int {
	n := 0
	for _, f := range s.Findings {
		if f.State != Unknown && v.Has(f.Feature) == (f.State == Present) {
			n++
		}
	}
	return n
}

// boundaries returns the versions in which a feature with a probe came or went,
// oldest first.
func boundaries() []Version {
	var all []Version
	for _, row := range Features() {
		if row.Probe == nil {
			continue
		}
		all = append(all, row.Since)
		if !row.Until.IsZero() {
			all = append(all, row.Until)
		}
	}
	slices.SortFunc(all, Version.Compare)
	return slices.Compact(all)
}
