// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/envd-go/envd/client"
)

// longAgo is the time of files that did not change in a while.
var longAgo = time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeFile serves one file as envd 0.5.3 and later do.
type fakeFile struct {
	data     []byte
	modTime  time.Time
	requests []string // the Range of each
	// before is called for each request, counted from 1. It may answer by
	// itself, and then returns true.
	before func(n int, w http.ResponseWriter, r *http.Request) bool
}

func (f *fakeFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/files" {
		http.NotFound(w, r)
		return
	}
	f.requests = append(f.requests, r.Header.Get("Range"))
	if f.before != nil && f.before(len(f.requests), w, r) {
		return
	}
	f.serve(w, r)
}

func (f *fakeFile) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept-Encoding")
	http.ServeContent(w, r, "file", f.modTime, bytes.NewReader(f.data))
}

// cutWriter breaks the connection after n bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		w.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(p)
	return w.ResponseWriter.Write(p)
}

func TestDownloadResume(t *testing.T) {
	data := randomBytes(300_000)
	t.Run("taken up", func(t *testing.T) {
		f := &fakeFile{data: data, modTime: longAgo}
		f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n <= 2 {
				f.serve(&cutWriter{w, 100_000}, r)
			}
			return n <= 2
		}
		var got bytes.Buffer
		if err := serve(t, f.ServeHTTP).Download(t.Context(), "/file", &got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), data) {
			t.Error("the bytes are wrong")
		}
		if want := []string{"", "bytes=100000-", "bytes=200000-"}; !slices.Equal(f.requests, want) {
			t.Errorf("requests for %q, want %q", f.requests, want)
		}
	})
	t.Run("bounded", func(t *testing.T) {
		f := &fakeFile{data: data, modTime: longAgo}
		f.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			f.serve(&cutWriter{w, 1000}, r)
			return true
		}
		var got bytes.Buffer
		err := serve(t, f.ServeHTTP).Download(t.Context(), "/file", &got, client.WithRetries(2))
		te, ok := errors.AsType[*client.TransferError](err)
		if !ok || te.Bytes != int64(got.Len()) || te.Total != 300_000 || te.Bytes != 3000 {
			t.Errorf("Download = %v after %d bytes, want 3000 of 300000", err, got.Len())
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || len(f.requests) != 3 {
			t.Errorf("Download = %v after %d requests", err, len(f.requests))
		}
	})
	t.Run("off", func(t *testing.T) {
		f := &fakeFile{data: data, modTime: longAgo}
		f.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			f.serve(&cutWriter{w, 1000}, r)
			return true
		}
		err := serve(t, f.ServeHTTP).Download(t.Context(), "/file", io.Discard, client.WithRetries(0))
		if !errors.Is(err, io.ErrUnexpectedEOF) || len(f.requests) != 1 {
			t.Errorf("Download = %v after %d requests", err, len(f.requests))
		}
	})
	t.Run("proxy in between", func(t *testing.T) {
		f := &fakeFile{data: data, modTime: longAgo}
		f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
			switch n {
			case 1:
				f.serve(&cutWriter{w, 1000}, r)
			case 2:
				http.Error(w, "bad gateway", http.StatusBadGateway)
			}
			return n <= 2
		}
		var got bytes.Buffer
		err := serve(t, f.ServeHTTP).Download(t.Context(), "/file", &got)
		if err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("Download = %v", err)
		}
	})
	t.Run("proxy before it", func(t *testing.T) {
		f := &fakeFile{data: data, modTime: longAgo}
		f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n <= 2 {
				http.Error(w, "bad gateway", http.StatusBadGateway)
			}
			return n <= 2
		}
		if got, err := serve(t, f.ServeHTTP).ReadFile(t.Context(), "/file"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("ReadFile = %v", err)
		}
		f.requests = nil
		if _, err := serve(t, f.ServeHTTP, client.WithoutRetries()).ReadFile(t.Context(), "/file"); err == nil || len(f.requests) != 1 {
			t.Errorf("ReadFile without retries = %v after %d requests", err, len(f.requests))
		}
	})
	changes := []struct {
		name   string
		change func(*fakeFile)
	}{
		{"other time", func(f *fakeFile) { f.modTime = f.modTime.Add(time.Minute) }},
		{"longer", func(f *fakeFile) { f.data = append(f.data, 'x') }},
		{"shorter than what came", func(f *fakeFile) { f.data = f.data[:10] }},
		{"gone", func(f *fakeFile) {
			f.before = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, `{"code":404,"message":"path '/file' does not exist"}`, http.StatusNotFound)
				return true
			}
		}},
	}
	for _, tt := range changes {
		t.Run("changed: "+tt.name, func(t *testing.T) {
			f := &fakeFile{data: slices.Clone(data), modTime: longAgo}
			f.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
				if n > 1 {
					return false
				}
				defer tt.change(f)
				f.serve(&cutWriter{w, 1000}, r)
				return true
			}
			err := serve(t, f.ServeHTTP).Download(t.Context(), "/file", io.Discard)
			want := client.ErrFileChanged
			if tt.name == "gone" {
				want = fs.ErrNotExist
			}
			checkPathError(t, "Download", err, "/file", want)
			if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Bytes != 1000 {
				t.Errorf("Download = %v, want 1000 bytes in it", err)
			}
		})
	}
}

