// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/internal/envdversion"
)

// Capabilities is what [Client.Probe] found out about a daemon.
type Capabilities struct {
	// Since is the oldest envd that behaves as this daemon does, and Before the
	// first that does not any more; it is empty where the newest known one still
	// does. Both are empty where the daemon told nothing.
	Since, Before string
	// Features says for each feature that can be probed whether the daemon has
	// it, in the order of their appearance.
	Features []Capability
}

// Capability is one feature of a daemon.
type Capability struct {
	// Name is the feature's stable name, such as "close-stdin".
	Name string
	// Summary says what it is.
	Summary string
	// Since is the first envd that has it.
	Since string
	// State is "present", "absent", or "unknown" where the probe could not tell.
	State string
	// Evidence is what the daemon answered, or why the probe could not tell.
	Evidence string
	// Conflict says that the finding does not fit the range of versions, as with
	// a daemon that is no release of envd.
	Conflict bool
}

// Has reports whether the feature of that name is present.
func (c *Capabilities) Has(name string) bool {
	for _, f := range c.Features {
		if f.Name == name {
			return f.State == envdversion.Present.String()
		}
	}
	return false
}

// Probe finds out what the daemon can do, and which releases of envd it may be,
// by trying: daemons before 0.6.12 do not tell their version. It runs three
// commands that end at once, makes a directory of its own in /tmp and removes
// it again, and changes nothing else. It takes about thirty short requests.
//
// The error is that of the first request, such as [ErrUnauthenticated]; a
// single probe that fails shows as "unknown". When ctx ends, Probe cleans up
// and returns its error.
func (c *Client) Probe(ctx context.Context) (*Capabilities, error) {
	survey, err := c.survey(ctx)
	if err != nil {
		return nil, err
	}
	caps := &Capabilities{}
	if !survey.Since.IsZero() {
		caps.Since = survey.Since.String()
	}
	if !survey.Before.IsZero() {
		caps.Before = survey.Before.String()
	}
	for _, f := range survey.Findings {
		row := f.Feature.Row()
		caps.Features = append(caps.Features, Capability{
			Name:     row.Name,
			Summary:  row.Summary,
			Since:    row.Since.String(),
			State:    f.State.String(),
			Evidence: c.clean(f.Evidence),
			Conflict: survey.IsConflict(f.Feature),
		})
	}
	return caps, nil
}

func (c *Client) survey(ctx context.Context) (*envdversion.Survey, error) {
	survey, err := envdversion.Examine(ctx, c.callProbe, c.user)
	return survey, toError(ctx, domainOther, "probe", "", err)
}

// callProbe sends the request of a probe. Every answer of envd is one to it,
// failures too; those that show that nobody can be asked are errors.
func (c *Client) callProbe(ctx context.Context, r envdversion.Request) (*envdversion.Reply, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for key, values := range r.Header {
		req.Header[key] = values
	}
	user := c.user
	if r.Anonymous {
		user = ""
	}
	resp, err := c.do(req, user)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return nil, err
	}
	if !r.Anonymous {
		if err := c.refusal(req, resp, body); err != nil {
			return nil, err
		}
	}
	return &envdversion.Reply{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// refusal returns an error for an answer that says that the caller may not ask,
// or that no daemon is there.
func (c *Client) refusal(req *http.Request, resp *http.Response, body []byte) error {
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden,
		resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusBadGateway,
		resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode >= 300 && resp.StatusCode < 400:
	default:
		return nil
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	failed, _ := readErrorBody(resp)
	he := c.httpError(req, resp, failed)
	return connect.NewError(codeOfStatus(he, failed.text), he.Error()).WithCause(he)
}
