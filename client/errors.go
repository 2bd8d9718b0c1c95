// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect/v2"
)

// Errors to test for with [errors.Is]. Next to them stand those of the standard
// library: [fs.ErrNotExist], [fs.ErrExist], [fs.ErrPermission],
// [fs.ErrInvalid], [errors.ErrUnsupported] where this envd is too old or the
// protocol cannot do it, [exec.ErrNotFound] where a command does not exist,
// and [context.Canceled] and [context.DeadlineExceeded].
var (
	// ErrProcessNotFound: envd knows no such command, or it has ended. Such an
	// error matches [os.ErrProcessDone] too.
	ErrProcessNotFound = errors.New("process not found")
	// ErrTagAmbiguous: several running commands have the tag. The text names
	// their pids.
	ErrTagAmbiguous = errors.New("tag is shared by several processes")
	// ErrNoInput: the command takes no such input, because its standard input
	// was never open or is closed, it is a terminal or is none, or the command
	// has ended. It never decides the result of the command itself.
	ErrNoInput = errors.New("process takes no input")
	// ErrUnauthenticated: the access token is missing or wrong, or the user
	// does not exist in the sandbox.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrSandboxNotFound: the platform says that there is no such sandbox, or
	// no more.
	ErrSandboxNotFound = errors.New("sandbox not found")
	// ErrPortNotOpen: the platform says that the sandbox runs but that nothing
	// listens on envd's port.
	ErrPortNotOpen = errors.New("sandbox runs, but envd's port is not open")
	// ErrRateLimited: too many requests. [HTTPError] may say when to retry.
	ErrRateLimited = errors.New("rate limited")
	// ErrNoSpace: the sandbox's disk is full.
	ErrNoSpace = errors.New("no space left")
	// ErrStreamLost: a stream broke off before it was complete. As a
	// [StreamLostError] it says what became of the command. It matches
	// [io.ErrUnexpectedEOF] too.
	ErrStreamLost = errors.New("stream lost")
	// ErrTimeout: [Cmd.Timeout] was over, or the server's own time limit. It
	// matches [context.DeadlineExceeded] too.
	ErrTimeout = errors.New("command timed out")
	// ErrIdleTimeout: [Cmd.IdleTimeout] passed without output, or the time of
	// [WithIdleTimeout] without a byte moved. It matches
	// [context.DeadlineExceeded] too.
	ErrIdleTimeout = errors.New("nothing came for too long")
	// ErrOutputLimit: a command wrote more than [Cmd.OutputLimit].
	ErrOutputLimit = errors.New("output limit exceeded")
	// ErrOutputGap: the stream of the command was lost and joined again, see
	// [WithReattach], so that output may be missing. Cmd.ProcessState and, for a
	// command that failed, an [ExitError] tell how it ended.
	ErrOutputGap = errors.New("output may be missing: the stream was lost and joined again")
	// ErrWatchOverflow: a watch ended because events came faster than they were
	// taken, so that some are lost. It comes with ErrStreamLost.
	ErrWatchOverflow = errors.New("events were lost: they came faster than they were taken")
	// ErrDetach is for [Cmd.Cancel] to return: let go of the command, which
	// runs on.
	ErrDetach = errors.New("detached; the command runs on")
)

var errNoSelector = errors.New("selector names no process; use PID or Tag")

// Code is the status word of a failed call, as it is on the wire.
type Code string

// The codes of the Connect protocol.
const (
	CodeCanceled           Code = "canceled"
	CodeUnknown            Code = "unknown"
	CodeInvalidArgument    Code = "invalid_argument"
	CodeDeadlineExceeded   Code = "deadline_exceeded"
	CodeNotFound           Code = "not_found"
	CodeAlreadyExists      Code = "already_exists"
	CodePermissionDenied   Code = "permission_denied"
	CodeResourceExhausted  Code = "resource_exhausted"
	CodeFailedPrecondition Code = "failed_precondition"
	CodeAborted            Code = "aborted"
	CodeOutOfRange         Code = "out_of_range"
	CodeUnimplemented      Code = "unimplemented"
	CodeInternal           Code = "internal"
	CodeUnavailable        Code = "unavailable"
	CodeDataLoss           Code = "data_loss"
	CodeUnauthenticated    Code = "unauthenticated"
)

