// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	processpb "github.com/envd-go/envd/gen/process"
)

// maxReattachWait is the longest wait between two tries to attach again.
const maxReattachWait = 5 * time.Second

// reattacher joins a command again after its stream broke off.
type reattacher struct {
	// left is how many tries there are until one succeeds and brings something.
	left int
	// gap says that it happened: output may be missing.
	gap bool
	// fruitless says that nothing came since the last time.
	fruitless bool
	// err is why the last try failed.
	err error
	// config is what the command was, where it was attached to and thus has no
	// marker of ours.
	config atomic.Pointer[processpb.ProcessConfig]
}

// remember asks what the command is, so that it is known again. It is asked
// only where that will be needed.
func (r *run) remember(ctx context.Context) {
	if r.cmd.attach == nil || r.client.config.reattach == 0 {
		return
	}
	listed, err := r.client.list(ctx)
	if err != nil {
		return
	}
	for _, p := range listed {
		if p.GetPid() == r.process.PID() {
			r.again.config.Store(p.GetConfig())
		}
	}
}

// resume joins the command again after lost ended its stream. It returns nil
// where that is not wanted or does not work.
func (r *run) resume(lost error) eventStream {
	limit := r.client.config.reattach
	if limit == 0 || r.hasEnded() || r.timedOut(lost) {
		return nil
	}
	if !r.again.fruitless {
		r.again.left = limit
	}
	r.again.fruitless = true
	for try := 1; r.again.left > 0; try++ {
		r.again.left--
		r.client.config.logger.LogAttrs(r.streamCtx, slog.LevelInfo, "envd: stream lost, attaching again",
			slog.Any("pid", r.process.PID()), slog.Int("try", try), slog.Any("error", lost))
		stream, err := r.joinAgain()
		if err == nil {
			r.again.gap, r.again.err = true, nil
			return stream
		}
		r.again.err = err
		if errors.Is(err, ErrProcessNotFound) || r.again.left == 0 {
			return nil
		}
		if !sleep(r.streamCtx, rand.N(min(retryBackoff<<min(try, 10), maxReattachWait))) {
			return nil
		}
	}
	return nil
}

// joinAgain opens another stream of the command, if the daemon still has it:
// one that was started again numbers its commands anew.
func (r *run) joinAgain() (eventStream, error) {
	ctx, cancel := r.client.withRequestTimeout(r.streamCtx)
	defer cancel()
	listed, err := r.client.list(ctx)
	if err != nil {
		return nil, toError(ctx, domainProcess, "list processes", "", err)
	}
	pid := r.process.PID()
	for _, p := range listed {
		if p.GetPid() == pid && !r.isOurs(p) {
			return nil, fmt.Errorf("pid %d is another command now: %w", pid, ErrProcessNotFound)
		}
	}
	streamCtx, closeStream := context.WithCancel(r.streamCtx)
	stop := context.AfterFunc(ctx, closeStream)
	stream, err := r.client.openConnect(streamCtx, &processpb.ConnectRequest{Process: PID(pid).proto()})
	if err == nil {
		err = r.awaitStart(stream)
	}
	if err != nil || !stop() {
		closeStream()
		return nil, toError(ctx, domainProcess, "attach to", r.process.String(), errors.Join(err, ctx.Err()))
	}
	r.setStream(closeStream)
	return stream, nil
}

// setStream remembers how to close the stream that is read.
func (r *run) setStream(closeStream context.CancelFunc) {
	r.streamMu.Lock()
	defer r.streamMu.Unlock()
	if r.closeCurrent != nil {
		r.closeCurrent() // of the stream before
	}
	r.closeCurrent = closeStream
}

// dropStream closes the stream that is read, so that pump goes on with another
// one or ends.
func (r *run) dropStream() {
	r.streamMu.Lock()
	defer r.streamMu.Unlock()
	r.closeCurrent()
}

// gapMatters reports whether somebody wanted the output that may be missing.
func (r *run) gapMatters() bool {
	return r.again.gap && (r.cmd.Stdout != nil || r.cmd.Stderr != nil)
}
