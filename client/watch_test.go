// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/envd-go/envd/client"
	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/filesystem/filesystemconnect"
)

// watchModes are the two ways to watch.
var watchModes = map[string][]client.WatchOption{
	"stream": nil,
	"poll":   {client.Polling(5 * time.Millisecond)},
}

func startWatch(t *testing.T, c *client.Client, dir string, opts ...client.WatchOption) *client.Watcher {
	t.Helper()
	w, err := c.StartWatch(t.Context(), dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// collect takes events up to the one named last, without repetitions.
func collect(t *testing.T, w *client.Watcher, last string) []string {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { w.Close() })
	defer timer.Stop()
	var got []string
	for event, err := range w.Events() {
		if err != nil {
			t.Fatalf("watch broke off after %q: %v", got, err)
		}
		text := event.Op.String() + " " + event.Name
		if event.Path != path.Join(w.Path(), event.Name) {
			t.Errorf("event %s has path %s", text, event.Path)
		}
		if !slices.Contains(got, text) {
			got = append(got, text)
		}
		if text == last {
			return got
		}
	}
	t.Fatalf("%q did not come after %q", last, got)
	return nil
}

func TestWatch(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		for mode, opts := range watchModes {
			ctx := t.Context()
			sub := path.Join(dir, mode)
			mustMkdir(t, c, sub)
			w := startWatch(t, c, sub, opts...)
			mustWrite(t, c, path.Join(sub, "a"), "x")
			if err := c.Rename(ctx, path.Join(sub, "a"), path.Join(sub, "b")); err != nil {
				t.Fatal(err)
			}
			mustMkdir(t, c, path.Join(sub, "d"))
			mustWrite(t, c, path.Join(sub, "d", "unseen"), "x")
			if err := c.RemoveAll(ctx, path.Join(sub, "b")); err != nil {
				t.Fatal(err)
			}
			got := collect(t, w, "remove b")
			for _, want := range []string{"create a", "write a", "rename a", "create b", "create d"} {
				if !slices.Contains(got, want) {
					t.Errorf("%s: events = %q, which lack %q", mode, got, want)
				}
			}
			if slices.Contains(got, "create d/unseen") {
				t.Errorf("%s: events = %q of a watch that is not recursive", mode, got)
			}
		}
	})
}

func TestWatchRecursive(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		for mode, opts := range watchModes {
			sub := path.Join(dir, mode)
			mustMkdir(t, c, path.Join(sub, "d"))
			w := startWatch(t, c, sub, append(slices.Clip(opts), client.Recursive())...)
			mustWrite(t, c, path.Join(sub, "d", "f"), "x")
			got := collect(t, w, "write d/f")
			if !slices.Contains(got, "create d/f") {
				t.Errorf("%s: events = %q", mode, got)
			}
		}
	})
}

func TestWatchWithEntries(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		mustMkdir(t, c, dir)
		caps, err := c.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.StartWatch(t.Context(), dir, client.WithEntries())
		if !caps.Has("watch-entry") && errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		mustWrite(t, c, path.Join(dir, "f"), "hello")
		for event, err := range w.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if event.Entry == nil && !caps.Has("watch-entry") {
				t.Skip("envd before 0.6.3 sends no entries")
			}
			if event.Entry == nil {
				t.Fatalf("%v has no entry", event)
			}
			if event.Entry.Name() != "f" || event.Entry.Path() != path.Join(dir, "f") || !event.Entry.Mode().IsRegular() {
				t.Errorf("Entry = %v at %s", event.Entry, event.Entry.Path())
			}
			break
		}
	})
}

