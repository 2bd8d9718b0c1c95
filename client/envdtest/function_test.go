// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
)

// newFunctions starts a server with commands that are Go functions only.
func newFunctions(t *testing.T, opts ...envdtest.Option) *envdtest.Server {
	t.Helper()
	srv := newServer(t, append(opts, envdtest.WithoutRealProcesses())...)
	srv.HandleCommand("cat", func(p *envdtest.Proc) int {
		_, _ = io.Copy(p.Stdout, p.Stdin)
		return 0
	})
	srv.HandleCommand("wait", func(p *envdtest.Proc) int {
		<-p.Context.Done()
		return 0
	})
	srv.HandleCommand("trap", func(p *envdtest.Proc) int {
		signals := p.Signals()
		fmt.Fprintln(p.Stdout, "ready")
		select {
		case sig := <-signals:
			fmt.Fprintln(p.Stdout, "bye", sig)
			return 3
		case <-p.Context.Done():
			return 0
		}
	})
	return srv
}

func TestFunctionProc(t *testing.T) {
	srv := newFunctions(t, envdtest.WithEnv(map[string]string{"GLOBAL": "g", "BOTH": "g"}))
	got := make(chan *envdtest.Proc, 1)
	srv.HandleCommand("tool", func(p *envdtest.Proc) int {
		got <- p
		return 256 + 5
	})
	dir := t.TempDir()
	req := command("tool", "a", "b")
	req.Process.Cwd = &dir
	req.Process.Envs = map[string]string{"BOTH": "r"}
	pid, next := start(t, t.Context(), newClient(srv), req)
	wantEnd(t, next.collect(), 5, "exit status 5")
	p := <-got
	if p.PID != pid || p.Name != "tool" || fmt.Sprint(p.Args) != "[a b]" || p.Dir != dir || p.User != "user" || p.PTY {
		t.Errorf("Proc = %+v, want pid %d", p, pid)
	}
	for name, want := range map[string]string{
		"GLOBAL": "g", "BOTH": "r", "USER": "user", "LOGNAME": "user", "E2B_SANDBOX": "false", "PWD": dir,
	} {
		if p.Env[name] != want {
			t.Errorf("%s = %q, want %q", name, p.Env[name], want)
		}
	}
	if p.Env["PATH"] == "" || p.Env["HOME"] == "" || len(p.Env) != 8 {
		t.Errorf("Env = %v", p.Env)
	}
}

func TestFunctionSignals(t *testing.T) {
	tests := []struct {
		name, cmd string
		signal    processpb.Signal
		code      int32
		status    string
		stdout    string
	}{
		{"TERM", "wait", processpb.Signal_SIGNAL_SIGTERM, -1, "signal: terminated", ""},
		{"KILL", "wait", processpb.Signal_SIGNAL_SIGKILL, -1, "signal: killed", ""},
		{"TERM handled", "trap", processpb.Signal_SIGNAL_SIGTERM, 3, "exit status 3", "bye terminated\n"},
		{"KILL not handled", "trap", processpb.Signal_SIGNAL_SIGKILL, -1, "signal: killed", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(newFunctions(t))
			pid, next := start(t, t.Context(), c, command(tt.cmd))
			if tt.cmd == "trap" {
				next.until(t, "ready\n")
			}
			sendSignal(t, c, pid, tt.signal)
			o := next.collect()
			wantEnd(t, o, tt.code, tt.status)
			if o.stdout != tt.stdout {
				t.Errorf("stdout = %q, want %q", o.stdout, tt.stdout)
			}
		})
	}
}

func TestFunctionThatIgnoresItsContext(t *testing.T) {
	srv := newFunctions(t)
	release, wrote := make(chan struct{}), make(chan error, 1)
	srv.HandleCommand("stubborn", func(p *envdtest.Proc) int {
		<-release
		_, err := p.Stdout.Write([]byte("late"))
		wrote <- err
		return 0
	})
	c := newClient(srv)
	pid, next := start(t, t.Context(), c, command("stubborn"))
	kill(t, c, pid)
	o := next.collect()
	wantEnd(t, o, -1, "signal: killed")
	close(release)
	if err := <-wrote; err == nil {
		t.Error("a write after KILL succeeded")
	}
}

