// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/internal/linkproxy"
)

// At 20 KB/s nothing times out while bytes move, however long it takes in all;
// what stands still does.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	srv, near := embedded(t)
	proxy, err := linkproxy.New(srv.URL, linkproxy.Link{RoundTrip: 80 * time.Millisecond, Rate: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	const idle = 3 * time.Second
	c := dial(t, proxy.URL, client.WithUser("root"), client.WithRequestTimeout(idle))
	dir := t.TempDir()
	content := randomBytes(80_000) // four seconds
	stall := client.WithIdleTimeout(idle)

	for name, opts := range map[string][]client.TransferOption{
		"one": {stall}, "parts": {stall, client.WithParallel(2)}, "atomic": {stall, client.WithAtomic()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, err := linkproxy.New(srv.URL, linkproxy.Link{RoundTrip: 80 * time.Millisecond, Rate: 20_000})
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			c := dial(t, proxy.URL, client.WithUser("root"), client.WithPieces(20_000))
			path := dir + "/" + name
			if err := c.Upload(t.Context(), path, bytes.NewReader(content), opts...); err != nil {
				t.Error(err)
			}
			if name == "atomic" {
				return
			}
			got, err := c.ReadFile(t.Context(), path, opts...)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
	}
	if err := near.WriteFile(t.Context(), dir+"/output", content); err != nil {
		t.Fatal(err)
	}
	out, err := c.Command(t.Context(), "cat", dir+"/output").Output()
	if err != nil || !bytes.Equal(out, content) {
		t.Errorf("output of %d bytes, %v", len(out), err)
	}
	cmd := c.Command(t.Context(), "cat")
	cmd.Stdin = bytes.NewReader(content)
	if out, err := cmd.Output(); err != nil || !bytes.Equal(out, content) {
		t.Errorf("input of %d bytes came back as %d, %v", len(content), len(out), err)
	}

	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = io.WriteString(w, strings.Repeat("x", 100<<10)) }()
	err = c.Upload(t.Context(), dir+"/stalled", r, stall)
	if te, ok := errors.AsType[*client.TransferError](err); !errors.Is(err, client.ErrIdleTimeout) || !ok || te.Bytes == 0 {
		t.Errorf("upload that stands still: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := c.Download(ctx, dir+"/output", io.Discard); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("download that the context ends: %v", err)
	}
}
