// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

const (
	startRPC   = "/process.Process/Start"
	connectRPC = "/process.Process/Connect"
)

// slowCommand says one, waits for ten seconds, says two, and exits.
func slowCommand(code int) func(*envdtest.Proc) int {
	return func(p *envdtest.Proc) int {
		fmt.Fprintln(p.Stdout, "one")
		select {
		case <-time.After(10 * time.Second):
		case <-p.Context.Done():
			return 99
		}
		fmt.Fprintln(p.Stdout, "two")
		return code
	}
}

func TestReattach(t *testing.T) {
	cutAfterOne := envdtest.Fault{Procedure: startRPC, Action: envdtest.Cut, After: envdtest.Amount{Events: 2}}
	tests := []struct {
		name    string
		version string
		faults  []envdtest.Fault
		code    int  // of the command
		mute    bool // nobody wants the output
		n       int
		prepare func(*envdtest.Server)

		output   string
		is       []error // what the error matches; none for success
		fate     client.ProcessFate
		exit     int // of ProcessState; -2 for none
		connects int
	}{
		{name: "off", faults: []envdtest.Fault{cutAfterOne}, output: "one\n",
			is: []error{client.ErrStreamLost}, fate: client.FateKilled, exit: -2},
		{name: "once", n: 3, faults: []envdtest.Fault{cutAfterOne}, output: "one\ntwo\n",
			is: []error{client.ErrOutputGap}, connects: 1},
		{name: "nobody wants the output", n: 3, mute: true, faults: []envdtest.Fault{cutAfterOne}, connects: 1},
		{name: "exit code", n: 3, code: 3, faults: []envdtest.Fault{cutAfterOne}, output: "one\ntwo\n",
			is: []error{client.ErrOutputGap}, exit: 3, connects: 1},
		{name: "again after failures", n: 3, output: "one\ntwo\n", is: []error{client.ErrOutputGap}, connects: 3,
			faults: []envdtest.Fault{cutAfterOne, {Procedure: connectRPC, Action: envdtest.Refuse, Times: 2}}},
		{name: "no more tries", n: 3, output: "one\n", is: []error{client.ErrStreamLost}, fate: client.FateKilled, exit: -2, connects: 3,
			faults: []envdtest.Fault{cutAfterOne, {Procedure: connectRPC, Action: envdtest.Refuse, Times: -1}}},
		{name: "streams that bring nothing", n: 3, output: "one\n", is: []error{client.ErrStreamLost}, fate: client.FateKilled, exit: -2, connects: 3,
			faults: []envdtest.Fault{cutAfterOne, {Procedure: connectRPC, Action: envdtest.Cut, After: envdtest.Amount{Events: 1}, Times: -1}}},
		{name: "ended in between, exit kept", n: 3, output: "one\n", is: []error{client.ErrOutputGap}, connects: 1,
			faults: []envdtest.Fault{cutAfterOne, {Procedure: "/process.Process/List", Action: envdtest.Stall}}},
		{name: "ended in between, exit not kept", version: "0.5.2", n: 3, output: "one\n",
			is: []error{client.ErrStreamLost}, fate: client.FateGone, exit: -2, connects: 1,
			faults: []envdtest.Fault{cutAfterOne, {Procedure: "/process.Process/List", Action: envdtest.Stall}}},
		{name: "cut before the end event", n: 3, output: "one\ntwo\n", is: []error{client.ErrOutputGap}, connects: 1,
			faults: []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Cut, After: envdtest.Amount{Events: 3}}}},
		{name: "silence", n: 3, output: "one\ntwo\n", is: []error{client.ErrOutputGap}, connects: 1,
			faults: []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Freeze, After: envdtest.Amount{Events: 4}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				version := tt.version
				if version == "" {
					version = "0.6.13"
				}
				srv := envdtest.NewPipeServer(envdtest.WithVersion(version))
				defer srv.Close()
				srv.HandleCommand("slow", slowCommand(tt.code))
				for _, f := range tt.faults {
					srv.Inject(f)
				}
				c, err := client.New(srv.URL, client.WithHTTPClient(srv.Client()), client.WithUser("user"),
					client.WithReattach(tt.n), client.WithKeepalive(time.Second), client.WithRequestTimeout(30*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				var out strings.Builder
				cmd := c.Command(context.Background(), "slow")
				if !tt.mute {
					cmd.Stdout = &out
				}
				err = cmd.Run()
				if out.String() != tt.output {
					t.Errorf("output is %q, want %q", out.String(), tt.output)
				}
				if (err == nil) != (len(tt.is) == 0) {
					t.Errorf("error is %v", err)
				}
				for _, want := range tt.is {
					if !errors.Is(err, want) {
						t.Errorf("error %v does not match %v", err, want)
					}
				}
				var lost *client.StreamLostError
				if errors.As(err, &lost) != (tt.fate != "") || lost != nil && lost.Fate != tt.fate {
					t.Errorf("error is %v, want fate %q", err, tt.fate)
				}
				checkExit(t, cmd, err, tt.exit)
				if got := countRequests(srv, connectRPC); got != tt.connects {
					t.Errorf("attached %d times, want %d", got, tt.connects)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := srv.WaitIdle(ctx); err != nil {
					t.Errorf("the command still runs")
				}
			})
		})
	}
}

