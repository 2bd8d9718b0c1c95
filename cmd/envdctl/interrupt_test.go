// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// transcript collects what a program writes, and can be waited on.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	close(tr.changed)
	tr.changed = make(chan struct{})
	return tr.text.Write(p)
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

func (tr *transcript) wait(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		tr.mu.Lock()
		text, changed := tr.text.String(), tr.changed
		tr.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("no %q in the output: %q", want, text)
		}
	}
}

// ctl is a running envdctl.
type ctl struct {
	*exec.Cmd
	stdout, stderr *transcript
}

func startCtl(t *testing.T, srv *envdtest.Server, args ...string) *ctl {
	t.Helper()
	c := newCtl(t, srv, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func newCtl(t *testing.T, srv *envdtest.Server, args ...string) *ctl {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	c := &ctl{exec.CommandContext(ctx, "envdctl", args...), newTranscript(), newTranscript()}
	c.Stdout, c.Stderr = c.stdout, c.stderr
	c.Env = append(os.Environ(), client.EnvURL+"=", client.EnvAccessToken+"=", client.EnvUser+"=", "GORACE="+raceSettings)
	if srv != nil {
		c.Env = append(c.Env, client.EnvURL+"="+srv.URL)
	}
	return c
}

func (c *ctl) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := c.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// wantExit waits for the end.
func (c *ctl) wantExit(t *testing.T, want int) {
	t.Helper()
	err := c.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != want {
		t.Errorf("exit code %d, want %d (%v); standard error:\n%s", got, want, err, c.stderr)
	}
}

func newServer(t *testing.T) *envdtest.Server {
	srv := envdtest.NewServer()
	t.Cleanup(srv.Close)
	return srv
}

func wantIdle(t *testing.T, srv *envdtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := srv.WaitIdle(ctx); err != nil {
		t.Errorf("something still runs: %v", srv.Processes())
	}
}

// stubborn is a command that says when it gets SIGTERM, and ends only when it
// is killed.
func stubborn(p *envdtest.Proc) int {
	signals := p.Signals()
	fmt.Fprintln(p.Stdout, "ready")
	for {
		select {
		case sig := <-signals:
			fmt.Fprintln(p.Stdout, "got", sig)
		case <-p.Context.Done():
			return 0
		}
	}
}

func TestInterrupt(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			if signal.Ignored(sig) {
				t.Skipf("%v is ignored here, as under nohup, and then envdctl ignores it too", sig)
			}
			srv := newServer(t)
			srv.HandleCommand("polite", func(p *envdtest.Proc) int {
				signals := p.Signals()
				fmt.Fprintln(p.Stdout, "ready")
				fmt.Fprintln(p.Stdout, "got", <-signals)
				return 7
			})
			c := startCtl(t, srv, "exec", "polite")
			c.stdout.wait(t, "ready")
			c.stderr.wait(t, "pid")
			c.signal(t, sig)
			c.wantExit(t, 7)
			if got, want := c.stdout.String(), "ready\ngot terminated\n"; got != want {
				t.Errorf("output %q, want %q", got, want)
			}
		})
	}
}

func TestInterruptTwice(t *testing.T) {
	srv := newServer(t)
	srv.HandleCommand("stubborn", stubborn)
	c := startCtl(t, srv, "exec", "stubborn")
	c.stdout.wait(t, "ready")
	c.stderr.wait(t, "pid")
	c.signal(t, os.Interrupt)
	c.stdout.wait(t, "got terminated")
	c.signal(t, os.Interrupt)
	c.wantExit(t, 128+int(syscall.SIGKILL))
	wantIdle(t, srv)
}

func TestInterruptKillsTree(t *testing.T) {
	srv := newServer(t)
	c := startCtl(t, srv, "exec", "--kill-tree", "--", "sh", "-c", "trap '' TERM; sleep 300 & echo child $!; wait; wait")
	c.stdout.wait(t, "\n")
	c.stderr.wait(t, "pid")
	c.signal(t, os.Interrupt)
	c.wantExit(t, 128+int(syscall.SIGKILL))
	wantIdle(t, srv)
	wantGone(t, strings.TrimPrefix(strings.TrimSpace(c.stdout.String()), "child "))
}

// wantGone waits until no process has the number any more, save as a zombie.
func wantGone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("ps"); err != nil {
		t.Skip(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		state, err := exec.Command("ps", "-o", "stat=", "-p", pid).Output()
		if err != nil || strings.HasPrefix(strings.TrimSpace(string(state)), "Z") {
			return
		}
	}
	_ = syscall.Kill(n, syscall.SIGKILL)
	t.Errorf("process %s still runs", pid)
}

