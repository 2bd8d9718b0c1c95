// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package linkproxy

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Nothing is lost on the link, and nothing is faster than it.
func TestLink(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 16<<10) // 256 KiB
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, content) {
			http.Error(w, "not what was sent", http.StatusBadRequest)
			return
		}
		_, _ = w.Write(content)
	}))
	defer srv.Close()
	tests := []struct {
		name     string
		link     Link
		parallel int
		least    time.Duration
	}{
		{"nothing", Link{}, 1, 0},
		{"latency", Link{RoundTrip: 40 * time.Millisecond}, 1, 2 * 40 * time.Millisecond},
		{"rate", Link{Rate: 1 << 20}, 1, 2 * 200 * time.Millisecond},
		{"rate shared by four", Link{Rate: 4 << 20}, 4, 2 * 200 * time.Millisecond},
		{"window", Link{RoundTrip: 20 * time.Millisecond, Window: 64 << 10}, 1, 6 * 20 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			proxy, err := New(srv.URL, tt.link)
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			transport := &http.Transport{DisableCompression: true}
			defer transport.CloseIdleConnections()
			hc := &http.Client{Transport: transport}
			began := time.Now()
			var all sync.WaitGroup
			for range tt.parallel {
				all.Go(func() {
					resp, err := hc.Post(proxy.URL, "text/plain", bytes.NewReader(content))
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					got, err := io.ReadAll(resp.Body)
					if err != nil || !bytes.Equal(got, content) {
						t.Errorf("%s: %d bytes came back, %v", resp.Status, len(got), err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took < tt.least {
				t.Errorf("took %v, which is faster than the link", took)
			}
		})
	}
}

// Any number of small pieces may be under way.
func TestSmallPieces(t *testing.T) {
	const pieces = 5000
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range pieces {
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer srv.Close()
	proxy, err := New(srv.URL, Link{RoundTrip: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || len(got) != pieces {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Closing it in the middle leaves nothing behind.
func TestClose(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	proxy, err := New(srv.URL, Link{RoundTrip: 10 * time.Millisecond, Rate: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, 20<<10); err != nil {
		t.Fatal(err)
	}
	proxy.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the connection outlives the proxy")
	}
}
