// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
)

const startPath = "/process.Process/Start"

func TestFaultRespond(t *testing.T) {
	srv := newFunctions(t)
	srv.Inject(envdtest.Fault{
		Procedure: "/process.Process/List",
		Status:    http.StatusTooManyRequests,
		Header:    http.Header{"X-From": {"proxy"}},
		Body:      "slow down",
	})
	c := newClient(srv)
	ctx, info := connect.NewClientContext(t.Context())
	_, err := c.List(ctx, &processpb.ListRequest{})
	status := info.TransportInfo.(*connecthttp.ClientInfo).ResponseStatus()
	if err == nil || status != 429 || info.ResponseHeader().Get("X-From") != "proxy" {
		t.Errorf("List = %v with status %d", err, status)
	}
	if _, err := c.List(t.Context(), &processpb.ListRequest{}); err != nil {
		t.Errorf("second List: %v", err)
	}
}

// chatter starts a command that says one, two, three and waits.
func chatter(srv *envdtest.Server) {
	srv.HandleCommand("chat", func(p *envdtest.Proc) int {
		for _, word := range []string{"one", "two", "three"} {
			if _, err := p.Stdout.Write([]byte(word)); err != nil {
				return 1
			}
		}
		<-p.Context.Done()
		return 0
	})
}

func TestFaultCut(t *testing.T) {
	tests := []struct {
		name   string
		after  envdtest.Amount
		events int // that arrive
		alive  int // processes
	}{
		{"lost answer", envdtest.Amount{}, 0, 1},
		{"after start", envdtest.Amount{Events: 1}, 1, 1},
		{"in an event", envdtest.Amount{Events: 2, Bytes: 7}, 2, 1},
		{"after events", envdtest.Amount{Events: 3}, 3, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := newFunctions(t)
			chatter(srv)
			srv.Inject(envdtest.Fault{Procedure: startPath, Action: envdtest.Cut, After: tt.after})
			events := 0
			stream, err := newClient(srv).Start(t.Context(), command("chat"))
			for err == nil {
				if _, err = stream.Receive(); err == nil {
					events++
				}
			}
			if e, ok := errors.AsType[*connect.Error](err); !ok || e.IsRemote() {
				t.Errorf("error = %v, want a lost connection", err)
			}
			if events != tt.events || len(srv.Processes()) != tt.alive {
				t.Errorf("%d events and %d processes, want %d and %d", events, len(srv.Processes()), tt.events, tt.alive)
			}
		})
	}
}

func TestFaultRefuse(t *testing.T) {
	srv := newFunctions(t)
	srv.Inject(envdtest.Fault{Action: envdtest.Refuse, Times: -1})
	if err := startErr(t, newClient(srv), command("wait")); err == nil || len(srv.Processes()) != 0 {
		t.Errorf("error %v, processes %v", err, srv.Processes())
	}
	srv.ClearFaults()
	if _, err := newClient(srv).List(t.Context(), &processpb.ListRequest{}); err != nil {
		t.Error(err)
	}
}

func TestFaultSilence(t *testing.T) {
	tests := []struct {
		name   string
		fault  envdtest.Fault
		events int
		alive  int
	}{
		{"stall", envdtest.Fault{Action: envdtest.Stall}, 0, 0},
		{"freeze", envdtest.Fault{Action: envdtest.Freeze}, 0, 1},
		{"freeze later", envdtest.Fault{Action: envdtest.Freeze, After: envdtest.Amount{Events: 2}}, 2, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, srv *envdtest.Server) {
				chatter(srv)
				srv.Inject(tt.fault)
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(time.Hour, cancel)
				defer timer.Stop()
				began, events := time.Now(), 0
				stream, err := newClient(srv).Start(ctx, command("chat"))
				for err == nil {
					if _, err = stream.Receive(); err == nil {
						events++
					}
				}
				if time.Since(began) != time.Hour || events != tt.events || len(srv.Processes()) != tt.alive {
					t.Errorf("%d events and %d processes after %v: %v", events, len(srv.Processes()), time.Since(began), err)
				}
			})
		})
	}
}

// Nothing holds up Close.
func TestCloseEndsStalledRequests(t *testing.T) {
	srv := newFunctions(t)
	srv.Inject(envdtest.Fault{Procedure: startPath, Action: envdtest.Stall})
	done := make(chan error, 1)
	go func() {
		stream, err := newClient(srv).Start(t.Context(), command("wait"))
		if err == nil {
			_, err = stream.Receive()
		}
		done <- err
	}()
	if err := srv.WaitFor(t.Context(), func() bool { return len(srv.Requests()) > 0 }); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	if err := <-done; err == nil {
		t.Error("Start succeeded")
	}
}
