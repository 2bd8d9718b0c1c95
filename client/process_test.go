// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/internal/envdversion"
)

// sh returns a command that runs a script in a plain shell.
func sh(ctx context.Context, c *client.Client, script string) *client.Cmd {
	return c.Command(ctx, "/bin/sh", "-c", script)
}

func wantIs(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("error %v (%T) does not match %v", err, err, w)
		}
	}
}

// start starts the command and sees to it that it does not outlive the test.
func start(t *testing.T, cmd *client.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		// It may have ended, and may have been waited for.
		_ = cmd.Process.Kill(ctx)
		_ = cmd.Wait()
	})
}

func listed(ctx context.Context, t *testing.T, c *client.Client, pid uint32) (client.ProcessInfo, bool) {
	t.Helper()
	infos, err := c.Processes(ctx)
	if err != nil {
		t.Fatalf("Processes: %v", err)
	}
	i := slices.IndexFunc(infos, func(p client.ProcessInfo) bool { return p.PID == pid })
	if i < 0 {
		return client.ProcessInfo{}, false
	}
	return infos[i], true
}

// wantGone waits until the list no longer has the command: its end event may
// come a moment before.
func wantGone(ctx context.Context, t *testing.T, c *client.Client, pid uint32) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, ok := listed(ctx, t, c, pid); !ok {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("pid %d is still listed", pid)
			return
		}
	}
}

func uniqueTag(t *testing.T) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), time.Now().UnixNano())
}

func TestRunExitCodes(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		for _, code := range []int{0, 1, 3, 126, 127, 255} {
			cmd := sh(ctx, c, fmt.Sprintf("echo complaint >&2; echo out; exit %d", code))
			err := cmd.Run()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code || !cmd.ProcessState.Exited() {
				t.Errorf("exit %d: state is %v, error %v", code, cmd.ProcessState, err)
				continue
			}
			if cmd.ProcessState.PID() != cmd.Process.PID() || cmd.Process.PID() == 0 {
				t.Errorf("pid is %d in the state and %d in the process", cmd.ProcessState.PID(), cmd.Process.PID())
			}
			var exit *client.ExitError
			if code == 0 {
				if err != nil {
					t.Errorf("exit 0: %v", err)
				}
				continue
			}
			if !errors.As(err, &exit) || exit.ExitCode() != code || string(exit.Stderr) != "complaint\n" {
				t.Errorf("exit %d: error is %#v", code, err)
			}
			if errors.Is(err, exec.ErrNotFound) {
				t.Errorf("exit %d of a program that exists matches exec.ErrNotFound", code)
			}
		}
	})
}

func TestOutput(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		out, err := sh(ctx, c, "printf one; printf two >&2").Output()
		if string(out) != "one" || err != nil {
			t.Errorf("Output = %q, %v", out, err)
		}
		out, err = sh(ctx, c, "printf two >&2").CombinedOutput()
		if string(out) != "two" || err != nil {
			t.Errorf("CombinedOutput = %q, %v", out, err)
		}
		out, err = sh(ctx, c, "printf kept; exit 4").Output()
		var exit *client.ExitError
		if string(out) != "kept" || !errors.As(err, &exit) {
			t.Errorf("Output of a failure = %q, %v", out, err)
		}
		limited := sh(ctx, c, "yes")
		limited.OutputLimit = 1000
		out, err = limited.Output()
		if len(out) != 1000 {
			t.Errorf("limited output has %d bytes", len(out))
		}
		wantIs(t, err, client.ErrOutputLimit)
		wantGone(ctx, t, c, limited.Process.PID())
	})
}

func TestEnvironment(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, `printf '%s|%s|%s' "$A" "$HOME" "$PWD"; test -n "$PATH"`)
		cmd.Env = map[string]string{"A": "x y=z", "HOME": "/nowhere"}
		cmd.Dir = "/usr"
		cmd.Tag = uniqueTag(t)
		out, err := cmd.Output()
		if want := "x y=z|/nowhere|/usr"; string(out) != want || err != nil {
			t.Errorf("got %q, %v; want %q", out, err, want)
		}
		if len(cmd.Env) != 2 {
			t.Errorf("Start changed Env to %v", cmd.Env)
		}
	})
}

