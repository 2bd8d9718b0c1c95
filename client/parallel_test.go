// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
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
			old := time.Now().Add(-time.Hour) // a new file costs one request more
			if err := os.Chtimes(srv.Path("/tmp/file"), old, old); err != nil {
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

// replacedAtFirstStat is a server whose file is replaced when it is looked at for
// the first time.
func replacedAtFirstStat(t *testing.T, next http.Handler, replace func()) *httptest.Server {
	t.Helper()
	var once sync.Once
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/Stat") {
			once.Do(replace)
		}
		next.ServeHTTP(w, r)
	}))
}

// A file that is replaced by one of the same size between the first answer and
// the look at its time is not mixed with the other.
func TestDownloadReplacedAtOnce(t *testing.T) {
	const size = 20 * testPiece
	for _, version := range []string{"0.2.5", "0.5.2", "0.6.13"} {
		for name, opts := range map[string][]client.TransferOption{"parallel": {client.WithParallel(2)}, "resumed": nil} {
			t.Run(version+"/"+name, func(t *testing.T) {
				srv := envdtest.NewServer(envdtest.WithVersion(version), envdtest.WithRoot(t.TempDir()))
				defer srv.Close()
				path := srv.Path("/tmp/file")
				n := size
				if opts == nil {
					n = 8 << 20
				}
				put := func(at string, b byte) error { return os.WriteFile(at, bytes.Repeat([]byte{b}, n), 0o644) }
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), put(path, 'a')); err != nil {
					t.Fatal(err)
				}
				web := replacedAtFirstStat(t, srv.Handler(), func() {
					if err := errors.Join(put(path+"2", 'b'), os.Rename(path+"2", path)); err != nil {
						t.Error(err)
					}
				})
				defer web.Close()
				if opts == nil {
					srv.Inject(envdtest.Fault{Procedure: "/files", Action: envdtest.Cut, After: envdtest.Amount{Bytes: 5 << 20}})
				}
				c := dial(t, web.URL, client.WithPieces(testPiece), client.WithUser("root"))
				var got bytes.Buffer
				err := c.Download(t.Context(), "/tmp/file", &got, opts...)
				mixed := bytes.ContainsRune(got.Bytes(), 'a') && bytes.ContainsRune(got.Bytes(), 'b')
				if mixed || err == nil && got.Len() != n || err != nil && !errors.Is(err, client.ErrFileChanged) {
					t.Errorf("%d bytes, mixed %v, %v", got.Len(), mixed, err)
				}
			})
		}
	}
}

// A part that a failure elsewhere interrupted is looked after: a slow daemon may
// still make it.
func TestParallelUploadLeavesNothing(t *testing.T) {
	srv := envdtest.NewServer(envdtest.WithRoot(t.TempDir()))
	defer srv.Close()
	var n atomic.Int32
	second := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/files" {
			if n.Add(1) == 1 {
				<-second
				http.Error(w, "no", http.StatusInternalServerError)
				return
			}
			close(second)
			time.Sleep(100 * time.Millisecond) // a slow daemon
		}
		srv.Handler().ServeHTTP(w, r)
	}))
	defer web.Close()
	c := dial(t, web.URL, client.WithPieces(testPiece), client.WithUser("root"), client.WithVersion("0.6.13"))
	err := c.WriteFile(t.Context(), "/tmp/f", randomBytes(2*testPiece), client.WithParallel(2))
	if err == nil {
		t.Fatal("no error")
	}
	wantNames(t, c, "/tmp", "")
}

// A sandbox that falls silent in the middle ends a parallel upload all the same,
// within its idle timeout and one clean-up.
func TestParallelUploadSilence(t *testing.T) {
	srv := envdtest.NewServer(envdtest.WithRoot(t.TempDir()))
	defer srv.Close()
	c := dial(t, srv.URL, client.WithPieces(testPiece), client.WithUser("root"), client.WithVersion("0.6.13"))
	srv.Inject(envdtest.Fault{Procedure: "/files/compose", Action: envdtest.Stall, Times: -1})
	srv.Inject(envdtest.Fault{Procedure: "/filesystem.Filesystem/Remove", Action: envdtest.Stall, Times: -1})
	began := time.Now()
	err := c.WriteFile(t.Context(), "/tmp/f", randomBytes(20*testPiece), client.WithParallel(2), client.WithIdleTimeout(time.Second))
	if !errors.Is(err, client.ErrIdleTimeout) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("took %v: the clean-up waits for each part", took)
	}
}

