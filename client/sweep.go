// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"time"
)

// failedStart explains why there was no start event, and makes sure that no
// command runs that nobody knows of.
func (r *run) failedStart(err error) error {
	e := toError(r.ctx, domainProcess, r.cmd.op(), r.cmd.target(), err)
	if r.cmd.attach != nil {
		return e
	}
	if !startUnknown(e) {
		return r.explainStart(e)
	}
	return r.sweep(e)
}

// startUnknown reports whether a command may run although its start failed. A
// refusal says no; a broken line, a proxy's 502 and a deadline do not.
func startUnknown(err error) bool {
	if errors.Is(err, ErrSandboxNotFound) || errors.Is(err, ErrPortNotOpen) || neverSent(err) {
		return false
	}
	if he, ok := errors.AsType[*HTTPError](err); ok {
		return he.StatusCode >= 500 && he.StatusCode != 501 && he.StatusCode != 507 || he.StatusCode == 200
	}
	switch toErrorCode(err) {
	case CodeCanceled, CodeDeadlineExceeded, CodeUnavailable, CodeAborted, CodeDataLoss:
		return true
	}
	return !isRemote(err)
}

// neverSent reports whether there was no connection to send the request on.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect")
}

// abandonStart ends a start that took too long, or whose context is over. The
// stream is kept open for a while, because old daemons lose a process whose
// client hangs up before the start event.
func (r *run) abandonStart(waitCtx context.Context) error {
	reason := context.Cause(waitCtx)
	e := &Error{Op: r.cmd.op(), Target: r.cmd.target(), Code: CodeCanceled, Err: reason, is: []error{waitCtx.Err()}}
	if errors.Is(waitCtx.Err(), context.DeadlineExceeded) {
		e.Code = CodeDeadlineExceeded
	}
	if errors.Is(reason, context.DeadlineExceeded) && r.ctx.Err() == nil {
		e.Err = fmt.Errorf("no start event: %w", reason)
	}
	if r.cmd.attach != nil {
		r.closeStream()
		<-r.pumped
		return e
	}
	select {
	case <-r.started:
	case <-time.After(min(r.cmd.waitDelay(), endGrace)):
		r.closeStream()
		<-r.pumped
		return r.sweep(e)
	}
	if r.startErr != nil {
		<-r.pumped
		if refused := toError(context.WithoutCancel(r.ctx), domainProcess, r.cmd.op(), r.cmd.target(), r.startErr); !startUnknown(refused) {
			return e
		}
		return r.sweep(e)
	}
	r.reason = reason
	r.kill()
	r.releasePipes()
	r.awaitEnd(r.cmd.waitDelay())
	r.drain()
	if !r.hasEnded() && r.killErr != nil {
		e.Err = joinText([]error{e.Err, fmt.Errorf("the command has started (pid %d), and the kill could not be confirmed: %w", r.process.PID(), r.killErr)})
	}
	return e
}

// sweep looks for a command whose start was lost, by its marker, and kills it.
// It returns first, with what could not be made sure of.
func (r *run) sweep(first error) error {
	e, ok := errors.AsType[*Error](first)
	if !ok {
		return first
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanupTimeout)
	defer cancel()
	report := func(err error) error {
		widened := *e
		widened.Err = joinText([]error{e.Err, err})
		return &widened
	}
	if r.marker == "" {
		return report(errors.New("the command may have started; it has no marker to find it by"))
	}
	listed, err := r.client.list(ctx)
	if err != nil {
		return report(fmt.Errorf("the command may have started (%s=%s); looking for it failed: %w",
			StartMarker, r.marker, toError(ctx, domainProcess, "list processes", "", err)))
	}
	for _, p := range listed {
		if p.GetConfig().GetEnvs()[StartMarker] != string(r.marker) {
			continue
		}
		r.process = r.client.Process(PID(p.GetPid()))
		if err := r.killOnce(ctx); err != nil && !errors.Is(err, ErrProcessNotFound) {
			return report(fmt.Errorf("the command has started (pid %d); killing it failed: %w", p.GetPid(), err))
		}
		r.client.config.logger.InfoContext(ctx, "envd: killed a command whose start was lost", "pid", p.GetPid())
		return report(fmt.Errorf("the command had started (pid %d) and was killed", p.GetPid()))
	}
	return e
}

// explainStart tells a missing program from a missing directory where the
// daemon's words fit both.
func (r *run) explainStart(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || !hasText(e, "fork/exec") || !hasText(e, "no such file or directory") {
		return err
	}
	widened := *e
	if r.cmd.Dir != "" && r.directoryMissing() {
		widened.Err = fmt.Errorf("directory %q does not exist: %w", cut(r.cmd.Dir), e.Err)
		return &widened
	}
	widened.is = append([]error{exec.ErrNotFound}, e.is...)
	return &widened
}

// directoryMissing is only asked of daemons before 0.2.8, which do not say it.
func (r *run) directoryMissing() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanupTimeout)
	defer cancel()
	return errors.Is(r.client.statError(ctx, r.cmd.Dir), fs.ErrNotExist)
}
