// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
)

// The tests in this file are what daemons do that a client author would not
// expect, in the order of the notes on the process protocol.

// onPipe runs the test in a bubble of synthetic time.
func onPipe(t *testing.T, opts []envdtest.Option, more []client.Option, test func(t *testing.T, srv *envdtest.Server, c *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := envdtest.NewPipeServer(opts...)
		defer srv.Close()
		c, err := client.New(srv.URL, append([]client.Option{client.WithHTTPClient(srv.Client()), client.WithUser("user")}, more...)...)
		if err != nil {
			t.Fatal(err)
		}
		test(t, srv, c)
	})
}

// quiet runs until it is killed.
func quiet(p *envdtest.Proc) int {
	<-p.Context.Done()
	return 0
}

func wantIdle(t *testing.T, srv *envdtest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := srv.WaitIdle(ctx); err != nil {
		t.Errorf("still running: %v", srv.Processes())
	}
}

func TestSurprise01_NothingThatCrashes(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, 1500 * time.Millisecond} {
		if _, err := client.New("http://localhost", client.WithKeepalive(d)); err == nil {
			t.Errorf("keepalive %v is accepted", d)
		}
	}
	onPipe(t, []envdtest.Option{envdtest.WithVersion("0.5.2"), envdtest.WithQuirk(envdtest.QuirkKeepaliveCrash, envdtest.QuirkDeadlineHang)}, nil,
		func(t *testing.T, srv *envdtest.Server, c *client.Client) {
			srv.HandleCommand("quiet", quiet)
			over, cancel := context.WithTimeout(context.Background(), 0)
			defer cancel()
			wantIs(t, c.Command(over, "quiet").Run(), context.DeadlineExceeded)
			wantIs(t, c.Attach(over, client.PID(1)).Run(), context.DeadlineExceeded)
			if n := len(srv.Requests()); n != 0 {
				t.Errorf("%d requests in a context that is over", n)
			}
			for _, d := range []time.Duration{1, time.Microsecond, time.Millisecond, time.Second, 1000 * time.Hour} {
				cmd := c.Command(context.Background(), "quiet")
				cmd.Timeout = d
				wantIs(t, cmd.Run(), client.ErrTimeout)
			}
			for _, req := range srv.Requests() {
				for _, key := range []string{"Keepalive-Ping-Interval", "Connect-Timeout-Ms"} {
					text := req.Header.Get(key)
					if n, err := strconv.ParseInt(text, 10, 64); text != "" && (err != nil || n <= 0) {
						t.Errorf("%s has %s: %s", req.Path, key, text)
					}
				}
			}
			wantIdle(t, srv)
		})
}

func TestSurprise02_TimeoutWithoutEndEvent(t *testing.T) {
	onPipe(t, nil, nil, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
		srv.HandleCommand("quiet", quiet)
		// The client's own kill does not arrive, so the daemon's deadline strikes.
		srv.Inject(envdtest.Fault{Procedure: "/process.Process/SendSignal", Action: envdtest.Stall, Times: -1})
		cmd := c.Command(context.Background(), "quiet")
		cmd.Timeout, cmd.WaitDelay = time.Second, time.Second
		wantIs(t, cmd.Run(), client.ErrTimeout, context.DeadlineExceeded)
		if cmd.ProcessState != nil {
			t.Errorf("state is %v", cmd.ProcessState)
		}
		wantIdle(t, srv)
	})
}

func TestSurprise03_CommandNotFoundInTwoWays(t *testing.T) {
	for _, v := range envdversion.Supported() {
		_, c := embedded(t, envdtest.WithVersion(v.String()))
		cmd := c.Command(t.Context(), "no-such-program")
		startErr := cmd.Start()
		if (startErr == nil) != v.Has(envdversion.ShellWrapper) {
			t.Errorf("envd %v: Start = %v", v, startErr)
		}
		if startErr == nil {
			startErr = cmd.Wait()
		}
		wantIs(t, startErr, exec.ErrNotFound)
	}
}