// A file whose version the server does not tell is taken up by its content while
// it is small, and not at all beyond.
func TestDownloadResumeByContent(t *testing.T) {
	const small, large = 300_000, 4<<20 + 1
	other := func(data []byte, at int) []byte {
		changed := slices.Clone(data)
		changed[at] ^= 1
		return changed
	}
	tests := []struct {
		name     string
		size     int
		cuts     []int // where each answer but the last breaks
		then     func([]byte) []byte
		want     error
		requests int
	}{
		{"the same", small, []int{1000}, nil, nil, 2},
		{"broken again before", small, []int{100_000, 50_000, 200_000}, nil, nil, 4},
		{"broken at its end", small, []int{small - 1}, nil, nil, 2},
		{"changed in what came", small, []int{1000}, func(d []byte) []byte { return other(d, 999) }, client.ErrFileChanged, 2},
		{"changed behind", small, []int{1000}, func(d []byte) []byte { return other(d, 1000) }, nil, 2},
		{"shorter", small, []int{1000}, func(d []byte) []byte { return d[:10] }, client.ErrFileChanged, 2},
		{"longer", small, []int{1000}, func(d []byte) []byte { return append(slices.Clone(d), 'x') }, client.ErrFileChanged, 2},
		{"never whole", small, []int{1000, 1000, 1000, 1000, 1000, 1000, 1000}, nil, io.ErrUnexpectedEOF, 6},
		{"large", large, []int{1000}, nil, io.ErrUnexpectedEOF, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := randomBytes(tt.size)
			requests := 0
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/files" {
					http.NotFound(w, r)
					return
				}
				requests++
				now, cut := data, tt.size+1
				if requests <= len(tt.cuts) {
					cut = tt.cuts[requests-1]
				}
				if requests > 1 && tt.then != nil {
					now = tt.then(data)
				}
				w.Header().Set("Content-Length", strconv.Itoa(len(now)))
				_, _ = (&cutWriter{w, cut}).Write(now)
			})
			var got bytes.Buffer
			err := c.Download(t.Context(), "/file", &got)
			if !errors.Is(err, tt.want) || requests != tt.requests {
				t.Errorf("Download = %v after %d requests, want %v after %d", err, requests, tt.want, tt.requests)
			}
			want := data
			if tt.then != nil && err == nil {
				want = tt.then(data)
			}
			if !bytes.Equal(got.Bytes(), want[:got.Len()]) || err == nil && got.Len() != len(want) {
				t.Errorf("%d bytes, which are not those of the file", got.Len())
			}
		})
	}
}

// Answers to a request for a part that are not that part.
func TestReadAtHostile(t *testing.T) {
	data := randomBytes(1000)
	tests := []struct {
		name   string
		answer func(w http.ResponseWriter)
		want   error
	}{
		{"other start", func(w http.ResponseWriter) { writePart(w, "bytes 0-9/1000", data[:10]) }, nil},
		{"other end", func(w http.ResponseWriter) { writePart(w, "bytes 100-199/1000", data[100:200]) }, nil},
		{"no Content-Range", func(w http.ResponseWriter) { writePart(w, "", data[100:110]) }, nil},
		{"nonsense", func(w http.ResponseWriter) { writePart(w, "bytes 109-100/1000", data[100:110]) }, nil},
		{"other length", func(w http.ResponseWriter) { writePart(w, "bytes 100-109/1000", data[100:105]) }, nil},
		{"other size", func(w http.ResponseWriter) { writePart(w, "bytes 100-109/1001", data[100:110]) }, client.ErrFileChanged},
		{"all of it", func(w http.ResponseWriter) { _, _ = w.Write(data) }, client.ErrFileChanged},
		{"several parts", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "multipart/byteranges; boundary=x")
			w.WriteHeader(http.StatusPartialContent)
		}, nil},
		{"compressed", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			writePart(w, "bytes 100-109/1000", data[100:110])
		}, nil},
		{"not satisfiable", func(w http.ResponseWriter) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) }, client.ErrFileChanged},
		{"nothing", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fakeFile{data: data, modTime: longAgo}
			f.before = func(n int, w http.ResponseWriter, _ *http.Request) bool {
				if n > 1 {
					w.Header().Set("Last-Modified", longAgo.Format(http.TimeFormat))
					tt.answer(w)
				}
				return n > 1
			}
			file, err := serve(t, f.ServeHTTP).Open(t.Context(), "/file")
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			n, err := file.ReadAt(make([]byte, 10), 100)
			if err == nil || n != 0 || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("ReadAt = %d, %v, want one that matches %v", n, err, tt.want)
			}
		})
	}
}

