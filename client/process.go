// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

// ProcessInfo is a command that runs under envd, whoever started it.
type ProcessInfo struct {
	// PID is envd's number of the command.
	PID uint32
	// Tag is its label; empty for none.
	Tag string
	// Path, Args, Env and Dir are as they were sent to start it: Args without
	// the name of the program, Env without what the daemon adds. Env is visible
	// to everybody who can reach the daemon.
	Path string
	Args []string
	Env  map[string]string
	Dir  string
}

// Processes lists the commands that envd has started and that still run, of
// all users and all clients, in no particular order. The variable of
// [StartMarker] and what [Cmd.KillTree] adds are left out.
func (c *Client) Processes(ctx context.Context) ([]ProcessInfo, error) {
	listed, err := c.list(ctx)
	if err != nil {
		return nil, toError(ctx, domainProcess, "list processes", "", err)
	}
	infos := make([]ProcessInfo, 0, len(listed))
	for _, p := range listed {
		infos = append(infos, newProcessInfo(p))
	}
	return infos, nil
}

func (c *Client) list(ctx context.Context) ([]*processpb.ProcessInfo, error) {
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	resp, err := c.processes.List(ctx, &processpb.ListRequest{})
	return resp.GetProcesses(), err
}

func newProcessInfo(p *processpb.ProcessInfo) ProcessInfo {
	config := p.GetConfig()
	info := ProcessInfo{
		PID:  p.GetPid(),
		Tag:  p.GetTag(),
		Path: config.GetCmd(),
		Args: config.GetArgs(),
		Env:  maps.Clone(config.GetEnvs()),
		Dir:  config.GetCwd(),
	}
	if startMarker(info.Env[StartMarker]).tree() {
		info.Path, info.Args = unwrapTree(info.Path, info.Args)
	}
	delete(info.Env, StartMarker)
	return info
}

// Process is a handle on one command. It is valid for any number of goroutines
// and costs nothing to make.
type Process struct {
	client   *Client
	selector Selector
	// kind is what the command reads from, once that is known.
	kind atomic.Int32
	// done is set once the command's end was seen.
	done atomic.Bool
}

// What a command reads from.
const (
	inputUnknown int32 = iota
	inputStdin
	inputPTY
)

// Process returns a handle on the command that s selects. Nothing is sent, and
// the command need not exist yet.
func (c *Client) Process(s Selector) *Process { return &Process{client: c, selector: s} }

// PID returns envd's number of the command, or 0 where the handle was made from
// a tag.
func (p *Process) PID() uint32 { return p.selector.pid }

// String returns what the handle selects: `pid 42` or `tag "build"`.
func (p *Process) String() string { return p.selector.String() }

// Signal sends SIGTERM or SIGKILL to the command, and to it alone: its children
// are not reached (see [Cmd.KillTree]). Any other signal is an error that
// matches [errors.ErrUnsupported], because envd sends no other. A command that
// has ended is [ErrProcessNotFound]. Output that the command writes while it
// handles SIGTERM may be cut short by the daemon.
func (p *Process) Signal(ctx context.Context, sig Signal) error {
	const op = "signal"
	if sig != SIGTERM && sig != SIGKILL {
		return &Error{Op: op, Target: p.String(), Code: CodeUnimplemented, Err: fmt.Errorf(
			"%w: envd sends SIGTERM and SIGKILL only; for %v run `kill` in the sandbox through Shell, "+
				"or write the terminal's control character to a command with a PTY", errors.ErrUnsupported, sig)}
	}
	return p.unary(ctx, op, func(ctx context.Context, s *processpb.ProcessSelector) error {
		_, err := p.client.processes.SendSignal(ctx, &processpb.SendSignalRequest{Process: s, Signal: processpb.Signal(sig)})
		return err
	})
}

// Kill sends SIGKILL to the command; see [Process.Signal]. That the signal was
// sent does not mean that the command has ended yet.
func (p *Process) Kill(ctx context.Context) error { return p.Signal(ctx, SIGKILL) }

// Terminate sends SIGTERM to the command; see [Process.Signal].
func (p *Process) Terminate(ctx context.Context) error { return p.Signal(ctx, SIGTERM) }

// SendInput writes data to the command's standard input or terminal and returns
// once the kernel of the sandbox has taken it all. It blocks while the command
// does not read and the pipe is full, for the request timeout at most; how much
// arrived is then not known. A command that takes no input, or has ended, is
// [ErrNoInput]. The data is never sent twice.
func (p *Process) SendInput(ctx context.Context, data []byte) error {
	ctx, cancel := p.client.withRequestTimeout(ctx)
	defer cancel()
	return p.sendInput(ctx, data)
}

