// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/filesystem/filesystemconnect"
)

// benchDir makes a directory of the sandbox for a benchmark.
func benchDir(b *testing.B, c *client.Client) string {
	b.Helper()
	dir := "/tmp/envd-go-bench-" + strings.ToLower(cryptorand.Text())
	if err := c.Mkdir(b.Context(), dir); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.RemoveAll(context.Background(), dir); err != nil {
			b.Error(err)
		}
	})
	return dir
}

// fileStubs are the bare stubs to compare with.
func fileStubs(b *testing.B, url string) map[string]filesystemconnect.FilesystemClient {
	b.Helper()
	return map[string]filesystemconnect.FilesystemClient{
		"tuned-stub":   filesystemconnect.NewFilesystemClient(stubTransport(b, url, true)),
		"default-stub": filesystemconnect.NewFilesystemClient(stubTransport(b, url, false)),
	}
}

var benchStubs = []string{"tuned-stub", "default-stub"}

// BenchmarkStat is the time of a small call.
func BenchmarkStat(b *testing.B) {
	url := benchURL(b)
	c, stubs := benchClient(b, url), fileStubs(b, url)
	dir := benchDir(b, c)
	b.Run("impl=client", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Stat(b.Context(), dir); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, name := range benchStubs {
		b.Run("impl="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := stubs[name].Stat(asBenchUser(b.Context()), &filesystempb.StatRequest{Path: dir}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReadDir lists directories of several sizes.
func BenchmarkReadDir(b *testing.B) {
	url := benchURL(b)
	c, stubs := benchClient(b, url), fileStubs(b, url)
	for _, n := range inShort([]int{10, 1000, 50_000}, []int{10, 100}) {
		dir := benchDir(b, c)
		script := fmt.Sprintf("cd %s && i=0 && while [ $i -lt %d ]; do : > file$i; i=$((i+1)); done", dir, n)
		if err := c.Shell(b.Context(), script).Run(); err != nil {
			b.Fatal(err)
		}
		list := map[string]func() (int, error){"client": func() (int, error) {
			entries, err := c.ReadDir(b.Context(), dir)
			return len(entries), err
		}}
		for name, stub := range stubs {
			list[name] = func() (int, error) {
				resp, err := stub.ListDir(asBenchUser(b.Context()), &filesystempb.ListDirRequest{Path: dir, Depth: 1})
				return len(resp.GetEntries()), err
			}
		}
		for _, name := range append([]string{"client"}, benchStubs...) {
			b.Run(fmt.Sprintf("n=%d/impl=%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if got, err := list[name](); err != nil || got != n {
						b.Fatalf("%d entries, %v", got, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
			})
		}
	}
}

// pattern is a reader of n bytes.
type pattern struct{ n int64 }

var patternBytes = randomBytes(64 << 10)

func (p *pattern) Read(buf []byte) (int, error) {
	if p.n == 0 {
		return 0, io.EOF
	}
	n := copy(buf[:min(int64(len(buf)), p.n)], patternBytes)
	p.n -= int64(n)
	return n, nil
}

type transferSize struct {
	name string
	n    int64
}

func transferSizes() []transferSize {
	all := []transferSize{{"1KiB", 1 << 10}, {"1MiB", 1 << 20}, {"1GiB", 1 << 30}}
	return inShort(all, all[:2])
}

func filesAddress(base, path string) string {
	return base + "/files?" + url.Values{"path": {path}, "username": {benchUser()}}.Encode()
}

// BenchmarkUpload writes one file, beside a plain POST of the same bytes.
func BenchmarkUpload(b *testing.B) {
	url := benchURL(b)
	c := benchClient(b, url)
	path := benchDir(b, c) + "/file"
	plain := plainHTTP(b)
	upload := map[string]func(n int64) error{
		"client": func(n int64) error { return c.Upload(b.Context(), path, &pattern{n}, client.WithSize(n)) },
		"net-http": func(n int64) error {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, filesAddress(url, path), &pattern{n})
			if err != nil {
				return err
			}
			req.ContentLength = n
			req.Header.Set("Content-Type", "application/octet-stream")
			_, err = consume(plain.Do(req))
			return err
		},
	}
	for _, size := range transferSizes() {
		for _, name := range []string{"client", "net-http"} {
			b.Run("size="+size.name+"/impl="+name, func(b *testing.B) {
				b.SetBytes(size.n)
				b.ReportAllocs()
				for b.Loop() {
					if err := upload[name](size.n); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkDownload reads one file, beside a plain GET.
func BenchmarkDownload(b *testing.B) {
	url := benchURL(b)
	c := benchClient(b, url)
	dir := benchDir(b, c)
	plain := plainHTTP(b)
	for _, size := range transferSizes() {
		path := dir + "/" + size.name
		if err := c.Upload(b.Context(), path, &pattern{size.n}, client.WithSize(size.n)); err != nil {
			b.Fatal(err)
		}
		download := map[string]func() (int64, error){
			"client": func() (int64, error) {
				n := &countingWriter{}
				err := c.Download(b.Context(), path, n)
				return n.n, err
			},
			"net-http": func() (int64, error) {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, filesAddress(url, path), nil)
				if err != nil {
					return 0, err
				}
				return consume(plain.Do(req))
			},
		}
		for _, name := range []string{"client", "net-http"} {
			b.Run("size="+size.name+"/impl="+name, func(b *testing.B) {
				b.SetBytes(size.n)
				b.ReportAllocs()
				for b.Loop() {
					if n, err := download[name](); err != nil || n != size.n {
						b.Fatalf("%d bytes, %v", n, err)
					}
				}
			})
		}
	}
}

func plainHTTP(b *testing.B) *http.Client {
	b.Helper()
	transport := &http.Transport{DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func consume(resp *http.Response, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 64<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", resp.Status)
	}
	return n, err
}

// benchTree makes a local tree of small files.
func benchTree(b *testing.B, files int) string {
	b.Helper()
	dir := b.TempDir()
	for i := range files {
		at := filepath.Join(dir, "d"+strconv.Itoa(i/100))
		if err := os.MkdirAll(at, 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, strconv.Itoa(i)), patternBytes[:1024], 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// uploadOneByOne is what UploadDir is measured against.
func uploadOneByOne(ctx context.Context, c *client.Client, local, remote string) error {
	return filepath.WalkDir(local, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(local, name)
		if err != nil {
			return err
		}
		return c.WriteFile(ctx, remote+"/"+filepath.ToSlash(rel), data)
	})
}

// BenchmarkTree moves 10,000 files of 1 KiB.
func BenchmarkTree(b *testing.B) {
	files := inShort(10_000, 200)
	c := benchClient(b, benchURL(b))
	local, remote := benchTree(b, files), benchDir(b, c)
	perFile := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(files), "µs/file")
	}
	b.Run("upload/impl=client", func(b *testing.B) {
		for b.Loop() {
			if s, err := c.UploadDir(b.Context(), local, remote+"/bulk"); err != nil || s.Files != files {
				b.Fatalf("%d files, %v", s.Files, err)
			}
		}
		perFile(b)
	})
	b.Run("upload/impl=one-by-one", func(b *testing.B) {
		for b.Loop() {
			if err := uploadOneByOne(b.Context(), c, local, remote+"/single"); err != nil {
				b.Fatal(err)
			}
		}
		perFile(b)
	})
	b.Run("download/impl=client", func(b *testing.B) {
		for b.Loop() {
			if s, err := c.DownloadDir(b.Context(), remote+"/bulk", b.TempDir()); err != nil || s.Files != files {
				b.Fatalf("%d files, %v", s.Files, err)
			}
		}
		perFile(b)
	})
}

// BenchmarkWatch is how fast events come: a command makes 1,000 files.
func BenchmarkWatch(b *testing.B) {
	const files = 1000
	c := benchClient(b, benchURL(b))
	for b.Loop() {
		dir := benchDir(b, c)
		w, err := c.StartWatch(b.Context(), dir)
		if err != nil {
			b.Fatal(err)
		}
		script := fmt.Sprintf("cd %s && i=0 && while [ $i -lt %d ]; do : > file$i; i=$((i+1)); done", dir, files)
		done := make(chan error, 1)
		go func() { done <- c.Shell(context.Background(), script).Run() }()
		seen := 0
		for event, err := range w.Events() {
			if err != nil {
				b.Fatal(err)
			}
			if event.Op == client.OpCreate {
				seen++
			}
			if seen == files {
				break
			}
		}
		w.Close()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(files)*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}

// BenchmarkTransferMemory is what a transfer of 4 GiB takes of memory, above what
// was in use before. It means something with ENVD_URL: an embedded envd is in
// the same process.
func BenchmarkTransferMemory(b *testing.B) {
	size := inShort(int64(4<<30), 4<<20)
	c := benchClient(b, benchURL(b))
	path := benchDir(b, c) + "/sparse"
	if err := c.Command(b.Context(), "truncate", "-s", strconv.FormatInt(size, 10), path).Run(); err != nil {
		b.Fatal(err)
	}
	b.Run("download", func(b *testing.B) {
		most := peakMemory(func() {
			n := &countingWriter{}
			if err := c.Download(b.Context(), path, n); err != nil || n.n != size {
				b.Fatalf("%d bytes, %v", n.n, err)
			}
		})
		b.ReportMetric(float64(most)/(1<<20), "MiB-above-idle")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("parallel-download", func(b *testing.B) {
		most := peakMemory(func() {
			n := &countingWriter{}
			if err := c.Download(b.Context(), path, n, client.WithParallel(4)); err != nil || n.n != size {
				b.Fatalf("%d bytes, %v", n.n, err)
			}
		})
		b.ReportMetric(float64(most)/(1<<20), "MiB-above-idle")
		b.ReportMetric(0, "ns/op")
	})
	b.Run("upload", func(b *testing.B) {
		most := peakMemory(func() {
			if err := c.Upload(b.Context(), path, &pattern{size}, client.WithSize(size)); err != nil {
				b.Fatal(err)
			}
		})
		b.ReportMetric(float64(most)/(1<<20), "MiB-above-idle")
		b.ReportMetric(0, "ns/op")
	})
}

// peakMemory is the most that was in use while do ran, above what was before.
func peakMemory(do func()) uint64 {
	before := memoryInUse()
	var most atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapInuse+m.StackInuse))
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	do()
	close(stop)
	<-stopped
	return most.Load() - min(before, most.Load())
}