func writePart(w http.ResponseWriter, contentRange string, data []byte) {
	if contentRange != "" {
		w.Header().Set("Content-Range", contentRange)
	}
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(data)
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	_, _ = zw.Write(data)
	zw.Close()
	return b.Bytes()
}

func TestDownloadHostile(t *testing.T) {
	const secret = "hunter2hunter2"
	bomb := gzipped(make([]byte, 32<<20))
	write := func(contentType, coding string, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			if coding != "" {
				w.Header().Set("Content-Encoding", coding)
			}
			_, _ = w.Write(body)
		}
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		opts    []client.TransferOption
		want    error
		text    string // in the error
	}{
		{"short body", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = (&cutWriter{w, 10}).Write(make([]byte, 100))
		}, nil, io.ErrUnexpectedEOF, "after 10 of 100 bytes"},
		{"chunks cut short", func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = (&cutWriter{w, 10}).Write(make([]byte, 100))
		}, nil, io.ErrUnexpectedEOF, "after 10 bytes"},
		{"gzip unasked", write("text/plain", "gzip", bomb), nil, nil, "not asked for"},
		{"unknown coding", write("text/plain", "br", bomb), []client.TransferOption{client.WithGzip()}, nil, "not asked for"},
		{"gzip bomb", write("text/plain", "gzip", bomb), []client.TransferOption{client.WithGzip(), client.WithMaxBytes(1 << 20)}, client.ErrFileTooLarge, "after "},
		{"not gzip", write("text/plain", "gzip", []byte("plain text")), []client.TransferOption{client.WithGzip()}, gzip.ErrHeader, ""},
		{"truncated gzip", write("text/plain", "gzip", gzipped(randomBytes(1000))[:500]), []client.TransferOption{client.WithGzip()}, io.ErrUnexpectedEOF, ""},
		{"too large", write("text/plain", "", make([]byte, 1001)), []client.TransferOption{client.WithMaxBytes(1000)}, client.ErrFileTooLarge, ""},
		{"page", write("text/html", "", []byte("<title>Log in</title>")), nil, nil, `an HTML page "Log in"`},
		{"page of an error", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<h1>Bad")
		}, nil, nil, "HTTP 502"},
		{"empty 404", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotFound) }, nil, fs.ErrNotExist, "not found"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/"+secret, http.StatusFound)
		}, nil, nil, "refusing to follow a redirect to http://evil.example"},
		{"echoed token", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "bad token "+r.Header.Get("X-Access-Token"), http.StatusForbidden)
		}, nil, fs.ErrPermission, "[redacted]"},
		{"control characters", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "a\x1b[31m", http.StatusInternalServerError)
		}, nil, nil, `a\x1b[31m`},
		{"part unasked", func(w http.ResponseWriter, r *http.Request) {
			writePart(w, "bytes 0-0/10", []byte("x"))
		}, nil, nil, "HTTP 206"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, tt.handler, client.WithAccessToken(secret))
			var got bytes.Buffer
			err := c.Download(t.Context(), "/file", &got, tt.opts...)
			if err == nil {
				t.Fatalf("Download succeeded with %d bytes", got.Len())
			}
			if tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Download = %v, want %q in it and one that matches %v", err, tt.text, tt.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("Download = %v has the token in it", err)
			}
			if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Bytes != int64(got.Len()) {
				t.Errorf("Download = %v, want a TransferError with %d bytes", err, got.Len())
			}
		})
	}
	// A file that is a page is a file.
	for _, name := range []string{"/index.html", "/page"} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			if name == "/page" {
				w.Header().Set("Accept-Ranges", "bytes")
			}
			_, _ = io.WriteString(w, "<title>Mine</title>")
		})
		if got, err := c.ReadFile(t.Context(), name); err != nil || string(got) != "<title>Mine</title>" {
			t.Errorf("ReadFile(%s) = %q, %v", name, got, err)
		}
	}
	c := serve(t, write("text/plain", "", make([]byte, 2000)), client.WithMaxMessageBytes(1000))
	if _, err := c.ReadFile(t.Context(), "/file"); !errors.Is(err, client.ErrFileTooLarge) {
		t.Errorf("ReadFile of a large file = %v, want ErrFileTooLarge", err)
	}
}

