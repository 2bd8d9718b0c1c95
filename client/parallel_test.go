// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

const testPiece = 1000

func TestParallelTransfer(t *testing.T) {
	sizes := []int{0, 1, testPiece - 1, testPiece, testPiece + 1, 10 * testPiece, 10*testPiece + 7}
	t.Parallel()
	list := targets(t)
	for i := range list {
		list[i].client = append(slices.Clip(list[i].client), client.WithPieces(testPiece))
	}
	runOn(t, list, func(t *testing.T, c *client.Client, dir string) {
		for _, n := range []int{1, 2, 5, 40} {
			for _, size := range sizes {
				want := randomBytes(size)
				path := dir + "/file"
				var last client.Progress
				check := client.WithProgress(func(p client.Progress) {
					if p.Bytes < last.Bytes || p.Total != int64(size) {
						t.Errorf("progress went from %+v to %+v", last, p)
					}
					last = p
				})
				if err := c.Upload(t.Context(), path, bytes.NewReader(want), client.WithParallel(n), check); err != nil {
					t.Fatalf("upload of %d by %d: %v", size, n, err)
				}
				if last.Bytes != int64(size) || !last.Done {
					t.Errorf("last progress of the upload is %+v", last)
				}
				last = client.Progress{}
				var got bytes.Buffer
				if err := c.Download(t.Context(), path, &got, client.WithParallel(n), check); err != nil {
					t.Fatalf("download of %d by %d: %v", size, n, err)
				}
				if !bytes.Equal(got.Bytes(), want) || last.Bytes != int64(size) || !last.Done {
					t.Errorf("download of %d by %d: %d bytes, progress %+v", size, n, got.Len(), last)
				}
				read, err := c.ReadFile(t.Context(), path, client.WithParallel(n))
				if err != nil || !bytes.Equal(read, want) {
					t.Errorf("read of %d by %d: %d bytes, %v", size, n, len(read), err)
				}
			}
		}
		wantNames(t, c, dir, "file")
	})
}

// wantNames checks that a directory has these entries alone.
func wantNames(t *testing.T, c *client.Client, dir string, want string) {
	t.Helper()
	entries, err := c.ReadDir(context.WithoutCancel(t.Context()), dir)
	if got := entryNames(entries); err != nil || got != want {
		t.Errorf("directory has %q, %v, want %q", got, err, want)
	}
}

// counting counts requests by method and path.
type counting struct {
	next http.Handler
	mu   sync.Mutex
	seen map[string]int
}

func (h *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.seen[r.Method+" "+r.URL.Path]++
	h.mu.Unlock()
	h.next.ServeHTTP(w, r)
}

func TestParallelRequests(t *testing.T) {
	content := randomBytes(100 * testPiece)
	tests := []struct {
		name, version string
		r             func() io.Reader
		opts          []client.TransferOption
		uploads       int
	}{
		{"in parts", "0.6.13", func() io.Reader { return bytes.NewReader(content) }, nil, 100},
		{"version not told", "", func() io.Reader { return bytes.NewReader(content) }, nil, 100},
		{"daemon that cannot join", "0.5.4", func() io.Reader { return bytes.NewReader(content) }, nil, 1},
		{"reader that only reads", "0.6.13", func() io.Reader { return io.MultiReader(bytes.NewReader(content)) }, nil, 1},
		{"metadata", "0.6.13", func() io.Reader { return bytes.NewReader(content) },
			[]client.TransferOption{client.WithMetadata(map[string]string{"k": "v"})}, 1},
		{"compressed", "0.6.13", func() io.Reader { return bytes.NewReader(content) }, []client.TransferOption{client.WithGzip()}, 100},
		{"second half", "0.6.13", func() io.Reader {
			r := bytes.NewReader(append(randomBytes(5), content...))
			_, _ = r.Seek(5, io.SeekStart)
			return r
		}, nil, 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			version := tt.version
			if version == "" {
				version = "0.6.13"
			}
			srv := envdtest.NewServer(envdtest.WithVersion(version), envdtest.WithRoot(t.TempDir()))
			defer srv.Close()
			count := &counting{next: srv.Handler(), seen: map[string]int{}}
			web := httptest.NewServer(count)
			defer web.Close()
			opts := []client.Option{client.WithPieces(testPiece), client.WithUser("root")}
			if tt.version != "" {
				opts = append(opts, client.WithVersion(tt.version))
			}
			c := dial(t, web.URL, opts...)
			err := c.Upload(t.Context(), "/tmp/file", tt.r(), append(tt.opts, client.WithParallel(3))...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.ReadFile(t.Context(), "/tmp/file", client.WithParallel(3))
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if got := count.seen["POST /files"]; got != tt.uploads {
				t.Errorf("%d uploads, want %d", got, tt.uploads)
			}
			if got := count.seen["GET /files"]; got != 100 {
				t.Errorf("%d downloads, want 100", got)
			}
		})
	}
}