// sendInput is SendInput without the request timeout.
func (p *Process) sendInput(ctx context.Context, data []byte) error {
	const op = "send input to"
	if p.done.Load() {
		return p.goneError(op, ErrNoInput)
	}
	s, err := p.client.resolve(ctx, op, p.selector)
	if err != nil {
		return noInput(err)
	}
	send := func(kind int32) error {
		_, err := p.client.processes.SendInput(ctx, &processpb.SendInputRequest{Process: s.proto(), Input: processInput(kind, data)})
		return err
	}
	kind := p.kind.Load()
	err = send(kind)
	if kind == inputUnknown && err != nil && hasText(err, textTTYAssigned) && !hasText(err, "not assigned") {
		// A terminal refuses data for a pipe before it takes any of it.
		if err = send(inputPTY); err == nil {
			p.kind.Store(inputPTY)
		}
	}
	return noInput(toError(ctx, domainProcess, op, p.String(), err))
}

func processInput(kind int32, data []byte) *processpb.ProcessInput {
	if kind == inputPTY {
		return &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: data}}
	}
	return &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: data}}
}

// noInput makes every way in which a server says that a command takes no input
// match ErrNoInput.
func noInput(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	if errors.Is(e, ErrProcessNotFound) || e.Code == CodeFailedPrecondition && !errors.Is(e, ErrTagAmbiguous) {
		widened := *e
		widened.is = append([]error{ErrNoInput}, e.is...)
		return &widened
	}
	return err
}

// ctrlD is what a terminal takes for the end of input.
const ctrlD = "\x04"

// CloseStdin ends the command's standard input, so that it reads EOF once it
// has read what was sent. On a terminal it sends Ctrl+D instead. It needs envd
// 0.5.2; an older one is [errors.ErrUnsupported]. It waits behind input that
// the command has not read yet, for the request timeout at most.
func (p *Process) CloseStdin(ctx context.Context) error {
	ctx, cancel := p.client.withRequestTimeout(ctx)
	defer cancel()
	return p.closeStdin(ctx)
}

// closeStdin is CloseStdin without the request timeout.
func (p *Process) closeStdin(ctx context.Context) error {
	const op = "close stdin of"
	if p.kind.Load() == inputPTY {
		return p.sendInput(ctx, []byte(ctrlD))
	}
	if err := p.client.gate(ctx, op, p.String(), envdversion.CloseStdin); err != nil {
		return err
	}
	err := p.call(ctx, op, func(s *processpb.ProcessSelector) error {
		_, err := p.client.processes.CloseStdin(ctx, &processpb.CloseStdinRequest{Process: s})
		return err
	})
	if err != nil && hasText(err, textClosePTY) {
		p.kind.Store(inputPTY)
		return p.sendInput(ctx, []byte(ctrlD))
	}
	return noInput(err)
}

// Size is the size of a terminal.
type Size struct {
	// Cols and Rows count characters.
	Cols, Rows uint32
}

// maxSize is what a terminal's size is kept in: envd cuts off higher bits.
const maxSize = 1<<16 - 1

func (s Size) proto() *processpb.PTY {
	return &processpb.PTY{Size: &processpb.PTY_Size{Cols: s.Cols, Rows: s.Rows}}
}

func (s Size) check() error {
	if s.Cols > maxSize || s.Rows > maxSize {
		return fmt.Errorf("terminal size %d×%d is over %d", s.Cols, s.Rows, maxSize)
	}
	return nil
}

// Resize changes the size of the command's terminal. A command without one is
// [ErrNoInput].
func (p *Process) Resize(ctx context.Context, size Size) error {
	const op = "resize"
	if err := size.check(); err != nil {
		return &Error{Op: op, Target: p.String(), Code: CodeInvalidArgument, Err: err}
	}
	return p.unary(ctx, op, func(ctx context.Context, s *processpb.ProcessSelector) error {
		_, err := p.client.processes.Update(ctx, &processpb.UpdateRequest{Process: s, Pty: size.proto()})
		return err
	})
}

// unary resolves the selector and makes one call within the request timeout.
func (p *Process) unary(ctx context.Context, op string, call func(context.Context, *processpb.ProcessSelector) error) error {
	ctx, cancel := p.client.withRequestTimeout(ctx)
	defer cancel()
	return p.call(ctx, op, func(s *processpb.ProcessSelector) error { return call(ctx, s) })
}

// call resolves the selector and makes one call.
func (p *Process) call(ctx context.Context, op string, call func(*processpb.ProcessSelector) error) error {
	if p.done.Load() {
		return p.goneError(op, nil)
	}
	s, err := p.client.resolve(ctx, op, p.selector)
	if err != nil {
		return err
	}
	return toError(ctx, domainProcess, op, p.String(), call(s.proto()))
}

// goneError is what a call on a command says whose end was seen. Its pid may
// belong to another command by now, so nothing is sent.
func (p *Process) goneError(op string, also error) error {
	e := &Error{Op: op, Target: p.String(), Code: CodeNotFound, Err: ErrProcessNotFound, is: notFound(domainProcess)}
	if also != nil {
		e.is = append(e.is, also)
	}
	return e
}