func TestWatchedDirectoryGone(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		for mode, opts := range watchModes {
			for what, end := range map[string]func(string) error{
				"removed": func(p string) error { return c.RemoveAll(t.Context(), p) },
				"moved":   func(p string) error { return c.Rename(t.Context(), p, p+"-moved") },
			} {
				for _, recursive := range []bool{false, true} {
					if what == "moved" && recursive && !hasDetails(t, c) {
						continue // makes no event there; see TestWatchedParentMoved
					}
					sub := path.Join(dir, mode, fmt.Sprint(what, recursive))
					mustWrite(t, c, path.Join(sub, "f"), "x")
					all := slices.Clip(opts)
					if recursive {
						all = append(all, client.Recursive())
					}
					w := startWatch(t, c, sub, all...)
					if err := end(sub); err != nil {
						t.Fatal(err)
					}
					timer := time.AfterFunc(20*time.Second, func() { w.Close() })
					var events []string
					var last error
					for event, err := range w.Events() {
						if last = err; err == nil {
							events = append(events, event.String())
						}
					}
					timer.Stop()
					wantFileError(t, fmt.Sprintf("%s, %s, recursive %v, after %q", mode, what, recursive, events), last, fs.ErrNotExist)
				}
			}
		}
	})
}

// watchServer is a filesystem service whose watches a test plays.
type watchServer struct {
	filesystemconnect.UnimplementedFilesystemHandler
	stream func(context.Context, filesystemconnect.FilesystemWatchDirServerStream) error

	gone bool // to Stat
	// creating and release, where set, hold CreateWatcher.
	creating, release chan struct{}

	mu      sync.Mutex
	made    int
	removed int
	batches [][]*filesystempb.FilesystemEvent
}

func (s *watchServer) WatchDir(ctx context.Context, _ *filesystempb.WatchDirRequest, stream filesystemconnect.FilesystemWatchDirServerStream) error {
	if s.stream == nil {
		return connect.NewError(connect.CodeUnimplemented, "not here")
	}
	return s.stream(ctx, stream)
}

func (s *watchServer) Stat(context.Context, *filesystempb.StatRequest) (*filesystempb.StatResponse, error) {
	if s.gone {
		return nil, connect.NewError(connect.CodeNotFound, "file not found")
	}
	return &filesystempb.StatResponse{Entry: &filesystempb.EntryInfo{Name: "w", Path: "/w", Type: filesystempb.FileType_FILE_TYPE_DIRECTORY}}, nil
}

func (s *watchServer) CreateWatcher(context.Context, *filesystempb.CreateWatcherRequest) (*filesystempb.CreateWatcherResponse, error) {
	if s.creating != nil {
		close(s.creating)
		<-s.release
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return &filesystempb.CreateWatcherResponse{WatcherId: "w1"}, nil
}

func (s *watchServer) GetWatcherEvents(context.Context, *filesystempb.GetWatcherEventsRequest) (*filesystempb.GetWatcherEventsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.batches) == 0 {
		return nil, connect.NewError(connect.CodeInternal, "watcher error: fsnotify: queue or buffer overflow")
	}
	next := s.batches[0]
	s.batches = s.batches[1:]
	return &filesystempb.GetWatcherEventsResponse{Events: next}, nil
}

func (s *watchServer) RemoveWatcher(context.Context, *filesystempb.RemoveWatcherRequest) (*filesystempb.RemoveWatcherResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed++
	return &filesystempb.RemoveWatcherResponse{}, nil
}

func (s *watchServer) dial(t *testing.T, opts ...client.Option) *client.Client {
	t.Helper()
	server := connect.NewServer()
	filesystemconnect.RegisterFilesystemHandler(server, s)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return dial(t, srv.URL, opts...)
}

func watchStart() *filesystempb.WatchDirResponse {
	return &filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Start{Start: &filesystempb.WatchDirResponse_StartEvent{}}}
}

func watchEvent(op filesystempb.EventType, name string) *filesystempb.WatchDirResponse {
	return &filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Filesystem{
		Filesystem: &filesystempb.FilesystemEvent{Name: name, Type: op}}}
}

