// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
	"github.com/envd-go/envd/internal/envdversion"
)

// processService answers the RPCs of process.Process.
type processService struct{ srv *Server }

func (s *Server) registerProcess(server *connect.Server) {
	processconnect.RegisterProcessHandler(server, processService{s})
}

// dropMissing takes away the RPCs that the version does not have.
func (s *Server) dropMissing(r *routes) {
	if !s.cfg.version.Has(envdversion.CloseStdin) {
		delete(r.rpc, processconnect.ProcessCloseStdinProcedure)
	}
}

const (
	timeoutHeader    = "Connect-Timeout-Ms"
	keepaliveHeader  = "Keepalive-Ping-Interval"
	defaultKeepalive = 90 * time.Second
	maxKeepalive     = 1 << 30 // seconds
)

// List shows all processes to everybody.
func (h processService) List(context.Context, *processpb.ListRequest) (*processpb.ListResponse, error) {
	res := &processpb.ListResponse{}
	for _, p := range h.srv.procs.list() {
		res.Processes = append(res.Processes, &processpb.ProcessInfo{Config: p.config, Pid: p.pid, Tag: p.tag})
	}
	return res, nil
}

// Start runs a command and streams its events.
func (h processService) Start(ctx context.Context, req *processpb.StartRequest, stream processconnect.ProcessStartServerStream) error {
	if req.GetPty() != nil && req.GetPty().GetSize() == nil && !h.srv.cfg.version.Has(envdversion.PTYWithoutSize) {
		panic(http.ErrAbortHandler)
	}
	keepalive, err := h.keepalive(ctx)
	if err != nil {
		return err
	}
	spec, err := h.srv.newSpec(ctx, req)
	if err != nil {
		return err
	}
	p, sub, err := h.srv.launch(spec, req)
	if err != nil {
		return err
	}
	defer p.unsubscribe(sub)
	timeout, limited := timeoutOf(ctx)
	if limited && timeout > 0 {
		p.killAfter(timeout)
	}
	f := &feed{srv: h.srv, proc: p, sub: sub, keepalive: keepalive, own: true}
	f.send = func(event *processpb.ProcessEvent) error {
		return stream.Send(&processpb.StartResponse{Event: event})
	}
	if limited && timeout < hangsBelow && h.srv.quirk(QuirkDeadlineHang) {
		return f.hang(ctx, timeout)
	}
	return f.run(ctx)
}

// Connect joins the events of a running process.
func (h processService) Connect(ctx context.Context, req *processpb.ConnectRequest, stream processconnect.ProcessConnectServerStream) error {
	keepalive, err := h.keepalive(ctx)
	if err != nil {
		return err
	}
	send := func(event *processpb.ProcessEvent) error {
		return stream.Send(&processpb.ConnectResponse{Event: event})
	}
	for {
		p, kept, err := h.srv.procs.attach(req.GetProcess())
		if err != nil {
			return err
		}
		if kept != nil {
			return h.replay(ctx, kept, send)
		}
		sub := p.subscribe()
		if sub == nil {
			<-p.finished // and is out of the table
			continue
		}
		defer p.unsubscribe(sub)
		h.srv.changes.notify()
		f := &feed{srv: h.srv, proc: p, sub: sub, keepalive: keepalive, send: send}
		return f.run(ctx)
	}
}

// replay gives the end of a process that is gone.
func (h processService) replay(ctx context.Context, kept *keptExit, send func(*processpb.ProcessEvent) error) error {
	if err := send(startEvent(kept.pid)); err != nil {
		return err
	}
	if h.srv.quirk(QuirkConnectHang) {
		return untilGone(ctx)
	}
	if h.srv.quirk(QuirkNoEnd) {
		return nil
	}
	return send(kept.end)
}