func TestMissingProgramAndDirectory(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		for _, path := range []string{"no-such-program-at-all", "/no/such/program"} {
			wantIs(t, c.Command(ctx, path).Run(), exec.ErrNotFound)
		}
		cmd := sh(ctx, c, "true")
		cmd.Dir = "/no/such/directory"
		err := cmd.Run()
		wantIs(t, err, fs.ErrNotExist)
		// Daemons with no check of their own have one text for both; a stat tells.
		_, statErr := c.FilesystemService().Stat(ctx, statRequest("/"))
		if statErr == nil && errors.Is(err, exec.ErrNotFound) {
			t.Errorf("a missing directory matches exec.ErrNotFound: %v", err)
		}
	})
}

func TestUnknownUser(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, "true")
		cmd.User = "no-such-user"
		wantIs(t, cmd.Run(), client.ErrUnauthenticated)
	})
}

func TestStdin(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
				tg.needs(t, envdversion.CloseStdin)
				data := bytes.Repeat([]byte("0123456789abcdef\n"), 20_000)
				cmd := c.Command(ctx, "cat")
				cmd.Stdin, cmd.StreamInput = bytes.NewReader(data), stream
				out, err := cmd.Output()
				if !bytes.Equal(out, data) || err != nil {
					t.Errorf("cat gave %d bytes of %d, %v", len(out), len(data), err)
				}
				early := sh(ctx, c, "head -c 3")
				early.Stdin, early.StreamInput = bytes.NewReader(data), stream
				out, err = early.Output()
				if string(out) != "012" || err != nil {
					t.Errorf("a command that reads only a little: %q, %v", out, err)
				}
			})
		})
	}
}

func TestStdinEndUnsupported(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		if tg.version.Has(envdversion.CloseStdin) {
			t.Skip("this version can end the input")
		}
		cmd := c.Command(ctx, "cat")
		cmd.Tag = uniqueTag(t)
		cmd.Stdin = strings.NewReader("x")
		wantIs(t, cmd.Start(), errors.ErrUnsupported)
		infos, err := c.Processes(ctx)
		if err != nil || slices.ContainsFunc(infos, func(p client.ProcessInfo) bool { return p.Tag == cmd.Tag }) {
			t.Errorf("the command runs: %v, %v", infos, err)
		}
	})
}

func TestStdinPipe(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, `read -r a; echo "got $a"; read -r b; echo "got $b"`)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		if _, err := io.WriteString(in, "one\n"); err != nil {
			t.Errorf("Write: %v", err)
		}
		buf := make([]byte, len("got one\n"))
		if _, err := io.ReadFull(out, buf); string(buf) != "got one\n" || err != nil {
			t.Errorf("read %q, %v", buf, err)
		}
		if err := cmd.Process.SendInput(ctx, []byte("two\n")); err != nil {
			t.Errorf("SendInput: %v", err)
		}
		rest, err := io.ReadAll(out)
		if string(rest) != "got two\n" || err != nil {
			t.Errorf("read %q, %v", rest, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
		_, err = io.WriteString(in, "late\n")
		wantIs(t, err, client.ErrNoInput)
	})
}

func TestNoInput(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		tg.needs(t, envdversion.StdinField)
		off := sh(ctx, c, "sleep 60")
		start(t, off)
		wantIs(t, off.Process.SendInput(ctx, []byte("x")), client.ErrNoInput)
		wantIs(t, off.Process.Resize(ctx, client.Size{Cols: 80, Rows: 24}), client.ErrNoInput)
		gone := c.Process(client.PID(4_000_000_000))
		wantIs(t, gone.SendInput(ctx, []byte("x")), client.ErrNoInput, client.ErrProcessNotFound)
		if tg.version.Lacks(envdversion.CloseStdin) {
			wantIs(t, off.Process.CloseStdin(ctx), errors.ErrUnsupported)
			return
		}
		closed := sh(ctx, c, "sleep 60")
		if _, err := closed.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		start(t, closed)
		if err := closed.Process.CloseStdin(ctx); err != nil {
			t.Errorf("CloseStdin: %v", err)
		}
		wantIs(t, closed.Process.SendInput(ctx, []byte("x")), client.ErrNoInput)
	})
}

