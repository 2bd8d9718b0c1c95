// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

// detachKey lets go of a command that has the terminal: Ctrl+].
const detachKey = 0x1d

type attachFlags struct {
	interactive bool
	tty         bool
	quiet       bool
}

func (a *app) attachCommand() *cobra.Command {
	f := &attachFlags{}
	cmd := &cobra.Command{
		Use:   "attach [flags] PID|TAG",
		Short: "Show the output of a running command",
		Long: `Show the output of a command that runs already, from now on, and end as it ends.
"tag:5" is the tag 5.

Ctrl+C lets go of the command and leaves it running. With -t, for a command that
has a terminal, keys go to the command, and Ctrl+] lets go.

The exit codes are those of "envdctl exec"; 128+n when signal n made envdctl let
go, and 0 after Ctrl+].`,
		Example: `  envdctl attach web
  envdctl attach -t "$(envdctl ps -q | head -1)"`,
		Args:              wantArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeSelector,
		RunE: func(cmd *cobra.Command, args []string) error {
			selector, err := parseSelector(args[0])
			if err != nil {
				return &usageError{cmd, err}
			}
			return a.attach(cmd, f, selector)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "send standard input to the command, and its end")
	flags.BoolVarP(&f.tty, "tty", "t", false, "take over the command's terminal")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "do not say the pid and how the command ended")
	return cmd
}

func (a *app) attach(cmd *cobra.Command, f *attachFlags, selector client.Selector) error {
	var tty *terminal
	var opts []client.Option
	var err error
	if f.tty {
		if tty, err = openTerminal(a.in, a.messages); err != nil {
			return err
		}
		opts = append(opts, client.WithKeepalive(10*time.Second))
	}
	c, err := a.connect(cmd, opts...)
	if err != nil {
		return err
	}
	defer c.close()
	x := &execution{app: a, flags: &execFlags{quiet: f.quiet, interactive: f.interactive}, client: c.Client, tty: tty}
	return x.attach(cmd.Context(), selector)
}

// attach joins a command and follows it to its end.
func (x *execution) attach(ctx context.Context, selector client.Selector) error {
	ctx, interrupts := catchInterrupts(ctx, x.signals()...)
	defer interrupts.stop()
	x.cmd = x.client.Attach(ctx, selector)
	x.cmd.Stdout = &outputWriter{name: "standard output", w: x.app.out}
	x.cmd.Stderr = &outputWriter{name: "standard error", w: x.app.messages.w}
	if x.flags.interactive {
		x.cmd.Stdin = x.app.in
	}
	var keys *detachReader
	if x.tty != nil {
		size := x.tty.last
		x.cmd.PTY = &size
		keys = &detachReader{in: x.tty, detach: func() { interrupts.cancel(client.ErrDetach) }}
		x.cmd.Stdin = keys
	}
	if err := x.cmd.Start(); err != nil {
		return x.startError(err, interrupts)
	}
	x.say("%s", x.cmd.Process)
	err := x.wait()
	switch {
	case err == nil:
		x.say("%s", x.cmd.ProcessState)
		return nil
	case x.cmd.ProcessState != nil || ctx.Err() == nil:
		return x.ended(err, interrupts)
	}
	x.say("let go of %s, which runs on", x.cmd.Process)
	if interrupts.number() > 0 {
		return &exitError{code: exitSignal + interrupts.number()}
	}
	return nil
}

// detachReader passes keys on until the one that lets go.
type detachReader struct {
	in     io.Reader
	detach func()
}

func (d *detachReader) Read(p []byte) (int, error) {
	n, err := d.in.Read(p)
	if i := bytes.IndexByte(p[:n], detachKey); i >= 0 {
		d.detach()
		return i, errDetached
	}
	return n, err
}

var errDetached = errors.New("let go by key")

func (a *app) shellCommand() *cobra.Command {
	f := &execFlags{tty: true, quiet: true}
	cmd := &cobra.Command{
		Use:   "shell",
		Short: "Open a login shell in the sandbox",
		Long: `Open a login shell in the sandbox, with a terminal: bash, or sh where there is no
bash. It is "envdctl exec -t" with that command.`,
		Example: `  envdctl shell
  envdctl shell -u root -w /app`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			const script = "if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l"
			return a.exec(cmd, f, []string{"/bin/sh", "-c", script})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&f.env, "env", "e", nil, "set a variable, as `KEY=VALUE`, or take it from the environment, as KEY; can be repeated")
	flags.StringVarP(&f.dir, "cwd", "w", "", "working `DIRECTORY` (default: the sandbox's, or the user's home)")
	flags.StringVar(&f.tag, "tag", "", "label to find the shell by")
	return cmd
}