func TestSurprise04_TagsGetLost(t *testing.T) {
	srv, c := embedded(t, envdtest.WithQuirk(envdtest.QuirkTagLookup))
	for i := range 3 {
		cmd := c.Command(t.Context(), "sleep", "60")
		cmd.Tag = fmt.Sprint("tag-", i)
		start(t, cmd)
	}
	for i := range 3 {
		if err := c.Process(client.Tag(fmt.Sprint("tag-", i))).Kill(t.Context()); err != nil {
			t.Errorf("tag-%d: %v", i, err)
		}
	}
	wantIdle(t, srv)
}

func TestSurprise05_EndWaitsForHoldersOfOutput(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, "sleep 30 & echo started")
		cmd.Timeout = 500 * time.Millisecond
		out, err := cmd.Output()
		wantIs(t, err, client.ErrTimeout)
		if string(out) != "started\n" {
			t.Errorf("output is %q", out)
		}
		wantGone(ctx, t, c, cmd.Process.PID())
	})
}

func TestSurprise06_SignalsReachTheLeaderOnly(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, "sleep 40 >/dev/null 2>&1 & echo $!; wait")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		var child int
		if _, err := fmt.Fscan(out, &child); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Kill(ctx); err != nil {
			t.Errorf("Kill: %v", err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("Wait is nil after a kill")
		}
		if err := sh(ctx, c, fmt.Sprintf("kill -9 %d", child)).Run(); err != nil {
			t.Errorf("the child was gone already: %v", err)
		}
	})
}

func TestSurprise07_NoStdinUnlessAskedFor(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		tg.needs(t, envdversion.StdinField)
		out, err := c.Command(ctx, "cat").Output()
		if len(out) != 0 || err != nil {
			t.Errorf("cat without input = %q, %v", out, err)
		}
	})
}

func TestSurprise08_SlowReaders(t *testing.T) {
	t.Run("keepalives are read", func(t *testing.T) {
		onPipe(t, nil, nil, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
			srv.HandleCommand("late", func(p *envdtest.Proc) int {
				time.Sleep(time.Hour)
				fmt.Fprint(p.Stdout, "late")
				return 0
			})
			out, err := c.Command(context.Background(), "late").Output()
			if string(out) != "late" || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
		})
	})
	t.Run("a writer that pauses", func(t *testing.T) {
		onPipe(t, nil, nil, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
			data := bytes.Repeat([]byte("x"), 1<<20)
			srv.HandleCommand("much", func(p *envdtest.Proc) int {
				p.Stdout.Write(data) //nolint:errcheck // the reader's count tells
				return 0
			})
			cmd := c.Command(context.Background(), "much")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			got, err := io.ReadAll(out)
			if !bytes.Equal(got, data) || err != nil {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("Wait: %v", err)
			}
		})
	})
}

func TestSurprise09_DetachByHangingUp(t *testing.T) {
	onPipe(t, []envdtest.Option{envdtest.WithVersion("0.5.2"), envdtest.WithQuirk(envdtest.QuirkWedgeOnHangup)}, nil,
		func(t *testing.T, srv *envdtest.Server, c *client.Client) {
			srv.HandleCommand("slow", slowCommand(0))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			cmd := c.Command(ctx, "slow")
			cmd.Cancel = func() error { return client.ErrDetach }
			wantIs(t, cmd.Run(), client.ErrDetach)
			out, err := c.Attach(context.Background(), client.PID(cmd.Process.PID())).Output()
			if string(out) != "two\n" || err != nil {
				t.Errorf("after the detach: %q, %v", out, err)
			}
		})
}

