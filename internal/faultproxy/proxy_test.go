// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

func TestProxy(t *testing.T) {
	const frames = "\x00\x00\x00\x00\x14" + `{"event":{"start":1}}` // a head that is one byte short
	stream := string(newFrame(0, []byte(`{"event":{"start":{}}}`))) +
		string(newFrame(0, []byte(`{"event":{"data":{}}}`))) +
		string(newFrame(0, []byte(`{"event":{"end":{}}}`))) +
		string(newFrame(flagEndStream, []byte(`{}`)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			w.Header().Set("Content-Type", "application/connect+json")
			_, _ = io.WriteString(w, stream)
		case "/short":
			w.Header().Set("Content-Type", "application/connect+json")
			_, _ = io.WriteString(w, frames[:len(frames)-3])
		default:
			_, _ = io.Copy(w, r.Body)
		}
	}))
	defer server.Close()
	tests := []struct {
		name, path string
		fault      Fault
		want       string
		broken     bool
		status     int
	}{
		{"pass", "/echo", nil, "hello", false, 200},
		{"pass a stream", "/stream", nil, stream, false, 200},
		{"slow", "/stream", SlowDown(0, 1), stream, false, 200},
		{"cut after the start", "/stream", BreakAt(AfterStart, Cut), stream[:27], true, 200},
		{"cut in a frame", "/stream", BreakAt(MidFrame, Cut), stream[:27+13], true, 200},
		{"cut after the end", "/stream", BreakAt(AfterEnd, Reset), "", true, 200},
		{"no start", "/stream", NoStart, stream[27:], false, 200},
		{"no end of stream", "/stream", NoEndStream, stream[:len(stream)-7], false, 200},
		{"answer", "/echo", Answer(503, nil, "no"), "no", false, 503},
		{"newer", "/stream", Newer, "", false, 200},
		{"server breaks", "/short", nil, "", true, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := New(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if tt.fault != nil {
				p.Inject(tt.path, 1, tt.fault)
			}
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			resp, err := c.Post(p.URL+tt.path, "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || tt.want != "" && string(got) != tt.want || (err != nil) != tt.broken {
				t.Errorf("HTTP %d %q, %v; want %q", resp.StatusCode, got, err, tt.want)
			}
			if tt.fault != nil && p.Met() != 1 {
				t.Errorf("%d requests met the fault", p.Met())
			}
			// The next request is served as if nothing had been.
			again, err := c.Post(p.URL+"/echo", "text/plain", strings.NewReader("again"))
			if err != nil {
				t.Fatal(err)
			}
			defer again.Body.Close()
			if got, err := io.ReadAll(again.Body); err != nil || string(got) != "again" {
				t.Errorf("then %q, %v", got, err)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	p, err := New("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	p.Inject("", 1, BreakAt(BeforeRequest, Silence))
	failed := make(chan error)
	go func() {
		_, err := http.Get(p.URL)
		failed <- err
	}()
	for p.Met() == 0 {
		runtime.Gosched()
	}
	p.Close() // ends it
	if err := <-failed; err == nil || errors.Is(err, io.ErrNoProgress) {
		t.Errorf("the request gave %v", err)
	}
}
