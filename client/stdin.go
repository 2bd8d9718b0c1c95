// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
)

// inputChunk is the most that one message carries. A pipe holds 64 KiB, so a
// larger piece would only wait in the daemon.
const inputChunk = 64 << 10

// feeder sends a command its input, in order: a piece is sent once the one
// before it has been taken.
type feeder struct {
	run  *run
	ctx  context.Context // ends with the command
	sink inputSink
	done chan struct{} // closed when Stdin is done with

	mu        sync.Mutex
	reading   bool // in the caller's Read, which nothing can end
	abandoned bool
	failure   error

	sending  sync.Mutex // held while a piece is under way
	lastByte byte
}

func newFeeder(r *run) *feeder {
	f := &feeder{run: r, ctx: r.inputCtx, done: make(chan struct{}), lastByte: '\n'}
	f.sink = unarySink{r}
	if r.cmd.StreamInput {
		f.sink = &streamSink{process: r.process}
	}
	return f
}

// feed copies in to the command until either ends.
func (f *feeder) feed(in io.Reader) {
	defer close(f.done)
	err := f.copy(in)
	if err == nil || f.ctx.Err() != nil || errors.Is(err, ErrNoInput) {
		return
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		// Perhaps the end arrived and only the answer was lost.
		select {
		case <-f.ctx.Done():
			return
		case <-time.After(endGrace):
		}
	}
	f.run.fail(fmt.Errorf("ending stdin: %w", err)) // or it would wait for more for ever
}

// copy sends all of in, and returns the error of ending the input after it.
func (f *feeder) copy(in io.Reader) error {
	buf := make([]byte, inputChunk)
	for f.beginRead() {
		n, readErr := in.Read(buf)
		if !f.endRead() {
			return nil
		}
		if n > 0 {
			if err := f.send(f.ctx, buf[:n]); err != nil {
				f.note(err)
				return f.close(f.ctx)
			}
		}
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			f.note(readErr)
		}
		if readErr != nil {
			return f.close(f.ctx)
		}
	}
	return nil
}

// note keeps an error as the result of the feeding. It is called before the
// input is closed, since the command may end right then. Where the command ended
// first, or wants no more, its end decides.
func (f *feeder) note(err error) {
	if f.ctx.Err() != nil || errors.Is(err, ErrNoInput) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err
}

func (f *feeder) beginRead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = f.ctx.Err() == nil
	return f.reading
}

func (f *feeder) endRead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = false
	return !f.abandoned
}

// send sends data in pieces.
func (f *feeder) send(ctx context.Context, data []byte) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	for len(data) > 0 {
		if err := f.ctx.Err(); err != nil {
			return toError(f.ctx, domainProcess, "send input to", f.run.process.String(), err)
		}
		piece := data[:min(len(data), inputChunk)]
		if err := f.sink.send(ctx, piece); err != nil {
			return err
		}
		f.lastByte = piece[len(piece)-1]
		data = data[len(piece):]
	}
	return nil
}

// close ends the input. On a terminal, one Ctrl+D passes on a line that is not
// complete, and only the next one is the end.
func (f *feeder) close(ctx context.Context) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	if f.run.process.kind.Load() == inputPTY {
		end := ctrlD
		if f.lastByte != '\n' {
			end += ctrlD
		}
		return errors.Join(f.sink.send(ctx, []byte(end)), f.sink.finish())
	}
	if err := f.sink.finish(); err != nil {
		return err
	}
	return f.run.process.closeStdin(ctx)
}

// wait waits for feed, unless it is stuck in the caller's Read, and lets go of
// the request. It is called when the command has ended.
func (f *feeder) wait() {
	f.mu.Lock()
	f.abandoned = f.reading
	stuck := f.reading
	f.mu.Unlock()
	if !stuck {
		<-f.done
	}
	f.sending.Lock()
	defer f.sending.Unlock()
	_ = f.sink.finish() // what nobody closed: net/http waits for the end of a body for ever
}

func (f *feeder) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure
}

