// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// countingHandler keeps the messages of the log.
type countingHandler struct {
	slog.Handler
	mu       sync.Mutex
	messages []string
}

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *countingHandler) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, r.Message)
	return nil
}

func (h *countingHandler) count(message string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(slices.Collect(func(yield func(string) bool) {
		for _, m := range h.messages {
			if m == message && !yield(m) {
				return
			}
		}
	}))
}

func TestRetries(t *testing.T) {
	list := func(ctx context.Context, c *client.Client) error { _, err := c.Processes(ctx); return err }
	metrics := func(ctx context.Context, c *client.Client) error { _, err := c.Metrics(ctx); return err }
	run := func(ctx context.Context, c *client.Client) error { return c.Command(ctx, "ok").Run() }
	input := func(ctx context.Context, c *client.Client) error {
		return c.Process(client.PID(1)).SendInput(ctx, []byte("x"))
	}
	const (
		listPath  = "/process.Process/List"
		startPath = "/process.Process/Start"
		inputPath = "/process.Process/SendInput"
	)
	unavailable := envdtest.Fault{Action: envdtest.Respond, Status: http.StatusServiceUnavailable}
	tests := []struct {
		name  string
		call  func(context.Context, *client.Client) error
		path  string
		fault envdtest.Fault
		times int
		opts  []client.Option
		// sent is how often the request comes, wait the least time that it takes.
		sent int
		wait time.Duration
		ok   bool
	}{
		{name: "503 once", call: list, path: listPath, fault: unavailable, times: 1, sent: 2, ok: true},
		{name: "503 twice", call: list, path: listPath, fault: unavailable, times: 2, sent: 3, ok: true},
		{name: "503 for ever", call: list, path: listPath, fault: unavailable, times: -1, sent: 3},
		{name: "502", call: list, path: listPath, fault: envdtest.Fault{Action: envdtest.Respond}, times: 1, sent: 2, ok: true},
		{name: "500 is not retried", call: list, path: listPath, times: 1, sent: 1,
			fault: envdtest.Fault{Action: envdtest.Respond, Status: http.StatusInternalServerError}},
		{name: "connection cut", call: list, path: listPath, fault: envdtest.Fault{Action: envdtest.Refuse}, times: 2, sent: 3, ok: true},
		{name: "answer lost", call: list, path: listPath, fault: envdtest.Fault{Action: envdtest.Cut}, times: 1, sent: 2, ok: true},
		{name: "answer torn", call: metrics, path: "/metrics", times: 1, sent: 2, ok: true,
			fault: envdtest.Fault{Action: envdtest.Cut, After: envdtest.Amount{Bytes: 5}}},
		{name: "metrics", call: metrics, path: "/metrics", fault: unavailable, times: 1, sent: 2, ok: true},
		{name: "429 with a wait", call: list, path: listPath, times: 1, sent: 2, ok: true, wait: 3 * time.Second,
			fault: envdtest.Fault{Action: envdtest.Respond, Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3"}}}},
		{name: "429 with too long a wait", call: list, path: listPath, times: 1, sent: 1,
			fault: envdtest.Fault{Action: envdtest.Respond, Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3600"}}}},
		{name: "switched off", call: list, path: listPath, fault: unavailable, times: 1, sent: 1, opts: []client.Option{client.WithoutRetries()}},
		{name: "start is sent once", call: run, path: startPath, fault: unavailable, times: 1, sent: 1},
		{name: "a lost start is sent once", call: run, path: startPath, fault: envdtest.Fault{Action: envdtest.Cut}, times: 1, sent: 1},
		{name: "input is sent once", call: input, path: inputPath, fault: unavailable, times: 1, sent: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := envdtest.NewPipeServer()
				defer srv.Close()
				srv.HandleCommand("ok", func(*envdtest.Proc) int { return 0 })
				logs := &countingHandler{Handler: slog.DiscardHandler}
				opts := append([]client.Option{client.WithHTTPClient(srv.Client()), client.WithLogger(slog.New(logs))}, tt.opts...)
				c, err := client.New(srv.URL, opts...)
				if err != nil {
					t.Fatal(err)
				}
				tt.fault.Procedure, tt.fault.Times = tt.path, tt.times
				srv.Inject(tt.fault)
				start := time.Now()
				err = tt.call(context.Background(), c)
				if (err == nil) != tt.ok {
					t.Errorf("error is %v, want success: %v", err, tt.ok)
				}
				if got := countRequests(srv, tt.path); got != tt.sent {
					t.Errorf("the request was sent %d times, want %d", got, tt.sent)
				}
				if took := time.Since(start); took < tt.wait {
					t.Errorf("it took %v, want %v at least", took, tt.wait)
				}
				if got := logs.count("envd retry"); got != tt.sent-1 {
					t.Errorf("%d retries in the log, want %d", got, tt.sent-1)
				}
			})
		})
	}
}

// A deadline that is earlier than the next try leaves the answer at hand.
func TestRetryWithinDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := envdtest.NewPipeServer()
		defer srv.Close()
		srv.Inject(envdtest.Fault{Action: envdtest.Respond, Status: http.StatusTooManyRequests, Times: -1,
			Header: http.Header{"Retry-After": {"5"}}})
		c, err := client.New(srv.URL, client.WithHTTPClient(srv.Client()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err = c.Processes(ctx)
		if !errors.Is(err, client.ErrRateLimited) {
			t.Errorf("Processes = %v, want ErrRateLimited", err)
		}
		if ctx.Err() != nil {
			t.Error("the deadline was waited for")
		}
	})
}

func countRequests(srv *envdtest.Server, path string) int {
	n := 0
	for _, r := range srv.Requests() {
		if strings.HasSuffix(r.Path, path) {
			n++
		}
	}
	return n
}
