// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

type execFlags struct {
	interactive bool
	tty         bool
	detach      bool
	shell       bool
	killTree    bool
	quiet       bool
	env         []string
	dir         string
	tag         string
	timeout     duration
	idleTimeout duration
}

// duration is a flag: a duration as Go writes it, or a number of seconds.
type duration time.Duration

func (d *duration) String() string {
	if *d == 0 {
		return "0" // which help does not show as a default
	}
	return time.Duration(*d).String()
}

func (d *duration) Type() string { return "duration" }

func (d *duration) Set(s string) error {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		s += "s"
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want something like 90, 1.5s or 2m")
	}
	if v < 0 {
		return errors.New("it is negative")
	}
	*d = duration(v)
	return nil
}

func (a *app) execCommand() *cobra.Command {
	f := &execFlags{}
	cmd := &cobra.Command{
		Use:   "exec [flags] [--] COMMAND [ARG...]",
		Short: "Run a command in the sandbox",
		Long: `Run a command in the sandbox, show its output as it comes, and end as it ended.

The command is a program with its arguments and passes through no shell, unless
--shell is given. What stands behind COMMAND belongs to the command. Its input
is empty unless -i or -t is given.

Ctrl+C and SIGTERM ask the command to end with SIGTERM, since envd can send only
that and SIGKILL; a second one kills it. With --kill-tree the first one kills.
With -t, Ctrl+C is a key like any other and goes to the command.

Exit codes:
  the command's own
  124  the command was over its --timeout or --idle-timeout, and was killed
  125  envdctl failed: bad flags, no connection, a refusal, a lost stream
  126  the command cannot be executed
  127  the command does not exist
  128+n  signal n ended the command; 141 is 128 and SIGPIPE: the reader of
         standard output has gone, and the command was killed`,
		Example: `  envdctl exec -- ls -l /app
  envdctl exec --shell 'make test 2>&1 | tail -20'
  envdctl exec -it bash
  tar c . | envdctl exec -i -w /app -- tar x
  envdctl exec -e DEBUG=1 -e CI --timeout 10m --kill-tree -- make test
  pid=$(envdctl exec -d --tag web -- python3 -m http.server)`,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "no command to run")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.exec(cmd, f, args) },
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.SortFlags = false
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "send standard input to the command")
	flags.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal, and this terminal's input")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set a variable, as `KEY=VALUE`, or take it from the environment, as KEY; can be repeated")
	flags.StringVarP(&f.dir, "cwd", "w", "", "working `DIRECTORY` (default: the sandbox's, or the user's home)")
	flags.StringVar(&f.tag, "tag", "", "label to find the command by")
	flags.BoolVar(&f.shell, "shell", false, "run the one argument as a script: /bin/bash -l -c ARG")
	flags.Var(&f.timeout, "timeout", "kill the command after this time, as 90, 1.5s or 2m; 0 is never")
	flags.Var(&f.idleTimeout, "idle-timeout", "kill the command after this time without output")
	flags.BoolVar(&f.killTree, "kill-tree", false, "kill the command's descendants with it (needs setsid in the sandbox)")
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the pid and let the command run on; its output is lost")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "do not say the pid and how the command ended")
	return cmd
}

// check refuses flags that do not go together.
func (f *execFlags) check(cmd *cobra.Command, args []string) error {
	if f.shell && len(args) != 1 {
		return usagef(cmd, "--shell takes one argument, the script; quote it")
	}
	if !f.detach {
		return nil
	}
	for name, set := range map[string]bool{
		"-i":             f.interactive,
		"-t":             f.tty,
		"--timeout":      f.timeout > 0,
		"--idle-timeout": f.idleTimeout > 0,
	} {
		if set {
			return usagef(cmd, "%s needs envdctl to stay, so it does not go with --detach", name)
		}
	}
	return nil
}

