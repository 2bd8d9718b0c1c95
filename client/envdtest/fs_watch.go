// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/fsnotify/fsnotify"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/filesystem/filesystemconnect"
	"github.com/envd-go/envd/internal/envdversion"
)

// dirWatch watches a directory for one client.
type dirWatch struct {
	srv       *Server
	path      string // as it was asked for
	host      string
	recursive bool
	entries   bool
	notify    *fsnotify.Watcher
}

// newDirWatch begins to watch. Every change after it has returned is seen.
func (s *Server) newDirWatch(path string, recursive, entries bool) (*dirWatch, error) {
	host := s.host(path)
	info, err := os.Stat(host)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, connect.Errorf(connect.CodeNotFound, "path %s not found: %s", path, s.errText(err))
	case err != nil:
		return nil, connect.Errorf(connect.CodeInternal, "error statting path %s: %s", path, s.errText(err))
	case !info.IsDir():
		return nil, connect.NewError(connect.CodeInvalidArgument, "path "+path+" not a directory: %!w(<nil>)")
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, connect.Errorf(connect.CodeInternal, "error creating watcher: %v", err)
	}
	w := &dirWatch{srv: s, path: path, host: filepath.Clean(host), recursive: recursive, notify: notify}
	w.entries = entries && s.cfg.version.Has(envdversion.WatchEntry)
	if err := w.add(w.host); err != nil {
		_ = notify.Close()
		return nil, connect.Errorf(connect.CodeInternal, "error adding path %s to watcher: %s", path, s.errText(err))
	}
	return w, nil
}

// add watches a directory and, for a recursive watch, those below it.
func (w *dirWatch) add(dir string) error {
	if !w.recursive {
		return w.notify.Add(dir)
	}
	return filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return skipVanished(err)
		}
		if !d.IsDir() {
			return nil
		}
		return skipVanished(w.notify.Add(at))
	})
}

func (w *dirWatch) close() { _ = w.notify.Close() }

// run hands on what changes, until ctx ends or the watch breaks.
func (w *dirWatch) run(ctx context.Context, emit func(*filesystempb.FilesystemEvent) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-w.notify.Events:
			if !ok {
				return connect.NewError(connect.CodeInternal, "watcher event channel closed")
			}
			if err := w.handle(event, emit); err != nil {
				return err
			}
		case err, ok := <-w.notify.Errors:
			if !ok {
				return connect.NewError(connect.CodeInternal, "watcher error channel closed")
			}
			return connect.Errorf(connect.CodeInternal, "watcher error: %v", err)
		}
	}
}

// eventTypes are the operations of fsnotify, in the order in which they are
// reported when several come as one.
var eventTypes = []struct {
	op  fsnotify.Op
	typ filesystempb.EventType
}{
	{fsnotify.Create, filesystempb.EventType_EVENT_TYPE_CREATE},
	{fsnotify.Rename, filesystempb.EventType_EVENT_TYPE_RENAME},
	{fsnotify.Chmod, filesystempb.EventType_EVENT_TYPE_CHMOD},
	{fsnotify.Write, filesystempb.EventType_EVENT_TYPE_WRITE},
	{fsnotify.Remove, filesystempb.EventType_EVENT_TYPE_REMOVE},
}

func (w *dirWatch) handle(event fsnotify.Event, emit func(*filesystempb.FilesystemEvent) error) error {
	for _, t := range eventTypes {
		if !event.Has(t.op) {
			continue
		}
		if err := w.emit(event.Name, t.typ, emit); err != nil {
			return err
		}
	}
	if w.recursive && event.Has(fsnotify.Create) {
		return w.adopt(event.Name, emit)
	}
	return nil
}

// adopt watches a new directory, and reports what is in it already: it came
// before the watch.
func (w *dirWatch) adopt(at string, emit func(*filesystempb.FilesystemEvent) error) error {
	if info, err := os.Lstat(at); err != nil || !info.IsDir() {
		return nil
	}
	if err := w.add(at); err != nil {
		return nil // gone again
	}
	return filepath.WalkDir(at, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || name == at {
			return skipVanished(err)
		}
		return w.emit(name, filesystempb.EventType_EVENT_TYPE_CREATE, emit)
	})
}

// emit reports one change of the path at.
func (w *dirWatch) emit(at string, typ filesystempb.EventType, emit func(*filesystempb.FilesystemEvent) error) error {
	rel, err := filepath.Rel(w.host, at)
	if err != nil {
		return nil
	}
	event := &filesystempb.FilesystemEvent{Name: filepath.ToSlash(rel), Type: typ}
	if w.entries && typ != filesystempb.EventType_EVENT_TYPE_REMOVE && typ != filesystempb.EventType_EVENT_TYPE_RENAME {
		path := filepath.Join(w.path, rel)
		if info, err := os.Lstat(at); err == nil {
			event.Entry = w.srv.describe(path, info)
		}
	}
	return emit(event)
}

