// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"sync"
	"testing"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// A server that reads only JSON costs a client some refused requests at first,
// and none after that. Nothing is started twice.
func TestCodecFallback(t *testing.T) {
	srv := envdtest.NewServer(envdtest.WithDialect(envdtest.FC))
	t.Cleanup(srv.Close)
	c := dial(t, srv.URL, client.WithUser("root"))
	var mu sync.Mutex
	runs := 0
	srv.HandleCommand("count", func(*envdtest.Proc) int {
		mu.Lock()
		defer mu.Unlock()
		runs++
		return 0
	})
	const n = 8
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := c.Command(t.Context(), "count").Run(); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	wg.Wait()
	if runs != n {
		t.Errorf("%d commands ran, want %d", runs, n)
	}
	before := len(srv.Requests())
	if err := c.As("user").Command(t.Context(), "count").Run(); err != nil {
		t.Errorf("Run: %v", err)
	}
	for _, req := range srv.Requests()[before:] {
		if got, want := req.Header.Get("Content-Type"), "application/connect+json"; got != want {
			t.Errorf("%s is sent as %q, want %q", req.Path, got, want)
		}
	}
	if refused := countBinary(srv); refused == 0 || refused > n {
		t.Errorf("%d requests were binary, want 1 to %d", refused, n)
	}
}

func countBinary(srv *envdtest.Server) int {
	n := 0
	for _, req := range srv.Requests() {
		switch req.Header.Get("Content-Type") {
		case "application/proto", "application/connect+proto":
			n++
		}
	}
	return n
}
