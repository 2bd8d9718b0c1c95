// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

// Cmd is a command in the sandbox, to be run or, when it comes from
// [Client.Attach], one that runs already. It is shaped like [exec.Cmd] and can
// be started once. Set its fields before Start and leave them alone afterwards.
//
// Unlike in os/exec, Args leaves out the name of the program, Env adds to the
// environment instead of replacing it, a command without Stdin reads nothing,
// and the end of the context kills the program in the sandbox and waits for it.
type Cmd struct {
	// Path is the program: a name to look up in the sandbox's PATH, or a path.
	// It is not a command line; see [Client.Shell].
	Path string
	// Args are the arguments, without the program's name.
	Args []string
	// Env is added to what the daemon gives every command (PATH, HOME, USER,
	// LOGNAME and the sandbox's own variables) and wins over it.
	Env map[string]string
	// Dir is the working directory; empty means the sandbox's default, or the
	// user's home.
	Dir string
	// User runs the command as that user of the sandbox instead of the
	// client's.
	User string
	// Tag is a label by which the command can be found again. It should be
	// unique among the running commands of a sandbox, but need not be.
	Tag string

	// Stdin is read and fed to the command as fast as it takes it; at its end
	// the command reads EOF. Without it, and without StdinPipe, the command's
	// input is empty, except that envd before 0.3.0 leaves it open. EOF needs
	// envd 0.5.2, so that Start fails with [errors.ErrUnsupported] on an older
	// one. A Read that still blocks when the command ends is abandoned.
	Stdin io.Reader
	// Stdout and Stderr receive what the command writes, as it comes: the order
	// within each is kept, the order between the two is not known. A writer
	// that is slow slows down the command. One that fails ends it. Nil discards.
	Stdout, Stderr io.Writer

	// PTY gives the command a terminal of that size. All it writes goes to
	// Stdout; the end of Stdin is sent as Ctrl+D. TERM and a UTF-8 LANG are set
	// unless Env has them. With Attach, it says that the command has a terminal,
	// and resizes it.
	PTY *Size

	// Timeout bounds the whole run, however busy the command is; IdleTimeout
	// the time without any output. Zero means no bound. What is over its time
	// is ended as if the context had ended, and the error matches [ErrTimeout]
	// or [ErrIdleTimeout].
	Timeout, IdleTimeout time.Duration

	// Cancel is called when the context or a timeout ends the command. Nil
	// means to kill it, or after Attach to let go of it. An own function may
	// send another signal, or return [ErrDetach] to let go of the command and
	// leave it running. As in os/exec, [os.ErrProcessDone] from it means that
	// the command had ended already. A command that has not ended WaitDelay
	// later is killed all the same.
	Cancel func() error
	// WaitDelay is how long to wait for the command's end after it was told to
	// end; 0 means [DefaultWaitDelay]. Then the stream is closed, as os/exec
	// closes the pipes, even if something still holds the output open.
	WaitDelay time.Duration

	// KillTree kills the command's descendants with it. The command is started
	// as the leader of a session of its own through setsid(1), and a second
	// command signals that group and whatever else came from the command, which
	// needs setsid, a shell, grep and /proc in the sandbox. Without it only the
	// command itself is killed, because envd signals nothing else.
	KillTree bool
	// StreamInput feeds the command through one long request instead of one
	// request for each piece. It is faster over long distances, but proxies that
	// buffer requests hold the input back, and errors show late.
	StreamInput bool
	// OutputLimit is how many bytes Output and CombinedOutput keep before they
	// end the command with [ErrOutputLimit]; 0 means [DefaultOutputLimit].
	OutputLimit int64

	// Process is the command once it has started.
	Process *Process
	// ProcessState is how it ended, once Wait has returned; nil where that is
	// not known.
	ProcessState *ProcessState

	ctx       context.Context
	client    *Client
	attach    *Selector
	wantStdin bool
	pipes     []*outputPipe
	run       *run
	waited    bool
}

// Command returns a command that runs the named program with the arguments. It
// does not pass through a shell. When ctx ends before the program does, the
// program is killed; see [Cmd.Cancel].
func (c *Client) Command(ctx context.Context, name string, args ...string) *Cmd {
	if ctx == nil {
		panic("nil Context")
	}
	return &Cmd{Path: name, Args: args, ctx: ctx, client: c}
}

// Shell returns a command that runs script in a login shell: /bin/bash -l -c.
func (c *Client) Shell(ctx context.Context, script string) *Cmd {
	return c.Command(ctx, "/bin/bash", "-l", "-c", script)
}

// Attach returns a Cmd that joins a running command. It sees the output from
// then on, what came before is lost. The end of ctx, or of a timeout, lets go
// of the command and leaves it running, unless Cancel does something else.
//
// Start fails with [ErrProcessNotFound] for a command that has ended, except
// that envd 0.6.12 and later tell how it ended for 30 seconds more.
func (c *Client) Attach(ctx context.Context, s Selector) *Cmd {
	cmd := c.Command(ctx, "")
	cmd.attach = &s
	return cmd
}

