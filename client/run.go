// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect/v2"

	processpb "github.com/envd-go/envd/gen/process"
)

// run is one command on its way from Start to Wait. Three goroutines work on
// it: pump reads the stream and writes the output, feed sends the input, and
// supervise ends the command when its time is over. All three have ended when
// done is closed, save for a feed that is stuck in the caller's Reader.
type run struct {
	cmd    *Cmd
	client *Client
	ctx    context.Context
	marker startMarker

	// streamCtx is not the caller's: the stream must outlive a cancelled
	// context until the command's end is known.
	streamCtx   context.Context
	closeStream context.CancelFunc
	// inputCtx ends with the command: nothing can be sent to it any more.
	inputCtx  context.Context
	stopInput context.CancelFunc
	// closeCurrent closes the one stream that is read; see resume.
	streamMu     sync.Mutex
	closeCurrent context.CancelFunc

	began   time.Time
	process *Process

	started chan struct{} // closed at the start event, or when startErr is set
	ended   chan struct{} // closed at the end event
	pumped  chan struct{} // closed when the stream is done with
	failed  chan struct{} // closed when fail was called
	done    chan struct{} // closed when the result is complete

	// Set by pump before it closes started, ended or pumped.
	startErr  error
	state     *ProcessState
	streamErr error

	output output
	again  reattacher
	input  *feeder

	failOnce sync.Once
	failure  error

	// Set by supervise before it closes done.
	reason     error // why the command was ended, if it was
	faulty     bool  // it was because of fail, not of a context or timeout
	detached   bool
	killErr    error         // why the kill is not confirmed
	killedNone bool          // the kill found no command any more
	final      *ProcessState // nil if the end event never came
	lost       *StreamLostError
}

func newRun(c *Cmd) *run {
	client := c.client
	if c.User != "" {
		client = client.As(c.User)
	}
	r := &run{
		cmd:     c,
		client:  client,
		ctx:     c.ctx,
		began:   time.Now(),
		started: make(chan struct{}),
		ended:   make(chan struct{}),
		pumped:  make(chan struct{}),
		failed:  make(chan struct{}),
		done:    make(chan struct{}),
	}
	if c.attach == nil && (c.KillTree || !client.config.noMarker) {
		r.marker = newStartMarker(c.KillTree)
	}
	return r
}

// start opens the stream and waits for the start event.
func (r *run) start() error {
	c := r.cmd
	selector := Selector{}
	if c.attach != nil {
		s, err := r.attachSelector()
		if err != nil {
			return err
		}
		selector = s
	}
	r.output.init(c)
	r.streamCtx, r.closeStream = context.WithCancel(context.WithoutCancel(r.ctx))
	r.inputCtx, r.stopInput = context.WithCancel(r.streamCtx)
	openCtx, closeCurrent := context.WithCancel(r.streamCtx)
	r.setStream(closeCurrent)
	if d, ok := r.timeLimit(); ok {
		// A net for when this client dies: a little later than its own kill,
		// because the daemon's leaves no end event.
		openCtx = withProcessTimeout(openCtx, d+c.waitDelay())
	}
	go r.pump(openCtx, selector)

	waitCtx, cancel := r.startContext()
	defer cancel()
	if err := r.awaitStarted(waitCtx, selector); err != nil {
		return err
	}
	if r.startErr != nil {
		return r.failedStart(r.startErr)
	}
	r.remember(waitCtx)
	r.input = newFeeder(r)
	go r.supervise()
	if c.Stdin != nil {
		go r.input.feed(c.Stdin)
	} else {
		close(r.input.done)
	}
	if c.attach != nil && c.PTY != nil {
		if err := r.process.Resize(r.ctx, *c.PTY); err != nil {
			r.fail(err)
		}
	}
	return nil
}

// awaitStarted waits for the start event, or for startErr. Old daemons never
// answer an attach that lands in the moment of the command's end, so there the
// list is asked from time to time.
func (r *run) awaitStarted(ctx context.Context, selector Selector) error {
	checks := time.NewTicker(endGrace)
	defer checks.Stop()
	for {
		select {
		case <-r.started:
			return nil
		case <-ctx.Done():
			return r.abandonStart(ctx)
		case <-checks.C:
			if r.cmd.attach == nil || !r.hasGone(ctx, selector) {
				continue
			}
			r.closeStream()
			<-r.pumped
			return &Error{Op: r.cmd.op(), Target: r.cmd.target(), Code: CodeNotFound, is: notFound(domainProcess),
				Err: fmt.Errorf("%w: it ended just before, and how is not kept", ErrProcessNotFound)}
		}
	}
}

