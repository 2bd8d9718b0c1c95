// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"sync"
	"time"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/filesystem/filesystemconnect"
	"github.com/envd-go/envd/internal/envdversion"
)

// DefaultPollInterval is how often a watch that has to poll asks for events.
const DefaultPollInterval = time.Second

// Op is what happened to a path.
type Op uint8

// The operations. OpUnknown is one that this package does not know.
const (
	OpUnknown Op = iota
	// OpCreate: it came into being, or was moved here.
	OpCreate
	// OpWrite: its content was changed.
	OpWrite
	// OpRemove: it was removed.
	OpRemove
	// OpRename: it was moved away. The new name, if it is being watched, comes
	// as an OpCreate of its own; nothing ties the two together.
	OpRename
	// OpChmod: its mode, owner or time was changed.
	OpChmod
)

var opNames = [...]string{"unknown", "create", "write", "remove", "rename", "chmod"}

// String returns the operation in lower case.
func (o Op) String() string {
	if int(o) >= len(opNames) {
		o = OpUnknown
	}
	return opNames[o]
}

var ops = map[filesystempb.EventType]Op{
	filesystempb.EventType_EVENT_TYPE_CREATE: OpCreate,
	filesystempb.EventType_EVENT_TYPE_WRITE:  OpWrite,
	filesystempb.EventType_EVENT_TYPE_REMOVE: OpRemove,
	filesystempb.EventType_EVENT_TYPE_RENAME: OpRename,
	filesystempb.EventType_EVENT_TYPE_CHMOD:  OpChmod,
}

// Event is something that happened in a watched directory.
type Event struct {
	// Name is the path below the watched directory, "." for the directory.
	Name string
	// Path is the directory, as it was given, with the name.
	Path string
	// Op is what happened.
	Op Op
	// Entry describes the path at the time when the daemon handled the event.
	// It is nil without [WithEntries], for what is gone, and before envd 0.6.3.
	Entry *Entry
}

// String returns the operation and the path.
func (e Event) String() string { return e.Op.String() + " " + escapeControls(e.Path) }

// WatchOption changes how a directory is watched.
type WatchOption interface {
	applyWatch(*watchOptions) error
}

type watchOptions struct {
	recursive     bool
	entries       bool
	networkMounts bool
	poll          time.Duration // 0 for a stream
}

type watchOption func(*watchOptions) error

func (o watchOption) applyWatch(opts *watchOptions) error { return o(opts) }

// Recursive watches the directories below too, also those that are made later.
// In one that was just made, a creation may be told twice and a write right
// after it not at all.
func Recursive() WatchOption {
	return watchOption(func(o *watchOptions) error { o.recursive = true; return nil })
}

// WithEntries asks for [Event.Entry]. It needs envd 0.6.3: an older one whose
// version is known is [errors.ErrUnsupported], and any other leaves the entries
// out.
func WithEntries() WatchOption {
	return watchOption(func(o *watchOptions) error { o.entries = true; return nil })
}

// NetworkMounts allows to watch a directory of a network file system, where
// what others do on other machines is not seen. It needs envd 0.6.4. Without
// it, envd from 0.5.0 on refuses such a directory with
// [errors.ErrUnsupported].
func NetworkMounts() WatchOption {
	return watchOption(func(o *watchOptions) error { o.networkMounts = true; return nil })
}

// Polling asks for events every so often, in place of a stream, for proxies
// that hold streams back. The time must be positive. It leaves a watcher in the
// daemon, which [Watcher.Close] removes.
func Polling(every time.Duration) WatchOption {
	return watchOption(func(o *watchOptions) error {
		if every <= 0 {
			return fmt.Errorf("poll interval %v is not positive: %w", every, fs.ErrInvalid)
		}
		o.poll = every
		return nil
	})
}

// Watch watches a directory until the loop over it ends or the context does.
// Watching begins some time after the loop does; where nothing must be missed
// from a certain moment on, use [Client.StartWatch].
//
// Every event comes with a nil error. An error is the last thing that comes;
// they are those of StartWatch and [Watcher.Events].
func (c *Client) Watch(ctx context.Context, path string, opts ...WatchOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := c.StartWatch(ctx, path, opts...)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer w.Close()
		for event, err := range w.Events() {
			if !yield(event, err) {
				return
			}
		}
	}
}

// StartWatch begins to watch a directory, and returns once the daemon does so:
// nothing that happens after that is missed. Close the Watcher. The context
// bounds the watch, not only its start.
//
// A path that does not exist is [fs.ErrNotExist], and something that is no
// directory matches syscall.ENOTDIR. A daemon that is known to be too old for
// an option is [errors.ErrUnsupported]. One that has no stream of events is
// polled every [DefaultPollInterval]. Every error is an [*fs.PathError].
func (c *Client) StartWatch(ctx context.Context, path string, opts ...WatchOption) (*Watcher, error) {
	w, err := c.startWatch(ctx, path, opts)
	if err != nil {
		return nil, pathError("watch", path, err)
	}
	return w, nil
}