func TestWatchBreaksOff(t *testing.T) {
	create := filesystempb.EventType_EVENT_TYPE_CREATE
	tests := []struct {
		name string
		play func(context.Context, filesystemconnect.FilesystemWatchDirServerStream) error
		want []error
		not  error
		seen int
	}{
		{"cleanly", func(_ context.Context, s filesystemconnect.FilesystemWatchDirServerStream) error {
			return errors.Join(s.Send(watchStart()), s.Send(watchEvent(create, "a")))
		}, []error{client.ErrStreamLost}, client.ErrWatchOverflow, 1},
		{"overflow", func(_ context.Context, s filesystemconnect.FilesystemWatchDirServerStream) error {
			_ = s.Send(watchStart())
			return connect.NewError(connect.CodeInternal, "watcher error: fsnotify: queue or buffer overflow")
		}, []error{client.ErrStreamLost, client.ErrWatchOverflow}, fs.ErrNotExist, 0},
		{"before the start", func(context.Context, filesystemconnect.FilesystemWatchDirServerStream) error {
			return connect.NewError(connect.CodeNotFound, "path /w not found")
		}, []error{fs.ErrNotExist}, client.ErrStreamLost, 0},
		{"name outside", func(_ context.Context, s filesystemconnect.FilesystemWatchDirServerStream) error {
			return errors.Join(s.Send(watchStart()), s.Send(watchEvent(create, "../../etc/passwd")))
		}, []error{fs.ErrInvalid}, nil, 0},
		{"absolute name", func(_ context.Context, s filesystemconnect.FilesystemWatchDirServerStream) error {
			return errors.Join(s.Send(watchStart()), s.Send(watchEvent(create, "/etc/passwd")))
		}, []error{fs.ErrInvalid}, nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := (&watchServer{stream: tt.play}).dial(t)
			seen := 0
			var last error
			for _, err := range c.Watch(t.Context(), "/w") {
				if last = err; err == nil {
					seen++
				}
			}
			for _, want := range tt.want {
				wantFileError(t, "Watch", last, want)
			}
			if tt.not != nil && errors.Is(last, tt.not) {
				t.Errorf("Watch: %v, which must not match %v", last, tt.not)
			}
			if seen != tt.seen {
				t.Errorf("%d events came, want %d", seen, tt.seen)
			}
		})
	}
}

// TestWatchStartNotConfirmed is a proxy that holds the stream back.
func TestWatchStartNotConfirmed(t *testing.T) {
	s := &watchServer{stream: func(ctx context.Context, _ filesystemconnect.FilesystemWatchDirServerStream) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	_, err := s.dial(t, client.WithRequestTimeout(50*time.Millisecond)).StartWatch(t.Context(), "/w")
	wantFileError(t, "StartWatch", err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "Polling") {
		t.Errorf("StartWatch: %v, which does not name the way out", err)
	}
}

func TestWatchContext(t *testing.T) {
	started := make(chan struct{}, 1)
	ended := make(chan struct{}, 1)
	s := &watchServer{stream: func(ctx context.Context, stream filesystemconnect.FilesystemWatchDirServerStream) error {
		_ = stream.Send(watchStart())
		started <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return ctx.Err()
	}}
	c := s.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-started; cancel() }()
	var last error
	for _, err := range c.Watch(ctx, "/w") {
		last = err
	}
	wantFileError(t, "Watch", last, context.Canceled)
	if errors.Is(last, client.ErrStreamLost) {
		t.Errorf("Watch: %v, which must not look like a lost stream", last)
	}
	<-ended

	w, err := c.StartWatch(t.Context(), "/w")
	if err != nil {
		t.Fatal(err)
	}
	<-started
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event, err := range w.Events() {
			t.Errorf("after Close: %v, %v", event, err)
		}
	}()
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
	<-done
	<-ended
}

func TestWatchPolling(t *testing.T) {
	event := func(name string) *filesystempb.FilesystemEvent {
		return &filesystempb.FilesystemEvent{Name: name, Type: filesystempb.EventType_EVENT_TYPE_CREATE}
	}
	s := &watchServer{batches: [][]*filesystempb.FilesystemEvent{{event("a"), event("b")}, {}, {event("c")}}}
	c := s.dial(t)
	var got []string
	var last error
	for event, err := range c.Watch(t.Context(), "/w", client.Polling(time.Millisecond)) {
		if last = err; err == nil {
			got = append(got, event.String())
		}
	}
	if want := []string{"create /w/a", "create /w/b", "create /w/c"}; !slices.Equal(got, want) {
		t.Errorf("events = %q, want %q", got, want)
	}
	wantFileError(t, "Watch", last, client.ErrWatchOverflow)
	if s.made != 1 || s.removed != 1 {
		t.Errorf("%d watchers were made and %d removed", s.made, s.removed)
	}
}

