// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// sigpipe is the number of SIGPIPE where envdctl runs commands: on Linux.
const sigpipe = 13

// outputWriter is where a command's output goes. Its errors can be told from
// those of the connection.
type outputWriter struct {
	name string
	w    io.Writer
}

func (o *outputWriter) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		return n, &outputError{name: o.name, err: err}
	}
	return n, nil
}

// outputError says that the output cannot be written on this side.
type outputError struct {
	name string
	err  error
}

func (e *outputError) Error() string { return fmt.Sprintf("%s: %v", e.name, e.err) }

func (e *outputError) Unwrap() error { return e.err }

// readerGone reports whether the output is a pipe whose reader has ended, as
// that of head(1) does.
func (e *outputError) readerGone() bool { return errors.Is(e.err, syscall.EPIPE) }
