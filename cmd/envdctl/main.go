// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Envdctl runs commands in a sandbox through its envd, and serves an embedded
// envd for tests. Run "envdctl --help" for what it can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv))
}

// run is envdctl with everything that it depends on. It returns the exit code.
func run(args []string, in io.Reader, out, errOut io.Writer, lookupEnv func(string) (string, bool)) int {
	// Otherwise the first write to a closed pipe ends envdctl at once, and what
	// it has started runs on.
	brokenPipe := make(chan os.Signal, 1)
	signal.Notify(brokenPipe, syscall.SIGPIPE)
	defer signal.Stop(brokenPipe)

	a := &app{in: in, out: out, messages: &messages{w: errOut}, lookupEnv: lookupEnv}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(a.messages)
	return a.report(root.ExecuteContext(context.Background()))
}

// Exit codes of envdctl's own, as docker, timeout(1) and shells have them.
const (
	exitTimeout       = 124
	exitFailure       = 125
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // and the signal's number
)

// exitError ends envdctl with a code, and with what is to be said, if anything.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a command line that makes no sense.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd, fmt.Errorf(format, args...)}
}

// report says what went wrong and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	code := exitFailure
	if e, ok := errors.AsType[*exitError](err); ok {
		code, err = e.code, e.err
	}
	if err == nil {
		return code
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok && pe.Path == os.Stdout.Name() && errors.Is(err, syscall.EPIPE) {
		return exitSignal + sigpipe // the reader has ended, as head(1) does
	}
	a.messages.printf("%s", printable(err.Error()))
	if hint := hintFor(err); hint != "" {
		a.messages.printf("%s", hint)
	}
	return code
}

// printable makes a text that came from elsewhere safe for a terminal, and one
// line of it.
func printable(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		switch {
		case r == '\n':
			b.WriteString("; ")
		case isUnprintable(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