// WatchDir streams what changes in a directory.
func (h filesystemService) WatchDir(ctx context.Context, req *filesystempb.WatchDirRequest, stream filesystemconnect.FilesystemWatchDirServerStream) error {
	keepalive, err := processService(h).keepalive(ctx)
	if err != nil {
		return err
	}
	path, _, err := h.path(ctx, req.GetPath())
	if err != nil {
		return err
	}
	w, err := h.srv.newDirWatch(path, req.GetRecursive(), req.GetIncludeEntry())
	if err != nil {
		return err
	}
	defer w.close()
	if err := stream.Send(watchStart()); err != nil {
		return err
	}
	return w.stream(ctx, keepalive, stream.Send)
}

func watchStart() *filesystempb.WatchDirResponse {
	return &filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Start{Start: &filesystempb.WatchDirResponse_StartEvent{}}}
}

// stream sends events as they come, and a keepalive after each interval
// without any.
func (w *dirWatch) stream(ctx context.Context, keepalive time.Duration, send func(*filesystempb.WatchDirResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan *filesystempb.FilesystemEvent)
	ended := make(chan error, 1)
	go func() {
		ended <- w.run(ctx, func(event *filesystempb.FilesystemEvent) error {
			select {
			case events <- event:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	done := false
	defer func() {
		cancel()
		if !done {
			<-ended
		}
	}()
	ticks := time.NewTimer(keepalive)
	defer ticks.Stop()
	for {
		var message *filesystempb.WatchDirResponse
		select {
		case event := <-events:
			message = &filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Filesystem{Filesystem: event}}
		case <-ticks.C:
			message = &filesystempb.WatchDirResponse{Event: &filesystempb.WatchDirResponse_Keepalive{Keepalive: &filesystempb.WatchDirResponse_KeepAlive{}}}
		case err := <-ended:
			done = true
			return err
		}
		if err := send(message); err != nil {
			return err
		}
		ticks.Reset(keepalive)
	}
}

// pollWatch keeps events until a client asks for them. It lives until it is
// removed, whoever made it.
type pollWatch struct {
	watch  *dirWatch
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	events []*filesystempb.FilesystemEvent
	err    error
}

func (p *pollWatch) run(ctx context.Context) {
	defer close(p.done)
	defer p.watch.close()
	err := p.watch.run(ctx, func(event *filesystempb.FilesystemEvent) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events = append(p.events, event)
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() == nil {
		p.err = err
	}
}

func (p *pollWatch) drain() ([]*filesystempb.FilesystemEvent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	events := p.events
	p.events = nil
	return events, nil
}

func (p *pollWatch) stop() {
	p.cancel()
	<-p.done
}

// pollWatches are the watchers that clients made and did not remove.
type pollWatches struct {
	mu  sync.Mutex
	all map[string]*pollWatch
}

func (w *pollWatches) add(id string, p *pollWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[string]*pollWatch{}
	}
	w.all[id] = p
}

func (w *pollWatches) get(id string) (*pollWatch, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.all[id]; p != nil {
		return p, nil
	}
	return nil, connect.Errorf(connect.CodeNotFound, "watcher with id %s not found", id)
}

func (w *pollWatches) remove(id string) error {
	p, err := w.get(id)
	if err != nil {
		return err
	}
	w.mu.Lock()
	delete(w.all, id)
	w.mu.Unlock()
	p.stop()
	return nil
}

// clear ends all of them.
func (w *pollWatches) clear() {
	w.mu.Lock()
	all := w.all
	w.all = nil
	w.mu.Unlock()
	for _, p := range all {
		p.stop()
	}
}

// CreateWatcher makes a watcher that is to be polled.
func (h filesystemService) CreateWatcher(ctx context.Context, req *filesystempb.CreateWatcherRequest) (*filesystempb.CreateWatcherResponse, error) {
	path, _, err := h.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	w, err := h.srv.newDirWatch(path, req.GetRecursive(), req.GetIncludeEntry())
	if err != nil {
		return nil, err
	}
	life := callOf(ctx).life
	watchCtx, cancel := context.WithCancel(life.ctx)
	p := &pollWatch{watch: w, cancel: cancel, done: make(chan struct{})}
	id := watcherID()
	h.srv.polls.add(id, p)
	go p.run(watchCtx)
	return &filesystempb.CreateWatcherResponse{WatcherId: id}, nil
}

// GetWatcherEvents returns what a watcher has kept.
func (h filesystemService) GetWatcherEvents(_ context.Context, req *filesystempb.GetWatcherEventsRequest) (*filesystempb.GetWatcherEventsResponse, error) {
	p, err := h.srv.polls.get(req.GetWatcherId())
	if err != nil {
		return nil, err
	}
	events, err := p.drain()
	if err != nil {
		return nil, err
	}
	return &filesystempb.GetWatcherEventsResponse{Events: events}, nil
}

// RemoveWatcher ends a watcher.
func (h filesystemService) RemoveWatcher(_ context.Context, req *filesystempb.RemoveWatcherRequest) (*filesystempb.RemoveWatcherResponse, error) {
	if err := h.srv.polls.remove(req.GetWatcherId()); err != nil {
		return nil, err
	}
	return &filesystempb.RemoveWatcherResponse{}, nil
}

// watcherID is a new id as the daemon makes them: w and twenty letters and
// digits.
func watcherID() string {
	return "w" + strings.ToLower(rand.Text())[:20]
}
