// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package envdtest_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
)

func TestEnvironment(t *testing.T) {
	const path = "/usr/local/bin:/usr/bin:/bin"
	tests := []struct{ version, sandbox, pwd string }{
		{"0.6.13", "false", "PWD=/tmp "},
		{"0.5.2", "false", ""},
		{"0.2.0", "true", ""},
	}
	for _, tt := range tests {
		t.Run(tt.version, func(t *testing.T) {
			c := newClient(newServer(t, envdtest.WithVersion(tt.version), envdtest.WithPath(path)))
			req := command("env")
			req.Process.Envs = map[string]string{"HOME": "/h", "EMPTY": ""}
			req.Process.Cwd = new("/tmp")
			_, next := start(t, t.Context(), c, req)
			o := next.collect()
			wantEnd(t, o, 0, "exit status 0")
			got := strings.Fields(o.stdout)
			want := strings.Fields("E2B_SANDBOX=" + tt.sandbox + " EMPTY= HOME=/h LOGNAME=user PATH=" + path + " USER=user " + tt.pwd)
			if missing := difference(want, got); len(missing) > 0 || len(got) != len(want) {
				t.Errorf("environment %v, want %v", got, want)
			}
		})
	}
}

// difference returns what a has and b has not.
func difference(a, b []string) []string {
	has := map[string]bool{}
	for _, s := range b {
		has[s] = true
	}
	var missing []string
	for _, s := range a {
		if !has[s] {
			missing = append(missing, s)
		}
	}
	return missing
}

func TestPIDIsOfTheOperatingSystem(t *testing.T) {
	srv := newServer(t)
	pid, next := start(t, t.Context(), newClient(srv), shell("echo $$"))
	o := next.collect()
	if strings.TrimSpace(o.stdout) != strconv.Itoa(int(pid)) {
		t.Errorf("pid = %d, the process says %s", pid, o.stdout)
	}
}

func TestEndWaitsForOutputs(t *testing.T) {
	c := newClient(newServer(t))
	_, next := start(t, t.Context(), c, shell("(sleep 0.3; echo late) & echo hi; exit 3"))
	o := next.collect()
	wantEnd(t, o, 3, "exit status 3")
	if o.stdout != "hi\nlate\n" {
		t.Errorf("stdout = %q", o.stdout)
	}
}

// A signal ends the stream although a child holds the output, even when the
// process itself has exited already.
func TestSignalCutsOutputs(t *testing.T) {
	tests := []struct {
		name, script string
		code         int32
		status       string
	}{
		{"running", "sleep 30 & echo $!; exec sleep 60", -1, "signal: killed"},
		{"exited", "sleep 30 & echo $!; exit 4", 4, "exit status 4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(newServer(t))
			pid, next := start(t, t.Context(), c, shell(tt.script))
			next.until(t, "\n")
			if tt.code == 4 {
				waitZombie(t, int(pid))
			}
			kill(t, c, pid)
			wantEnd(t, next.collect(), tt.code, tt.status)
		})
	}
}

func TestTrapOutputArrives(t *testing.T) {
	c := newClient(newServer(t))
	for range 10 {
		pid, next := start(t, t.Context(), c, shell("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep .02; done"))
		next.until(t, "ready")
		sendSignal(t, c, pid, processpb.Signal_SIGNAL_SIGTERM)
		o := next.collect()
		wantEnd(t, o, 3, "exit status 3")
		if o.stdout != "bye\n" {
			t.Errorf("stdout = %q", o.stdout)
		}
	}
}

func TestMegabytes(t *testing.T) {
	c := newClient(newServer(t))
	o := run(t, c, "/bin/sh", "-c", "head -c 4000000 /dev/zero; head -c 1000000 /dev/zero >&2")
	wantEnd(t, o, 0, "exit status 0")
	if len(o.stdout) != 4_000_000 || len(o.stderr) != 1_000_000 {
		t.Errorf("%d and %d bytes", len(o.stdout), len(o.stderr))
	}
}

func TestArgumentsTooLong(t *testing.T) {
	c := newClient(newServer(t))
	arg := strings.Repeat("x", 140_000)
	err := startErr(t, c, command("/bin/echo", arg))
	wantError(t, err, connect.CodeInvalidArgument,
		"error starting process '/bin/echo "+arg+"': fork/exec /bin/sh: argument list too long")
}

func TestRealTerminal(t *testing.T) {
	c := newClient(newServer(t))
	req := shell("stty size; read x; stty size; echo got:$x; echo err >&2; read y; exit 6")
	req.Pty = &processpb.PTY{Size: &processpb.PTY_Size{Cols: 91, Rows: 33}}
	pid, next := start(t, t.Context(), c, req)
	next.until(t, "33 91\r\n")
	size := &processpb.PTY{Size: &processpb.PTY_Size{Cols: 120, Rows: 40}}
	if _, err := c.Update(t.Context(), &processpb.UpdateRequest{Process: byPID(pid), Pty: size}); err != nil {
		t.Fatal(err)
	}
	if err := sendPTY(t.Context(), c, pid, "hello\r"); err != nil {
		t.Fatal(err)
	}
	next.until(t, "hello\r\n40 120\r\ngot:hello\r\nerr\r\n")
	if err := sendPTY(t.Context(), c, pid, "\x04"); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, next.collect(), 6, "exit status 6")
}