// hasGone reports whether the daemon says that there is no such command.
func (r *run) hasGone(ctx context.Context, selector Selector) bool {
	processes, err := r.client.list(ctx)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(processes, func(p *processpb.ProcessInfo) bool {
		return selector == PID(p.GetPid()) || p.GetTag() != "" && selector == Tag(p.GetTag())
	})
}

// attachSelector prefers a pid: tags get lost in daemons. A tag that is not in
// the list may still be one whose command has just ended.
func (r *run) attachSelector() (Selector, error) {
	s, err := r.client.resolve(r.ctx, r.cmd.op(), *r.cmd.attach)
	if errors.Is(err, ErrProcessNotFound) {
		return *r.cmd.attach, nil
	}
	return s, err
}

// timeLimit returns the time after which the command is to be killed, if that
// is known and what happens then was left to the client.
func (r *run) timeLimit() (time.Duration, bool) {
	c := r.cmd
	if c.attach != nil || c.Cancel != nil {
		return 0, false
	}
	limit, ok := c.Timeout, c.Timeout > 0
	if deadline, has := r.ctx.Deadline(); has {
		if left := time.Until(deadline); !ok || left < limit {
			limit, ok = left, true
		}
	}
	return limit, ok && limit > 0
}

// startContext bounds the wait for the start event, which comes at once from a
// daemon that is well.
func (r *run) startContext() (context.Context, context.CancelFunc) {
	ctx, cancel := r.client.withRequestTimeout(r.ctx)
	if r.cmd.Timeout <= 0 {
		return ctx, cancel
	}
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, r.cmd.Timeout, ErrTimeout)
	return ctx, func() { cancelTimeout(); cancel() }
}

func (r *run) open(ctx context.Context, s Selector) (eventStream, error) {
	if r.cmd.attach != nil {
		return r.client.openConnect(ctx, &processpb.ConnectRequest{Process: s.proto()})
	}
	return r.client.openStart(ctx, r.cmd.request(r.marker))
}

// pump reads the stream to its end.
func (r *run) pump(ctx context.Context, s Selector) {
	defer close(r.pumped)
	defer r.closeStream()
	stream, err := r.open(ctx, s)
	if err == nil {
		err = r.awaitStart(stream)
	}
	if err != nil {
		r.startErr = err
		close(r.started)
		return
	}
	close(r.started)
	for {
		event, err := stream.receive()
		if err == nil {
			r.handle(event)
			continue
		}
		r.streamErr = err
		if stream = r.resume(err); stream == nil {
			return
		}
	}
}

var errNoStart = connect.NewError(connect.CodeInternal, "the server's first event is not a start event")

// awaitStart reads up to the start event.
func (r *run) awaitStart(stream eventStream) error {
	for {
		event, err := stream.receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return connect.NewError(connect.CodeUnavailable, "stream ended before the start event").WithCause(io.ErrUnexpectedEOF)
			}
			return err
		}
		if start := event.GetStart(); start != nil {
			if r.process == nil {
				r.setProcess(start.GetPid())
			}
			r.output.sign()
			return nil
		}
		if event.GetData() != nil || event.GetEnd() != nil {
			return errNoStart
		}
	}
}

func (r *run) setProcess(pid uint32) {
	r.process = r.client.Process(PID(pid))
	switch {
	case r.cmd.PTY != nil:
		r.process.kind.Store(inputPTY)
	case r.cmd.attach == nil:
		r.process.kind.Store(inputStdin)
	}
	r.output.touch()
}

func (r *run) handle(event *processpb.ProcessEvent) {
	r.output.sign()
	r.again.fruitless = false
	if event.GetKeepalive() != nil {
		r.client.keepsAlive.Store(true)
	}
	if r.state != nil {
		return // the end event decides, whatever comes after it
	}
	if data := event.GetData(); data != nil {
		if err := r.output.write(data); err != nil {
			r.fail(fmt.Errorf("writing output: %w", err))
		}
		return
	}
	if end := event.GetEnd(); end != nil {
		r.state = newProcessState(r.process.PID(), end)
		r.process.done.Store(true)
		r.stopInput()
		close(r.ended)
	}
}

// fail makes supervise end the command because of err.
func (r *run) fail(err error) {
	r.failOnce.Do(func() {
		r.failure = err
		close(r.failed)
	})
}
