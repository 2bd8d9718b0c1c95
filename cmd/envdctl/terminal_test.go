// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/envd-go/envd/client/envdtest"
)

// screen is a terminal with an envdctl in it.
type screen struct {
	*ctl
	keyboard *os.File // the terminal's other end
	tty      *os.File
	before   *term.State
	shown    *transcript
}

// startScreen starts envdctl in a terminal of 100 by 40 characters.
func startScreen(t *testing.T, srv *envdtest.Server, args ...string) *screen {
	t.Helper()
	keyboard, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	t.Cleanup(func() { keyboard.Close(); tty.Close() })
	s := &screen{ctl: newCtl(t, srv, args...), keyboard: keyboard, tty: tty, shown: newTranscript()}
	s.resize(t, 100, 40)
	if s.before, err = term.GetState(int(tty.Fd())); err != nil {
		t.Fatal(err)
	}
	s.Stdin, s.Stdout, s.Stderr = tty, tty, tty
	s.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(s.shown, keyboard)
	}()
	t.Cleanup(func() { tty.Close(); keyboard.Close(); <-done })
	return s
}

func (s *screen) resize(t *testing.T, cols, rows uint16) {
	t.Helper()
	if err := pty.Setsize(s.keyboard, &pty.Winsize{Cols: cols, Rows: rows}); err != nil {
		t.Fatal(err)
	}
}

func (s *screen) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(s.keyboard, keys); err != nil {
		t.Fatal(err)
	}
}

func (s *screen) isAsBefore(t *testing.T) bool {
	t.Helper()
	now, err := term.GetState(int(s.tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(now, s.before)
}

func (s *screen) waitRaw(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); s.isAsBefore(t); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the terminal never got into raw mode; it shows %q", s.shown)
		}
	}
}

// wantEnd waits for the end and checks that the terminal is what it was.
func (s *screen) wantEnd(t *testing.T, code int) {
	t.Helper()
	s.wantExit(t, code)
	if !s.isAsBefore(t) {
		t.Error("the terminal was not restored")
	}
}

// console is a command that tells what its terminal does to it.
func console(p *envdtest.Proc) int {
	signals := p.Signals()
	show := func(what string, size envdtest.Size) {
		fmt.Fprintf(p.Stdout, "%s %d %d\n", what, size.Cols, size.Rows)
	}
	show("begins", p.Size())
	for {
		select {
		case size := <-p.Resized():
			show("now", size)
		case sig := <-signals:
			fmt.Fprintln(p.Stdout, "got", sig)
			if sig == os.Interrupt {
				return 9
			}
		case <-p.Context.Done():
			return 0
		}
	}
}

func TestTerminal(t *testing.T) {
	srv := newServer(t)
	srv.HandleCommand("console", console)
	s := startScreen(t, srv, "exec", "-it", "console")
	s.shown.wait(t, "begins 100 40")
	s.waitRaw(t)
	s.resize(t, 120, 50)
	s.shown.wait(t, "now 120 50")
	s.press(t, "\x03")
	s.shown.wait(t, "got interrupt")
	s.wantEnd(t, 9)
}

func TestTerminalOfRealProcess(t *testing.T) {
	srv := newServer(t)
	s := startScreen(t, srv, "exec", "-q", "-t", "--", "sh", "-c", "stty size; read x; echo \"<$x>\"; read y; exit 4")
	s.shown.wait(t, "40 100")
	s.waitRaw(t)
	s.press(t, "hello\r")
	s.shown.wait(t, "<hello>")
	if n := strings.Count(s.shown.String(), "hello"); n != 2 {
		t.Errorf("it shows hello %d times, want an echo and the answer: %q", n, s.shown)
	}
	s.press(t, "\x04")
	s.wantEnd(t, 4)
}

func TestTerminalRestored(t *testing.T) {
	t.Run("signals", func(t *testing.T) {
		srv := newServer(t)
		srv.HandleCommand("console", console)
		s := startScreen(t, srv, "exec", "-t", "console")
		s.waitRaw(t)
		s.signal(t, syscall.SIGTERM)
		s.shown.wait(t, "got terminated")
		s.signal(t, syscall.SIGTERM)
		s.wantEnd(t, 128+int(syscall.SIGKILL))
		wantIdle(t, srv)
	})
	t.Run("SIGQUIT", func(t *testing.T) {
		srv := newServer(t)
		s := startScreen(t, srv, "exec", "-t", "sleep", "300")
		s.waitRaw(t)
		s.signal(t, syscall.SIGQUIT)
		s.wantEnd(t, 128+int(syscall.SIGTERM))
	})
	t.Run("server gone", func(t *testing.T) {
		srv := newServer(t)
		srv.HandleCommand("console", console)
		s := startScreen(t, srv, "exec", "-t", "console")
		s.waitRaw(t)
		srv.Close()
		s.wantEnd(t, exitFailure)
		s.shown.wait(t, "envdctl: envd: wait for \"console\"")
	})
	t.Run("command refused", func(t *testing.T) {
		srv := newServer(t)
		s := startScreen(t, srv, "exec", "-t", "-w", "/no/such/dir", "true")
		s.wantEnd(t, exitFailure)
		s.shown.wait(t, "does not exist")
	})
}

func TestTerminalStopped(t *testing.T) {
	srv := newServer(t)
	srv.HandleCommand("console", console)
	s := startScreen(t, srv, "exec", "-t", "console")
	s.waitRaw(t)
	if err := term.Restore(int(s.tty.Fd()), s.before); err != nil { // as a shell does
		t.Fatal(err)
	}
	s.signal(t, syscall.SIGCONT)
	s.waitRaw(t)
	s.press(t, "\x03")
	s.wantEnd(t, 9)
}

func TestTerminalOutputElsewhere(t *testing.T) {
	srv := newServer(t)
	srv.HandleCommand("console", console)
	keyboard, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	defer keyboard.Close()
	defer tty.Close()
	c := newCtl(t, srv, "exec", "-t", "console")
	c.Stdin = tty
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdout.wait(t, "begins 80 24") // a terminal without a size
	c.signal(t, os.Interrupt)
	c.stderr.wait(t, "once more")
	c.signal(t, os.Interrupt)
	c.wantExit(t, 128+int(syscall.SIGKILL))
}
