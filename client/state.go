// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"strconv"
	"strings"

	processpb "github.com/envd-go/envd/gen/process"
)

// Signal is a POSIX signal by its Linux number. envd itself sends [SIGTERM] and
// [SIGKILL] only; the others show how a command ended.
type Signal int

// The signals, numbered as in Linux on most processors.
const (
	SIGHUP  Signal = 1
	SIGINT  Signal = 2
	SIGQUIT Signal = 3
	SIGILL  Signal = 4
	SIGTRAP Signal = 5
	SIGABRT Signal = 6
	SIGBUS  Signal = 7
	SIGFPE  Signal = 8
	SIGKILL Signal = 9
	SIGUSR1 Signal = 10
	SIGSEGV Signal = 11
	SIGUSR2 Signal = 12
	SIGPIPE Signal = 13
	SIGALRM Signal = 14
	SIGTERM Signal = 15
	SIGXCPU Signal = 24
	SIGXFSZ Signal = 25
	SIGSYS  Signal = 31
)

// signals pairs each signal with its name and with the text that a daemon
// written in Go puts into the status of a command it ended.
var signals = []struct {
	signal     Signal
	name, text string
}{
	{SIGHUP, "SIGHUP", "hangup"},
	{SIGINT, "SIGINT", "interrupt"},
	{SIGQUIT, "SIGQUIT", "quit"},
	{SIGILL, "SIGILL", "illegal instruction"},
	{SIGTRAP, "SIGTRAP", "trace/breakpoint trap"},
	{SIGABRT, "SIGABRT", "aborted"},
	{SIGBUS, "SIGBUS", "bus error"},
	{SIGFPE, "SIGFPE", "floating point exception"},
	{SIGKILL, "SIGKILL", "killed"},
	{SIGUSR1, "SIGUSR1", "user defined signal 1"},
	{SIGSEGV, "SIGSEGV", "segmentation fault"},
	{SIGUSR2, "SIGUSR2", "user defined signal 2"},
	{SIGPIPE, "SIGPIPE", "broken pipe"},
	{SIGALRM, "SIGALRM", "alarm clock"},
	{SIGTERM, "SIGTERM", "terminated"},
	{SIGXCPU, "SIGXCPU", "cpu time limit exceeded"},
	{SIGXFSZ, "SIGXFSZ", "file size limit exceeded"},
	{SIGSYS, "SIGSYS", "bad system call"},
}

// String returns "SIGTERM", or "signal 42" for one without a name here.
func (s Signal) String() string {
	for _, row := range signals {
		if row.signal == s {
			return row.name
		}
	}
	return "signal " + strconv.Itoa(int(s))
}

// ProcessState is how a command ended, as its end event says.
type ProcessState struct {
	pid    uint32
	code   int
	exited bool
	status string
}

func newProcessState(pid uint32, end *processpb.ProcessEvent_EndEvent) *ProcessState {
	s := &ProcessState{pid: pid, code: int(end.GetExitCode()), exited: end.GetExited(), status: end.GetStatus()}
	if s.code == -1 {
		s.exited = false // the one way in which all servers tell a signal
	}
	if s.status == "" {
		s.status = end.GetError()
	}
	return s
}

// PID returns envd's number of the command.
func (s *ProcessState) PID() uint32 { return s.pid }

// ExitCode returns the exit code, or -1 for a command that a signal ended.
func (s *ProcessState) ExitCode() int {
	if !s.exited && s.code == 0 {
		return -1
	}
	return s.code
}

// Exited reports whether the command ended by itself, with whatever code.
func (s *ProcessState) Exited() bool { return s.exited }

// Success reports whether the command exited with code 0.
func (s *ProcessState) Success() bool { return s.exited && s.code == 0 }

// Signal returns the signal that ended the command, read from the daemon's
// text, and 0 for one that exited or whose signal has no known name; String
// then has the text.
func (s *ProcessState) Signal() Signal {
	text, ok := strings.CutPrefix(strings.ToLower(s.status), "signal: ")
	if !ok || s.exited {
		return 0
	}
	text = strings.TrimSuffix(text, " (core dumped)")
	if number, ok := strings.CutPrefix(text, "signal "); ok {
		n, _ := strconv.Atoi(number)
		return Signal(n)
	}
	for _, row := range signals {
		if row.text == text || strings.ToLower(row.name) == text {
			return row.signal
		}
	}
	return 0
}

// String returns the daemon's text, such as "exit status 3" or
// "signal: killed".
func (s *ProcessState) String() string {
	if s == nil {
		return "<nil>"
	}
	if s.status != "" {
		return cut(escapeControls(s.status))
	}
	return fmt.Sprintf("exit status %d", s.ExitCode())
}