func (a *app) exec(cmd *cobra.Command, f *execFlags, args []string) error {
	if err := f.check(cmd, args); err != nil {
		return err
	}
	if f.detach && a.usesEmbedded(cmd) {
		return usagef(cmd, "--detach needs --url or %s: the embedded envd ends with envdctl, and the command with it", client.EnvURL)
	}
	env, err := a.environ(cmd, f.env)
	if err != nil {
		return err
	}
	var tty *terminal
	var opts []client.Option
	if f.tty {
		if tty, err = openTerminal(a.in, a.messages); err != nil {
			return err
		}
		// Somebody sits there and wants to know soon that the line is dead.
		opts = append(opts, client.WithKeepalive(10*time.Second))
	}
	c, err := a.connect(cmd, opts...)
	if err != nil {
		return err
	}
	defer c.close()
	x := &execution{app: a, flags: f, client: c.Client, args: args, env: env, tty: tty}
	if f.detach {
		return x.detach(cmd.Context())
	}
	return x.run(cmd.Context())
}

// environ reads the -e flags. As with docker, a name alone takes the variable
// from envdctl's own environment, and is left out if it is not there.
func (a *app) environ(cmd *cobra.Command, flags []string) (map[string]string, error) {
	env := map[string]string{}
	for _, flag := range flags {
		key, value, ok := strings.Cut(flag, "=")
		if key == "" {
			return nil, usagef(cmd, "--env wants KEY=VALUE or KEY")
		}
		if !ok {
			if value, ok = a.lookupEnv(key); !ok {
				continue
			}
		}
		env[key] = value
	}
	return env, nil
}

// execution is one command on its way.
type execution struct {
	app    *app
	flags  *execFlags
	client *client.Client
	args   []string
	env    map[string]string
	tty    *terminal // nil without -t
	cmd    *client.Cmd
}

func (x *execution) newCmd(ctx context.Context) *client.Cmd {
	f := x.flags
	cmd := x.client.Command(ctx, x.args[0], x.args[1:]...)
	if f.shell {
		cmd = x.client.Shell(ctx, x.args[0])
	}
	cmd.Env, cmd.Dir, cmd.Tag = x.env, f.dir, f.tag
	cmd.KillTree = f.killTree
	return cmd
}

// signals are those that ask envdctl to end. SIGQUIT is one of them only where
// it would leave the terminal in raw mode; otherwise it shows where envdctl
// hangs.
func (x *execution) signals() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	if x.tty != nil {
		signals = append(signals, syscall.SIGQUIT)
	}
	return signals
}

// detach starts the command and lets go of it.
func (x *execution) detach(ctx context.Context) error {
	ctx, interrupts := catchInterrupts(ctx, x.signals()...)
	defer interrupts.stop()
	x.cmd = x.newCmd(ctx)
	x.cmd.Cancel = func() error { return client.ErrDetach }
	if err := x.cmd.Start(); err != nil {
		return x.startError(err, interrupts)
	}
	printErr := x.app.printPID(x.cmd.Process.PID())
	interrupts.cancel(client.ErrDetach)
	_ = x.cmd.Wait() // it lets go, or the command has ended already
	if printErr != nil {
		return fmt.Errorf("printing the pid: %w; the command runs as %s", printErr, x.cmd.Process)
	}
	return nil
}

func (a *app) printPID(pid uint32) error {
	if a.json {
		return a.printJSON(map[string]uint32{"pid": pid})
	}
	_, err := fmt.Fprintln(a.out, pid)
	return err
}

