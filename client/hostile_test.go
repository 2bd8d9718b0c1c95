// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// peakHeap runs fn and returns by how much the heap grew at most.
func peakHeap(fn func()) uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, m.HeapAlloc
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapAlloc)
			}
		}
	}()
	fn()
	close(stop)
	<-stopped
	return peak - before
}

// endless writes the same bytes until the client hangs up, and counts them.
func endless(w io.Writer, block []byte, sent *atomic.Int64) {
	for {
		n, err := w.Write(block)
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func jsonAnswer(write func(w io.Writer)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		write(w)
	}
}

// A sandbox that sends without end, or more than anybody asked for. Each call
// must stop by itself, hold no more than its limit, and say what was wrong. The
// memory is bounded generously; what it was goes to the log.
func TestHostileSizes(t *testing.T) {
	const (
		limit = 4 << 20 // of the client, so that the tests are quick
		slack = 16 * limit
	)
	var sent atomic.Int64
	block := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	entry := []byte(`{"name":"` + strings.Repeat("n", 200) + `","type":"FILE_TYPE_FILE"},`)
	entries := bytes.Repeat(entry, 1000)
	tests := []struct {
		name    string
		handler http.HandlerFunc
		call    func(ctx context.Context, c *client.Client) error
		is      error
		code    client.Code
	}{
		{
			name:    "file that grows for ever, ReadFile",
			handler: func(w http.ResponseWriter, _ *http.Request) { endless(w, block, &sent) },
			call:    func(ctx context.Context, c *client.Client) error { _, err := c.ReadFile(ctx, "/f"); return err },
			is:      client.ErrFileTooLarge,
		},
		{
			name:    "file that grows for ever, Download",
			handler: func(w http.ResponseWriter, _ *http.Request) { endless(w, block, &sent) },
			call: func(ctx context.Context, c *client.Client) error {
				return c.Download(ctx, "/f", io.Discard, client.WithMaxBytes(32<<20))
			},
			is: client.ErrFileTooLarge,
		},
		{
			name: "listing of a million entries",
			handler: jsonAnswer(func(w io.Writer) {
				_, _ = io.WriteString(w, `{"entries":[`)
				for range 1000 {
					n, err := w.Write(entries)
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
				_, _ = io.WriteString(w, `{}]}`)
			}),
			call: func(ctx context.Context, c *client.Client) error { _, err := c.List(ctx, "/d"); return err },
			code: client.CodeResourceExhausted,
		},
		{
			name: "entry of 100 MiB",
			handler: jsonAnswer(func(w io.Writer) {
				_, _ = io.WriteString(w, `{"entry":{"name":"`)
				for range 100 << 20 / len(block) {
					n, err := w.Write(block)
					if sent.Add(int64(n)); err != nil {
						return
					}
				}
				_, _ = io.WriteString(w, `"}}`)
			}),
			call: func(ctx context.Context, c *client.Client) error { _, err := c.Stat(ctx, "/f"); return err },
			code: client.CodeResourceExhausted,
		},
		{
			name:    "error without end",
			handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); endless(w, block, &sent) },
			call:    func(ctx context.Context, c *client.Client) error { _, err := c.Processes(ctx); return err },
			code:    client.CodeInternal,
		},
		{
			name:    "metrics without end",
			handler: jsonAnswer(func(w io.Writer) { endless(w, block, &sent) }),
			call:    func(ctx context.Context, c *client.Client) error { _, err := c.Metrics(ctx); return err },
		},
		{
			name: "health without end",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				endless(w, block, &sent)
			},
			call: func(ctx context.Context, c *client.Client) error { return c.Health(ctx) },
		},
		{
			name: "objects in objects, JSON",
			handler: jsonAnswer(func(w io.Writer) {
				n, _ := io.WriteString(w, strings.Repeat(`{"new":`, 400_000)+strings.Repeat("}", 400_000))
				sent.Add(int64(n))
			}),
			call: func(ctx context.Context, c *client.Client) error { _, err := c.Stat(ctx, "/f"); return err },
			code: client.CodeInternal,
		},
		{
			name: "groups in groups, binary",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/proto")
				n, _ := w.Write(bytes.Repeat([]byte{1<<3 | 3}, 2<<20))
				sent.Add(int64(n))
			},
			call: func(ctx context.Context, c *client.Client) error { _, err := c.Processes(ctx); return err },
			code: client.CodeInternal,
		},
		{
			name:    "header without end",
			handler: endlessHeader(&sent),
			call:    func(ctx context.Context, c *client.Client) error { return c.Health(ctx) },
			code:    client.CodeUnavailable,
		},
		{
			name: "frame of 4 GiB that comes",
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
				_, _ = w.Write([]byte{0, 0xff, 0xff, 0xff, 0xff})
				endless(w, block, &sent)
			},
			call: func(ctx context.Context, c *client.Client) error {
				err := c.Attach(ctx, client.PID(1)).Run()
				return err
			},
			code: client.CodeResourceExhausted,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opts := []client.Option{client.WithMaxMessageBytes(limit), client.WithRequestTimeout(20 * time.Second), client.WithoutRetries()}
			if !strings.HasSuffix(tt.name, "binary") {
				opts = append(opts, client.WithJSON())
			}
			c := serve(t, tt.handler, opts...)
			sent.Store(0)
			var err error
			began := time.Now()
			peak := peakHeap(func() { err = tt.call(t.Context(), c) })
			t.Logf("%d KiB sent, %d KiB of memory at most, %v: %.200v", sent.Load()>>10, peak>>10, time.Since(began).Round(time.Millisecond), err)
			if err == nil {
				t.Fatal("no error")
			}
			if tt.is != nil {
				wantIs(t, err, tt.is)
			}
			if e, ok := errors.AsType[*client.Error](err); tt.code != "" && (!ok || e.Code != tt.code) {
				t.Errorf("error is %.300v, want code %v", err, tt.code)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("only the request timeout ended it")
			}
			if peak > slack {
				t.Errorf("%d bytes of memory", peak)
			}
			if len(err.Error()) > 6<<10 {
				t.Errorf("the error's text has %d bytes", len(err.Error()))
			}
		})
	}
}