func (c *Client) startWatch(ctx context.Context, path string, opts []WatchOption) (*Watcher, error) {
	var o watchOptions
	for _, opt := range opts {
		if err := opt.applyWatch(&o); err != nil {
			return nil, err
		}
	}
	if err := checkRPCPath(path); err != nil {
		return nil, err
	}
	if err := c.gateWatch(ctx, path, o); err != nil {
		return nil, err
	}
	w := &Watcher{client: c, path: path, opts: o, parent: ctx}
	source, err := w.open()
	if err != nil {
		w.cancel(nil)
		return nil, err
	}
	w.source = source
	return w, nil
}

func (c *Client) gateWatch(ctx context.Context, path string, o watchOptions) error {
	needs := []struct {
		asked   bool
		feature envdversion.Feature
	}{
		{o.recursive, envdversion.RecursiveWatch},
		{o.entries, envdversion.WatchEntry},
		{o.networkMounts, envdversion.WatchNetworkMounts},
		{o.poll > 0, envdversion.PollingWatcher},
	}
	for _, need := range needs {
		if !need.asked {
			continue
		}
		if err := c.gate(ctx, "watch", path, need.feature); err != nil {
			return err
		}
	}
	return nil
}

// Watcher is a watch that has begun.
type Watcher struct {
	client *Client
	path   string
	opts   watchOptions
	parent context.Context // the caller's
	ctx    context.Context
	cancel context.CancelCauseFunc
	source eventSource

	mu      sync.Mutex // held by the one loop that runs over Events
	pending []*filesystempb.FilesystemEvent
	err     error

	closeOnce sync.Once
	closeErr  error
}

// eventSource is where events come from.
type eventSource interface {
	// next waits for events. It is not called again after an error.
	next() ([]*filesystempb.FilesystemEvent, error)
	// close is called once the context of the watcher has ended.
	close() error
}

var (
	errWatcherClosed = errors.New("watcher was closed")
	errWatchedGone   = fmt.Errorf("watched directory is gone: %w", fs.ErrNotExist)
)

// Path returns the directory that is watched, as it was given.
func (w *Watcher) Path() string { return w.path }

// Events returns the events from where the last loop over them stopped. One
// loop at a time runs. It ends without an error after Close, and otherwise with
// one as the last thing it gives, an [*fs.PathError]:
//
//   - the context's, when the context ended;
//   - [fs.ErrNotExist], after the event for it if there is one, when the watched
//     directory was removed or moved: no more events can come then. Where a
//     directory above it was moved, this is noticed only in a time without
//     events, within the time of [WithKeepalive];
//   - [ErrStreamLost], when the watch broke off, together with
//     [ErrWatchOverflow] when there were too many events at a time.
//
// Events come as the daemon tells them. The same one may come twice, several
// writes may come as one, and a move is an [OpRename] of the old name and an
// [OpCreate] of the new one. A name that is not UTF-8 breaks the watch off.
func (w *Watcher) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for {
			event, err := w.next()
			if errors.Is(err, errWatcherClosed) {
				return
			}
			if err != nil {
				yield(Event{}, pathError("watch", w.path, err))
				return
			}
			if !yield(event, nil) {
				return
			}
		}
	}
}

// Close ends the watch. A loop over Events ends too. The error is that of
// removing a polling watcher from the daemon, which is given a few seconds for
// it even if the context has ended. Close may be called at any time and more
// than once.
func (w *Watcher) Close() error {
	w.closeOnce.Do(func() {
		w.cancel(errWatcherClosed)
		if err := w.source.close(); err != nil {
			w.closeErr = pathError("watch", w.path, err)
		}
	})
	return w.closeErr
}

// next returns the next event. Errors stay.
func (w *Watcher) next() (Event, error) {
	for {
		if cause := context.Cause(w.ctx); errors.Is(cause, errWatcherClosed) {
			return Event{}, cause
		}
		if w.err == nil && len(w.pending) == 0 {
			w.pending, w.err = w.source.next()
			w.err = w.explain(w.err)
			continue
		}
		if len(w.pending) == 0 {
			return Event{}, w.err
		}
		first := w.pending[0]
		w.pending = w.pending[1:]
		event, err := w.event(first)
		if err != nil {
			w.err, w.pending = err, nil
			continue
		}
		if event.Name == "." && (event.Op == OpRemove || event.Op == OpRename) {
			w.err, w.pending = errWatchedGone, nil
		}
		return event, nil
	}
}