// String returns the command line for people, or what Attach selects.
func (c *Cmd) String() string {
	if c.attach != nil {
		return c.attach.String()
	}
	words := []string{c.Path}
	for _, arg := range c.Args {
		if arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return !strconv.IsPrint(r) || strings.ContainsRune(" \"'\\$`", r) }) {
			arg = strconv.Quote(arg)
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// Run starts the command and waits for it; see [Cmd.Start] and [Cmd.Wait].
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output, also with an error:
// what came until then is kept. Where Stderr is nil, an [*ExitError] has the end
// of the standard error.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, c.misuse("run", "Stdout already set")
	}
	buf := c.newOutput()
	c.Stdout = buf
	err := c.Run()
	return buf.Bytes(), err
}

// CombinedOutput runs the command and returns its standard output and standard
// error, mixed as they came; see [Cmd.Output].
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil {
		return nil, c.misuse("run", "Stdout already set")
	}
	if c.Stderr != nil {
		return nil, c.misuse("run", "Stderr already set")
	}
	buf := c.newOutput()
	c.Stdout, c.Stderr = buf, buf
	err := c.Run()
	return buf.Bytes(), err
}

func (c *Cmd) newOutput() *limitedBuffer {
	limit := c.OutputLimit
	if limit <= 0 {
		limit = DefaultOutputLimit
	}
	return &limitedBuffer{limit: limit}
}

// StdoutPipe returns a reader of the command's standard output. It ends when
// the command does; reading is needed for the command to go on. Close discards
// the rest. Wait may be called before all is read.
func (c *Cmd) StdoutPipe() (io.ReadCloser, error) {
	if c.Stdout != nil {
		return nil, c.misuse("pipe", "Stdout already set")
	}
	p, err := c.newPipe("StdoutPipe")
	if err != nil {
		return nil, err
	}
	c.Stdout = p
	return p, nil
}

// StderrPipe is StdoutPipe for the standard error.
func (c *Cmd) StderrPipe() (io.ReadCloser, error) {
	if c.Stderr != nil {
		return nil, c.misuse("pipe", "Stderr already set")
	}
	p, err := c.newPipe("StderrPipe")
	if err != nil {
		return nil, err
	}
	c.Stderr = p
	return p, nil
}

func (c *Cmd) newPipe(name string) (*outputPipe, error) {
	if c.run != nil {
		return nil, c.misuse("pipe", name+" after process started")
	}
	p := newOutputPipe()
	c.pipes = append(c.pipes, p)
	return p, nil
}

// StdinPipe returns a writer to the command's standard input, or terminal. A
// Write returns once the sandbox's kernel has taken the data and blocks while
// the command does not read; one to a command that takes no more, or has ended,
// is [ErrNoInput]. Close ends the input, which needs envd 0.5.2: on an older one
// it returns [errors.ErrUnsupported] and the input stays open.
func (c *Cmd) StdinPipe() (io.WriteCloser, error) {
	if c.Stdin != nil || c.wantStdin {
		return nil, c.misuse("pipe", "Stdin already set")
	}
	if c.run != nil {
		return nil, c.misuse("pipe", "StdinPipe after process started")
	}
	c.wantStdin = true
	return &stdinPipe{cmd: c}, nil
}

// Start asks envd to run the command and returns once it has told the command's
// pid. Nothing is sent when the context is over already. When Start fails, the
// command does not run: one whose start may have been lost on the way is looked
// for and killed, and the error says so if that could not be done.
//
// A command that does not exist matches [exec.ErrNotFound]; since envd 0.5.4
// that shows in Wait instead, as an [*ExitError]. A missing Dir matches
// [fs.ErrNotExist].
func (c *Cmd) Start() error {
	if c.run != nil {
		return c.misuse("start", "already started")
	}
	r := newRun(c)
	if err := c.check(); err != nil {
		c.closePipes(err)
		return err
	}
	c.run = r
	if err := r.start(); err != nil {
		c.closePipes(err)
		return err
	}
	c.Process = r.process
	return nil
}

// Wait waits for the command's end and for its output to be written. It returns
// nil only when the command is known to have exited with code 0. Otherwise the
// error is, or holds, an [*ExitError] where the command's end is known; it
// matches the context's error, [ErrTimeout] or [ErrIdleTimeout] where that ended
// the command, and says so where the kill could not be confirmed; and it matches
// [ErrStreamLost] where the connection broke.
//
// envd reports the end once the command has exited and nothing holds its outputs
// open any more, so a command that leaves a child behind in the background ends
// with that child, or when it is killed.
func (c *Cmd) Wait() error {
	if c.run == nil || c.Process == nil {
		return c.misuse("wait for", "not started")
	}
	if c.waited {
		return c.misuse("wait for", "Wait was already called")
	}
	c.waited = true
	err := c.run.wait()
	c.ProcessState = c.run.final
	return err
}

