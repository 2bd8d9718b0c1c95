// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"io"
	"path"
	"testing"

	"github.com/envd-go/envd/client"
	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

// BenchmarkTransfer moves 16 MiB, to compare with the disk and with curl.
func BenchmarkTransfer(b *testing.B) {
	c, err := client.New(benchURL(b), client.WithUser("root"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	dir := b.TempDir()
	b.Cleanup(func() {
		_, _ = c.FilesystemService().Remove(b.Context(), &filesystempb.RemoveRequest{Path: dir})
	})
	data := randomBytes(16 << 20)
	name := path.Join(dir, "file")
	b.Run("upload", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Upload(b.Context(), name, bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("download", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Download(b.Context(), name, io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("small", func(b *testing.B) {
		small := path.Join(dir, "small")
		for b.Loop() {
			if err := c.WriteFile(b.Context(), small, []byte("x")); err != nil {
				b.Fatal(err)
			}
			if _, err := c.ReadFile(b.Context(), small); err != nil {
				b.Fatal(err)
			}
		}
	})
}
