// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/internal/linkproxy"
)

// farAway is a link of 80 ms and 200 Mbit/s, on which a connection has at most
// 1 MiB under way.
var farAway = linkproxy.Link{RoundTrip: 80 * time.Millisecond, Rate: 25_000_000}

// linkMiB is how much moves over the link; BENCH_LINK_MIB sets it.
func linkMiB(b *testing.B) int64 {
	b.Helper()
	text := os.Getenv("BENCH_LINK_MIB")
	if text == "" {
		return inShort(int64(64), 2)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		b.Fatalf("BENCH_LINK_MIB is %q", text)
	}
	return n
}

// linkClient is a client at the other end of a link.
func linkClient(b *testing.B, url string, link linkproxy.Link, opts ...client.Option) *client.Client {
	b.Helper()
	proxy, err := linkproxy.New(url, link)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(proxy.Close)
	return benchClient(b, proxy.URL, opts...)
}

// BenchmarkLinkTransfer moves one file over a long link, by one connection and
// by several.
func BenchmarkLinkTransfer(b *testing.B) {
	url := benchURL(b)
	c := linkClient(b, url, farAway)
	near := benchClient(b, url)
	path := benchDir(b, near) + "/file"
	size := linkMiB(b) << 20
	local, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer local.Close()
	if _, err := io.Copy(local, &pattern{size}); err != nil {
		b.Fatal(err)
	}
	for _, streams := range inShort([]int{1, 2, 4, 8, 16}, []int{1, 4}) {
		b.Run("upload/streams="+strconv.Itoa(streams), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if _, err := local.Seek(0, io.SeekStart); err != nil {
					b.Fatal(err)
				}
				if err := c.Upload(b.Context(), path, local, client.WithParallel(streams)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, streams := range inShort([]int{1, 2, 4, 8, 16}, []int{1, 4}) {
		b.Run("download/streams="+strconv.Itoa(streams), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				n := &countingWriter{}
				if err := c.Download(b.Context(), path, n, client.WithParallel(streams)); err != nil || n.n != size {
					b.Fatalf("%d bytes, %v", n.n, err)
				}
			}
		})
	}
}

// BenchmarkLinkTree moves small files over a long link.
func BenchmarkLinkTree(b *testing.B) {
	url := benchURL(b)
	c := linkClient(b, url, farAway)
	near := benchClient(b, url)
	remote := benchDir(b, near)
	for _, tt := range []struct {
		impl   string
		files  int
		upload func(ctx context.Context, local, remote string) error
	}{
		{"client", inShort(10_000, 200), func(ctx context.Context, local, remote string) error {
			_, err := c.UploadDir(ctx, local, remote)
			return err
		}},
		{"one-by-one", inShort(200, 5), func(ctx context.Context, local, remote string) error {
			return uploadOneByOne(ctx, c, local, remote)
		}},
	} {
		b.Run("upload/impl="+tt.impl, func(b *testing.B) {
			local := benchTree(b, tt.files)
			for b.Loop() {
				if err := tt.upload(b.Context(), local, remote+"/"+tt.impl); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(tt.files), "µs/file")
		})
	}
}

// BenchmarkLinkCompression shows from which speed on compression pays: the same
// log comes over links of several rates, as output and as a file.
func BenchmarkLinkCompression(b *testing.B) {
	url := benchURL(b)
	near := benchClient(b, url)
	path := benchDir(b, near) + "/log"
	content := logLines(2 << 20)
	if err := near.WriteFile(b.Context(), path, content); err != nil {
		b.Fatal(err)
	}
	for _, mbit := range inShort([]int64{1, 10, 100, 1000}, []int64{100}) {
		link := linkproxy.Link{RoundTrip: 20 * time.Millisecond, Rate: mbit * 1_000_000 / 8}
		for _, gzip := range []bool{false, true} {
			name := fmt.Sprintf("mbit=%d/gzip=%v", mbit, gzip)
			b.Run("output/"+name, func(b *testing.B) {
				var opts []client.Option
				if gzip {
					opts = append(opts, client.WithCompression())
				}
				c := linkClient(b, url, link, opts...)
				b.SetBytes(int64(len(content)))
				for b.Loop() {
					if out, err := c.Command(b.Context(), "cat", path).Output(); err != nil || len(out) != len(content) {
						b.Fatalf("%d bytes, %v", len(out), err)
					}
				}
			})
			b.Run("download/"+name, func(b *testing.B) {
				var opts []client.TransferOption
				if gzip {
					opts = append(opts, client.WithGzip())
				}
				c := linkClient(b, url, link)
				b.SetBytes(int64(len(content)))
				for b.Loop() {
					var got bytes.Buffer
					if err := c.Download(b.Context(), path, &got, opts...); err != nil || got.Len() != len(content) {
						b.Fatalf("%d bytes, %v", got.Len(), err)
					}
				}
			})
		}
	}
}

// logLines looks like a log: it compresses to about a fifth.
func logLines(size int) []byte {
	var b strings.Builder
	noise := randomBytes(size / 8)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "2026-12-07T10:%02d:%02d.%03dZ INFO request served path=/api/v1/items/%d status=200 trace=%x\n",
			i/60%60, i%60, i%1000, i, noise[i*8%(len(noise)-8):][:8])
	}
	return []byte(b.String()[:size])
}