// Error is a failed call. Test it with [errors.Is] against the sentinels; the
// text is for people and changes.
type Error struct {
	// Op is what was being done: "start", "signal", "list processes".
	Op string
	// Target is the command, process or path it was done to; may be empty.
	Target string
	// Code is the status of the call, also where no Connect error came.
	Code Code
	// Err is what lies below: a *connect.Error for a failed RPC, an
	// [*HTTPError] for an answer that was none of envd's.
	Err error

	// is holds the sentinels that the classification found.
	is []error
	// bare leaves Op and Target out of the text: an error around it has them.
	bare bool
}

// Error returns the operation, its target and the cause, at most 4 KiB of it.
// Below an [fs.PathError], which has the other two, it is the cause alone.
func (e *Error) Error() string {
	if e.bare {
		return cut(causeText(e.Err, e.Code))
	}
	var b strings.Builder
	b.WriteString("envd: ")
	b.WriteString(e.Op)
	if e.Target != "" {
		b.WriteString(" ")
		b.WriteString(e.Target)
	}
	b.WriteString(": ")
	b.WriteString(cut(causeText(e.Err, e.Code)))
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the failure is of the target's kind.
func (e *Error) Is(target error) bool { return slices.Contains(e.is, target) }

// HTTPError is an answer that envd's RPC layer did not write: a proxy's page, a
// refusal of the token, a redirect. It is found below an [Error] with
// [errors.As].
type HTTPError struct {
	// StatusCode is the HTTP status, or the one that the body names instead.
	StatusCode int
	// Message is what the body says, cleaned and shortened; may be empty.
	Message string
	// RetryAfter is how long the server asked to wait; 0 if it did not say.
	RetryAfter time.Duration

	is []error
}

// Error returns the status and the message.
func (e *HTTPError) Error() string {
	status := fmt.Sprintf("HTTP %d", e.StatusCode)
	if e.Message == "" {
		return status
	}
	return status + ": " + e.Message
}

// Is reports whether the failure is of the target's kind.
func (e *HTTPError) Is(target error) bool { return slices.Contains(e.is, target) }

// ExitError says that a command ran and ended without success. It is never
// used for a call that failed.
type ExitError struct {
	*ProcessState
	// Stderr is the end of the command's standard error where it went nowhere
	// else, 32 KiB at most.
	Stderr []byte

	notFound bool
}

// Error returns "exit status 3" or "signal: killed".
func (e *ExitError) Error() string { return e.ProcessState.String() }

// Is makes an exit that only says that the command does not exist match
// [exec.ErrNotFound]: newer daemons report it so.
func (e *ExitError) Is(target error) bool { return target == exec.ErrNotFound && e.notFound }

// ProcessFate is what became of a command whose stream was lost.
type ProcessFate string

// The fates of a command.
const (
	// FateUnknown: the daemon could not be asked.
	FateUnknown ProcessFate = "unknown"
	// FateRunning: the command is still listed.
	FateRunning ProcessFate = "running"
	// FateKilled: the client killed it.
	FateKilled ProcessFate = "killed"
	// FateGone: the command is no longer listed; how it ended is not known.
	FateGone ProcessFate = "gone"
)

// StreamLostError says that the stream of a command broke off before its end
// event. Whatever the command did, this is not success.
type StreamLostError struct {
	// PID is envd's number of the command, or 0 where it was never told.
	PID uint32
	// Fate is what is known of the command.
	Fate ProcessFate
	// Err is how the stream ended.
	Err error
}

// Error says how the stream ended and what became of the command.
func (e *StreamLostError) Error() string {
	fate := map[ProcessFate]string{
		FateRunning: "the command runs on",
		FateKilled:  "the command was killed",
		FateGone:    "the command is gone",
	}[e.Fate]
	if fate == "" {
		fate = "the command may still run"
	}
	text := "stream ended without an end event"
	if e.Err != nil && !errors.Is(e.Err, io.EOF) {
		text = "stream lost: " + cut(causeText(e.Err, ""))
	}
	if e.PID == 0 {
		return text + "; " + fate
	}
	return fmt.Sprintf("%s; %s (pid %d)", text, fate, e.PID)
}

// Unwrap returns how the stream ended, unless it ended cleanly.
func (e *StreamLostError) Unwrap() error {
	if errors.Is(e.Err, io.EOF) {
		return nil // io.EOF would say that all is well
	}
	return e.Err
}

// Is matches [ErrStreamLost] and [io.ErrUnexpectedEOF].
func (e *StreamLostError) Is(target error) bool {
	return target == ErrStreamLost || target == io.ErrUnexpectedEOF
}

// domain says what kind of thing a call was about, which decides what a bare
// "not found" means.
type domain int

const (
	domainOther domain = iota
	domainProcess
	domainFile
)

// toError turns what connect or net/http returned into an [Error]. Each call
// passes through it once.
func toError(ctx context.Context, d domain, op, target string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Op: op, Target: target, Code: CodeUnknown, Err: err}
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		e.Code = Code(ce.Code().String())
	}
	if ctxErr := ctx.Err(); ctxErr != nil {
		return contextError(ctx, e)
	}
	if e.Code == CodeUnknown && isBroken(err) {
		e.Code = CodeUnavailable
	}
	e.is = classify(d, e.Code, err, target)
	return e
}