// keepalive reads how long a stream may be silent; 0 asks for a crash.
func (h processService) keepalive(ctx context.Context) (time.Duration, error) {
	seconds, err := strconv.ParseInt(strings.TrimSpace(callOf(ctx).header.Get(keepaliveHeader)), 10, 64)
	switch {
	case err != nil:
		return defaultKeepalive, nil
	case seconds > 0:
		return time.Duration(min(seconds, maxKeepalive)) * time.Second, nil
	case h.srv.quirk(QuirkKeepaliveCrash):
		return 0, nil
	}
	return 0, connect.Errorf(connect.CodeInvalidArgument, "%s must be positive: got %d", keepaliveHeader, seconds)
}

// timeoutOf reads how long a process may live. It comes from this header
// alone, whatever the protocol.
func timeoutOf(ctx context.Context) (time.Duration, bool) {
	ms, err := strconv.ParseInt(strings.TrimSpace(callOf(ctx).header.Get(timeoutHeader)), 10, 64)
	if err != nil {
		return 0, false
	}
	timeout := time.Duration(ms) * time.Millisecond
	if deadline, ok := ctx.Deadline(); ok && timeout > 0 {
		timeout = max(min(timeout, time.Until(deadline)), 1)
	}
	return timeout, true
}

// feed is one stream of events of a process.
type feed struct {
	srv       *Server
	proc      *process
	sub       *subscriber
	send      func(*processpb.ProcessEvent) error
	keepalive time.Duration
	own       bool // this stream started the process
}

// run sends the events from start to end.
func (f *feed) run(ctx context.Context) error {
	if err := f.interrupted(ctx); err != nil {
		return err
	}
	if err := f.send(startEvent(f.proc.pid)); err != nil {
		return err
	}
	if f.keepalive == 0 {
		f.srv.crash()
		panic(http.ErrAbortHandler)
	}
	timer := time.NewTimer(f.keepalive)
	defer timer.Stop()
	for {
		event := keepaliveEvent
		select {
		case event = <-f.sub.events:
		case <-timer.C:
		case <-f.proc.finished:
			return f.finish(ctx)
		case <-ctx.Done():
			return f.atInterrupt(ctx)
		}
		if err := f.send(event); err != nil {
			return err
		}
		timer.Reset(f.keepalive)
	}
}

// finish sends the end, except to the stream whose deadline made it.
func (f *feed) finish(ctx context.Context) error {
	if f.own && f.proc.timedOut.Load() {
		return f.atDeadline()
	}
	if err := f.interrupted(ctx); err != nil && !f.own {
		return err
	}
	if f.srv.quirk(QuirkNoEnd) {
		return nil
	}
	return f.send(f.proc.end)
}

// atInterrupt ends the stream because its time is over or its client gone.
func (f *feed) atInterrupt(ctx context.Context) error {
	err := f.interrupted(ctx)
	if !f.own || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	if timeout, limited := timeoutOf(ctx); limited && timeout > 0 {
		return f.atDeadline()
	}
	return err
}

// atDeadline ends the stream whose process was killed at its deadline.
func (f *feed) atDeadline() error {
	if f.srv.quirk(QuirkEndBeforeDeadline) {
		f.drain()
		_ = f.send(f.proc.end)
	}
	return deadlineExceeded()
}

// drain takes events until the process has ended.
func (f *feed) drain() {
	for {
		select {
		case event := <-f.sub.events:
			_ = f.send(event)
		case <-f.proc.finished:
			return
		}
	}
}

// interrupted returns the error that ends the stream if its context is over.
// A server that closes or crashes cuts the connection instead.
func (f *feed) interrupted(ctx context.Context) error {
	abortIfOver(ctx)
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return deadlineExceeded()
	default:
		return connect.NewError(connect.CodeCanceled, context.Canceled.Error())
	}
}

func deadlineExceeded() error {
	return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded.Error())
}

func abortIfOver(ctx context.Context) {
	if callOf(ctx).life.over() {
		panic(http.ErrAbortHandler)
	}
}

func startEvent(pid uint32) *processpb.ProcessEvent {
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{
		Start: &processpb.ProcessEvent_StartEvent{Pid: pid},
	}}
}

var keepaliveEvent = &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Keepalive{
	Keepalive: &processpb.ProcessEvent_KeepAlive{},
}}