func (c *Cmd) closePipes(err error) {
	for _, p := range c.pipes {
		p.closeWrite(err)
	}
}

func (c *Cmd) misuse(op, what string) error {
	return &Error{Op: op, Target: c.target(), Code: CodeFailedPrecondition, Err: errors.New(what)}
}

func (c *Cmd) invalid(what error) error {
	return &Error{Op: c.op(), Target: c.target(), Code: CodeInvalidArgument, Err: what, is: classify(domainProcess, CodeInvalidArgument, what, "")}
}

// target names the command in errors: without its arguments, which may be
// secret or long.
func (c *Cmd) target() string {
	if c.attach != nil {
		return c.attach.String()
	}
	return cut(strconv.Quote(c.Path))
}

func (c *Cmd) op() string {
	if c.attach != nil {
		return "attach to"
	}
	return "start"
}

// check refuses what cannot work before anything is sent.
func (c *Cmd) check() error {
	switch {
	case c.Timeout < 0:
		return c.invalid(fmt.Errorf("timeout %v is negative", c.Timeout))
	case c.IdleTimeout < 0:
		return c.invalid(fmt.Errorf("idle timeout %v is negative", c.IdleTimeout))
	case c.WaitDelay < 0:
		return c.invalid(fmt.Errorf("wait delay %v is negative", c.WaitDelay))
	case c.attach != nil && (c.Path != "" || len(c.Args)+len(c.Env) > 0 || c.Dir != "" || c.User != "" || c.Tag != "" || c.KillTree):
		return c.invalid(errors.New("a command that runs already cannot be given a program, environment, directory, user, tag or KillTree"))
	case c.attach != nil && *c.attach == Selector{}:
		return c.invalid(errNoSelector)
	case c.attach == nil && c.Path == "":
		return c.invalid(errors.New("no command"))
	}
	if c.User != "" {
		if err := checkUser(c.User); err != nil {
			return c.invalid(err)
		}
	}
	for _, word := range slices.Concat([]string{c.Path, c.Dir}, c.Args) {
		if strings.ContainsRune(word, 0) {
			return c.invalid(errors.New("program, arguments and directory cannot contain NUL"))
		}
	}
	for name, value := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return c.invalid(fmt.Errorf("environment variable %q cannot be set", cut(name)))
		}
	}
	if c.PTY != nil {
		if err := c.PTY.check(); err != nil {
			return c.invalid(err)
		}
	}
	if err := context.Cause(c.ctx); err != nil {
		return toError(c.ctx, domainProcess, c.op(), c.target(), err)
	}
	return c.checkStdin()
}

// checkStdin fails where Stdin could never be ended: the command would wait for
// more until somebody kills it.
func (c *Cmd) checkStdin() error {
	if c.Stdin == nil || c.PTY != nil {
		return nil
	}
	ok, err := c.client.canCloseStdin(c.ctx)
	if err != nil {
		return toError(c.ctx, domainProcess, c.op(), c.target(), err)
	}
	if !ok {
		return unsupported(c.op(), c.target(), envdversion.CloseStdin,
			"its input would never end; use StdinPipe, or let a shell read the input from a file")
	}
	return nil
}

func (c *Cmd) waitDelay() time.Duration {
	if c.WaitDelay == 0 {
		return DefaultWaitDelay
	}
	return c.WaitDelay
}

// request builds the Start message.
func (c *Cmd) request(marker startMarker) *processpb.StartRequest {
	path, args := c.Path, c.Args
	if marker.tree() && c.PTY == nil {
		path, args = wrapTree(path, args)
	}
	config := &processpb.ProcessConfig{Cmd: path, Args: args, Envs: c.environ(marker)}
	if c.Dir != "" {
		config.Cwd = &c.Dir
	}
	needsInput := c.Stdin != nil || c.wantStdin
	req := &processpb.StartRequest{Process: config, Stdin: &needsInput}
	if c.Tag != "" {
		req.Tag = &c.Tag
	}
	if c.PTY != nil {
		req.Pty = c.PTY.proto()
		req.Stdin = nil
	}
	return req
}

func (c *Cmd) environ(marker startMarker) map[string]string {
	env := maps.Clone(c.Env)
	if env == nil {
		env = map[string]string{}
	}
	if marker != "" {
		env[StartMarker] = string(marker)
	}
	if c.PTY == nil {
		return env
	}
	if _, ok := env["TERM"]; !ok {
		env["TERM"] = "xterm-256color"
	}
	hasLocale := slices.ContainsFunc([]string{"LANG", "LC_ALL", "LC_CTYPE"}, func(name string) bool {
		_, ok := env[name]
		return ok
	})
	if !hasLocale {
		env["LANG"] = "C.UTF-8"
	}
	return env
}
