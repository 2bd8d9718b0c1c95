// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// Size is the size of a terminal.
type Size struct {
	// Cols and Rows count characters.
	Cols, Rows uint16
}

// Proc is what a command function knows of the process that it is. Its fields
// must not be changed.
type Proc struct {
	// PID is the number that envd shows for the process.
	PID uint32
	// Name and Args are the command and its arguments, as they were sent.
	Name string
	Args []string
	// Env is the whole environment: the daemon's PATH, HOME, USER and LOGNAME,
	// the variables of all commands, and those of the request.
	Env map[string]string
	// Dir is the working directory, which exists in the file system of the
	// running program. It is not the current directory of the function.
	Dir string
	// User is the name of the user.
	User string
	// PTY says that the process has a terminal.
	PTY bool

	// Stdin is the input. It ends when the client closes it; without an input
	// it is empty. On a terminal, Ctrl+D ends it and a carriage return reads as
	// a newline; there is no echo.
	Stdin io.Reader
	// Stdout and Stderr are the outputs; both are the terminal if there is one,
	// and a newline is then sent as "\r\n". Each write of at most 32 KiB (16 on
	// a terminal) is one event. It returns when every attached stream has taken
	// the event, so that a stream that does not read holds the function up. Once
	// the process was killed, writes fail.
	Stdout, Stderr io.Writer

	// Context ends with the process: when it is killed, by a signal that it does
	// not handle, by its deadline, or because the server closes.
	Context context.Context

	cmd *goCommand
}

// Signals asks for signals: from then on SIGTERM (and on a terminal, for
// Ctrl+C, SIGINT) comes over the channel instead of ending the process. KILL
// cannot be handled. Each call returns the same channel.
func (p *Proc) Signals() <-chan os.Signal {
	p.cmd.mu.Lock()
	defer p.cmd.mu.Unlock()
	p.cmd.handles = true
	return p.cmd.signals
}

// Size returns the size of the terminal, zero if there is none.
func (p *Proc) Size() Size {
	p.cmd.mu.Lock()
	defer p.cmd.mu.Unlock()
	return p.cmd.size
}

// Resized returns a channel with the new size after each resize. Of several
// that were not received, the oldest are lost.
func (p *Proc) Resized() <-chan Size { return p.cmd.resized }

// goCommand runs a command function as a process.
type goCommand struct {
	proc  *Proc
	stdin *inputPipe
	pipes []*outputPipe
	outs  []output

	ctx     context.Context
	cancel  context.CancelFunc
	once    sync.Once
	done    chan struct{} // closed when status is known
	status  status
	signals chan os.Signal
	resized chan Size

	mu      sync.Mutex
	handles bool
	size    Size
}

// newGoCommand prepares the process; run starts the function.
func newGoCommand(proc *Proc, size Size, withInput bool) *goCommand {
	c := &goCommand{
		proc:    proc,
		stdin:   newInputPipe(),
		done:    make(chan struct{}),
		signals: make(chan os.Signal, 16),
		resized: make(chan Size, 16),
		size:    size,
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	proc.cmd, proc.Context, proc.Stdin = c, c.ctx, c.stdin
	if !withInput {
		c.stdin.closeWrite()
	}
	if proc.PTY {
		tty := &ttyWriter{w: c.addOutput(kindPTY, ptyRead)}
		proc.Stdout, proc.Stderr = tty, tty
		return c
	}
	proc.Stdout = c.addOutput(kindStdout, pipeRead)
	proc.Stderr = c.addOutput(kindStderr, pipeRead)
	return c
}

func (c *goCommand) addOutput(kind outputKind, size int) *outputPipe {
	pipe := newOutputPipe(size)
	c.pipes = append(c.pipes, pipe)
	c.outs = append(c.outs, output{kind: kind, read: pipe.Read, size: size})
	return pipe
}

// run calls the function and returns when it does.
func (c *goCommand) run(fn func(*Proc) int) {
	code := 1 // of a function that calls runtime.Goexit
	defer func() { c.end(exitStatus(code & 0xff)) }()
	code = fn(c.proc)
}

func exitStatus(code int) status {
	return status{code: code, exited: true, text: fmt.Sprintf("exit status %d", code)}
}

// end makes the status known; the first one counts.
func (c *goCommand) end(st status) {
	c.once.Do(func() {
		c.status = st
		close(c.done)
		c.stdin.closeRead()
		c.cancel()
		c.cutOutputs()
	})
}

func (c *goCommand) osPID() int        { return 0 }
func (c *goCommand) outputs() []output { return c.outs }

func (c *goCommand) write(data []byte) error {
	if !c.proc.PTY {
		return c.stdin.write(data)
	}
	return c.typeIn(data)
}

// typeIn does what a terminal does with input, as far as commands depend on it.
func (c *goCommand) typeIn(data []byte) error {
	line := make([]byte, 0, len(data))
	for _, b := range data {
		switch b {
		case 0x03: // Ctrl+C
			c.deliver(syscall.SIGINT, "signal: interrupt")
		case 0x04: // Ctrl+D
			if err := c.stdin.write(line); err != nil {
				return err
			}
			line = line[:0]
			c.stdin.closeWrite()
		case '\r':
			line = append(line, '\n')
		default:
			line = append(line, b)
		}
	}
	return c.stdin.write(line)
}

func (c *goCommand) closeInput() error {
	c.stdin.closeWrite()
	return nil
}

func (c *goCommand) resize(size Size) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size = size
	for {
		select {
		case c.resized <- size:
			return nil
		default:
		}
		select {
		case <-c.resized:
		default:
		}
	}
}

func (c *goCommand) signal(sig signal) error {
	select {
	case <-c.done:
		// Gone, and only its output has not ended: it can still be signalled.
		return nil
	default:
	}
	if sig == sigKill {
		c.end(killedStatus)
		return nil
	}
	c.deliver(syscall.SIGTERM, "signal: terminated")
	return nil
}

var killedStatus = status{code: -1, text: "signal: killed"}

// deliver hands a signal to the function, or ends the process if the function
// does not handle signals.
func (c *goCommand) deliver(sig os.Signal, text string) {
	c.mu.Lock()
	handles := c.handles
	c.mu.Unlock()
	if !handles {
		c.end(status{code: -1, text: text})
		return
	}
	select {
	case c.signals <- sig:
	default: // pending already
	}
}

func (c *goCommand) wait() status {
	<-c.done
	return c.status
}

func (c *goCommand) cutOutputs() {
	for _, pipe := range c.pipes {
		pipe.close()
	}
}

func (c *goCommand) killTree() { c.end(killedStatus) }

// ttyWriter ends lines as a terminal does.
type ttyWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *ttyWriter) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]byte, 0, len(data)+8)
	for _, b := range data {
		if b == '\n' {
			out = append(out, '\r')
		}
		out = append(out, b)
	}
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(data), nil
}