// An upload in parts is all or nothing, keeps the mode, and follows links.
func TestParallelUploadReplaces(t *testing.T) {
	srv := envdtest.NewServer()
	defer srv.Close()
	c := dial(t, srv.URL, client.WithPieces(testPiece), client.WithUser("root"), client.WithVersion("0.6.13"))
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(real, []byte("old"), 0o600), os.Chmod(real, 0o755), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	want := randomBytes(5 * testPiece)
	if err := c.Upload(t.Context(), link, bytes.NewReader(want), client.WithParallel(2)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(real)
	if err != nil || info.Mode().Perm() != 0o755 || info.Size() != int64(len(want)) {
		t.Errorf("file is %v of %d bytes, %v", info.Mode(), info.Size(), err)
	}

	failing := struct {
		io.Reader
		io.Seeker
		io.ReaderAt
	}{nil, bytes.NewReader(want), readerAtFunc(func(p []byte, off int64) (int, error) {
		if off >= 3*testPiece {
			return 0, errors.New("disk is broken")
		}
		return bytes.NewReader(want).ReadAt(p, off)
	})}
	failing.Reader = iotest.ErrReader(errors.New("not this one"))
	err = c.Upload(t.Context(), link, failing, client.WithParallel(2))
	te, ok := errors.AsType[*client.TransferError](err)
	if !ok || !strings.Contains(err.Error(), "disk is broken") || te.Incomplete {
		t.Errorf("error %v of a reader that fails", err)
	}
	if got, _ := os.ReadFile(real); !bytes.Equal(got, want) {
		t.Error("a failed upload changed the file")
	}
	wantNames(t, c, dir, "link real")
}

type readerAtFunc func([]byte, int64) (int, error)

func (f readerAtFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// A file that changes while its parts are fetched is never mixed.
func TestParallelDownloadChanged(t *testing.T) {
	for _, version := range []string{"0.2.5", "0.3.7", "0.5.2", "0.6.13"} {
		t.Run(version, func(t *testing.T) {
			srv := envdtest.NewServer(envdtest.WithVersion(version), envdtest.WithRoot(t.TempDir()))
			defer srv.Close()
			path := srv.Path("/tmp/file")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			put := func(b byte, at time.Time) {
				if err := os.WriteFile(path, bytes.Repeat([]byte{b}, 100*testPiece), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, at, at); err != nil {
					t.Fatal(err)
				}
			}
			put('a', time.Now().Add(-time.Hour))
			c := dial(t, srv.URL, client.WithPieces(testPiece), client.WithUser("root"))
			var got bytes.Buffer
			err := c.Download(t.Context(), "/tmp/file", writerFunc(func(p []byte) (int, error) {
				if got.Len() == 0 {
					put('b', time.Now().Add(-time.Minute))
				}
				return got.Write(p)
			}), client.WithParallel(2))
			if !errors.Is(err, client.ErrFileChanged) {
				t.Errorf("error %v, want ErrFileChanged", err)
			}
			if bytes.ContainsRune(got.Bytes(), 'b') {
				t.Error("parts of two files were mixed")
			}
		})
	}
}

// Whoever ends a parallel transfer gets an error of the usual kind, and nothing
// is left of it.
func TestParallelEnded(t *testing.T) {
	srv := envdtest.NewServer(envdtest.WithRoot(t.TempDir()))
	defer srv.Close()
	c := dial(t, srv.URL, client.WithPieces(testPiece), client.WithUser("root"), client.WithVersion("0.6.13"))
	content := randomBytes(50 * testPiece)
	if err := c.WriteFile(t.Context(), "/tmp/file", content); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := c.Download(ctx, "/tmp/file", writerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	}), client.WithParallel(4))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled download: %v", err)
	}
	full := errors.New("disk is full")
	err = c.Download(t.Context(), "/tmp/file", writerFunc(func([]byte) (int, error) { return 3, full }), client.WithParallel(4))
	if te, ok := errors.AsType[*client.TransferError](err); !errors.Is(err, full) || !ok || te.Bytes != 3 {
		t.Errorf("download to a full disk: %v", err)
	}
	err = c.Download(t.Context(), "/tmp/missing", io.Discard, client.WithParallel(4))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	var once atomic.Bool
	err = c.Upload(ctx, "/tmp/new", bytes.NewReader(content), client.WithParallel(4), client.WithProgress(func(p client.Progress) {
		if p.Bytes > 10*testPiece && once.CompareAndSwap(false, true) {
			cancel()
		}
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled upload: %v", err)
	}
	wantNames(t, c, "/tmp", "file")
}

// A server that sends no parts, or says nothing of its files, is read in one
// piece.
func TestParallelDownloadFallback(t *testing.T) {
	content := randomBytes(5 * testPiece)
	whole := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(content)
	}
	tests := []struct {
		name  string
		serve http.HandlerFunc
		want  int
	}{
		{"ignores Range", func(w http.ResponseWriter, _ *http.Request) { whole(w) }, 1},
		{"refuses Range", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				http.Error(w, "no parts", http.StatusRequestedRangeNotSatisfiable)
				return
			}
			whole(w)
		}, 2},
		{"size not told", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", "bytes 0-999/*")
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(content[:testPiece])
				return
			}
			whole(w)
		}, 2},
		{"no time of change", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/files" {
					http.NotFound(w, r)
					return
				}
				requests.Add(1)
				tt.serve(w, r)
			}))
			defer srv.Close()
			var got bytes.Buffer
			err := dial(t, srv.URL, client.WithPieces(testPiece)).Download(t.Context(), "/f", &got, client.WithParallel(3))
			if err != nil || !bytes.Equal(got.Bytes(), content) || requests.Load() != int32(tt.want) {
				t.Errorf("%d bytes by %d requests, %v", got.Len(), requests.Load(), err)
			}
		})
	}
}

// The first range of a hostile server is not believed either.
func TestParallelDownloadHostile(t *testing.T) {
	for _, contentRange := range []string{"", "bytes 0-999/10", "bytes 1-1000/5000", "bytes 0-998/5000", "bytes 0-1999/5000", "bytes 0-999/999999999999999999"} {
		t.Run(contentRange, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Range", contentRange)
				w.Header().Set("Etag", `"e"`)
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(make([]byte, testPiece))
			}))
			defer srv.Close()
			err := dial(t, srv.URL, client.WithPieces(testPiece)).Download(t.Context(), "/f", io.Discard, client.WithParallel(3), client.WithRetries(0))
			if err == nil {
				t.Error("no error")
			}
		})
	}
}