func TestSurprise10_TokenGate(t *testing.T) {
	srv, noToken := embedded(t, envdtest.WithAccessToken("right"))
	wrong := dial(t, srv.URL, client.WithUser("root"), client.WithAccessToken("wrong-token"))
	right := dial(t, srv.URL, client.WithUser("root"), client.WithAccessToken("right"))
	if err := right.Command(t.Context(), "true").Run(); err != nil {
		t.Errorf("with the token: %v", err)
	}
	for _, c := range []*client.Client{noToken, wrong} {
		for name, call := range everyCall(t.Context(), c) {
			if name == "Health" {
				continue
			}
			err := call()
			if !errors.Is(err, client.ErrUnauthenticated) {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil && strings.Contains(err.Error(), "wrong-token") {
				t.Errorf("%s: the error has the token: %v", name, err)
			}
		}
		if err := c.Health(t.Context()); err != nil {
			t.Errorf("Health: %v", err)
		}
	}
}

func TestSurprise11_StreamInputStartsWithStart(t *testing.T) {
	_, c := embedded(t, envdtest.WithQuirk(envdtest.QuirkDropDataBeforeStart))
	cmd := c.Command(t.Context(), "cat")
	cmd.Stdin, cmd.StreamInput = strings.NewReader("hello"), true
	out, err := cmd.Output()
	if string(out) != "hello" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestSurprise12_SendInputBlocks(t *testing.T) {
	onPipe(t, nil, []client.Option{client.WithRequestTimeout(3 * time.Second)}, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
		srv.HandleCommand("quiet", quiet)
		cmd := c.Command(context.Background(), "quiet")
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		wantIs(t, cmd.Process.SendInput(context.Background(), make([]byte, 1<<20)), context.DeadlineExceeded)
		wantIs(t, cmd.Process.CloseStdin(context.Background()), context.DeadlineExceeded)
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("two calls took %v", took)
		}
		if err := cmd.Process.Kill(context.Background()); err != nil {
			t.Errorf("Kill behind blocked input: %v", err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("Wait is nil after a kill")
		}
	})
}

func TestSurprise13_EventsCutAnywhere(t *testing.T) {
	for _, json := range []bool{false, true} {
		var opts []client.Option
		if json {
			opts = append(opts, client.WithJSON())
		}
		onPipe(t, nil, opts, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
			const text = "€ \x1b[31mä\x00\xff\xfe"
			srv.HandleCommand("bytes", func(p *envdtest.Proc) int {
				for i := range len(text) {
					io.WriteString(p.Stdout, text[i:i+1]) //nolint:errcheck // the reader sees
				}
				return 0
			})
			out, err := c.Command(context.Background(), "bytes").Output()
			if string(out) != text || err != nil {
				t.Errorf("got %q, %v", out, err)
			}
		})
	}
}

func TestSurprise14_ErrorsAreCut(t *testing.T) {
	for _, v := range envdversion.Supported() {
		_, c := embedded(t, envdtest.WithVersion(v.String()))
		cmd := c.Command(t.Context(), "no-such-program", strings.Repeat("x", 100_000))
		err := cmd.Run()
		if err == nil || len(err.Error()) > 5000 {
			t.Errorf("envd %v: error has %d bytes", v, len(fmt.Sprint(err)))
		}
	}
}

func TestSurprise15_LastWordsMayBeCut(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		cmd := sh(ctx, c, "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Terminate(ctx); err != nil {
			t.Errorf("Terminate: %v", err)
		}
		rest, err := io.ReadAll(out)
		if string(rest) != "" && string(rest) != "bye\n" || err != nil {
			t.Errorf("last words %q, %v", rest, err)
		}
		var exit *client.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestSurprise16_SignalOnlyInTheText(t *testing.T) {
	forTargets(t, func(ctx context.Context, t *testing.T, tg target, c *client.Client) {
		for name, want := range map[string]client.Signal{"USR1": client.SIGUSR1, "PIPE": client.SIGPIPE, "KILL": client.SIGKILL} {
			cmd := sh(ctx, c, fmt.Sprintf("kill -%s $$; sleep 5", name))
			var exit *client.ExitError
			err := cmd.Run()
			if !errors.As(err, &exit) || exit.Signal() != want || exit.ExitCode() != -1 || exit.Exited() || exit.Success() {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
