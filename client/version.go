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

// gate refuses a call that this version of envd is known not to serve.
func (c *core) gate(op, target string, f envdversion.Feature) error {
	if !c.config.version.Lacks(f) {
		return nil
	}
	return unsupported(op, target, f, fmt.Sprintf("this is %s", c.config.version))
}

func unsupported(op, target string, f envdversion.Feature, why string) error {
	row := f.Row()
	return &Error{Op: op, Target: target, Code: CodeUnimplemented,
		Err: fmt.Errorf("%s: %w before envd %s; %s", row.Summary, errors.ErrUnsupported, row.Since, why)}
}

// Whether the server has CloseStdin, once it is known.
const (
	closeStdinUnknown int32 = iota
	closeStdinYes
	closeStdinNo
)

// canCloseStdin reports whether the server has CloseStdin. Where the version is
// not known it asks once, with a pid that no command has.
func (c *Client) canCloseStdin(ctx context.Context) (bool, error) {
	if !c.config.version.IsZero() {
		return c.config.version.Has(envdversion.CloseStdin), nil
	}
	switch c.closeStdin.Load() {
	case closeStdinYes:
		return true, nil
	case closeStdinNo:
		return false, nil
	}
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	const noSuchPID = 1<<32 - 1
	_, err := c.processes.CloseStdin(ctx, &processpb.CloseStdinRequest{Process: PID(noSuchPID).proto()})
	switch {
	case err == nil || isRemote(err) && connect.CodeOf(err) != connect.CodeUnimplemented:
		c.closeStdin.Store(closeStdinYes)
		return true, nil
	case connect.CodeOf(err) == connect.CodeUnimplemented:
		c.closeStdin.Store(closeStdinNo)
		return false, nil
	case connect.CodeOf(err) == connect.CodeNotFound:
		c.closeStdin.Store(closeStdinYes) // an empty 404, as some servers say it
		return true, nil
	}
	return false, err
}