func TestPTY(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, `stty -echo; stty size; echo "$TERM $LANG"; cat; stty size`)
		cmd.PTY = &client.Size{Cols: 91, Rows: 17}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		want := "17 91\r\nxterm-256color C.UTF-8\r\n"
		buf := make([]byte, len(want))
		if _, err := io.ReadFull(out, buf); string(buf) != want || err != nil {
			t.Fatalf("read %q, %v; want %q", buf, err, want)
		}
		if err := cmd.Process.Resize(ctx, client.Size{Cols: 100, Rows: 30}); err != nil {
			t.Errorf("Resize: %v", err)
		}
		if _, err := io.WriteString(in, "héllo"); err != nil {
			t.Errorf("Write: %v", err)
		}
		if err := in.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		rest, err := io.ReadAll(out)
		if want := "héllo30 100\r\n"; string(rest) != want || err != nil {
			t.Errorf("read %q, %v; want %q", rest, err, want)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestPTYStdinEOF(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, "stty -echo; cat; echo end")
		cmd.PTY = &client.Size{Cols: 80, Rows: 24}
		cmd.Stdin = strings.NewReader("line\n")
		out, err := cmd.Output()
		if !strings.HasSuffix(string(out), "line\r\nend\r\n") || err != nil {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

// Bytes arrive as they were written, wherever the daemon cuts its events.
func TestBytesKept(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		out, err := sh(ctx, c, `printf '\303'; sleep 0.05; printf '\244\033['; sleep 0.05; printf '31m\000\377'`).Output()
		if want := "ä\x1b[31m\x00\xff"; string(out) != want || err != nil {
			t.Errorf("got %q, %v; want %q", out, err, want)
		}
		const size = 3_000_000
		out, err = sh(ctx, c, fmt.Sprintf("yes 0123456789€ | head -c %d", size)).Output()
		want := bytes.Repeat([]byte("0123456789€\n"), size/14+1)[:size]
		if !bytes.Equal(out, want) || err != nil {
			t.Errorf("big output: %d bytes, %v", len(out), err)
		}
	})
}

func TestTimeouts(t *testing.T) {
	tests := []struct {
		name, script string
		set          func(*client.Cmd)
		is           error
	}{
		{"wall clock", "sleep 60", func(c *client.Cmd) { c.Timeout = 300 * time.Millisecond }, client.ErrTimeout},
		{"chatty", "while :; do echo x; sleep 0.02; done", func(c *client.Cmd) { c.Timeout = 300 * time.Millisecond }, client.ErrTimeout},
		{"idle", "echo x; sleep 60", func(c *client.Cmd) { c.IdleTimeout = 300 * time.Millisecond }, client.ErrIdleTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
				cmd := sh(ctx, c, "exec 2>&1; "+tt.script)
				tt.set(cmd)
				err := cmd.Run()
				wantIs(t, err, tt.is, context.DeadlineExceeded)
				if cmd.Process == nil {
					t.Fatalf("not started: %v", err)
				}
				if cmd.ProcessState == nil || cmd.ProcessState.Signal() != client.SIGKILL {
					t.Errorf("state is %v", cmd.ProcessState)
				}
				wantGone(ctx, t, c, cmd.Process.PID())
			})
		})
	}
}

func TestContextCancel(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cancelCtx, cancel := context.WithCancel(ctx)
		cmd := c.Command(cancelCtx, "sleep", "60")
		start(t, cmd)
		cancel()
		wantIs(t, cmd.Wait(), context.Canceled)
		wantGone(ctx, t, c, cmd.Process.PID())
		wantIs(t, c.Command(cancelCtx, "true").Start(), context.Canceled)
	})
}

func TestCancelOverride(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cancelCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd := c.Command(cancelCtx, "sleep", "60")
		cmd.Cancel = func() error { return cmd.Process.Terminate(ctx) }
		start(t, cmd)
		cancel()
		wantIs(t, cmd.Wait(), context.Canceled)
		if cmd.ProcessState == nil || cmd.ProcessState.Signal() != client.SIGTERM {
			t.Errorf("state is %v", cmd.ProcessState)
		}
	})
}