func TestParallelHuge(t *testing.T) {
	_, c := embedded(t)
	path := t.TempDir() + "/file"
	want := randomBytes(3 << 20)
	for _, n := range []int{math.MaxInt, 1 << 20} {
		if err := c.WriteFile(t.Context(), path, want, client.WithParallel(n)); err != nil {
			t.Error(err)
		}
		got, err := c.ReadFile(t.Context(), path, client.WithParallel(n))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}

// What works in one piece works in parts too, or is sent in one piece.
func TestParallelUploadNames(t *testing.T) {
	_, near := embedded(t)
	c := dial(t, near.URL(), client.WithPieces(testPiece), client.WithUser("root"))
	want := randomBytes(3 * testPiece)
	names := []string{"\xff", strings.Repeat("n", 202), strings.Repeat("n", 203), strings.Repeat("n", 255)}
	for _, name := range names {
		path := t.TempDir() + "/" + name
		if err := c.WriteFile(t.Context(), path, want, client.WithParallel(2)); err != nil {
			t.Errorf("%.20q of %d bytes: %v", name, len(name), err)
		}
		if got, err := c.ReadFile(t.Context(), path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%.20q of %d bytes: holds %d bytes, %v", name, len(name), len(got), err)
		}
	}
	if err := c.WriteFile(t.Context(), "/dev/null", want, client.WithParallel(2)); err != nil {
		t.Errorf("a device: %v", err)
	}
	dir := t.TempDir()
	if err := c.WriteFile(t.Context(), dir+"/part", want); err != nil {
		t.Fatal(err)
	}
	wantIs(t, c.Compose(t.Context(), dir+"/\xff", dir+"/part"), fs.ErrInvalid)
	wantIs(t, c.Compose(t.Context(), dir+"/out", dir+"/\xff"), fs.ErrInvalid)
	wantIs(t, c.WriteFile(t.Context(), dir+"/\xff", want, client.WithAtomic()), fs.ErrInvalid)
	long := dir + "/" + strings.Repeat("n", 250)
	if err := c.Compose(t.Context(), long, dir+"/part"); err != nil {
		t.Errorf("Compose onto a long name: %v", err)
	}
}

// Whatever the question whether the server joins files is answered with, the
// file gets there.
func TestParallelUploadProbe(t *testing.T) {
	want := randomBytes(3 * testPiece)
	for name, fault := range map[string]envdtest.Fault{
		"503":     {Action: envdtest.Respond, Status: 503},
		"refused": {Action: envdtest.Refuse},
		"403":     {Action: envdtest.Respond, Status: 403, Times: -1},
		"400":     {Action: envdtest.Respond, Status: 400, Times: -1},
		"200":     {Action: envdtest.Respond, Status: 200, Times: -1},
		"404":     {Action: envdtest.Respond, Status: 404, Times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, told := range []bool{false, true} {
				if told && name != "404" {
					continue
				}
				srv := envdtest.NewServer()
				fault.Procedure = "/files/compose"
				srv.Inject(fault)
				opts := []client.Option{client.WithUser("root"), client.WithPieces(testPiece)}
				if told {
					opts = append(opts, client.WithVersion("0.6.13"))
				}
				c := dial(t, srv.URL, opts...)
				dir := t.TempDir()
				if err := c.WriteFile(t.Context(), dir+"/f", want, client.WithParallel(2)); err != nil {
					t.Error(err)
				}
				if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				wantNames(t, c, dir, "f")
				srv.Close()
			}
		})
	}
}

// The time that a progress callback takes is the caller's own.
func TestSlowProgress(t *testing.T) {
	_, near := embedded(t)
	c := dial(t, near.URL(), client.WithPieces(testPiece), client.WithUser("root"))
	slow := client.WithProgress(func(client.Progress) { time.Sleep(60 * time.Millisecond) })
	idle := client.WithIdleTimeout(50 * time.Millisecond)
	path := t.TempDir() + "/file"
	for _, n := range []int{1, 8} {
		if err := c.WriteFile(t.Context(), path, randomBytes(16*testPiece), slow, idle, client.WithParallel(n)); err != nil {
			t.Errorf("%d at a time: %v", n, err)
		}
	}
}

// A reader is where it would be had it been read, and an error counts in the
// whole file.
func TestParallelUploadReader(t *testing.T) {
	_, near := embedded(t)
	c := dial(t, near.URL(), client.WithPieces(testPiece), client.WithUser("root"))
	path := t.TempDir() + "/file"
	r := bytes.NewReader(randomBytes(3 * testPiece))
	if err := c.Upload(t.Context(), path, r, client.WithParallel(2)); err != nil || r.Len() != 0 {
		t.Errorf("%v, %d bytes are left", err, r.Len())
	}
	err := c.Upload(t.Context(), path, bytes.NewReader(randomBytes(3500)), client.WithSize(5000), client.WithParallel(2))
	if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Bytes > 3500 || te.Total != 5000 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reader that ends early: %v", err)
	}
}