func TestFunctionTerminal(t *testing.T) {
	srv := newFunctions(t)
	srv.HandleCommand("shell", func(p *envdtest.Proc) int {
		fmt.Fprintln(p.Stdout, "size", p.Size())
		fmt.Fprintln(p.Stderr, "size", <-p.Resized())
		for lines := bufio.NewScanner(p.Stdin); lines.Scan(); {
			fmt.Fprintln(p.Stdout, "got", lines.Text())
		}
		return 0
	})
	c := newClient(srv)
	req := command("shell")
	req.Pty = &processpb.PTY{Size: &processpb.PTY_Size{Cols: 80, Rows: 24}}
	pid, next := start(t, t.Context(), c, req)
	next.until(t, "size {80 24}\r\n")
	size := &processpb.PTY{Size: &processpb.PTY_Size{Cols: 100, Rows: 70000}}
	if _, err := c.Update(t.Context(), &processpb.UpdateRequest{Process: byPID(pid), Pty: size}); err != nil {
		t.Fatal(err)
	}
	next.until(t, "size {100 4464}\r\n")
	for _, text := range []string{"hello\r", "\x04"} {
		if err := sendPTY(t.Context(), c, pid, text); err != nil {
			t.Fatal(err)
		}
	}
	o := next.collect()
	wantEnd(t, o, 0, "exit status 0")
	if o.pty != "got hello\r\n" {
		t.Errorf("output = %q", o.pty)
	}
}

func TestFunctionCtrlC(t *testing.T) {
	c := newClient(newFunctions(t))
	req := command("wait")
	req.Pty = &processpb.PTY{}
	pid, next := start(t, t.Context(), c, req)
	if err := sendPTY(t.Context(), c, pid, "\x03"); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, next.collect(), -1, "signal: interrupt")
}

func TestFunctionStdinModes(t *testing.T) {
	tests := []struct {
		name    string
		stdin   *bool
		version string
		open    bool
	}{
		{"omitted", nil, "0.6.13", true},
		{"true", new(true), "0.6.13", true},
		{"false", new(false), "0.6.13", false},
		{"false, unknown to 0.2.0", new(false), "0.2.0", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(newFunctions(t, envdtest.WithVersion(tt.version)))
			req := command("cat")
			req.Stdin = tt.stdin
			pid, next := start(t, t.Context(), c, req)
			if !tt.open {
				wantEnd(t, next.collect(), 0, "exit status 0")
				return
			}
			if err := sendInput(t.Context(), c, pid, "x"); err != nil {
				t.Fatal(err)
			}
			next.until(t, "x")
			kill(t, c, pid)
		})
	}
}

func TestFunctionGoexitAndRemoval(t *testing.T) {
	srv := newFunctions(t)
	srv.HandleCommand("quit", func(p *envdtest.Proc) int {
		runtime.Goexit()
		return 0
	})
	c := newClient(srv)
	wantEnd(t, run(t, c, "quit"), 1, "exit status 1")
	srv.HandleCommand("quit", nil)
	wantEnd(t, run(t, c, "quit"), 127, "exit status 127")
}

func TestFunctionSignalsChannel(t *testing.T) {
	srv := newFunctions(t)
	got := make(chan os.Signal, 1)
	srv.HandleCommand("one", func(p *envdtest.Proc) int {
		if first := p.Signals(); p.Signals() != first {
			return 1
		}
		fmt.Fprint(p.Stdout, "ready")
		got <- <-p.Signals()
		return 0
	})
	c := newClient(srv)
	pid, next := start(t, t.Context(), c, command("one"))
	next.until(t, "ready")
	sendSignal(t, c, pid, processpb.Signal_SIGNAL_SIGTERM)
	wantEnd(t, next.collect(), 0, "exit status 0")
	if sig := <-got; sig != syscall.SIGTERM {
		t.Errorf("signal = %v", sig)
	}
}

func TestWaitForAndProcesses(t *testing.T) {
	srv := newFunctions(t)
	c := newClient(srv)
	ctx, hangUp := context.WithCancel(t.Context())
	req := command("wait", "arg")
	req.Tag = new("")
	pid, _ := start(t, ctx, c, req)
	infos := srv.Processes()
	if len(infos) != 1 {
		t.Fatalf("Processes = %v", infos)
	}
	info := infos[0]
	if info.PID != pid || info.OSPID != 0 || !info.HasTag || info.Name != "wait" || info.Args[0] != "arg" || info.Subscribers != 1 {
		t.Errorf("Processes = %+v", info)
	}
	hangUp()
	err := srv.WaitFor(t.Context(), func() bool { return srv.Processes()[0].Subscribers == 0 })
	if err != nil {
		t.Fatal(err)
	}
	kill(t, c, pid)
	if err := srv.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	paths := map[string]int{}
	for _, r := range srv.Requests() {
		paths[r.Method+" "+r.Path]++
	}
	if paths["POST /process.Process/Start"] != 1 || paths["POST /process.Process/SendSignal"] != 1 {
		t.Errorf("Requests = %v", paths)
	}
}