// failingWriter takes so many bytes.
type failingWriter struct{ left int }

var errWriter = errors.New("disk is on fire")

func (w *failingWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return w.left, errWriter
	}
	w.left -= len(p)
	return len(p), nil
}

func TestDownloadWriterFails(t *testing.T) {
	f := &fakeFile{data: randomBytes(300_000), modTime: longAgo}
	err := serve(t, f.ServeHTTP).Download(t.Context(), "/file", &failingWriter{100_000})
	if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Bytes != 100_000 || te.Err != errWriter {
		t.Errorf("Download = %v, want the error of the writer after 100000 bytes", err)
	}
	if len(f.requests) != 1 {
		t.Errorf("%d requests were sent", len(f.requests))
	}
}

// uploads answers POST /files as told, after reading so much of the body.
func uploads(read int64, status int, reply string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if read != 0 {
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, read))
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, reply)
	}
}

const wholeBody = 1 << 40

func TestUploadHostile(t *testing.T) {
	const size = 8 << 20
	tests := []struct {
		name       string
		handler    http.HandlerFunc
		want       error
		text       string
		incomplete bool
	}{
		{"stored nothing", uploads(wholeBody, 200, `[]`), nil, "stored 0 of 1", false},
		{"null", uploads(wholeBody, 200, `null`), nil, "stored 0 of 1", false},
		{"empty answer", uploads(wholeBody, 200, ``), nil, "not one of envd", true},
		{"page", uploads(wholeBody, 200, `<html><title>Hello</title>`), nil, `HTML page "Hello"`, true},
		{"an error for a success", uploads(wholeBody, 200, `{"code":500,"message":"no luck"}`), nil, "no luck", true},
		{"two documents", uploads(wholeBody, 500, "{\"code\":500,\"message\":\"error reading form: broken\"}\n[]"), nil, "HTTP 500: error reading form: broken", false},
		{"no space, told late", uploads(wholeBody, 507, `{"code":507,"message":"attempted to write 9 bytes: not enough disk space available"}`), client.ErrNoSpace, "not enough disk space", true},
		{"no space, told early", uploads(0, 507, `{"code":507,"message":"not enough disk space on '/': 9 bytes required, 1 bytes free"}`), client.ErrNoSpace, "9 bytes required", false},
		{"unauthenticated", uploads(0, 401, `{"code":401,"message":"unauthorized access"}`), client.ErrUnauthenticated, "HTTP 401", false},
		{"too large for a proxy", uploads(0, 413, `<html><title>413 Request Entity Too Large</title></html>`), nil, "413 Request Entity Too Large", false},
		{"answer before the end", uploads(0, 200, `[{"name":"f","path":"/f","type":"file"}]`), nil, "before all bytes were sent", false},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/", http.StatusTemporaryRedirect)
		}, nil, "redirect", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, tt.handler)
			err := c.Upload(t.Context(), "/file", bytes.NewReader(make([]byte, size)))
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("Upload = %v, want %q in it and one that matches %v", err, tt.text, tt.want)
			}
			te, ok := errors.AsType[*client.TransferError](err)
			if !ok || te.Total != size {
				t.Fatalf("Upload = %v, want a TransferError of %d bytes", err, size)
			}
			if te.Incomplete != tt.incomplete {
				t.Errorf("Upload = %v, Incomplete = %v, want %v", err, te.Incomplete, tt.incomplete)
			}
		})
	}
}

// A reader that fails stops the upload, and does not look like its end.
func TestUploadReaderFails(t *testing.T) {
	failure := errors.New("tape is torn")
	requests, whole := atomic.Int32{}, atomic.Bool{}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, err := io.Copy(io.Discard, r.Body)
		whole.Store(err == nil)
		_, _ = io.WriteString(w, `[{"name":"f","path":"/f","type":"file"}]`)
	})
	tests := []struct {
		name     string
		reader   io.Reader
		opts     []client.TransferOption
		want     error
		requests int32
	}{
		{"at once", iotest.ErrReader(failure), nil, failure, 0},
		{"soon", io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(failure)), nil, failure, 0},
		{"late", io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(failure)), nil, failure, 1},
		{"late, compressed", io.MultiReader(bytes.NewReader(randomBytes(1<<20)), iotest.ErrReader(failure)), []client.TransferOption{client.WithGzip()}, failure, 1},
		{"shorter than said", strings.NewReader("abc"), []client.TransferOption{client.WithSize(4)}, io.ErrUnexpectedEOF, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests.Store(0)
			whole.Store(false)
			err := c.Upload(t.Context(), "/file", tt.reader, tt.opts...)
			if !errors.Is(err, tt.want) {
				t.Errorf("Upload = %v, want %v", err, tt.want)
			}
			te, ok := errors.AsType[*client.TransferError](err)
			if !ok || te.Incomplete != (tt.requests > 0) {
				t.Errorf("Upload = %v, Incomplete should be %v", err, tt.requests > 0)
			}
			if requests.Load() > tt.requests || whole.Load() {
				t.Errorf("the server had %d requests, and took one for whole: %v", requests.Load(), whole.Load())
			}
		})
	}
	if err := c.Upload(t.Context(), "/file", strings.NewReader("abcdef"), client.WithSize(4)); err != nil {
		t.Errorf("Upload of less than there is: %v", err)
	}
}