func TestDetachAndAttach(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cancelCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		cmd := sh(cancelCtx, c, `read -r line; echo "$line"; exit 5`)
		cmd.Tag = uniqueTag(t)
		cmd.Cancel = func() error { return client.ErrDetach }
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		cancel()
		wantIs(t, cmd.Wait(), client.ErrDetach, context.Canceled)
		selectors := []client.Selector{client.PID(cmd.Process.PID()), client.Tag(cmd.Tag)}
		joined := make([]*client.Cmd, len(selectors))
		outs := make([]bytes.Buffer, len(selectors))
		for i, s := range selectors {
			joined[i] = c.Attach(ctx, s)
			joined[i].Stdout = &outs[i]
			start(t, joined[i])
		}
		if err := c.Process(selectors[1]).SendInput(ctx, []byte("hello\n")); err != nil {
			t.Errorf("SendInput: %v", err)
		}
		for i, a := range joined {
			var exit *client.ExitError
			if err := a.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 || outs[i].String() != "hello\n" {
				t.Errorf("attached by %v: %q, %v", a, outs[i].String(), err)
			}
		}
		late := c.Attach(ctx, selectors[0]).Run()
		var exit *client.ExitError
		if !errors.Is(late, client.ErrProcessNotFound) && !(errors.As(late, &exit) && exit.ExitCode() == 5) {
			t.Errorf("late attach: %v", late)
		}
	})
}

func TestProcesses(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := c.Command(ctx, "sleep", "60", "0")
		cmd.Env, cmd.Dir, cmd.Tag = map[string]string{"K": "v"}, "/usr", uniqueTag(t)
		start(t, cmd)
		plain := c.Command(ctx, "sleep", "60")
		start(t, plain)
		got, ok := listed(ctx, t, c, cmd.Process.PID())
		if !ok || got.Path != "sleep" || !slices.Equal(got.Args, []string{"60", "0"}) || got.Dir != "/usr" ||
			got.Tag != cmd.Tag || len(got.Env) != 1 || got.Env["K"] != "v" {
			t.Errorf("listed as %+v", got)
		}
		if got, ok := listed(ctx, t, c, plain.Process.PID()); !ok || got.Tag != "" {
			t.Errorf("listed as %+v", got)
		}
		twin := c.Command(ctx, "sleep", "60")
		twin.Tag = cmd.Tag
		start(t, twin)
		wantIs(t, c.Process(client.Tag(cmd.Tag)).Kill(ctx), client.ErrTagAmbiguous)
	})
}

func TestSignals(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		for _, sig := range []client.Signal{client.SIGTERM, client.SIGKILL} {
			cmd := c.Command(ctx, "sleep", "60")
			start(t, cmd)
			wantIs(t, cmd.Process.Signal(ctx, client.SIGINT), errors.ErrUnsupported)
			if err := c.Process(client.PID(cmd.Process.PID())).Signal(ctx, sig); err != nil {
				t.Errorf("Signal: %v", err)
			}
			var exit *client.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.Signal() != sig || exit.ExitCode() != -1 || exit.Exited() {
				t.Errorf("%v: %v", sig, err)
			}
			wantGone(ctx, t, c, cmd.Process.PID())
			wantIs(t, cmd.Process.Kill(ctx), client.ErrProcessNotFound, os.ErrProcessDone)
			wantIs(t, c.Process(client.PID(cmd.Process.PID())).Kill(ctx), client.ErrProcessNotFound, os.ErrProcessDone)
		}
	})
}

// A grandchild that holds the output open delays the end; a kill of the leader
// ends it, and KillTree ends the grandchild too.
func TestGrandchild(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, "sleep 20 & echo started; wait")
		cmd.Timeout, cmd.WaitDelay, cmd.KillTree = 500*time.Millisecond, 3*time.Second, true
		var out bytes.Buffer
		cmd.Stdout = &out
		wantIs(t, cmd.Run(), client.ErrTimeout)
		if out.String() != "started\n" {
			t.Errorf("output is %q", out.String())
		}
		wantGone(ctx, t, c, cmd.Process.PID())
	})
}