// run runs the command to its end.
func (x *execution) run(ctx context.Context) error {
	ctx, interrupts := catchInterrupts(ctx, x.signals()...)
	defer interrupts.stop()
	x.cmd = x.newCmd(ctx)
	x.cmd.Timeout, x.cmd.IdleTimeout = time.Duration(x.flags.timeout), time.Duration(x.flags.idleTimeout)
	x.cmd.Stdout = &outputWriter{name: "standard output", w: x.app.out}
	x.cmd.Stderr = &outputWriter{name: "standard error", w: x.app.messages.w}
	if x.flags.interactive {
		x.cmd.Stdin = x.app.in
	}
	if x.tty != nil {
		size := x.tty.last
		x.cmd.PTY = &size
		x.cmd.Stdin = x.tty
	}
	if err := x.cmd.Start(); err != nil {
		return x.startError(err, interrupts)
	}
	interrupts.relay(x)
	x.say("%s", x.cmd.Process)
	if err := x.wait(); err != nil {
		return x.ended(err, interrupts)
	}
	x.say("%s", x.cmd.ProcessState)
	return nil
}

// wait waits for the command's end, with the terminal in raw mode meanwhile.
func (x *execution) wait() error {
	if x.tty == nil {
		return x.cmd.Wait()
	}
	stop, err := x.tty.attach(x.cmd.Process)
	defer stop()
	if err != nil {
		x.app.messages.printf("%s", printable(err.Error()))
	}
	return x.cmd.Wait()
}

// say tells about the command, unless that is not wanted.
func (x *execution) say(format string, args ...any) {
	if !x.flags.quiet {
		x.app.messages.printf("%s", printable(fmt.Sprintf(format, args...)))
	}
}

// startError finds the exit code for a command that did not start.
func (x *execution) startError(err error, interrupts *interrupts) error {
	e, _ := errors.AsType[*client.Error](err)
	switch {
	case interrupts.number() > 0:
		return &exitError{exitSignal + interrupts.number(), err}
	case errors.Is(err, client.ErrTimeout):
		return &exitError{exitTimeout, err}
	case errors.Is(err, exec.ErrNotFound):
		return &exitError{exitNotFound, err}
	case errors.Is(err, fs.ErrPermission) && e != nil && e.Code == client.CodeInvalidArgument:
		return &exitError{exitNotExecutable, err}
	case errors.Is(err, errors.ErrUnsupported) && x.flags.interactive && x.tty == nil:
		return errors.New("-i: this envd cannot end a command's input, so that the command would wait for more for ever; envd 0.5.2 and later can")
	}
	return err
}

// ended finds the exit code for a command that did not end with success.
func (x *execution) ended(err error, interrupts *interrupts) error {
	timedOut := errors.Is(err, client.ErrTimeout) || errors.Is(err, client.ErrIdleTimeout)
	state := x.cmd.ProcessState
	switch {
	case state == nil && timedOut:
		return &exitError{exitTimeout, err}
	case state == nil:
		return err // whether it still runs is not known
	}
	if lost, ok := errors.AsType[*outputError](err); ok {
		if lost.readerGone() {
			return &exitError{code: exitSignal + sigpipe} // as if it had been a local command
		}
		return err
	}
	how := state.String()
	if e, ok := errors.AsType[*client.Error](err); ok && x.flags.killTree {
		how = e.Err.Error() // it also says what may be left of the tree
	}
	switch {
	case errors.Is(err, client.ErrTimeout):
		x.say("timed out after %v; %s", x.cmd.Timeout, how)
		return &exitError{code: exitTimeout}
	case timedOut:
		x.say("no output for %v; %s", x.cmd.IdleTimeout, how)
		return &exitError{code: exitTimeout}
	case isExit(err), interrupts.number() > 0:
		x.say("%s", how)
		return &exitError{code: exitCode(state)}
	}
	return err
}

// isExit reports whether the command's own end is all that there is to tell.
func isExit(err error) bool {
	_, ok := err.(*client.ExitError)
	return ok
}

// exitCode is the code that a shell has for such an end.
func exitCode(state *client.ProcessState) int {
	if !state.Exited() {
		return exitSignal + int(state.Signal())
	}
	code := state.ExitCode()
	if code != 0 && code&0xff == 0 {
		return exitFailure // the operating system would make a success of it
	}
	return code & 0xff
}
