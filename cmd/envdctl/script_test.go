// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"envdctl": main})
}

// raceSettings keep each envdctl from waiting a second for late reports.
const raceSettings = "atexit_sleep_ms=0"

// leakChecked runs the tests and fails when they leave a goroutine behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestScript runs what needs no daemon but those that the scripts start.
func TestScript(t *testing.T) {
	testscript.Run(t, scripts("script", nil, envdversion.Version{}))
}

// TestDaemon runs one set of scripts against each daemon that the embedded envd
// can be.
func TestDaemon(t *testing.T) {
	for _, v := range envdversion.Supported() {
		t.Run(v.String(), func(t *testing.T) {
			runDaemonScripts(t, v, envdtest.WithVersion(v.String()))
		})
	}
	t.Run("fc", func(t *testing.T) {
		runDaemonScripts(t, envdversion.V(0, 5, 2), envdtest.WithDialect(envdtest.FC))
	})
}

func runDaemonScripts(t *testing.T, v envdversion.Version, opts ...envdtest.Option) {
	srv := envdtest.NewServer(opts...)
	t.Cleanup(srv.Close)
	testscript.Run(t, scripts("daemon", map[string]string{client.EnvURL: srv.URL, client.EnvUser: "root"}, v))
}

// TestLive runs the same set against the daemon that ENVD_URL names. Say its
// release in ENVD_VERSION if it is not the newest.
func TestLive(t *testing.T) {
	if os.Getenv(client.EnvURL) == "" {
		t.Skipf("%s is not set", client.EnvURL)
	}
	env := map[string]string{}
	for _, name := range []string{client.EnvURL, client.EnvAccessToken, client.EnvUser} {
		env[name] = os.Getenv(name)
	}
	v := envdversion.Latest
	if text := os.Getenv("ENVD_VERSION"); text != "" {
		var err error
		if v, err = envdversion.Parse(text); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, scripts("daemon", env, v))
}

func scripts(dir string, env map[string]string, v envdversion.Version) testscript.Params {
	return testscript.Params{
		Dir:                 "testdata/" + dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			for _, name := range []string{client.EnvURL, client.EnvAccessToken, client.EnvUser} {
				e.Setenv(name, env[name])
			}
			e.Setenv("TAG", fmt.Sprintf("script-%d-%d", os.Getpid(), time.Now().UnixNano()))
			e.Setenv("REFUSED", refusedURL())
			e.Setenv("GORACE", raceSettings)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":  status,
			"serve":   serve,
			"running": running,
			"end":     end,
		},
		Condition: func(cond string) (bool, error) { return hasFeature(v, cond) },
	}
}

// refusedURL is an address that nobody listens on.
func refusedURL() string {
	srv := httptest.NewServer(nil)
	defer srv.Close()
	return srv.URL
}

// hasFeature answers conditions such as [has:close-stdin].
func hasFeature(v envdversion.Version, cond string) (bool, error) {
	name, ok := strings.CutPrefix(cond, "has:")
	if !ok {
		return false, fmt.Errorf("unknown condition %q", cond)
	}
	for _, row := range envdversion.Features() {
		if row.Name == name {
			return v.Has(row.Feature), nil
		}
	}
	return false, fmt.Errorf("unknown feature %q", name)
}

// status runs a program and checks its exit code: status CODE PROGRAM [ARG...].
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// serve starts "envdctl serve" with the flags, puts the URL that it prints into
// $ENVD_URL, and ends it with the script: serve [FLAG...].
func serve(ts *testscript.TestScript, neg bool, args []string) {
	cmd := exec.Command("envdctl", append([]string{"serve", "--addr", "127.0.0.1:0"}, args...)...)
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	ts.Check(cmd.Start())
	ts.Defer(func() {
		ts.Check(cmd.Process.Signal(os.Interrupt))
		if err := cmd.Wait(); err != nil {
			ts.Fatalf("serve: %v\n%s", err, stderr.String())
		}
		if !strings.Contains(stderr.String(), "isolates nothing") {
			ts.Fatalf("serve does not warn: %q", stderr.String())
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		ts.Fatalf("serve: %v", err)
	}
	ts.Setenv(client.EnvURL, strings.TrimSpace(line))
}

// running says whether a command with $TAG runs. It waits for it.
func running(ts *testscript.TestScript, neg bool, _ []string) {
	tag := ts.Getenv("TAG")
	for range 500 {
		if _, ok := find(ts, tag); ok != neg {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("running %s is %v", tag, neg)
}

// end kills the command with $TAG.
func end(ts *testscript.TestScript, _ bool, _ []string) {
	pid, ok := find(ts, ts.Getenv("TAG"))
	if !ok {
		ts.Fatalf("it does not run")
	}
	c := connectTo(ts)
	defer c.Close()
	ts.Check(c.Process(client.PID(pid)).Kill(context.Background()))
}

func find(ts *testscript.TestScript, tag string) (pid uint32, ok bool) {
	c := connectTo(ts)
	defer c.Close()
	processes, err := c.Processes(context.Background())
	ts.Check(err)
	for _, p := range processes {
		if p.Tag == tag {
			return p.PID, true
		}
	}
	return 0, false
}

func connectTo(ts *testscript.TestScript) *client.Client {
	c, err := client.New(ts.Getenv(client.EnvURL), client.WithAccessToken(ts.Getenv(client.EnvAccessToken)))
	ts.Check(err)
	return c
}