// inputSink is a way to a command's input.
type inputSink interface {
	send(ctx context.Context, data []byte) error
	// finish returns once all that was sent has been passed on.
	finish() error
}

// unarySink sends each piece in a call of its own, which proxies do not buffer.
// A call has no time limit: it waits for as long as the command does not read.
type unarySink struct{ run *run }

func (s unarySink) send(ctx context.Context, data []byte) error {
	ctx, cancel := s.lingering(ctx)
	defer cancel()
	return s.run.process.sendInput(ctx, data)
}

// inputGrace is how long the answer to a piece may take after the command has
// ended: it may have been what it needed to end.
const inputGrace = 500 * time.Millisecond

// lingering returns a context that outlives the command for a moment, unless it
// was the caller who ended it.
func (s unarySink) lingering(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		if s.run.ctx.Err() != nil {
			cancel()
			return
		}
		timer := time.AfterFunc(inputGrace, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	})
	return ctx, func() { stop(); cancel() }
}

func (s unarySink) finish() error { return nil }

// streamSink sends all pieces in one request.
type streamSink struct {
	process *Process
	stream  processconnect.ProcessStreamInputClientStream
	open    bool
}

func (s *streamSink) send(ctx context.Context, data []byte) error {
	if err := s.start(ctx); err != nil {
		return s.wrap(ctx, err)
	}
	err := s.stream.Send(&processpb.StreamInputRequest{Event: &processpb.StreamInputRequest_Data{
		Data: &processpb.StreamInputRequest_DataEvent{Input: processInput(s.process.kind.Load(), data)},
	}})
	if errors.Is(err, io.EOF) {
		err = s.finish() // the server has ended the request and says why here
	}
	return s.wrap(ctx, err)
}

// start opens the request. The selector must be its first message: a daemon
// drops the connection at anything else.
func (s *streamSink) start(ctx context.Context) error {
	if s.open || ctx.Err() != nil {
		return ctx.Err()
	}
	stream, err := s.process.client.processes.StreamInput(ctx)
	if err != nil {
		return err
	}
	s.stream, s.open = stream, true
	return stream.Send(&processpb.StreamInputRequest{Event: &processpb.StreamInputRequest_Start{
		Start: &processpb.StreamInputRequest_StartEvent{Process: s.process.selector.proto()},
	}})
}

func (s *streamSink) finish() error {
	if !s.open {
		return nil
	}
	s.open = false
	_, err := s.stream.CloseAndReceive()
	return s.wrap(context.Background(), err)
}

func (s *streamSink) wrap(ctx context.Context, err error) error {
	return noInput(toError(ctx, domainProcess, "send input to", s.process.String(), err))
}

// stdinPipe is what Cmd.StdinPipe returns.
type stdinPipe struct {
	cmd    *Cmd
	mu     sync.Mutex
	closed bool
}

// Write sends data to the command.
func (p *stdinPipe) Write(data []byte) (int, error) {
	f, err := p.feeder()
	if err != nil {
		return 0, err
	}
	if err := f.send(f.ctx, data); err != nil {
		return 0, p.ended(f, err)
	}
	return len(data), nil
}

// Close ends the command's input. Closing twice does nothing.
func (p *stdinPipe) Close() error {
	f, err := p.feeder()
	if err != nil {
		if errors.Is(err, io.ErrClosedPipe) {
			return nil
		}
		return err
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	if err := f.close(f.ctx); err != nil {
		if err = p.ended(f, err); errors.Is(err, ErrNoInput) {
			return nil // it reads no more, which is what was asked for
		}
		return err
	}
	return nil
}

func (p *stdinPipe) feeder() (*feeder, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, io.ErrClosedPipe
	}
	if p.cmd.Process == nil {
		return nil, p.cmd.misuse("send input to", "not started")
	}
	return p.cmd.run.input, nil
}

// ended gives an error the right name when the command ended meanwhile.
func (p *stdinPipe) ended(f *feeder, err error) error {
	if f.ctx.Err() == nil {
		return err
	}
	return p.cmd.Process.goneError("send input to", ErrNoInput)
}