func checkExit(t *testing.T, cmd *client.Cmd, err error, want int) {
	t.Helper()
	if want == -2 {
		if cmd.ProcessState != nil {
			t.Errorf("the command's end is %v, though nobody knows it", cmd.ProcessState)
		}
		return
	}
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
		t.Errorf("the command's end is %v, want code %d", cmd.ProcessState, want)
	}
	var exit *client.ExitError
	if errors.As(err, &exit) != (want != 0) {
		t.Errorf("error %v is an exit error: %v", err, !(want != 0))
	}
}

// A daemon that was started again numbers its commands anew: another command
// with the same pid is not the one that was lost.
func TestReattachAfterRestart(t *testing.T) {
	for _, reused := range []bool{false, true} {
		t.Run(fmt.Sprintf("pid reused %v", reused), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, after := envdtest.NewPipeServer(), envdtest.NewPipeServer()
				defer before.Close()
				defer after.Close()
				for _, srv := range []*envdtest.Server{before, after} {
					srv.HandleCommand("slow", slowCommand(0))
				}
				// The daemon is another one from the start of the command on.
				gateway := roundTripper(func(req *http.Request) (*http.Response, error) {
					srv := after
					if req.URL.Path == startRPC {
						srv = before
					}
					return srv.Client().Transport.RoundTrip(req)
				})
				c, err := client.New(before.URL, client.WithTransport(gateway), client.WithReattach(3), client.WithUser("user"))
				if err != nil {
					t.Fatal(err)
				}
				before.Inject(envdtest.Fault{Procedure: startRPC, Action: envdtest.Cut, After: envdtest.Amount{Events: 2}})
				if reused {
					other, err := client.New(after.URL, client.WithHTTPClient(after.Client()), client.WithUser("user"))
					if err != nil {
						t.Fatal(err)
					}
					bystander := other.Command(context.Background(), "slow")
					if err := bystander.Start(); err != nil {
						t.Fatal(err)
					}
					defer func() {
						if err := bystander.Wait(); err != nil {
							t.Errorf("the other command ended with %v", err)
						}
					}()
				}
				cmd := c.Command(context.Background(), "slow")
				pipe, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				defer pipe.Close()
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				err = cmd.Wait()
				var lost *client.StreamLostError
				if !errors.As(err, &lost) || lost.Fate == client.FateKilled {
					t.Errorf("Wait = %v, want a lost stream of a command that is gone", err)
				}
			})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A daemon that has sent a keepalive is known to send them: a stream that
// freezes before its first one is dead all the same.
func TestFrozenBeforeFirstKeepalive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := envdtest.NewPipeServer()
		defer srv.Close()
		srv.HandleCommand("slow", slowCommand(0))
		c, err := client.New(srv.URL, client.WithHTTPClient(srv.Client()), client.WithUser("user"), client.WithKeepalive(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Command(context.Background(), "slow").Run(); err != nil {
			t.Fatal(err)
		}
		srv.Inject(envdtest.Fault{Procedure: startRPC, Action: envdtest.Freeze, After: envdtest.Amount{Events: 1}})
		err = c.Command(context.Background(), "slow").Run()
		var lost *client.StreamLostError
		if !errors.As(err, &lost) || lost.Fate != client.FateKilled {
			t.Errorf("Run over a frozen stream = %v, want a lost stream whose command was killed", err)
		}
	})
}

// A daemon that never answers an attach in the moment of the command's end
// does not hold it up for long.
func TestAttachWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := envdtest.NewPipeServer(envdtest.WithVersion("0.3.7"))
		defer srv.Close()
		srv.Inject(envdtest.Fault{Procedure: connectRPC, Action: envdtest.Stall})
		c, err := client.New(srv.URL, client.WithHTTPClient(srv.Client()), client.WithUser("user"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = c.Attach(context.Background(), client.PID(42)).Run()
		if !errors.Is(err, client.ErrProcessNotFound) {
			t.Errorf("Attach = %v, want ErrProcessNotFound", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// What was attached to is known again by what it is, since a daemon that was
// started again may give its pid to another command.
func TestAttachAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := envdtest.NewPipeServer(), envdtest.NewPipeServer()
		defer before.Close()
		defer after.Close()
		var current atomic.Pointer[envdtest.Server]
		current.Store(before)
		var running []*client.Cmd
		for _, srv := range []*envdtest.Server{before, after} {
			srv.HandleCommand("slow", slowCommand(0))
			if srv == after {
				srv.HandleCommand("slow", func(*envdtest.Proc) int { time.Sleep(time.Minute); return 0 })
			}
			c, err := client.New(srv.URL, client.WithHTTPClient(srv.Client()), client.WithUser("user"))
			if err != nil {
				t.Fatal(err)
			}
			cmd := c.Command(context.Background(), "slow")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			running = append(running, cmd)
		}
		gateway := roundTripper(func(req *http.Request) (*http.Response, error) {
			return current.Load().Client().Transport.RoundTrip(req)
		})
		c, err := client.New(before.URL, client.WithTransport(gateway), client.WithReattach(3), client.WithUser("user"))
		if err != nil {
			t.Fatal(err)
		}
		before.Inject(envdtest.Fault{Procedure: connectRPC, Action: envdtest.Cut, After: envdtest.Amount{Events: 2}})
		again := c.Attach(context.Background(), client.PID(running[0].Process.PID()))
		again.Stdout = io.Discard
		if err := again.Start(); err != nil {
			t.Fatal(err)
		}
		current.Store(after)
		err = again.Wait()
		if err == nil || errors.Is(err, client.ErrOutputGap) {
			t.Errorf("Wait = %v: it joined another command", err)
		}
		for _, cmd := range running {
			if err := cmd.Wait(); err != nil {
				t.Errorf("a bystander ended with %v", err)
			}
		}
	})
}
