// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect/v2"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

// server is what is known of the daemon on the other side.
type server struct {
	version envdversion.Version // the zero Version where it was not told
	survey  *envdversion.Survey // nil where it was not asked
}

// has reports whether the daemon is known to have the feature.
func (s server) has(f envdversion.Feature) bool {
	if s.survey != nil {
		return s.survey.Has(f)
	}
	return !s.version.IsZero() && s.version.Has(f)
}

// lacks reports whether the daemon is known not to have the feature.
func (s server) lacks(f envdversion.Feature) bool {
	if s.survey != nil {
		return s.survey.Lacks(f)
	}
	return s.version.Lacks(f)
}

// isKnown reports whether anything is known of the daemon.
func (s server) isKnown() bool { return s.survey != nil || !s.version.IsZero() }

func (s server) String() string {
	if s.survey != nil {
		return s.survey.String()
	}
	return s.version.String()
}

// knownServer returns what is known of the daemon without asking it.
func (c *core) knownServer() server {
	return server{version: c.config.version, survey: c.surveyed.Load()}
}

// server returns what is known of the daemon. With WithVersion("auto") it asks,
// the first time. Where that fails nothing is known, and the next call asks
// again.
func (c *Client) server(ctx context.Context) server {
	if !c.config.autoVersion || c.surveyed.Load() != nil {
		return c.knownServer()
	}
	c.surveyMu.Lock()
	defer c.surveyMu.Unlock()
	if c.surveyed.Load() == nil {
		survey, err := c.survey(ctx)
		if err != nil {
			c.config.logger.WarnContext(ctx, "envd: the daemon's version is not known", "error", err)
		} else {
			c.surveyed.Store(survey)
		}
	}
	return c.knownServer()
}

// gate refuses a call that this version of envd is known not to serve.
func (c *Client) gate(ctx context.Context, op, target string, f envdversion.Feature) error {
	s := c.server(ctx)
	if !s.lacks(f) {
		return nil
	}
	return unsupported(op, target, f, fmt.Sprintf("this is %s", s))
}

func unsupported(op, target string, f envdversion.Feature, why string) error {
	row := f.Row()
	return &Error{Op: op, Target: target, Code: CodeUnimplemented,
		Err: fmt.Errorf("%w before envd %s: %s; %s", errors.ErrUnsupported, row.Since, row.Summary, why)}
}

// What was found out of the server.
const (
	answerUnknown int32 = iota
	answerYes
	answerNo
)

// canCloseStdin reports whether the server has CloseStdin. Where the version is
// not known it asks once, with a pid that no command has.
func (c *Client) canCloseStdin(ctx context.Context) (bool, error) {
	known := c.server(ctx)
	switch {
	case known.has(envdversion.CloseStdin) || c.closeStdin.Load() == answerYes:
		return true, nil
	case known.lacks(envdversion.CloseStdin) || c.closeStdin.Load() == answerNo:
		return false, nil
	}
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	_, err := c.processes.CloseStdin(ctx, &processpb.CloseStdinRequest{Process: PID(envdversion.NoSuchPID).proto()})
	switch {
	case err == nil || isRemote(err) && connect.CodeOf(err) != connect.CodeUnimplemented:
		c.closeStdin.Store(answerYes)
		return true, nil
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		c.closeStdin.Store(answerNo)
		return false, nil
	case connect.CodeOf(err) == connect.CodeNotFound:
		c.closeStdin.Store(answerYes) // an empty 404, as some servers say it
		return true, nil
	}
	return false, err
}
