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
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

const (
	listRPC    = "/process.Process/List"
	signalRPC  = "/process.Process/SendSignal"
	healthPath = "/health"
)

// everyCall is each call of the process half, on a command that need not exist.
func everyCall(ctx context.Context, c *client.Client) map[string]func() error {
	p := c.Process(client.PID(1))
	return map[string]func() error{
		"Run":        func() error { return c.Command(ctx, "true").Run() },
		"Attach":     func() error { return c.Attach(ctx, client.PID(1)).Run() },
		"Processes":  func() error { _, err := c.Processes(ctx); return err },
		"Kill":       func() error { return p.Kill(ctx) },
		"Tag":        func() error { return c.Process(client.Tag("t")).Kill(ctx) },
		"KillTree":   func() error { return p.KillTree(ctx) },
		"SendInput":  func() error { return p.SendInput(ctx, []byte("x")) },
		"CloseStdin": func() error { return p.CloseStdin(ctx) },
		"Resize":     func() error { return p.Resize(ctx, client.Size{Cols: 1, Rows: 1}) },
		"Metrics":    func() error { _, err := c.Metrics(ctx); return err },
		"Envs":       func() error { _, err := c.Envs(ctx); return err },
		"Health":     func() error { return c.Health(ctx) },
	}
}

func TestAnswersOfProxies(t *testing.T) {
	const token = "token-a1b2c3"
	jsonType := http.Header{"Content-Type": {"application/json"}}
	htmlType := http.Header{"Content-Type": {"text/html"}}
	sentinels := []error{client.ErrSandboxNotFound, client.ErrPortNotOpen, client.ErrRateLimited, client.ErrUnauthenticated}
	tests := []struct {
		name   string
		fault  envdtest.Fault
		status int
		is     error // of the sentinels; nil for none
		retry  time.Duration
	}{
		{name: "sandbox gone", fault: envdtest.Fault{Status: 502, Header: jsonType,
			Body: `{"sandboxId":"s1","message":"The sandbox was not found ` + token + `","code":502}`}, status: 502, is: client.ErrSandboxNotFound},
		{name: "port not open", fault: envdtest.Fault{Status: 502, Header: jsonType,
			Body: `{"sandboxId":"s1","message":"The sandbox is running but port is not open","port":49983,"code":502}`}, status: 502, is: client.ErrPortNotOpen},
		{name: "a page of nginx", fault: envdtest.Fault{Status: 502, Header: htmlType,
			Body: "<html><head><title>502 Bad Gateway " + token + "</title></head></html>"}, status: 502},
		{name: "unavailable", fault: envdtest.Fault{Status: 503, Header: http.Header{"Retry-After": {"7"}}}, status: 503, retry: 7 * time.Second},
		{name: "rate limited", fault: envdtest.Fault{Status: 429, Header: http.Header{"Retry-After": {"2"}}, Body: token}, status: 429, is: client.ErrRateLimited, retry: 2 * time.Second},
		{name: "empty 404", fault: envdtest.Fault{Status: 404}, status: 404},
		{name: "integer code", fault: envdtest.Fault{Status: 401, Header: jsonType,
			Body: `{"code":401,"message":"unauthorized access"}`}, status: 401, is: client.ErrUnauthenticated},
		{name: "redirect", fault: envdtest.Fault{Status: 302, Header: http.Header{"Location": {"https://evil.example/?t=" + token}}}, status: 302},
		{name: "wrong method", fault: envdtest.Fault{Status: 405, Body: "Method Not Allowed"}, status: 405},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, json := range []bool{false, true} {
				opts := []client.Option{client.WithAccessToken(token), client.WithoutRetries()}
				if json {
					opts = append(opts, client.WithJSON())
				}
				onPipe(t, nil, opts, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
					fault := tt.fault
					fault.Times = -1
					srv.Inject(fault)
					for name, call := range everyCall(context.Background(), c) {
						err := call()
						var e *client.Error
						var he *client.HTTPError
						if !errors.As(err, &e) || !errors.As(err, &he) {
							t.Errorf("%s: %v (%T)", name, err, err)
							continue
						}
						if he.StatusCode != tt.status || he.RetryAfter != tt.retry {
							t.Errorf("%s: status %d, retry after %v", name, he.StatusCode, he.RetryAfter)
						}
						for _, s := range sentinels {
							if errors.Is(err, s) != (s == tt.is) {
								t.Errorf("%s: %v; matches %q: %v", name, err, s, errors.Is(err, s))
							}
						}
						if strings.Contains(fmt.Sprintf("%v %+v", err, he), token) {
							t.Errorf("%s: the token is in %v", name, err)
						}
					}
				})
			}
		})
	}
}