func TestInterruptBeforeStart(t *testing.T) {
	srv := newServer(t)
	const start = "/process.Process/Start"
	srv.Inject(envdtest.Fault{Procedure: start, Action: envdtest.Stall})
	c := startCtl(t, srv, "exec", "true")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := srv.WaitFor(ctx, func() bool {
		for _, req := range srv.Requests() {
			if req.Path == start {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	c.signal(t, syscall.SIGTERM)
	c.wantExit(t, 128+int(syscall.SIGTERM))
	wantIdle(t, srv)
}

func TestIgnoredSignalStaysIgnored(t *testing.T) {
	srv := newServer(t)
	srv.HandleCommand("stubborn", stubborn)
	c := newCtl(t, srv, "-c", "trap '' INT; exec envdctl exec stubborn")
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	c.Path, c.Args[0] = sh, "sh"
	c.Err = nil
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdout.wait(t, "ready")
	c.stderr.wait(t, "pid")
	c.signal(t, os.Interrupt)
	c.signal(t, syscall.SIGTERM)
	c.stdout.wait(t, "got terminated")
	if strings.Contains(c.stderr.String(), "interrupt") {
		t.Errorf("it took notice: %s", c.stderr)
	}
	c.signal(t, syscall.SIGTERM)
	c.wantExit(t, 128+int(syscall.SIGKILL))
}

// flood is a command that writes until it cannot any more.
func flood(p *envdtest.Proc) int {
	for {
		if _, err := io.WriteString(p.Stdout, "y\n"); err != nil {
			return 0
		}
	}
}

func TestReaderGone(t *testing.T) {
	srv := newServer(t)
	srv.HandleCommand("flood", flood)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := newCtl(t, srv, "exec", "-q", "flood")
	c.Stdout = w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 2)); err != nil {
		t.Error(err)
	}
	r.Close()
	c.wantExit(t, 128+int(syscall.SIGPIPE))
	if got := c.stderr.String(); got != "" {
		t.Errorf("standard error: %q", got)
	}
	wantIdle(t, srv)
}

func TestOutputFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	srv := newServer(t)
	srv.HandleCommand("flood", flood)
	c := newCtl(t, srv, "exec", "flood")
	c.Stdout = full
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.wantExit(t, exitFailure)
	if got := c.stderr.String(); !strings.Contains(got, "standard output: ") || !strings.Contains(got, "no space left") {
		t.Errorf("standard error: %q", got)
	}
	wantIdle(t, srv)
}

func TestServeEndsWhatItRuns(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			server := startCtl(t, nil, "serve", "--addr", "127.0.0.1:0")
			server.stdout.wait(t, "\n")
			url := strings.TrimSpace(server.stdout.String())
			c := startCtl(t, nil, "--url", url, "exec", "-d", "--", "sleep", "300")
			c.wantExit(t, 0)
			server.signal(t, sig)
			server.wantExit(t, 0)
			wantGone(t, strings.TrimSpace(c.stdout.String()))
		})
	}
}

// A copy that is interrupted leaves nothing of what was not complete.
func TestInterruptCopy(t *testing.T) {
	remote, local := t.TempDir(), t.TempDir()
	big := filepath.Join(remote, "big")
	if err := errors.Join(os.WriteFile(big, nil, 0o600), os.Truncate(big, 1<<40)); err != nil {
		t.Fatal(err)
	}
	srv := envdtest.NewServer()
	defer srv.Close()
	for _, tt := range []struct {
		name string
		args []string
		dir  string // where it would be left
	}{
		{"download", []string{"cp", "-q", ":" + big, filepath.Join(local, "copy")}, local},
		{"upload", []string{"cp", "-q", "--atomic", big, ":" + filepath.Join(local, "copy")}, local},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errOut syncBuffer
			env := map[string]string{client.EnvURL: srv.URL, client.EnvUser: "root"}
			lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
			done := make(chan int)
			go func() { done <- run(tt.args, strings.NewReader(""), &out, &errOut, lookup) }()
			waitForName(t, tt.dir)
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if code := <-done; code != exitSignal+int(syscall.SIGINT) {
				t.Errorf("exit code %d, said %s", code, errOut.b.String())
			}
			if entries, err := os.ReadDir(tt.dir); err != nil || len(entries) > 0 {
				t.Errorf("left are %v, %v", entries, err)
			}
		})
	}
}

func waitForName(t *testing.T, dir string) {
	t.Helper()
	for range 1000 {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the copy did not begin")
}
