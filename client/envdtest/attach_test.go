// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
)

// Each stream gets what comes after it was attached, and the process outlives
// the stream that started it.
func TestAttach(t *testing.T) {
	srv := newFunctions(t)
	c := newClient(srv)
	ctx, hangUp := context.WithCancel(t.Context())
	pid, first := start(t, ctx, c, command("cat"))
	say := func(text string) {
		t.Helper()
		if err := sendInput(t.Context(), c, pid, text); err != nil {
			t.Fatal(err)
		}
	}
	say("one")
	first.until(t, "one")
	_, second := attach(t, t.Context(), c, byPID(pid))
	say("two")
	first.until(t, "two")
	hangUp()
	err := srv.WaitFor(t.Context(), func() bool { return srv.Processes()[0].Subscribers == 1 })
	if err != nil {
		t.Fatal(err)
	}
	say("three")
	if err := closeStdin(t.Context(), c, pid); err != nil {
		t.Fatal(err)
	}
	o := second.collect()
	wantEnd(t, o, 0, "exit status 0")
	if o.stdout != "twothree" {
		t.Errorf("second stream has %q", o.stdout)
	}
}

// Output while nobody is attached is lost and holds nobody up.
func TestOutputUnattended(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		go1, wrote := make(chan bool), make(chan bool)
		srv.HandleCommand("talk", func(p *envdtest.Proc) int {
			<-go1
			_, err := fmt.Fprint(p.Stdout, strings.Repeat("lost", 100_000))
			wrote <- err == nil
			<-go1
			fmt.Fprint(p.Stdout, "heard")
			return 0
		})
		c := newClient(srv)
		ctx, hangUp := context.WithCancel(t.Context())
		pid, _ := start(t, ctx, c, command("talk"))
		hangUp()
		synctest.Wait()
		go1 <- true
		if !<-wrote {
			t.Error("the write failed")
		}
		_, next := attach(t, t.Context(), c, byPID(pid))
		go1 <- true
		o := next.collect()
		wantEnd(t, o, 0, "exit status 0")
		if o.stdout != "heard" {
			t.Errorf("stdout has %d bytes", len(o.stdout))
		}
	})
}

// A stream that is not read holds up the process and the other streams.
func TestBackPressure(t *testing.T) {
	inBubble(t, func(t *testing.T, srv *envdtest.Server) {
		const total = 4 << 20
		srv.HandleCommand("flood", func(p *envdtest.Proc) int {
			<-p.Signals()
			_, _ = p.Stdout.Write(make([]byte, total))
			return 0
		})
		c := newClient(srv)
		pid, first := start(t, t.Context(), c, command("flood"))
		_, second := attach(t, t.Context(), c, byPID(pid))
		synctest.Wait()
		sendSignal(t, c, pid, processpb.Signal_SIGNAL_SIGTERM)
		result := make(chan outcome, 1)
		go func() { result <- second.collect() }()
		time.Sleep(time.Minute)
		select {
		case o := <-result:
			t.Fatalf("second stream ended with %d bytes while the first is not read", len(o.stdout))
		default:
		}
		for name, o := range map[string]outcome{"first": first.collect(), "second": <-result} {
			wantEnd(t, o, 0, "exit status 0")
			if len(o.stdout) != total {
				t.Errorf("%s stream has %d bytes, want %d", name, len(o.stdout), total)
			}
		}
	})
}

func TestWedgeOnHangup(t *testing.T) {
	for _, wedge := range []bool{true, false} {
		t.Run(fmt.Sprint(wedge), func(t *testing.T) {
			var opts []envdtest.Option
			if wedge {
				opts = append(opts, envdtest.WithQuirk(envdtest.QuirkWedgeOnHangup))
			}
			inBubble(t, func(t *testing.T, srv *envdtest.Server) {
				srv.HandleCommand("flood", func(p *envdtest.Proc) int {
					for range 1000 {
						if _, err := p.Stdout.Write(make([]byte, 32<<10)); err != nil {
							return 1
						}
					}
					return 0
				})
				c := newClient(srv)
				ctx, hangUp := context.WithCancel(t.Context())
				pid, _ := start(t, ctx, c, command("flood"))
				time.Sleep(time.Minute)
				hangUp()
				time.Sleep(time.Minute)
				if alive := len(srv.Processes()) == 1; alive != wedge {
					t.Errorf("process alive: %v", alive)
				}
				if wedge {
					kill(t, c, pid)
					if err := srv.WaitIdle(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}, opts...)
		})
	}
}

func TestTagLookup(t *testing.T) {
	tests := []struct {
		name  string
		quirk envdtest.Quirk
		found int
	}{
		{"as meant", 0, 3},
		{"as it is", envdtest.QuirkTagLookup, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := newFunctions(t, envdtest.WithQuirk(tt.quirk))
			c := newClient(srv)
			start(t, t.Context(), c, command("wait"))
			tags := []string{"a", "", "c"}
			for _, tag := range tags {
				req := command("wait")
				req.Tag = &tag
				start(t, t.Context(), c, req)
			}
			found := 0
			for _, tag := range tags {
				_, err := c.Update(t.Context(), &processpb.UpdateRequest{Process: byTag(tag)})
				if err == nil {
					found++
				} else {
					wantError(t, err, connect.CodeNotFound, "process with tag "+tag+" not found")
				}
			}
			if found != tt.found {
				t.Errorf("%d tags found, want %d", found, tt.found)
			}
		})
	}
}

func TestStreamQuirks(t *testing.T) {
	t.Run("no end", func(t *testing.T) {
		srv := newFunctions(t, envdtest.WithQuirk(envdtest.QuirkNoEnd))
		req := command("cat")
		req.Stdin = new(false)
		_, next := start(t, t.Context(), newClient(srv), req)
		if o := next.collect(); o.err != nil || o.end != nil {
			t.Errorf("stream ended with %v and end event %v", o.err, o.end)
		}
	})
	t.Run("output in pty", func(t *testing.T) {
		srv := newFunctions(t, envdtest.WithQuirk(envdtest.QuirkOutputInPTY))
		srv.HandleCommand("say", func(p *envdtest.Proc) int {
			fmt.Fprintln(p.Stdout, "out")
			fmt.Fprintln(p.Stderr, "err")
			return 0
		})
		if o := run(t, newClient(srv), "say"); o.pty != "out\nerr\n" || o.stdout != "" {
			t.Errorf("pty = %q, want both outputs", o.pty)
		}
	})
}

func TestQuirkNames(t *testing.T) {
	seen := map[string]bool{}
	for _, q := range envdtest.Quirks() {
		if name := q.String(); name == "unknown" || seen[name] {
			t.Errorf("quirk %d is called %q", q, name)
		}
		seen[q.String()] = true
	}
	if envdtest.Quirk(0).String() != "unknown" || envdtest.FC.String() != "fc" {
		t.Error("wrong names")
	}
}