// isBroken reports whether a connection failed or ended too early.
func isBroken(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF)
}

// contextError makes e say that the caller's context ended it: connect reports
// that in several shapes, not all of which match the context's error.
func contextError(ctx context.Context, e *Error) *Error {
	e.Code = CodeCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Code = CodeDeadlineExceeded
	}
	e.is = []error{ctx.Err()}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		e.Err = errors.Join(cause, e.Err)
		return e
	}
	if !errors.Is(e.Err, ctx.Err()) {
		e.Err = errors.Join(ctx.Err(), e.Err)
	}
	return e
}

// relabel gives an error of an inner call the name of the outer one.
func relabel(err error, op, target string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	renamed := *e
	renamed.Op, renamed.Target = op, target
	return &renamed
}

// textRule reads a daemon's error text. Codes alone say too little: everything
// from a full disk to a missing terminal is "internal".
type textRule struct {
	domain domain
	// text is found anywhere in the message, in lower case.
	text string
	is   []error
}

// textRules is the only place that looks into messages. They were measured on
// envd 0.2.0 to 0.6.13.
var textRules = []textRule{
	{domainProcess, "process already finished", []error{ErrProcessNotFound, os.ErrProcessDone}},
	{domainProcess, "stdin not enabled", []error{ErrNoInput}},
	{domainProcess, "broken pipe", []error{ErrNoInput}},
	{domainProcess, "file already closed", []error{ErrNoInput}},
	{domainProcess, "tty not assigned to process", []error{ErrNoInput}},
	{domainProcess, textTTYAssigned, []error{ErrNoInput}},
	{domainProcess, textClosePTY, []error{ErrNoInput}},
	{domainProcess, "executable file not found in $path", []error{exec.ErrNotFound}},
	{domainProcess, "exec: no command", []error{exec.ErrNotFound}},
	{domainFile, "is a directory", []error{syscall.EISDIR}},
	{domainFile, "not a directory", []error{syscall.ENOTDIR}},
	{domainFile, "path is a file", []error{syscall.ENOTDIR}}, // of a parent, in an upload
	{domainFile, "directory not empty", []error{syscall.ENOTEMPTY}},
	{domainFile, "file exists", []error{fs.ErrExist}},
	{domainFile, "path already exists", []error{fs.ErrExist}},
	{domainFile, "resource busy", []error{syscall.EBUSY}},
	{domainFile, "cyclic symlink", []error{syscall.ELOOP}},
	{domainFile, "on network filesystem", []error{errors.ErrUnsupported}},
	{domainFile, "file name too long", []error{syscall.ENAMETOOLONG}},
	{domainFile, "read-only file system", []error{syscall.EROFS}},
	{domainFile, "too many levels of symbolic links", []error{syscall.ELOOP}},
	{domainFile, "cross-device link", []error{syscall.EXDEV}},
	{domainFile, "invalid argument", []error{fs.ErrInvalid}},
	{domainFile, "seeker can't seek", []error{errors.ErrUnsupported}},
	{domainOther, "queue or buffer overflow", []error{ErrWatchOverflow}},
	{domainOther, "no such file or directory", []error{fs.ErrNotExist}},
	{domainOther, "does not exist", []error{fs.ErrNotExist}},
	{domainOther, "permission denied", []error{fs.ErrPermission}},
	{domainOther, "operation not permitted", []error{fs.ErrPermission}},
	{domainOther, "argument list too long", []error{fs.ErrInvalid}},
	{domainOther, "contains nul", []error{fs.ErrInvalid}},
	{domainOther, "no space left on device", []error{ErrNoSpace}},
	{domainOther, "not enough disk space", []error{ErrNoSpace}},
	{domainOther, "not enough inodes", []error{ErrNoSpace}},
}