func TestLostStart(t *testing.T) {
	lost := envdtest.Fault{Procedure: startRPC, Action: envdtest.Cut}
	tests := []struct {
		name   string
		faults []envdtest.Fault
		opts   []client.Option
		text   string
		runs   bool
	}{
		{name: "killed", faults: []envdtest.Fault{lost}, text: "was killed"},
		{name: "frozen", faults: []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Freeze}}, text: "was killed"},
		{name: "in the start event", faults: []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Cut, After: envdtest.Amount{Bytes: 3}}}, text: "was killed"},
		{name: "never arrived", faults: []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Refuse}}},
		{name: "never handled", faults: []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Stall}}},
		{name: "list fails", faults: []envdtest.Fault{lost, {Procedure: listRPC, Status: 500, Times: -1}}, text: "looking for it failed", runs: true},
		{name: "list stalls", faults: []envdtest.Fault{lost, {Procedure: listRPC, Action: envdtest.Stall, Times: -1}}, text: "looking for it failed", runs: true},
		{name: "kill fails", faults: []envdtest.Fault{lost, {Procedure: signalRPC, Status: 500, Times: -1}}, text: "killing it failed", runs: true},
		{name: "no marker", faults: []envdtest.Fault{lost}, opts: []client.Option{client.WithoutStartMarker()}, text: "may have started", runs: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onPipe(t, nil, tt.opts, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
				srv.HandleCommand("quiet", quiet)
				for _, f := range tt.faults {
					srv.Inject(f)
				}
				cmd := c.Command(context.Background(), "quiet")
				err := cmd.Start()
				if err == nil || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("Start = %v, want %q in it", err, tt.text)
				}
				if tt.runs != (len(srv.Processes()) > 0) && tt.runs {
					t.Error("nothing runs, so the test shows nothing")
				}
				if !tt.runs {
					wantIdle(t, srv)
				}
			})
		})
	}
}

func TestLostStream(t *testing.T) {
	cut := func(after envdtest.Amount) []envdtest.Fault {
		return []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Cut, After: after}}
	}
	tests := []struct {
		name   string
		cmd    string
		faults []envdtest.Fault
		detach bool
		opts   []envdtest.Option
		fate   client.ProcessFate
		is     error
	}{
		{name: "after the start event", cmd: "slow", faults: cut(envdtest.Amount{Events: 1}), fate: client.FateKilled},
		{name: "in a frame's head", cmd: "slow", faults: cut(envdtest.Amount{Events: 1, Bytes: 2}), fate: client.FateKilled},
		{name: "in a frame", cmd: "slow", faults: cut(envdtest.Amount{Events: 1, Bytes: 7}), fate: client.FateKilled},
		{name: "after data", cmd: "slow", faults: cut(envdtest.Amount{Events: 2}), fate: client.FateKilled},
		{name: "before the end", cmd: "slow", faults: cut(envdtest.Amount{Events: 3}), fate: client.FateGone},
		{name: "own Cancel", cmd: "slow", detach: true, faults: cut(envdtest.Amount{Events: 2}), fate: client.FateRunning},
		{name: "kill fails", cmd: "slow", fate: client.FateRunning,
			faults: append(cut(envdtest.Amount{Events: 2}), envdtest.Fault{Procedure: signalRPC, Status: 500, Times: -1})},
		{name: "list fails", cmd: "slow", fate: client.FateUnknown,
			faults: append(cut(envdtest.Amount{Events: 2}), envdtest.Fault{Procedure: listRPC, Status: 500, Times: -1})},
		{name: "sandbox gone", cmd: "slow", fate: client.FateUnknown, is: client.ErrSandboxNotFound,
			faults: append(cut(envdtest.Amount{Events: 2}), envdtest.Fault{Procedure: healthPath, Status: 502, Body: `{"code":502,"message":"The sandbox was not found"}`, Times: -1})},
		{name: "health stalls", cmd: "slow", fate: client.FateKilled,
			faults: append(cut(envdtest.Amount{Events: 2}), envdtest.Fault{Procedure: healthPath, Action: envdtest.Stall, Times: -1})},
		{name: "frozen after a keepalive", cmd: "quiet", fate: client.FateKilled,
			faults: []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Freeze, After: envdtest.Amount{Events: 2}}}},
		{name: "frozen before the end", cmd: "slow", fate: client.FateGone,
			faults: []envdtest.Fault{{Procedure: startRPC, Action: envdtest.Freeze, After: envdtest.Amount{Events: 3}}}},
		{name: "no end event", cmd: "slow", opts: []envdtest.Option{envdtest.WithQuirk(envdtest.QuirkNoEnd)}, fate: client.FateGone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onPipe(t, tt.opts, nil, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
				srv.HandleCommand("quiet", quiet)
				srv.HandleCommand("slow", slowCommand(0))
				for _, f := range tt.faults {
					srv.Inject(f)
				}
				cmd := c.Command(context.Background(), tt.cmd)
				if tt.detach {
					cmd.Cancel = func() error { return client.ErrDetach }
				}
				err := cmd.Run()
				wantIs(t, err, client.ErrStreamLost, io.ErrUnexpectedEOF)
				if tt.is != nil {
					wantIs(t, err, tt.is)
				} else if errors.Is(err, client.ErrSandboxNotFound) {
					t.Errorf("the sandbox is there, but %v", err)
				}
				var lost *client.StreamLostError
				if !errors.As(err, &lost) || lost.PID != cmd.Process.PID() {
					t.Fatalf("error is %v, want a lost stream", err)
				}
				// A command that is just ending may still be there to be killed.
				ending := tt.name == "before the end" && lost.Fate == client.FateKilled
				if lost.Fate != tt.fate && !ending {
					t.Errorf("error is %v, want fate %q", err, tt.fate)
				}
				if cmd.ProcessState != nil {
					t.Errorf("state is %v, though no end event came", cmd.ProcessState)
				}
				if tt.fate == client.FateKilled || tt.fate == client.FateGone {
					wantIdle(t, srv)
				}
			})
		})
	}
}