func TestKillTree(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, "sleep 50 & echo $!; wait")
		cmd.KillTree = true
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		var child int
		if _, err := fmt.Fscan(out, &child); err != nil {
			t.Fatal(err)
		}
		if info, ok := listed(ctx, t, c, cmd.Process.PID()); !ok || info.Path != "/bin/sh" {
			t.Errorf("listed as %+v", info)
		}
		if err := cmd.Process.KillTree(ctx); err != nil {
			t.Errorf("KillTree: %v", err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("Wait is nil after a kill")
		}
		// A process that was killed closes its files a moment before it is gone.
		gone := fmt.Sprintf(`i=0
			while test -d /proc/%[1]d && ! grep -q '^State:.Z' /proc/%[1]d/status; do
				i=$((i+1)); test $i -lt 100 || exit 1; sleep 0.05
			done`, child)
		if err := sh(ctx, c, gone).Run(); err != nil {
			t.Errorf("the child still runs: %v", err)
		}
		plain := c.Command(ctx, "sleep", "50")
		start(t, plain)
		wantIs(t, plain.Process.KillTree(ctx), errors.ErrUnsupported)
	})
}

func TestDaemonCalls(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		if err := c.Health(ctx); err != nil {
			t.Errorf("Health: %v", err)
		}
		if m, err := c.Metrics(ctx); err != nil || m == nil {
			t.Errorf("Metrics = %v, %v", m, err)
		}
		if envs, err := c.Envs(ctx); err != nil || envs == nil {
			t.Errorf("Envs = %v, %v", envs, err)
		}
	})
}

func TestMisuse(t *testing.T) {
	_, c := embedded(t)
	ctx := t.Context()
	tests := []struct {
		name string
		do   func() error
	}{
		{"Wait before Start", func() error { return c.Command(ctx, "true").Wait() }},
		{"Start twice", func() error {
			cmd := c.Command(ctx, "true")
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
			return cmd.Start()
		}},
		{"Wait twice", func() error {
			cmd := c.Command(ctx, "true")
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
			return cmd.Wait()
		}},
		{"Output with Stdout", func() error {
			cmd := c.Command(ctx, "true")
			cmd.Stdout = io.Discard
			_, err := cmd.Output()
			return err
		}},
		{"CombinedOutput with Stderr", func() error {
			cmd := c.Command(ctx, "true")
			cmd.Stderr = io.Discard
			_, err := cmd.CombinedOutput()
			return err
		}},
		{"StdinPipe twice", func() error {
			cmd := c.Command(ctx, "true")
			if _, err := cmd.StdinPipe(); err != nil {
				t.Error(err)
			}
			_, err := cmd.StdinPipe()
			return err
		}},
		{"StdoutPipe twice", func() error {
			cmd := c.Command(ctx, "true")
			if _, err := cmd.StdoutPipe(); err != nil {
				t.Error(err)
			}
			_, err := cmd.StdoutPipe()
			return err
		}},
		{"write before Start", func() error {
			in, err := c.Command(ctx, "true").StdinPipe()
			if err != nil {
				t.Error(err)
			}
			_, err = in.Write([]byte("x"))
			return err
		}},
		{"no command", func() error { return c.Command(ctx, "").Run() }},
		{"NUL", func() error { return c.Command(ctx, "a\x00b").Run() }},
		{"nothing selected", func() error { return c.Attach(ctx, client.Selector{}).Run() }},
		{"attach with a program", func() error {
			cmd := c.Attach(ctx, client.PID(1))
			cmd.Path = "true"
			return cmd.Run()
		}},
		{"negative timeout", func() error {
			cmd := c.Command(ctx, "true")
			cmd.Timeout = -1
			return cmd.Run()
		}},
		{"bad variable", func() error {
			cmd := c.Command(ctx, "true")
			cmd.Env = map[string]string{"A=B": ""}
			return cmd.Run()
		}},
		{"terminal too large", func() error {
			cmd := c.Command(ctx, "true")
			cmd.PTY = &client.Size{Cols: 1 << 16}
			return cmd.Run()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.do()
			var e *client.Error
			if !errors.As(err, &e) || e.Code != client.CodeFailedPrecondition && e.Code != client.CodeInvalidArgument {
				t.Errorf("error is %v", err)
			}
		})
	}
}