// TestWatchFallsBackToPolling is a daemon without WatchDir.
func TestWatchFallsBackToPolling(t *testing.T) {
	s := &watchServer{batches: [][]*filesystempb.FilesystemEvent{{{Name: "a", Type: filesystempb.EventType_EVENT_TYPE_WRITE}}}}
	c := s.dial(t)
	for event, err := range c.Watch(t.Context(), "/w") {
		if err != nil || event.String() != "write /w/a" {
			t.Errorf("event = %v, %v", event, err)
		}
		break
	}
	if s.made != 1 || s.removed != 1 {
		t.Errorf("%d watchers were made and %d removed", s.made, s.removed)
	}
}

func TestWatchPollingCancelled(t *testing.T) {
	s := &watchServer{batches: slices.Repeat([][]*filesystempb.FilesystemEvent{{}}, 1000)}
	c := s.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := c.StartWatch(ctx, "/w", client.Polling(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	var last error
	for _, err := range w.Events() {
		last = err
	}
	wantFileError(t, "Events", last, context.Canceled)
	if err := w.Close(); err != nil || s.removed != 1 {
		t.Errorf("Close = %v after %d removals", err, s.removed)
	}
}

// TestWatchPollingCancelledEarly ends the context while the watcher is made.
func TestWatchPollingCancelledEarly(t *testing.T) {
	s := &watchServer{creating: make(chan struct{}), release: make(chan struct{})}
	c := s.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.creating
		cancel()
		close(s.release)
	}()
	_, err := c.StartWatch(ctx, "/w", client.Polling(time.Second))
	wantFileError(t, "StartWatch", err, context.Canceled)
	if s.made != 1 || s.removed != 1 {
		t.Errorf("%d watchers were made and %d removed", s.made, s.removed)
	}
}

func TestWatchGates(t *testing.T) {
	c := (&watchServer{}).dial(t, client.WithVersion("0.5.2"))
	for name, opt := range map[string]client.WatchOption{"0.6.3": client.WithEntries(), "0.6.4": client.NetworkMounts()} {
		_, err := c.StartWatch(t.Context(), "/w", opt)
		wantFileError(t, "StartWatch", err, errors.ErrUnsupported)
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
	_, err := c.StartWatch(t.Context(), "/w", client.Polling(0))
	wantFileError(t, "StartWatch", err, fs.ErrInvalid)
}

// TestWatchedParentMoved is a directory that goes away without an event.
func TestWatchedParentMoved(t *testing.T) {
	s := &watchServer{gone: true, batches: slices.Repeat([][]*filesystempb.FilesystemEvent{{}}, 100_000),
		stream: func(ctx context.Context, stream filesystemconnect.FilesystemWatchDirServerStream) error {
			_ = stream.Send(watchStart())
			_ = stream.Send(&filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Keepalive{Keepalive: &filesystempb.WatchDirResponse_KeepAlive{}}})
			<-ctx.Done()
			return ctx.Err()
		}}
	c := s.dial(t, client.WithKeepalive(time.Second))
	for mode, opts := range watchModes {
		var last error
		for _, err := range c.Watch(t.Context(), "/w", opts...) {
			last = err
		}
		wantFileError(t, mode, last, fs.ErrNotExist)
		if errors.Is(last, client.ErrStreamLost) {
			t.Errorf("%s: %v, which must not look like a lost stream", mode, last)
		}
	}
}

// TestWatchSilence is a server that sends keepalives and then nothing.
func TestWatchSilence(t *testing.T) {
	var served atomic.Int32
	s := &watchServer{stream: func(ctx context.Context, stream filesystemconnect.FilesystemWatchDirServerStream) error {
		served.Add(1)
		_ = stream.Send(watchStart())
		_ = stream.Send(&filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Keepalive{Keepalive: &filesystempb.WatchDirResponse_KeepAlive{}}})
		<-ctx.Done()
		return ctx.Err()
	}}
	c := s.dial(t, client.WithKeepalive(time.Second))
	var last error
	for _, err := range c.Watch(t.Context(), "/w") {
		last = err
	}
	wantFileError(t, "Watch", last, client.ErrStreamLost)
	if served.Load() != 1 {
		t.Errorf("the stream was opened %d times", served.Load())
	}
}
