// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect/v2"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
	"github.com/envd-go/envd/internal/envdversion"
)

// SendSignal signals the process itself.
func (h processService) SendSignal(_ context.Context, req *processpb.SendSignalRequest) (*processpb.SendSignalResponse, error) {
	p, err := h.srv.procs.find(req.GetProcess())
	if err != nil {
		return nil, err
	}
	switch req.GetSignal() {
	case processpb.Signal_SIGNAL_SIGKILL, processpb.Signal_SIGNAL_SIGTERM:
	default:
		return nil, connect.Errorf(connect.CodeUnimplemented, "invalid signal: %s", req.GetSignal())
	}
	if err := p.signal(signal(req.GetSignal())); err != nil {
		return nil, connect.Errorf(connect.CodeInternal, "error sending signal: %s", err)
	}
	return &processpb.SendSignalResponse{}, nil
}

// Update resizes the terminal; without a size in the request it does nothing.
func (h processService) Update(_ context.Context, req *processpb.UpdateRequest) (*processpb.UpdateResponse, error) {
	p, err := h.srv.procs.find(req.GetProcess())
	if err != nil {
		return nil, err
	}
	if req.GetPty() == nil {
		return &processpb.UpdateResponse{}, nil
	}
	if !p.pty {
		return nil, connect.NewError(connect.CodeInternal, "error resizing tty: tty not assigned to process")
	}
	if err := p.run.resize(*sizeOf(req.GetPty())); err != nil {
		return nil, connect.Errorf(connect.CodeInternal, "error resizing tty: %s", err)
	}
	return &processpb.UpdateResponse{}, nil
}

// SendInput returns when the process, or the pipe to it, has taken the data.
func (h processService) SendInput(ctx context.Context, req *processpb.SendInputRequest) (*processpb.SendInputResponse, error) {
	p, err := h.srv.procs.find(req.GetProcess())
	if err != nil {
		return nil, err
	}
	if err := h.feedInput(ctx, p, req.GetInput()); err != nil {
		return nil, err
	}
	return &processpb.SendInputResponse{}, nil
}

// CloseStdin ends the input, after the data that is being written.
func (h processService) CloseStdin(ctx context.Context, req *processpb.CloseStdinRequest) (*processpb.CloseStdinResponse, error) {
	p, err := h.srv.procs.find(req.GetProcess())
	if err != nil {
		return nil, err
	}
	if p.pty {
		return nil, connect.NewError(connect.CodeUnknown,
			"error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead")
	}
	if err := p.lockInput(ctx); err != nil {
		return nil, err
	}
	defer p.unlockInput()
	p.open = false
	if err := p.run.closeInput(); err != nil {
		return nil, connect.Errorf(connect.CodeUnknown, "error closing stdin: %s", err)
	}
	return &processpb.CloseStdinResponse{}, nil
}

// StreamInput feeds the process that its start message selects.
func (h processService) StreamInput(ctx context.Context, stream processconnect.ProcessStreamInputServerStream) (*processpb.StreamInputResponse, error) {
	var p *process
	for {
		msg, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return &processpb.StreamInputResponse{}, nil
		}
		if err != nil {
			abortIfOver(ctx)
			return nil, streamInputError(err)
		}
		switch event := msg.GetEvent().(type) {
		case *processpb.StreamInputRequest_Start:
			p, err = h.srv.procs.find(event.Start.GetProcess())
		case *processpb.StreamInputRequest_Data:
			err = h.streamData(ctx, p, event.Data.GetInput())
		case *processpb.StreamInputRequest_Keepalive:
		default:
			err = connect.Errorf(connect.CodeUnimplemented, "invalid event type %T", event)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (h processService) streamData(ctx context.Context, p *process, input *processpb.ProcessInput) error {
	if p != nil {
		return h.feedInput(ctx, p, input)
	}
	if h.srv.quirk(QuirkDropDataBeforeStart) {
		panic(http.ErrAbortHandler)
	}
	return connect.NewError(connect.CodeInvalidArgument, "data came before start")
}

// streamInputError wraps what is wrong with the stream itself, as daemons do.
func streamInputError(err error) error {
	text := err.Error()
	if e, ok := errors.AsType[*connect.Error](err); ok {
		text = e.Code().String() + ": " + e.Message()
	}
	return connect.Errorf(connect.CodeUnknown, "error streaming input: %s", text)
}

// feedInput writes to the input that the data is meant for, if there is one.
func (h processService) feedInput(ctx context.Context, p *process, input *processpb.ProcessInput) error {
	switch in := input.GetInput().(type) {
	case *processpb.ProcessInput_Stdin:
		if p.pty {
			return connect.NewError(connect.CodeInternal,
				"error writing to stdin: tty assigned to process — input should be written to the pty, not the stdin")
		}
		return h.writeStdin(ctx, p, in.Stdin)
	case *processpb.ProcessInput_Pty:
		if !p.pty {
			return connect.NewError(connect.CodeInternal,
				"error writing to tty: tty not assigned to process — input should be written to the stdin, not the tty")
		}
		return p.writeInput(ctx, in.Pty, "tty")
	default:
		if input == nil && h.srv.cfg.version.Has(envdversion.UnsetInputDrop) {
			panic(http.ErrAbortHandler)
		}
		return connect.Errorf(connect.CodeUnimplemented, "invalid input type %T", in)
	}
}

func (h processService) writeStdin(ctx context.Context, p *process, data []byte) error {
	text := "error writing to stdin: stdin not enabled or closed"
	if !h.srv.cfg.version.Has(envdversion.CloseStdin) {
		text = "error writing to stdin: stdin not enabled — set stdin to true when starting the command"
	}
	err := p.writeInput(ctx, data, "stdin")
	if errors.Is(err, errNoInput) {
		return connect.NewError(connect.CodeInternal, text)
	}
	return err
}

var errNoInput = errors.New("no input")

// writeInput writes once earlier writes are through.
func (p *process) writeInput(ctx context.Context, data []byte, name string) error {
	if err := p.lockInput(ctx); err != nil {
		return err
	}
	defer p.unlockInput()
	if !p.open && !p.pty {
		return errNoInput
	}
	if err := p.run.write(data); err != nil {
		return connect.Errorf(connect.CodeInternal,
			"error writing to %s: error writing to %s of process '%d': %s", name, name, p.pid, err)
	}
	return nil
}

// lockInput waits for its turn at the input.
func (p *process) lockInput(ctx context.Context) error {
	select {
	case p.input <- struct{}{}:
		return nil
	case <-ctx.Done():
		abortIfOver(ctx)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return deadlineExceeded()
		}
		return connect.NewError(connect.CodeCanceled, ctx.Err().Error())
	}
}

func (p *process) unlockInput() { <-p.input }
