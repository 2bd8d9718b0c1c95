// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

// How long the client waits on its own account.
const (
	// cleanupTimeout bounds each thing done after the caller's context ended.
	cleanupTimeout = 5 * time.Second
	// endGrace is how long the end of a stream may take after the end event,
	// and the end event after the process left the list.
	endGrace = 2 * time.Second
	// missedKeepalives is how many must be missing before a stream is examined.
	missedKeepalives = 3
)

// supervise sees to it that the run ends.
func (r *run) supervise() {
	defer close(r.done)
	defer r.finish()
	r.reason = r.watch()
	if r.reason != nil {
		r.end()
	}
	r.drain()
	if r.hasEnded() {
		r.final = r.state
	}
	if r.reason == nil && r.final == nil {
		r.lost = r.examineLoss()
	}
}

// watch waits until the command has ended, or its stream has, or until there is
// a reason to end the command.
func (r *run) watch() error {
	c := r.cmd
	var timeout <-chan time.Time
	if c.Timeout > 0 {
		timer := time.NewTimer(c.Timeout - time.Since(r.began))
		defer timer.Stop()
		timeout = timer.C
	}
	idle := newAlarm(c.IdleTimeout, r.output.silence)
	defer idle.stop()
	signs := newAlarm(missedKeepalives*r.client.config.keepalive, r.output.quiet)
	defer signs.stop()
	late := r.attachChecks()
	defer late.Stop()
	for checks := 0; ; {
		select {
		case <-r.ended:
			return nil
		case <-r.pumped:
			return nil
		case <-r.failed:
			r.faulty = true
			return r.failure
		case <-r.ctx.Done():
			if r.hasEnded() {
				return nil
			}
			return context.Cause(r.ctx)
		case <-timeout:
			return ErrTimeout
		case <-idle.c():
			if idle.due() {
				return ErrIdleTimeout
			}
		case <-signs.c():
			if signs.due() {
				r.examineSilence()
				signs.rearm()
			}
		case <-late.C:
			if !r.output.busy.Load() {
				r.dropIfDead()
			}
			if checks++; checks < 2 {
				late.Reset(2 * time.Second)
			}
		}
	}
}

// attachChecks is a timer for looking whether a command that was attached to is
// still there: before 0.6.12, joining one in the moment of its end gives a
// stream that never ends.
func (r *run) attachChecks() *time.Timer {
	timer := time.NewTimer(250 * time.Millisecond)
	if r.cmd.attach == nil || r.client.knownServer().has(envdversion.ExitRetention) {
		timer.Stop()
	}
	return timer
}

// examineSilence looks at a stream that has shown no sign of life for several
// keepalives. Where the daemon is known to send them, the stream is dead.
// Another one is asked.
func (r *run) examineSilence() {
	if r.client.keepsAlive.Load() {
		r.dropStream()
		return
	}
	r.dropIfDead()
}

// dropIfDead asks the daemon whether it still has the command. If not, or if it
// does not answer, the stream is given up.
func (r *run) dropIfDead() {
	ctx, cancel := context.WithTimeout(r.ctx, cleanupTimeout)
	defer cancel()
	listed, err := r.listed(ctx)
	if r.ctx.Err() != nil || listed {
		return // or let watch see the context's end
	}
	if err == nil {
		// Its end event may be on its way.
		select {
		case <-r.ended:
			return
		case <-r.ctx.Done():
			return
		case <-time.After(endGrace):
		}
	}
	r.dropStream()
}

func (r *run) listed(ctx context.Context) (bool, error) {
	processes, err := r.client.list(ctx)
	for _, p := range processes {
		if r.isOurs(p) {
			return true, nil
		}
	}
	return false, err
}

// isOurs reports whether p is the command of this run. A daemon that was
// started again numbers its commands anew, so the pid alone does not tell.
func (r *run) isOurs(p *processpb.ProcessInfo) bool {
	if p.GetPid() != r.process.PID() {
		return false
	}
	if r.marker != "" {
		return p.GetConfig().GetEnvs()[StartMarker] == string(r.marker)
	}
	known := r.again.config.Load()
	return known == nil || proto.Equal(known, p.GetConfig())
}

func (r *run) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// end ends the command, or lets go of it. Pipes that nobody reads must not keep
// its end event from being read.
func (r *run) end() {
	c := r.cmd
	defer r.releasePipes()
	if !r.faulty && c.Cancel == nil && c.attach != nil {
		r.detached = true
		return
	}
	if !r.faulty && c.Cancel != nil && r.callCancel() {
		return
	}
	r.kill()
	r.releasePipes()
	r.awaitEnd(c.waitDelay())
}