// explain says why a watch that had begun broke off.
func (w *Watcher) explain(err error) error {
	if err == nil || err == errWatchedGone {
		return err
	}
	cause := context.Cause(w.ctx)
	switch {
	case errors.Is(cause, errWatcherClosed):
		return cause
	case w.parent.Err() != nil:
		return toError(w.parent, domainFile, "watch", w.path, err)
	case cause != nil:
		err = cause // the watch was found dead
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("server ended the stream")
	}
	e, ok := toError(w.parent, domainFile, "watch", w.path, err).(*Error)
	if !ok {
		return err
	}
	lost := *e
	lost.is = append(slices.Clone(e.is), ErrStreamLost, io.ErrUnexpectedEOF)
	return &lost
}

// checkThere looks whether the directory is still there. Not every way to lose
// it makes an event: that a directory above it was moved does not.
func (w *Watcher) checkThere() error {
	if _, err := w.client.statEntry(w.ctx, "stat", w.path); errors.Is(err, fs.ErrNotExist) {
		return errWatchedGone
	}
	return nil
}

// event makes an Event of what the server sent.
func (w *Watcher) event(from *filesystempb.FilesystemEvent) (Event, error) {
	name, err := eventName(from.GetName())
	if err != nil {
		return Event{}, err
	}
	event := Event{Name: name, Path: joinPath(w.path, name), Op: ops[from.GetType()]}
	if info := from.GetEntry(); info != nil {
		at := event.Path
		if said := info.GetPath(); !path.IsAbs(at) && path.IsAbs(said) && path.Base(said) == path.Base(at) {
			at = path.Clean(said)
		}
		event.Entry = newEntry(path.Base(at), at, info)
	}
	return event, nil
}

// eventName returns the name of an event, which must lie below the directory.
func eventName(name string) (string, error) {
	clean := path.Clean(name)
	if !fs.ValidPath(clean) || checkRPCPath(clean) != nil {
		return "", fmt.Errorf("server sent an event for %q, which is not below the directory: %w", escapeControls(cut(name)), fs.ErrInvalid)
	}
	return clean, nil
}

// open begins the watch.
func (w *Watcher) open() (eventSource, error) {
	w.ctx, w.cancel = context.WithCancelCause(w.parent)
	if w.opts.poll > 0 {
		return w.openPoll()
	}
	source, err := w.openStream()
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeUnimplemented {
		return source, err
	}
	w.cancel(nil)
	w.ctx, w.cancel = context.WithCancelCause(w.parent)
	w.opts.poll = DefaultPollInterval
	if polled, pollErr := w.openPoll(); pollErr == nil {
		return polled, nil
	}
	return nil, err
}

// watchStream is a watch over WatchDir.
type watchStream struct {
	w      *Watcher
	stream filesystemconnect.FilesystemWatchDirClientStream
	// receiving is held during a Receive, so that Close does not meet one.
	receiving sync.Mutex

	// timer fires when no message has come for several keepalives. It runs
	// only while one is waited for.
	timer *time.Timer
	limit time.Duration
	// checks counts the goroutines that ask whether the daemon is there.
	checks sync.WaitGroup
	mu     sync.Mutex
	armed  bool
}

var (
	errNoWatchStart = errors.New("the server did not confirm the watch in time; a proxy may hold streams back, see Polling")
	errWatchSilent  = errors.New("the server gave no sign of life")
)

// openStream begins a stream and waits for its start event.
func (w *Watcher) openStream() (eventSource, error) {
	if d := w.client.config.requestTimeout; d > 0 {
		timer := time.AfterFunc(d, func() { w.cancel(errNoWatchStart) })
		defer timer.Stop()
	}
	s := &watchStream{w: w, limit: missedKeepalives * w.client.config.keepalive}
	stream, err := w.client.filesystems.WatchDir(w.ctx, &filesystempb.WatchDirRequest{
		Path: w.path, Recursive: w.opts.recursive,
		IncludeEntry: w.opts.entries, AllowNetworkMounts: w.opts.networkMounts,
	})
	if err != nil {
		return nil, w.startError(err)
	}
	s.stream = stream
	for {
		message, err := stream.Receive()
		switch {
		case err != nil:
			err = w.startError(err)
			w.cancel(nil)
			_ = stream.Close()
			return nil, err
		case message.GetStart() != nil:
			return s, nil
		case message.GetFilesystem() != nil:
			w.cancel(nil)
			_ = stream.Close()
			return nil, &Error{Op: "watch", Target: w.path, Code: CodeInternal, Err: errNoStart}
		}
	}
}

// startError explains a watch that did not begin.
func (w *Watcher) startError(err error) error {
	if cause := context.Cause(w.ctx); errors.Is(cause, errNoWatchStart) && w.parent.Err() == nil {
		return &Error{Op: "watch", Target: w.path, Code: CodeDeadlineExceeded, Err: cause,
			is: []error{context.DeadlineExceeded}}
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("stream ended before the start event: %w", io.ErrUnexpectedEOF)
	}
	return toError(w.parent, domainFile, "watch", w.path, err)
}