// Texts that the client acts on, not only reports.
const (
	textTTYAssigned = "tty assigned to process"
	textClosePTY    = "cannot close stdin for pty process"

	textMkdirRace     = "file exists"             // after "mkdir P", in an upload
	textNextPart      = "nextpart: eof"           // the body is no multipart one
	textWritingFile   = "error writing file"      // an upload broke off
	textReadingFile   = "error reading file"      // the same, up to envd 0.3.7
	textNoSpaceBefore = "bytes required"          // refused before it wrote
	textNoSource      = "source file not found: " // compose
	textNoSources     = "source_paths"            // compose, of nothing

	textReadingDir = "error reading directory" // something vanished in a listing
)

// classify is the one function that says which sentinels an error matches.
func classify(d domain, code Code, err error, target string) []error {
	var is []error
	he, plain := errors.AsType[*HTTPError](err)
	if plain {
		is = append(is, he.is...)
	}
	if errors.Is(err, ErrSandboxNotFound) {
		return is // the rest would speak of things inside the sandbox
	}
	switch code {
	case CodeNotFound:
		is = append(is, notFound(d)...)
	case CodeAlreadyExists:
		is = append(is, fs.ErrExist)
	case CodePermissionDenied:
		is = append(is, fs.ErrPermission)
	case CodeInvalidArgument:
		is = append(is, fs.ErrInvalid)
	case CodeUnauthenticated:
		is = append(is, ErrUnauthenticated)
	case CodeUnimplemented:
		is = append(is, errors.ErrUnsupported)
	case CodeCanceled:
		is = append(is, context.Canceled)
	case CodeDeadlineExceeded:
		if !plain { // a proxy's 504 says nothing about our deadline
			is = append(is, context.DeadlineExceeded)
		}
	}
	text := messageOf(err)
	if strings.Contains(target, " ") && strings.Contains(target, "/") {
		text = strings.ReplaceAll(text, target, "") // a path may sound like an error
	}
	text = strings.ToLower(text)
	for _, rule := range textRules {
		if (rule.domain == domainOther || rule.domain == d) && strings.Contains(text, rule.text) {
			is = append(is, rule.is...)
		}
	}
	return is
}

func notFound(d domain) []error {
	switch d {
	case domainProcess:
		return []error{ErrProcessNotFound, os.ErrProcessDone}
	case domainFile:
		return []error{fs.ErrNotExist}
	default:
		return nil
	}
}

// messageOf returns the text that the server sent, without our own words.
func messageOf(err error) string {
	if he, ok := errors.AsType[*HTTPError](err); ok {
		return he.Message
	}
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		return ce.Message()
	}
	return ""
}

// hasText reports whether the server's message contains one of the texts above.
func hasText(err error, text string) bool {
	return strings.Contains(strings.ToLower(messageOf(err)), text)
}

func causeText(err error, code Code) string {
	if err == nil {
		return string(code)
	}
	// Only where it is all there is: below other words it must not replace them.
	if ce, ok := err.(*connect.Error); ok { //nolint:errorlint // see above
		if he, ok := errors.AsType[*HTTPError](ce); ok {
			return he.Error()
		}
	}
	return err.Error()
}

// cut shortens a text to 4 KiB: servers put whole command lines into errors.
func cut(s string) string {
	const limit = 4 << 10
	if len(s) <= limit {
		return s
	}
	head := strings.ToValidUTF8(s[:limit], "")
	return fmt.Sprintf("%s… (%d more bytes)", head, len(s)-len(head))
}