func TestUploadLength(t *testing.T) {
	local := filepath.Join(t.TempDir(), "local")
	if err := os.WriteFile(local, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(local)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Seek(1000, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 200_000)
	tests := []struct {
		name   string
		reader io.Reader
		opts   []client.TransferOption
		want   int64
	}{
		{"bytes.Reader", bytes.NewReader(large), nil, 200_000},
		{"bytes.Buffer", bytes.NewBuffer(slices.Clone(large)), nil, 200_000},
		{"file, from where it stands", file, nil, 99_000},
		{"section", io.NewSectionReader(bytes.NewReader(large), 5, 100_000), nil, 100_000},
		{"short unknown", io.MultiReader(strings.NewReader("abc")), nil, 3},
		{"empty unknown", io.MultiReader(), nil, 0},
		{"WithSize", io.MultiReader(bytes.NewReader(large)), []client.TransferOption{client.WithSize(200_000)}, 200_000},
		{"unknown", io.MultiReader(bytes.NewReader(large)), nil, -1},
		{"compressed", bytes.NewReader(large), []client.TransferOption{client.WithGzip()}, -1},
	}
	for _, version := range []string{"", "0.6.13"} {
		var length, got int64
		var contentType string
		handler := func(w http.ResponseWriter, r *http.Request) {
			length, contentType = r.ContentLength, r.Header.Get("Content-Type")
			body := io.Reader(r.Body)
			if r.Header.Get("Content-Encoding") == "gzip" {
				zr, err := gzip.NewReader(body)
				if err != nil {
					t.Error(err)
					return
				}
				body = zr
			}
			r.Body = io.NopCloser(body)
			if mr, err := r.MultipartReader(); err == nil {
				part, err := mr.NextPart()
				if err != nil {
					t.Error(err)
					return
				}
				body = part
			}
			n, err := io.Copy(io.Discard, body)
			if err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			got = n
			_, _ = io.WriteString(w, `[{"name":"f","path":"/f","type":"file"}]`)
		}
		var opts []client.Option
		if version != "" {
			opts = append(opts, client.WithVersion(version))
		}
		c := serve(t, handler, opts...)
		for _, tt := range tests {
			t.Run(tt.name+" "+version, func(t *testing.T) {
				if s, ok := tt.reader.(io.Seeker); ok && version != "" {
					start := int64(0)
					if tt.reader == io.Reader(file) {
						start = 1000
					}
					_, _ = s.Seek(start, io.SeekStart)
				} else if version != "" {
					t.Skip("the reader is used up")
				}
				if err := c.Upload(t.Context(), "/file", tt.reader, tt.opts...); err != nil {
					t.Fatal(err)
				}
				if raw := contentType == "application/octet-stream"; raw != (version != "") {
					t.Errorf("Content-Type = %s", contentType)
				}
				want := tt.want
				if want < 0 && (length != -1 || got != int64(len(large))) {
					t.Errorf("length %d was announced, %d bytes came", length, got)
				}
				if want >= 0 && (length < want || length > want+500 || got != want || version != "" && length != want) {
					t.Errorf("length %d was announced and %d bytes came, want %d", length, got, want)
				}
			})
		}
	}
}

// Up to envd 0.5.7 parallel uploads into a new tree collide.
func TestUploadParentRace(t *testing.T) {
	for _, tt := range []struct {
		name   string
		reader io.Reader
		ok     bool
	}{
		{"seekable", strings.NewReader("content"), true},
		{"short", io.MultiReader(strings.NewReader("content")), true},
		{"cannot be repeated", io.MultiReader(bytes.NewReader(make([]byte, 1<<20))), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests++
				body, _ := io.ReadAll(r.Body)
				if requests <= 2 {
					w.WriteHeader(500)
					_, _ = io.WriteString(w, `{"code":500,"message":"error ensuring directories: failed to create directory: mkdir /a: file exists"}`)
					return
				}
				if !bytes.Contains(body, []byte("content")) {
					t.Error("the repeated upload has no content")
				}
				_, _ = io.WriteString(w, `[{"name":"f","path":"/f","type":"file"}]`)
			})
			err := c.Upload(t.Context(), "/a/file", tt.reader)
			if tt.ok && (err != nil || requests != 3) || !tt.ok && (!errors.Is(err, fs.ErrExist) || requests != 1) {
				t.Errorf("Upload = %v after %d requests", err, requests)
			}
		})
	}
}