func (r *run) releasePipes() {
	for _, p := range r.cmd.pipes {
		p.release()
	}
}

// callCancel calls the user's Cancel and reports whether that settled it.
func (r *run) callCancel() bool {
	err := r.cmd.Cancel()
	switch {
	case errors.Is(err, ErrDetach):
		r.detached = true
		return true
	case errors.Is(err, os.ErrProcessDone):
		r.awaitEnd(r.cmd.waitDelay())
		if r.hasEnded() {
			r.reason = nil
		}
		return true
	case err != nil:
		r.reason = errors.Join(r.reason, err)
	}
	return r.awaitEnd(r.cmd.waitDelay())
}

// awaitEnd waits for the end event and reports whether it came.
func (r *run) awaitEnd(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.ended:
		return true
	case <-r.pumped:
		return r.hasEnded()
	case <-timer.C:
		return false
	}
}

// kill kills the command on a context of its own, and remembers what stands
// against the command being dead.
func (r *run) kill() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), cleanupTimeout)
	defer cancel()
	r.client.config.logger.InfoContext(ctx, "envd: killing command", "pid", r.process.PID(), "reason", r.reason)
	err := r.killOnce(ctx)
	for err != nil && ctx.Err() == nil && isUnreachable(err) {
		select {
		case <-r.ended:
			return
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
			err = r.killOnce(ctx)
		}
	}
	if r.killedNone = errors.Is(err, ErrProcessNotFound); err != nil && !r.killedNone {
		r.killErr = err
		r.client.config.logger.WarnContext(ctx, "envd: command could not be killed", "pid", r.process.PID(), "error", err)
	}
}

func (r *run) killOnce(ctx context.Context) error {
	if r.marker.tree() {
		return r.process.killTree(ctx, r.marker)
	}
	return r.process.Kill(ctx)
}

// isUnreachable reports whether the daemon may not have seen the request.
func isUnreachable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == CodeUnavailable
}

// drain gives the stream a moment to end by itself, so that the connection can
// be used again, then closes it. A pump that is stuck in the caller's writer is
// waited for only as long as os/exec would.
func (r *run) drain() {
	if !r.detached && (r.reason == nil || r.hasEnded()) {
		select {
		case <-r.pumped:
			return
		case <-time.After(endGrace):
		}
	}
	r.closeStream()
	if r.reason == nil {
		select {
		case <-r.pumped:
			return
		case <-r.ctx.Done():
			r.reason = context.Cause(r.ctx)
		}
	}
	select {
	case <-r.pumped:
	case <-time.After(r.cmd.waitDelay()):
	}
}

// finish ends what hangs on the run.
func (r *run) finish() {
	r.closeStream()
	for _, p := range r.cmd.pipes {
		p.closeWrite(nil)
	}
}

// examineLoss finds out what became of a command whose stream broke off.
func (r *run) examineLoss() *StreamLostError {
	lost := &StreamLostError{PID: r.process.PID(), Fate: FateUnknown, Err: r.streamErr}
	if r.again.err != nil {
		lost.Err = joinText([]error{r.streamErr, fmt.Errorf("attaching again failed: %w", r.again.err)})
	}
	base := context.WithoutCancel(r.ctx)
	if !isRemote(r.streamErr) && !errors.Is(r.streamErr, io.EOF) {
		ctx, cancel := context.WithTimeout(base, cleanupTimeout)
		defer cancel()
		if err := r.client.Health(ctx); errors.Is(err, ErrSandboxNotFound) {
			// The first error stays first.
			lost.Err = errors.Join(lost.Err, err)
			return lost
		}
	}
	ctx, cancel := context.WithTimeout(base, cleanupTimeout)
	defer cancel()
	listed, err := r.listed(ctx)
	switch {
	case err != nil:
		return lost
	case !listed:
		lost.Fate = FateGone
	case r.cmd.attach != nil || r.cmd.Cancel != nil:
		lost.Fate = FateRunning
	default:
		// Nobody holds on to the command any more but this call.
		switch r.kill(); {
		case r.killErr != nil:
			lost.Fate = FateRunning
		case r.killedNone:
			lost.Fate = FateGone
		default:
			lost.Fate = FateKilled
		}
	}
	return lost
}
