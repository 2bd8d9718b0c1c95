// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"testing"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
)

func TestExit(t *testing.T) {
	srv := newServer(t)
	c := newClient(srv)
	tests := []struct {
		name, script string
		code         int32
		status       string
	}{
		{"zero", "exit 0", 0, "exit status 0"},
		{"seven", "exit 7", 7, "exit status 7"},
		{"modulo", "exit 300", 44, "exit status 44"},
		{"self TERM", "kill -TERM $$", -1, "signal: terminated"},
		{"self KILL", "kill -KILL $$", -1, "signal: killed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantEnd(t, run(t, c, "/bin/sh", "-c", tt.script), tt.code, tt.status)
		})
	}
}

func TestOutput(t *testing.T) {
	c := newClient(newServer(t))
	o := run(t, c, "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
	wantEnd(t, o, 3, "exit status 3")
	if o.stdout != "out\n" || o.stderr != "err\n" {
		t.Errorf("stdout %q, stderr %q", o.stdout, o.stderr)
	}
}

func TestUnknownCommand(t *testing.T) {
	t.Run("0.6.13", func(t *testing.T) {
		o := run(t, newClient(newServer(t)), "no-such-cmd-xyz")
		wantEnd(t, o, 127, "exit status 127")
		if want := "/usr/bin/nice: 'no-such-cmd-xyz': No such file or directory\n"; o.stderr != want {
			t.Errorf("stderr = %q, want %q", o.stderr, want)
		}
	})
	t.Run("0.5.2", func(t *testing.T) {
		c := newClient(newServer(t, envdtest.WithVersion("0.5.2")))
		err := startErr(t, c, command("no-such-cmd-xyz"))
		wantError(t, err, connect.CodeInvalidArgument,
			`error starting process 'no-such-cmd-xyz': exec: "no-such-cmd-xyz": executable file not found in $PATH`)
	})
}

func TestInputAndClose(t *testing.T) {
	c := newClient(newServer(t))
	pid, next := start(t, t.Context(), c, command("cat"))
	if err := sendInput(t.Context(), c, pid, "hello"); err != nil {
		t.Fatal(err)
	}
	next.until(t, "hello")
	if _, err := c.CloseStdin(t.Context(), &processpb.CloseStdinRequest{Process: byPID(pid)}); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, next.collect(), 0, "exit status 0")
}

func TestListAttachSignal(t *testing.T) {
	srv := newServer(t)
	c := newClient(srv)
	req := command("sleep", "60")
	req.Tag = new("job")
	req.Process.Envs = map[string]string{"SECRET": "s"}
	pid, next := start(t, t.Context(), c, req)
	list, err := c.List(t.Context(), &processpb.ListRequest{})
	if err != nil || len(list.GetProcesses()) != 1 {
		t.Fatalf("List = %v, %v", list, err)
	}
	info := list.GetProcesses()[0]
	if info.GetPid() != pid || info.GetTag() != "job" || info.GetConfig().GetEnvs()["SECRET"] != "s" {
		t.Errorf("List = %v", info)
	}
	again, other := attach(t, t.Context(), c, byTag("job"))
	if again != pid {
		t.Errorf("Connect gave pid %d, want %d", again, pid)
	}
	sendSignal(t, c, pid, processpb.Signal_SIGNAL_SIGTERM)
	wantEnd(t, next.collect(), -1, "signal: terminated")
	wantEnd(t, other.collect(), -1, "signal: terminated")
	if err := srv.WaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHandleCommand(t *testing.T) {
	srv := newServer(t, envdtest.WithoutRealProcesses())
	srv.HandleCommand("greet", func(p *envdtest.Proc) int {
		_, _ = p.Stdout.Write([]byte("hi " + p.Args[0] + "\n"))
		_, _ = p.Stderr.Write([]byte(p.Env["USER"]))
		return 7
	})
	o := run(t, newClient(srv), "greet", "there")
	wantEnd(t, o, 7, "exit status 7")
	if o.stdout != "hi there\n" || o.stderr != "user" {
		t.Errorf("stdout %q, stderr %q", o.stdout, o.stderr)
	}
}
