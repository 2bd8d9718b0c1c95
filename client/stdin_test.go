// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// bodyWaiter is a transport that, as net/http's does when a connection breaks at
// the wrong moment, returns only once the body of a request has ended.
type bodyWaiter struct {
	next  http.RoundTripper
	began chan struct{}
	ended chan struct{}
}

func (b *bodyWaiter) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/StreamInput") {
		return b.next.RoundTrip(req)
	}
	defer close(b.ended)
	first := make([]byte, 1)
	_, _ = io.ReadFull(req.Body, first)
	close(b.began)
	_, _ = io.Copy(io.Discard, req.Body)
	return nil, errors.New("connection broke")
}

// A request that carries input ends with the command, also where nobody has
// closed the input.
func TestStreamInputEnds(t *testing.T) {
	tests := []struct {
		name  string
		setup func(t *testing.T, cmd *client.Cmd) (write func())
	}{
		{"pipe", func(t *testing.T, cmd *client.Cmd) func() {
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			return func() { _, _ = io.WriteString(in, "input") }
		}},
		{"reader that blocks", func(t *testing.T, cmd *client.Cmd) func() {
			r, w := io.Pipe()
			t.Cleanup(func() { w.Close() })
			cmd.Stdin = r
			return func() { _, _ = io.WriteString(w, "input") }
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := envdtest.NewServer()
			defer srv.Close()
			end := make(chan struct{})
			srv.HandleCommand("job", func(*envdtest.Proc) int {
				<-end
				return 0
			})
			own := &http.Transport{}
			defer own.CloseIdleConnections()
			waiter := &bodyWaiter{next: own, began: make(chan struct{}), ended: make(chan struct{})}
			c := dial(t, srv.URL, client.WithTransport(waiter), client.WithUser("root"))
			cmd := c.Command(t.Context(), "job")
			cmd.StreamInput = true
			write := tt.setup(t, cmd)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go write()
			<-waiter.began
			close(end)
			_ = cmd.Wait()
			select {
			case <-waiter.ended:
			case <-time.After(10 * time.Second):
				t.Error("the request goes on")
			}
		})
	}
}

// lateAnswers holds back the answers to input until the command has ended.
type lateAnswers struct {
	next  http.RoundTripper
	ended chan struct{}
}

func (l *lateAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if strings.HasSuffix(req.URL.Path, "/SendInput") {
		<-l.ended
		time.Sleep(50 * time.Millisecond) // the end is on its way
	}
	if err == nil && req.Context().Err() != nil {
		resp.Body.Close()
		return nil, req.Context().Err()
	}
	return resp, err
}

// Input that made the command end was not lost, though its answer comes after
// the end.
func TestInputThatEnds(t *testing.T) {
	srv := envdtest.NewServer()
	defer srv.Close()
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	late := &lateAnswers{next: own, ended: make(chan struct{})}
	srv.HandleCommand("line", func(p *envdtest.Proc) int {
		_, _ = bufio.NewReader(p.Stdin).ReadString('\n')
		defer close(late.ended)
		return 0
	})
	c := dial(t, srv.URL, client.WithTransport(late), client.WithUser("root"))
	cmd := c.Command(t.Context(), "line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.WriteString(in, "go\n"); err != nil || n != 3 {
		t.Errorf("Write = %d, %v", n, err)
	}
	if _, err := io.WriteString(in, "more\n"); !errors.Is(err, client.ErrNoInput) && !errors.Is(err, client.ErrProcessNotFound) {
		t.Errorf("Write after the end: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