func TestRealTerminalCtrlC(t *testing.T) {
	c := newClient(newServer(t))
	req := command("sleep", "60")
	req.Pty = &processpb.PTY{}
	pid, next := start(t, t.Context(), c, req)
	for {
		// Until sleep runs, the shell before it has the terminal.
		if err := sendPTY(t.Context(), c, pid, "\x03"); err != nil {
			break
		}
		event, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if end := event.GetEnd(); end != nil {
			if end.GetStatus() != "signal: interrupt" {
				t.Errorf("end = %v", end)
			}
			break
		}
	}
}

// Without the shell wrapper a terminal's error has a form of its own.
func TestTerminalRefused(t *testing.T) {
	c := newClient(newServer(t, envdtest.WithVersion("0.2.0")))
	req := command("/bin/sh", "-c", "x")
	req.Process.Cwd = new("/nope")
	req.Pty = &processpb.PTY{Size: &processpb.PTY_Size{Cols: 91, Rows: 33}}
	wantError(t, startErr(t, c, req), connect.CodeInvalidArgument,
		"error starting pty with command '/bin/sh -c x' in dir '/nope' with '91' cols and '33' rows: fork/exec /bin/sh: no such file or directory")
}

// Close leaves no process behind: neither the leader, nor a child of it, nor a
// child that lost its parent but holds the output, nor the child of one that
// was killed before.
func TestCloseKillsEverything(t *testing.T) {
	scripts := map[string]string{
		"child":    "sleep 300 & echo $$ $!; wait",
		"orphan":   "(sleep 300 & echo $!); exit 0",
		"detached": "sleep 300 >/dev/null 2>&1 & echo $$ $!; wait",
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			pids := pidsOf(t, srv, script, false)
			srv.Close()
			waitGone(t, pids)
		})
	}
	t.Run("killed before", func(t *testing.T) {
		srv := newServer(t)
		pids := pidsOf(t, srv, scripts["child"], true)
		srv.Close()
		waitGone(t, pids)
	})
	t.Run("terminal", func(t *testing.T) {
		srv := newServer(t)
		req := shell("sleep 300 & echo $$ $!; wait")
		req.Pty = &processpb.PTY{}
		_, next := start(t, t.Context(), newClient(srv), req)
		pids := fields(t, line(t, next))
		srv.Close()
		waitGone(t, pids)
	})
}

func pidsOf(t *testing.T, srv *envdtest.Server, script string, killFirst bool) []int {
	t.Helper()
	c := newClient(srv)
	pid, next := start(t, t.Context(), c, shell(script))
	pids := fields(t, line(t, next))
	if killFirst {
		kill(t, c, pid)
		next.collect()
	}
	return pids
}

// line reads one line of output.
func line(t *testing.T, next receiver) string {
	t.Helper()
	var got string
	for !strings.HasSuffix(got, "\n") {
		event, err := next()
		if err != nil {
			t.Fatal(err)
		}
		got += string(event.GetData().GetStdout()) + string(event.GetData().GetPty())
	}
	return got
}

func fields(t *testing.T, text string) []int {
	t.Helper()
	var pids []int
	for _, field := range strings.Fields(text) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func TestGroupKill(t *testing.T) {
	srv := newServer(t, envdtest.WithQuirk(envdtest.QuirkGroupKill))
	c := newClient(srv)
	pid, next := start(t, t.Context(), c, shell("sleep 300 & echo $!; wait"))
	child := fields(t, line(t, next))
	kill(t, c, pid)
	wantEnd(t, next.collect(), -1, "signal: killed")
	waitGone(t, child)
}

func TestListingIsEcho(t *testing.T) {
	c := newClient(newServer(t))
	req := command("sleep", "60")
	req.Process.Cwd = new("/tmp")
	start(t, t.Context(), c, req)
	list, err := c.List(t.Context(), &processpb.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := list.GetProcesses()[0].GetConfig()
	if cfg.GetCmd() != "sleep" || cfg.GetCwd() != "/tmp" || cfg.Cwd == nil || list.GetProcesses()[0].Tag != nil {
		t.Errorf("List = %v", list)
	}
}

func TestHalfGoneClient(t *testing.T) {
	srv := newServer(t)
	ctx, hangUp := context.WithCancel(t.Context())
	pid, _ := start(t, ctx, newClient(srv), command("cat"))
	hangUp()
	err := srv.WaitFor(t.Context(), func() bool { return srv.Processes()[0].Subscribers == 0 })
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(srv)
	_, next := attach(t, t.Context(), c, byPID(pid))
	if err := sendInput(t.Context(), c, pid, "still here"); err != nil {
		t.Fatal(err)
	}
	next.until(t, "still here")
}