// A connection that was closed meanwhile costs nothing, where the data can be
// read again.
func TestUploadAgain(t *testing.T) {
	data := randomBytes(100_000)
	tests := []struct {
		name   string
		reader io.Reader
		opts   []client.TransferOption
		ok     bool
	}{
		{"seekable", bytes.NewReader(data), nil, true},
		{"compressed", bytes.NewReader(data), []client.TransferOption{client.WithGzip()}, true},
		{"not seekable", io.MultiReader(bytes.NewReader(data)), nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				if _, err := io.CopyN(io.Discard, r.Body, 10_000); err != nil {
					t.Error(err)
				}
				r.Body.Close()
				again, err := r.GetBody()
				if err != nil {
					return nil, err
				}
				defer again.Close()
				if r.Header.Get("Content-Encoding") == "gzip" {
					if again, err = gzip.NewReader(again); err != nil {
						return nil, err
					}
				}
				_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
				part, err := multipart.NewReader(again, params["boundary"]).NextPart()
				if err != nil {
					return nil, err
				}
				got, err := io.ReadAll(part)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes came: %v", len(got), err)
				}
				return respond(r, 200, strings.NewReader(`[{"name":"f","path":"/f","type":"file"}]`), -1), nil
			})
			err := syncClient(t, rt).Upload(t.Context(), "/f", tt.reader, tt.opts...)
			if (err == nil) != tt.ok {
				t.Errorf("Upload = %v", err)
			}
		})
	}
}

func TestUploadMetadata(t *testing.T) {
	reply := `[{"name":"f","path":"/f","type":"file"}]`
	var got http.Header
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, reply)
	})
	metadata := client.WithMetadata(map[string]string{"Purpose": "test run", "empty": ""})
	if err := c.WriteFile(t.Context(), "/f", nil, metadata); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("WriteFile to a server without metadata = %v, want errors.ErrUnsupported", err)
	}
	if got.Get("X-Metadata-Purpose") != "test run" || got["X-Metadata-Empty"] == nil {
		t.Errorf("headers = %v", got)
	}
	reply = `[{"name":"f","path":"/f","type":"file","metadata":{"purpose":"test run","empty":""}}]`
	if err := c.WriteFile(t.Context(), "/f", nil, metadata); err != nil {
		t.Errorf("WriteFile = %v", err)
	}
	for name, bad := range map[string]map[string]string{
		"control character": {"a": "b\nc"}, "not ASCII": {"a": "é"}, "no key": {"": "x"}, "key of two words": {"a b": "x"},
		"twice": {"A": "x", "a": "y"}, "too much": {"a": strings.Repeat("x", 5000)}, "long key": {strings.Repeat("k", 247): ""},
	} {
		if err := c.WriteFile(t.Context(), "/f", nil, client.WithMetadata(bad)); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: WriteFile = %v, want fs.ErrInvalid", name, err)
		}
	}
	old := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }, client.WithVersion("0.5.2"))
	if err := old.WriteFile(t.Context(), "/f", nil, metadata); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("WriteFile to 0.5.2 = %v, want errors.ErrUnsupported", err)
	}
	if err := old.WriteFile(t.Context(), "/f", nil, client.WithGzip()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("WriteFile with gzip to 0.5.2 = %v, want errors.ErrUnsupported", err)
	}
}

func TestTransferOptions(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	ctx := t.Context()
	calls := map[string]error{
		"nil":                   c.Download(ctx, "/f", io.Discard, nil),
		"negative idle timeout": c.Download(ctx, "/f", io.Discard, client.WithIdleTimeout(-1)),
		"atomic download":       c.Download(ctx, "/f", io.Discard, client.WithAtomic()),
		"retried upload":        c.Upload(ctx, "/f", strings.NewReader(""), client.WithRetries(1)),
		"no limit":              c.Download(ctx, "/f", io.Discard, client.WithMaxBytes(0)),
		"negative size":         c.Upload(ctx, "/f", strings.NewReader(""), client.WithSize(-1)),
		"nil reader":            c.Upload(ctx, "/f", nil),
		"same path twice":       c.UploadFiles(ctx, []client.UploadFile{{Path: "/f", Reader: strings.NewReader("")}, {Path: "/f", Reader: strings.NewReader("")}}),
	}
	_, calls["no workers"] = c.UploadDir(ctx, ".", "/d", client.WithParallel(0))
	_, calls["patterns of a file"] = c.ReadFile(ctx, "/f", client.WithExclude("x"))
	_, calls["gzip and Open"] = c.Open(ctx, "/f", client.WithGzip())
	_, calls["symlinks"] = c.DownloadDir(ctx, "/d", t.TempDir(), client.WithSymlinks(7))
	for name, err := range calls {
		if _, ok := errors.AsType[*fs.PathError](err); !ok || !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v, want a *fs.PathError that matches fs.ErrInvalid", name, err)
		}
	}
	if err := c.UploadFiles(ctx, nil); err != nil {
		t.Errorf("UploadFiles of none = %v", err)
	}
}