// endlessHeader answers with header fields that do not end.
func endlessHeader(sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		endless(conn, []byte("X-More: "+strings.Repeat("h", 1000)+"\r\n"), sent)
	}
}

// Output of a command that never stops writing.
func TestHostileOutput(t *testing.T) {
	t.Run("Output", func(t *testing.T) {
		srv, c := embedded(t)
		srv.HandleCommand("chatter", chatter)
		cmd := c.Command(t.Context(), "chatter")
		cmd.OutputLimit = 1 << 20
		var out []byte
		var err error
		peak := peakHeap(func() { out, err = cmd.Output() })
		t.Logf("%d KiB of memory at most: %v", peak>>10, err)
		wantIs(t, err, client.ErrOutputLimit)
		if len(out) != 1<<20 {
			t.Errorf("%d bytes were kept, want the limit", len(out))
		}
		if peak > 128<<20 {
			t.Errorf("%d bytes of memory", peak)
		}
		wantIdle(t, srv)
	})
	t.Run("stderr that nobody wants", func(t *testing.T) {
		srv, c := embedded(t)
		srv.HandleCommand("complain", func(p *envdtest.Proc) int {
			line := bytes.Repeat([]byte("e"), 32<<10)
			for range 32 << 20 / len(line) {
				if _, err := p.Stderr.Write(line); err != nil {
					return 9
				}
			}
			return 1
		})
		var err error
		peak := peakHeap(func() { err = c.Command(t.Context(), "complain").Run() })
		t.Logf("%d KiB of memory at most", peak>>10)
		exit, ok := errors.AsType[*client.ExitError](err)
		if !ok || exit.ExitCode() != 1 || len(exit.Stderr) != 32<<10 {
			t.Errorf("error is %v", err)
		}
	})
}

func chatter(p *envdtest.Proc) int {
	line := bytes.Repeat([]byte("y\n"), 16<<10)
	for {
		if _, err := p.Stdout.Write(line); err != nil {
			return 0
		}
	}
}

// An endless watch is read as fast as the caller takes the events, not faster.
func TestHostileWatch(t *testing.T) {
	var sent atomic.Int64
	payload := []byte(`{"filesystem":{"name":"` + strings.Repeat("n", 200) + `","type":"EVENT_TYPE_WRITE"}}`)
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(payload))), payload...)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/WatchDir") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"entry":{"name":"d","type":"FILE_TYPE_DIRECTORY","path":"/d"}}`)
			return
		}
		w.Header().Set("Content-Type", "application/connect+json")
		_, _ = w.Write(append([]byte{0, 0, 0, 0, 12}, `{"start":{}}`...))
		endless(w, frame, &sent)
	}, client.WithJSON())
	seen := 0
	peak := peakHeap(func() {
		for event, err := range c.Watch(t.Context(), "/d") {
			if err != nil {
				t.Error(err)
			}
			if seen++; seen == 20_000 || err != nil {
				break
			}
			_ = event
		}
	})
	t.Logf("%d events taken, %d KiB sent, %d KiB of memory at most", seen, sent.Load()>>10, peak>>10)
	if peak > 128<<20 {
		t.Errorf("%d bytes of memory", peak)
	}
}

// Names that a terminal or a file system would take badly.
func TestHostileNames(t *testing.T) {
	names := map[string]string{
		"4 KiB":   strings.Repeat("n", 4<<10),
		"ANSI":    "a\x1b]0;title\x07\x1b[2J",
		"newline": "a\nb: ok",
		"C1":      "a\u009b31m",
	}
	for title, name := range names {
		t.Run(title, func(t *testing.T) {
			c := serveTree(t, func(string) []fakeEntry { return []fakeEntry{fakeFileEntry(name)} })
			list, err := c.ReadDir(t.Context(), "/r")
			if err != nil || len(list) != 1 || list[0].Name() != name {
				t.Fatalf("ReadDir = %.100v, %v", list, err)
			}
			if text := fmt.Sprint(list[0]); strings.ContainsAny(text, "\x1b\n\x07\u009b") {
				t.Errorf("an entry prints as %q", text)
			}
			_, err = c.DownloadDir(t.Context(), "/r", t.TempDir())
			if title == "4 KiB" && err == nil {
				t.Error("a name of 4 KiB was stored")
			}
			if err != nil && (strings.ContainsAny(err.Error(), "\x1b\x07\u009b") || len(err.Error()) > 12<<10) {
				t.Errorf("the error is %q", err)
			}
		})
	}
}

