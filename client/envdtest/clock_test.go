// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
)

// inBubble runs the test on a fake clock, with a server on a pipe.
func inBubble(t *testing.T, test func(*testing.T, *envdtest.Server), opts ...envdtest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := newFunctions(t, append(opts, envdtest.WithPipe())...)
		test(t, srv)
	})
}

func TestDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		c := newClient(srv, "Connect-Timeout-Ms", "3600000")
		began := time.Now()
		pid, next := start(t, t.Context(), c, command("wait"))
		_, other := attach(t, t.Context(), newClient(srv), byPID(pid))
		o := next.collect()
		wantError(t, o.err, connect.CodeDeadlineExceeded, "context deadline exceeded")
		if o.end != nil {
			t.Errorf("own stream has end event %v", o.end)
		}
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %v", took)
		}
		wantEnd(t, other.collect(), -1, "signal: killed")
	})
}

func TestDeadlineAfterHangup(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		ctx, hangUp := context.WithCancel(t.Context())
		c := newClient(srv, "Connect-Timeout-Ms", "60000")
		start(t, ctx, c, command("wait"))
		began := time.Now()
		hangUp()
		if err := srv.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

func TestDeadlineOfConnect(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		c := newClient(srv)
		pid, next := start(t, t.Context(), c, command("wait"))
		_, other := attach(t, t.Context(), newClient(srv, "Connect-Timeout-Ms", "500"), byPID(pid))
		wantError(t, other.collect().err, connect.CodeDeadlineExceeded, "context deadline exceeded")
		kill(t, c, pid)
		wantEnd(t, next.collect(), -1, "signal: killed")
	})
}

// A timeout of 0 ends the stream and lets the process run.
func TestDeadlineZero(t *testing.T) {
	for _, value := range []string{"0", "-5"} {
		t.Run(value, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *envdtest.Server) {
				err := startErr(t, newClient(srv, "Connect-Timeout-Ms", value), command("wait"))
				wantError(t, err, connect.CodeDeadlineExceeded, "context deadline exceeded")
				time.Sleep(time.Hour)
				if len(srv.Processes()) != 1 {
					t.Errorf("Processes = %v, want one", srv.Processes())
				}
			})
		})
	}
}

func TestEndBeforeDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		_, next := start(t, t.Context(), newClient(srv, "Connect-Timeout-Ms", "1000"), command("wait"))
		o := next.collect()
		wantError(t, o.err, connect.CodeDeadlineExceeded, "context deadline exceeded")
		if o.end.GetStatus() != "signal: killed" {
			t.Errorf("end = %v", o.end)
		}
	}, envdtest.WithQuirk(envdtest.QuirkEndBeforeDeadline))
}

func TestDeadlineHang(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		stream, err := newClient(srv, "Connect-Timeout-Ms", "5").Start(ctx, command("wait"))
		if err == nil {
			_, err = stream.Receive()
			_ = stream.Close()
		}
		if err == nil || time.Since(began) != time.Hour {
			t.Errorf("error %v after %v, want a hang", err, time.Since(began))
		}
		if len(srv.Processes()) != 1 {
			t.Errorf("Processes = %v, want a dead one", srv.Processes())
		}
	}, envdtest.WithQuirk(envdtest.QuirkDeadlineHang))
}

func TestKeepalive(t *testing.T) {
	tests := []struct {
		header string
		after  time.Duration
	}{
		{"", 90 * time.Second},
		{"abc", 90 * time.Second},
		{"0.5", 90 * time.Second},
		{"7", 7 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.header, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *envdtest.Server) {
				c := newClient(srv, "Keepalive-Ping-Interval", tt.header)
				pid, next := start(t, t.Context(), c, command("cat"))
				for range 2 {
					time.Sleep(tt.after - time.Second)
					if err := sendInput(t.Context(), c, pid, "x"); err != nil {
						t.Fatal(err)
					}
					next.until(t, "x")
				}
				began := time.Now()
				event, err := next()
				if err != nil || event.GetKeepalive() == nil || time.Since(began) != tt.after {
					t.Errorf("after %v: %v, %v, want keepalive after %v", time.Since(began), event, err, tt.after)
				}
			})
		})
	}
}