func respond(r *http.Request, status int, body io.Reader, length int64) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body), ContentLength: length, Request: r}
}

// slowReader gives chunk bytes each interval, total in all, and stands still
// after stop.
type slowReader struct {
	ctx                context.Context
	interval           time.Duration
	chunk, total, stop int
	given              int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.given >= r.total {
		return 0, io.EOF
	}
	wait := r.interval
	if r.stop > 0 && r.given >= r.stop {
		wait = 1000 * time.Hour
	}
	select {
	case <-time.After(wait):
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
	n := min(len(p), r.chunk, r.total-r.given)
	clear(p[:n])
	r.given += n
	return n, nil
}

func syncClient(t *testing.T, rt roundTripper) *client.Client {
	t.Helper()
	c, err := client.New("http://envd.invalid", client.WithUser("user"), client.WithTransport(rt), client.WithRequestTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A transfer that moves is never cut, one that stands still is.
func TestIdleTimeout(t *testing.T) {
	const total = 400_000 // at 20 kB/s
	stored := `[{"name":"f","path":"/f","type":"file"}]`
	takeAll := func(r *http.Request) (*http.Response, error) {
		done := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, r.Body)
			done <- err
		}()
		select {
		case err := <-done:
			return respond(r, 200, strings.NewReader(stored), -1), err
		case <-r.Context().Done():
			r.Body.Close()
			return nil, context.Cause(r.Context())
		}
	}
	checkStalled := func(t *testing.T, err error, bytes int64) {
		t.Helper()
		te, ok := errors.AsType[*client.TransferError](err)
		if !ok || te.Bytes != bytes || !errors.Is(err, client.ErrIdleTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrIdleTimeout after %d bytes", err, bytes)
		}
	}
	tests := map[string]func(t *testing.T, ctx context.Context){
		"slow upload": func(t *testing.T, ctx context.Context) {
			src := &slowReader{ctx: ctx, interval: 100 * time.Millisecond, chunk: 2000, total: total}
			if err := syncClient(t, takeAll).Upload(ctx, "/f", src, client.WithIdleTimeout(time.Second)); err != nil {
				t.Error(err)
			}
		},
		"upload whose reader stops": func(t *testing.T, ctx context.Context) {
			src := &slowReader{ctx: ctx, interval: 100 * time.Millisecond, chunk: 2000, total: total, stop: 200_000}
			err := syncClient(t, takeAll).Upload(ctx, "/f", src, client.WithIdleTimeout(time.Second))
			te, ok := errors.AsType[*client.TransferError](err)
			if !ok || te.Bytes < 200_000 || te.Bytes > 202_000 || !te.Incomplete || !errors.Is(err, client.ErrIdleTimeout) {
				t.Errorf("Upload = %v, want ErrIdleTimeout after about 200000 bytes", err)
			}
		},
		"upload whose server stops": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				_, _ = io.CopyN(io.Discard, r.Body, 100_000)
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			})
			err := c.Upload(ctx, "/f", bytes.NewReader(make([]byte, total)), client.WithIdleTimeout(time.Second))
			if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Bytes < 90_000 || te.Bytes > 110_000 || !te.Incomplete {
				t.Errorf("Upload = %v", err)
			}
			if !errors.Is(err, client.ErrIdleTimeout) {
				t.Errorf("Upload = %v, want ErrIdleTimeout", err)
			}
		},
		"answer takes as long as the upload": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				resp, err := takeAll(r)
				time.Sleep(20 * time.Second)
				return resp, err
			})
			src := &slowReader{ctx: ctx, interval: 100 * time.Millisecond, chunk: 2000, total: total}
			if err := c.Upload(ctx, "/f", src, client.WithIdleTimeout(time.Second)); err != nil {
				t.Error(err)
			}
		},
		"no answer": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				_, _ = takeAll(r)
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			checkStalled(t, c.WriteFile(ctx, "/f", make([]byte, 1000), client.WithIdleTimeout(time.Second)), 1000)
			start := time.Now()
			checkStalled(t, c.WriteFile(ctx, "/f", make([]byte, 1000)), 1000)
			// A thousand bytes may take a twentieth of a second more at 20 kB/s.
			if took := time.Since(start); took != client.DefaultTransferIdleTimeout+50*time.Millisecond {
				t.Errorf("the default is %v", took)
			}
		},
		"slow download": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				body := &slowReader{ctx: r.Context(), interval: 100 * time.Millisecond, chunk: 2000, total: total}
				return respond(r, 200, body, total), nil
			})
			if err := c.Download(ctx, "/f", io.Discard, client.WithIdleTimeout(time.Second)); err != nil {
				t.Error(err)
			}
		},
		"http.Client with a timeout": func(t *testing.T, ctx context.Context) {
			rt := roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost {
					return takeAll(r)
				}
				body := &slowReader{ctx: r.Context(), interval: 100 * time.Millisecond, chunk: 2000, total: total}
				return respond(r, 200, body, total), nil
			})
			c, err := client.New("http://envd.invalid", client.WithHTTPClient(&http.Client{Transport: rt, Timeout: time.Second}))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Download(ctx, "/f", io.Discard); err != nil {
				t.Error(err)
			}
			src := &slowReader{ctx: ctx, interval: 100 * time.Millisecond, chunk: 2000, total: total}
			if err := c.Upload(ctx, "/f", src); err != nil {
				t.Error(err)
			}
		},
		"closed while it is read": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				body := &slowReader{ctx: r.Context(), interval: time.Hour, chunk: 1, total: total}
				return respond(r, 200, body, total), nil
			})
			f, err := c.Open(ctx, "/f", client.WithIdleTimeout(0))
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Minute, func() { f.Close() })
			if _, err := f.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("Read = %v, want fs.ErrClosed", err)
			}
		},
		"download that stops": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				body := &slowReader{ctx: r.Context(), interval: 100 * time.Millisecond, chunk: 2000, total: total, stop: 200_000}
				return respond(r, 200, body, total), nil
			})
			checkStalled(t, c.Download(ctx, "/f", io.Discard, client.WithIdleTimeout(time.Second)), 200_000)
		},
		"download without an answer": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			checkStalled(t, c.Download(ctx, "/f", io.Discard), 0)
			_, err := c.Open(ctx, "/f")
			checkStalled(t, err, 0)
		},
		"slow writer": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				return respond(r, 200, bytes.NewReader(make([]byte, total)), total), nil
			})
			w := writerFunc(func(p []byte) (int, error) {
				time.Sleep(time.Hour)
				return len(p), nil
			})
			if err := c.Download(ctx, "/f", w, client.WithIdleTimeout(time.Second)); err != nil {
				t.Error(err)
			}
		},
		"none": func(t *testing.T, ctx context.Context) {
			c := syncClient(t, func(r *http.Request) (*http.Response, error) {
				time.Sleep(100 * time.Hour)
				return respond(r, 200, strings.NewReader("x"), 1), nil
			})
			if err := c.Download(ctx, "/f", io.Discard, client.WithIdleTimeout(0)); err != nil {
				t.Error(err)
			}
		},
		"cancelled upload": func(t *testing.T, ctx context.Context) {
			ctx2, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			src := &slowReader{ctx: ctx, interval: 100 * time.Millisecond, chunk: 2000, total: total}
			err := syncClient(t, takeAll).Upload(ctx2, "/f", src)
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrIdleTimeout) {
				t.Errorf("Upload = %v, want context.DeadlineExceeded alone", err)
			}
		},
		"upload whose reader never comes back": func(t *testing.T, ctx context.Context) {
			ctx2, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			src := &slowReader{ctx: ctx, interval: 1000 * time.Hour, chunk: 1, total: 1}
			start := time.Now()
			err := syncClient(t, takeAll).Upload(ctx2, "/f", src, client.WithSize(1))
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
				t.Errorf("Upload = %v after %v", err, time.Since(start))
			}
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				test(t, ctx)
			})
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Transfers need no more memory for more bytes.
func TestTransferMemory(t *testing.T) {
	const size = 1 << 30
	path := filepath.Join(t.TempDir(), "sparse")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.ServeFile(w, r, path)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `[{"name":"f","path":"/f","type":"file"}]`)
	})
	local, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	allocated := func(name string, do func() error) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%s of 1 GiB allocated %d KiB", name, n>>10)
		}
	}
	allocated("Download", func() error {
		var n byteCounter
		err := c.Download(t.Context(), "/file", &n)
		if err == nil && n != size {
			err = fmt.Errorf("%d bytes came", n)
		}
		return err
	})
	allocated("Upload", func() error { return c.Upload(t.Context(), "/file", local) })
}

type byteCounter int64

func (n *byteCounter) Write(p []byte) (int, error) {
	*n += byteCounter(len(p))
	return len(p), nil
}