func (s *watchStream) next() ([]*filesystempb.FilesystemEvent, error) {
	s.receiving.Lock()
	defer s.receiving.Unlock()
	for {
		s.arm()
		message, err := s.stream.Receive()
		s.disarm()
		if err != nil {
			return nil, err
		}
		if message.GetKeepalive() != nil {
			s.w.client.keepsAlive.Store(true)
			if err := s.w.checkThere(); err != nil {
				return nil, err
			}
		}
		if event := message.GetFilesystem(); event != nil {
			return []*filesystempb.FilesystemEvent{event}, nil
		}
	}
}

func (s *watchStream) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = true
	if s.timer == nil {
		s.timer = time.AfterFunc(s.limit, s.examineSilence)
		return
	}
	s.timer.Reset(s.limit)
}

func (s *watchStream) disarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	s.timer.Stop()
}

// examineSilence ends a stream whose daemon is known to send keepalives and has
// sent none. Another one is asked whether it is there.
func (s *watchStream) examineSilence() {
	s.mu.Lock()
	if !s.armed || s.w.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.checks.Add(1)
	s.mu.Unlock()
	defer s.checks.Done()
	if !s.w.client.keepsAlive.Load() {
		ctx, cancel := context.WithTimeout(s.w.ctx, cleanupTimeout)
		defer cancel()
		if s.w.client.Health(ctx) == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.armed {
				s.timer.Reset(s.limit)
			}
			return
		}
	}
	s.w.cancel(errWatchSilent)
}

func (s *watchStream) close() error {
	s.mu.Lock()
	s.armed = false
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.receiving.Lock() // the context has ended, and with it any Receive
	defer s.receiving.Unlock()
	_ = s.stream.Close()
	s.checks.Wait()
	return nil
}

// watchPoll is a watch over a polling watcher.
type watchPoll struct {
	w  *Watcher
	id string
	// checked is when the directory was last looked for.
	checked time.Time
}

// openPoll makes a polling watcher. The call outlives the caller's context for
// a moment: a watcher whose name never arrives could not be removed.
func (w *Watcher) openPoll() (eventSource, error) {
	ctx, cancel := w.client.withRequestTimeout(context.WithoutCancel(w.parent))
	defer cancel()
	stop := context.AfterFunc(w.parent, func() {
		if sleep(ctx, cleanupTimeout) {
			cancel()
		}
	})
	defer stop()
	resp, err := w.client.filesystems.CreateWatcher(ctx, &filesystempb.CreateWatcherRequest{
		Path: w.path, Recursive: w.opts.recursive,
		IncludeEntry: w.opts.entries, AllowNetworkMounts: w.opts.networkMounts,
	})
	if err != nil {
		if w.parent.Err() == nil {
			return nil, toError(ctx, domainFile, "watch", w.path, err)
		}
		return nil, toError(w.parent, domainFile, "watch", w.path, err)
	}
	p := &watchPoll{w: w, id: resp.GetWatcherId(), checked: time.Now()}
	if ended := w.parent.Err(); ended != nil {
		if left := p.close(); left != nil {
			ended = errors.Join(ended, left)
		}
		return nil, toError(w.parent, domainFile, "watch", w.path, ended)
	}
	return p, nil
}

func (p *watchPoll) next() ([]*filesystempb.FilesystemEvent, error) {
	for {
		events, err := p.poll()
		if err != nil || len(events) > 0 {
			return events, err
		}
		if time.Since(p.checked) >= p.w.client.config.keepalive {
			if err := p.w.checkThere(); err != nil {
				return nil, err
			}
			p.checked = time.Now()
		}
		if !sleep(p.w.ctx, p.w.opts.poll) {
			return nil, p.w.ctx.Err()
		}
	}
}

// poll takes the events that are there. It is sent once: a second one would
// hide that the first took some.
func (p *watchPoll) poll() ([]*filesystempb.FilesystemEvent, error) {
	ctx, cancel := p.w.client.withRequestTimeout(p.w.ctx)
	defer cancel()
	resp, err := p.w.client.filesystems.GetWatcherEvents(ctx, &filesystempb.GetWatcherEventsRequest{WatcherId: p.id})
	return resp.GetEvents(), toError(ctx, domainOther, "watch", p.w.path, err)
}

// close removes the watcher from the daemon, unless it is gone.
func (p *watchPoll) close() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.w.parent), cleanupTimeout)
	defer cancel()
	_, err := p.w.client.filesystems.RemoveWatcher(ctx, &filesystempb.RemoveWatcherRequest{WatcherId: p.id})
	err = toError(ctx, domainOther, "remove watcher", p.id, err)
	if e, ok := err.(*Error); ok && e.Code == CodeNotFound {
		return nil
	}
	return err
}