func TestKeepaliveZero(t *testing.T) {
	c := newClient(newFunctions(t), "Keepalive-Ping-Interval", "0")
	wantError(t, startErr(t, c, command("wait")), connect.CodeInvalidArgument, "Keepalive-Ping-Interval must be positive: got 0")
}

func TestKeepaliveCrash(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		c := newClient(srv)
		_, other := start(t, t.Context(), c, command("wait"))
		_, next := start(t, t.Context(), newClient(srv, "Keepalive-Ping-Interval", "-1"), command("wait"))
		for _, stream := range []receiver{next, other} {
			if o := stream.collect(); o.err == nil || o.end != nil {
				t.Errorf("stream ended with %v and end event %v, want a cut", o.err, o.end)
			}
		}
		list, err := c.List(t.Context(), &processpb.ListRequest{})
		if err != nil || len(list.GetProcesses()) != 0 {
			t.Errorf("List = %v, %v", list, err)
		}
	}, envdtest.WithQuirk(envdtest.QuirkKeepaliveCrash))
}

func TestExitRetention(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		c := newClient(srv)
		req := command("cat")
		req.Tag, req.Stdin = new("job"), new(false)
		pid, next := start(t, t.Context(), c, req)
		wantEnd(t, next.collect(), 0, "exit status 0")
		for _, sel := range []*processpb.ProcessSelector{byPID(pid), byTag("job")} {
			again, late := attach(t, t.Context(), c, sel)
			wantEnd(t, late.collect(), 0, "exit status 0")
			if again != pid {
				t.Errorf("pid = %d, want %d", again, pid)
			}
		}
		if err := sendInput(t.Context(), c, pid, "x"); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("SendInput: %v", err)
		}
		time.Sleep(29 * time.Second)
		_, late := attach(t, t.Context(), c, byPID(pid))
		wantEnd(t, late.collect(), 0, "exit status 0")
		time.Sleep(2 * time.Second)
		wantError(t, connectErr(t, c, byPID(pid)), connect.CodeNotFound, "process with pid 5000001 not found")
	})
}

// A new process takes the tag of one that is gone.
func TestExitRetentionReusedTag(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		c := newClient(srv)
		req := command("cat")
		req.Tag, req.Stdin = new("job"), new(false)
		pid, next := start(t, t.Context(), c, req)
		next.collect()
		req.Stdin = nil
		second, next := start(t, t.Context(), c, req)
		kill(t, c, second)
		next.collect()
		if again, _ := attach(t, t.Context(), c, byTag("job")); again != second {
			t.Errorf("pid = %d, want %d", again, second)
		}
		if err := connectErr(t, c, byPID(pid)); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("Connect to the first: %v", err)
		}
	})
}

func TestExitRetentionOldVersion(t *testing.T) {
	c := newClient(newFunctions(t, envdtest.WithVersion("0.6.11")))
	req := command("cat")
	req.Stdin = new(false)
	pid, next := start(t, t.Context(), c, req)
	next.collect()
	if err := connectErr(t, c, byPID(pid)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("Connect: %v", err)
	}
}

func TestConnectHang(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		c := newClient(srv)
		req := command("cat")
		req.Stdin = new(false)
		pid, next := start(t, t.Context(), c, req)
		next.collect()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, late := attach(t, ctx, c, byPID(pid))
		if o := late.collect(); o.err == nil || o.end != nil {
			t.Errorf("stream ended with %v and end event %v, want a hang", o.err, o.end)
		}
	}, envdtest.WithQuirk(envdtest.QuirkConnectHang), envdtest.WithVersion("0.5.2"))
}

// connectErr returns the error of a Connect that gives no event.
func connectErr(t *testing.T, c processconnect.ProcessClient, sel *processpb.ProcessSelector) error {
	t.Helper()
	stream, err := c.Connect(t.Context(), &processpb.ConnectRequest{Process: sel})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	res, err := stream.Receive()
	if err == nil {
		t.Fatalf("Connect gave %v, want an error", res)
	}
	return err
}
