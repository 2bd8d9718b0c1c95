// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// wait returns the result.
func (r *run) wait() error {
	<-r.done
	r.input.wait()
	return r.result()
}

func (r *run) result() error {
	target := r.cmd.target()
	fail := func(code Code, err error, is ...error) error {
		return &Error{Op: "wait for", Target: target, Code: code, Err: err, is: is}
	}
	switch {
	case r.reason != nil:
		return r.endedBy(fail)
	case r.final != nil && r.gapMatters():
		return r.withGap(fail)
	case r.final != nil && !r.final.Success():
		return r.exitError()
	case r.final != nil:
		if err := r.input.err(); err != nil {
			return fail(toErrorCode(err), fmt.Errorf("feeding stdin: %w", err))
		}
		return nil
	case r.timedOutByServer():
		return fail(CodeDeadlineExceeded, fmt.Errorf("%w: the server killed the command", ErrTimeout), context.DeadlineExceeded)
	case r.cmd.attach != nil && r.lost.Fate == FateGone && r.output.events() == 1:
		return fail(CodeNotFound, fmt.Errorf("%w: it ended just before, and how is not kept", ErrProcessNotFound), notFound(domainProcess)...)
	}
	return fail(CodeUnavailable, r.lost)
}

// timedOutByServer reports whether the daemon ended the command at the deadline
// that it was sent: such a stream has no end event.
func (r *run) timedOutByServer() bool {
	return r.timedOut(r.streamErr)
}

func (r *run) timedOut(err error) bool {
	if _, sent := r.timeLimit(); !sent && r.ctx.Err() == nil {
		return false
	}
	return isRemote(err) && toErrorCode(err) == CodeDeadlineExceeded
}

// withGap describes a command that ended well or badly, but of whose output
// some may be missing.
func (r *run) withGap(fail func(Code, error, ...error) error) error {
	if r.final.Success() {
		return fail(CodeDataLoss, fmt.Errorf("the command exited with code 0, but %w", ErrOutputGap))
	}
	return fail(CodeDataLoss, joinText([]error{r.exitError(), ErrOutputGap}))
}

// endedBy describes a command that was ended: why, how, and what is not known.
func (r *run) endedBy(fail func(Code, error, ...error) error) error {
	parts := []error{r.reason}
	if r.final != nil && !r.final.Success() {
		parts = append(parts, r.exitError())
	}
	switch {
	case r.detached:
		parts = append(parts, fmt.Errorf("%w (pid %d)", ErrDetach, r.process.PID()))
	case r.final != nil && r.killErr != nil && r.marker.tree():
		parts = append(parts, fmt.Errorf("its descendants may still run: %w", r.killErr))
	case r.final == nil && r.killErr != nil:
		parts = append(parts, fmt.Errorf("the kill could not be confirmed: %w", r.killErr))
	case r.final == nil:
		parts = append(parts, fmt.Errorf("the command was killed, but its end was not seen within %v: %w", r.cmd.waitDelay(), exec.ErrWaitDelay))
	}
	code, is := CodeUnknown, []error(nil)
	switch {
	case errors.Is(r.reason, ErrTimeout), errors.Is(r.reason, ErrIdleTimeout):
		code, is = CodeDeadlineExceeded, []error{context.DeadlineExceeded}
	case !r.faulty && r.ctx.Err() != nil:
		code, is = CodeCanceled, []error{r.ctx.Err()}
		if errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
			code = CodeDeadlineExceeded
		}
	}
	return fail(code, joinText(parts), is...)
}

func (r *run) exitError() *ExitError {
	return &ExitError{
		ProcessState: r.final,
		Stderr:       r.output.stderrTail(),
		notFound:     r.final.ExitCode() == 127 && r.output.onlyNotFound(r.cmd.Path),
	}
}

func toErrorCode(err error) Code {
	e, ok := errors.AsType[*Error](toError(context.Background(), domainProcess, "", "", err))
	if !ok {
		return CodeUnknown
	}
	return e.Code
}

// joinedText joins errors on one line.
type joinedText struct{ errs []error }

func joinText(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return &joinedText{errs}
}

func (j *joinedText) Error() string {
	texts := make([]string, len(j.errs))
	for i, err := range j.errs {
		texts[i] = causeText(err, "")
	}
	return strings.Join(texts, "; ")
}

func (j *joinedText) Unwrap() []error { return j.errs }