// No secret may reach another host, an error, or a log, whatever comes back.
func TestHostileSecrets(t *testing.T) {
	const token, key = "token-5d41402abc4b", "key-7d793037a076"
	var strayed atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		strayed.Add(1)
	}))
	t.Cleanup(other.Close)
	echo := func(status int, contentType string, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":%d,"message":"bad request: %v %s %s"}`, status, r.Header, r.Header.Get("X-Access-Token"), r.URL)
	}
	handlers := map[string]http.HandlerFunc{
		"redirect to another host": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path+"?token="+r.Header.Get("X-Access-Token"), http.StatusTemporaryRedirect)
		},
		"echo, JSON": func(w http.ResponseWriter, r *http.Request) { echo(400, "application/json", w, r) },
		"echo, text": func(w http.ResponseWriter, r *http.Request) { echo(502, "text/plain", w, r) },
		"echo, page": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "<title>%s %s</title>", r.Header.Get("X-Access-Token"), r.Header.Get("X-Api-Key"))
		},
		"echo, Connect error": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(500)
			fmt.Fprintf(w, `{"code":"internal","message":"%s %s"}`, r.Header.Get("X-Access-Token"), r.Header.Get("X-Api-Key"))
		},
		"cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for name, handler := range handlers {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			c := serve(t, handler, client.WithAccessToken(token), client.WithHeader("X-Api-Key", key), client.WithLogger(logger))
			calls := everyCall(t.Context(), c)
			calls["ReadFile"] = func() error { _, err := c.ReadFile(t.Context(), "/f"); return err }
			calls["WriteFile"] = func() error { return c.WriteFile(t.Context(), "/f", []byte("x")) }
			calls["Stat"] = func() error { _, err := c.Stat(t.Context(), "/f"); return err }
			calls["Rename"] = func() error { return c.Rename(t.Context(), "/f", "/g") }
			calls["Watch"] = func() error { _, err := c.StartWatch(t.Context(), "/f"); return err }
			for call, run := range calls {
				err := run()
				if err == nil {
					t.Errorf("%s: no error", call)
					continue
				}
				for _, secret := range []string{token, key} {
					if strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
						t.Errorf("%s: %q is in %v", call, secret, err)
					}
				}
			}
			if text := log.String(); strings.Contains(text, token) || strings.Contains(text, key) {
				t.Errorf("a secret is in the log: %s", text)
			}
		})
	}
	if n := strayed.Load(); n != 0 {
		t.Errorf("the other host got %d requests", n)
	}
	t.Run("signed address", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		base := "http://" + listener.Addr().String()
		listener.Close() // nobody is there
		c := dial(t, base, client.WithAccessToken(token), client.WithUser("user"))
		signed, err := c.SignedDownloadURL("/f", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		_, query, _ := strings.Cut(signed, "?")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/files?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Do(req)
		if err == nil || strings.Contains(err.Error(), "signature") {
			t.Errorf("Do = %v, want an error without the signature", err)
		}
	})
}

// What only looks like an answer of the right kind.
func TestAnswersMisread(t *testing.T) {
	broken := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write([]byte("\xff\xff\xff"))
	}
	reset := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<title>Welcome</title>")
	}
	empty := func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil }
	list := func(ctx context.Context, c *client.Client) error { _, err := c.Processes(ctx); return err }
	kill := func(ctx context.Context, c *client.Client) error { return c.Process(client.PID(1)).Kill(ctx) }
	attach := func(ctx context.Context, c *client.Client) error { return c.Attach(ctx, client.PID(1)).Run() }
	health := func(ctx context.Context, c *client.Client) error { return c.Health(ctx) }
	read := func(ctx context.Context, c *client.Client) error { _, err := c.ReadFile(ctx, "/f"); return err }
	tests := []struct {
		name    string
		handler http.HandlerFunc
		call    func(context.Context, *client.Client) error
		code    client.Code
		not     error
	}{
		{"an answer that cannot be read is not the caller's fault", broken, list, client.CodeInternal, fs.ErrInvalid},
		{"a reset is no cancellation, List", reset, list, client.CodeUnavailable, context.Canceled},
		{"a reset is no cancellation, SendSignal", reset, kill, client.CodeUnavailable, context.Canceled},
		{"a reset is no cancellation, Connect", reset, attach, client.CodeUnavailable, context.Canceled},
		{"a page is no health", page, health, client.CodeUnknown, nil},
		{"nothing is no file", empty, read, client.CodeInternal, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.call(t.Context(), serve(t, tt.handler))
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Code != tt.code || tt.not != nil && errors.Is(err, tt.not) {
				t.Errorf("error is %v, want code %v", err, tt.code)
			}
		})
	}
}
