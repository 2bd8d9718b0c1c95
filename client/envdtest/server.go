// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Server is an envd inside the running program. Make one with [NewServer] or
// [NewUnstartedServer]; the zero Server is of no use. All methods may be
// called concurrently.
type Server struct {
	// URL is the base URL, such as http://127.0.0.1:38113, without a slash at
	// the end. It is empty until the server is started, and must not be changed.
	URL string

	cfg      config
	settings *settings
	procs    *table
	faults   faultList
	log      requestLog
	changes  broadcast
	homes    homes
	polls    pollWatches
	metadata metadataTable
	space    diskSpace
	fifos    fifos
	handler  http.Handler

	commandsMu sync.Mutex
	commands   map[string]func(*Proc) int

	lifeMu sync.Mutex
	life   *life

	mu     sync.Mutex
	server *http.Server
	pipe   *pipeListener
	client *http.Client
	closed bool

	handlers sync.WaitGroup // requests being handled
	workers  sync.WaitGroup // goroutines of processes and of the listener
}

// NewServer starts a server and returns it. The caller closes it when done. As
// in net/http/httptest it panics when it cannot listen.
func NewServer(opts ...Option) *Server {
	s := NewUnstartedServer(opts...)
	s.Start()
	return s
}

// NewPipeServer is [NewServer] with [WithPipe].
func NewPipeServer(opts ...Option) *Server {
	return NewServer(append([]Option{WithPipe()}, opts...)...)
}

// NewUnstartedServer returns a server that does not listen: call
// [Server.Start], or mount [Server.Handler] somewhere. Either way it must be
// closed.
func NewUnstartedServer(opts ...Option) *Server {
	s := &Server{
		cfg:      newConfig(opts),
		commands: map[string]func(*Proc) int{},
		life:     newLife(),
	}
	s.settings = newSettings(s.cfg)
	s.space.left, s.space.limited = s.cfg.quota, s.cfg.quotaSet
	s.procs = newTable(s)
	s.handler = s.newHandler()
	return s
}

// Start makes the server listen and sets its URL. It panics when the server
// cannot listen, or was started before.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil || s.closed {
		panic("envdtest: Start of a server that was started or closed before")
	}
	listener := s.listen()
	s.server = &http.Server{Handler: s.handler}
	s.workers.Go(func() { _ = s.server.Serve(listener) })
}

// listen opens the listener and sets URL accordingly.
func (s *Server) listen() net.Listener {
	if s.cfg.pipe {
		s.pipe = newPipeListener()
		s.URL = "http://" + pipeHost
		return s.pipe
	}
	listener, err := net.Listen("tcp", s.cfg.addr)
	if err != nil {
		panic(fmt.Sprintf("envdtest: cannot listen on %s: %v", s.cfg.addr, err))
	}
	s.URL = "http://" + listener.Addr().String()
	return listener
}

// Handler returns the server as an [http.Handler], for mounting in another
// HTTP server. Closing the Server ends the requests that it handles.
func (s *Server) Handler() http.Handler { return s.handler }

// Client returns an HTTP client that reaches this server and no other when the
// server is on a pipe. It follows no redirect and uses no proxy. Its idle
// connections are closed by [Server.Close].
func (s *Server) Client() *http.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		transport := &http.Transport{}
		if s.pipe != nil {
			transport.DialContext = s.pipe.dial
		}
		s.client = &http.Client{Transport: transport, CheckRedirect: noRedirect}
	}
	return s.client
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close ends all requests, kills all processes that the server started, with
// those of their descendants that it can find, and waits until nothing of the
// server is left. Only a command function that ignores its context outlives
// it, after a second's wait. Close may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	server, client, first := s.server, s.client, !s.closed
	s.closed = true
	s.mu.Unlock()
	if !first {
		return
	}
	s.currentLife().end()
	s.polls.clear()
	s.fifos.release()
	s.procs.close()
	if server != nil {
		_ = server.Close()
	}
	s.handlers.Wait()
	s.workers.Wait()
	s.procs.waitFunctions(time.Second)
	if client != nil {
		client.CloseIdleConnections()
	}
	s.homes.remove()
}

// HandleCommand makes a command of a Go function: a Start whose cmd is exactly
// name calls fn in a goroutine of its own. What fn returns is the exit code,
// modulo 256. A later call for the same name replaces the function for
// commands yet to be started; a nil fn removes it.
func (s *Server) HandleCommand(name string, fn func(*Proc) int) {
	s.commandsMu.Lock()
	defer s.commandsMu.Unlock()
	if fn == nil {
		delete(s.commands, name)
		return
	}
	s.commands[name] = fn
}

func (s *Server) command(name string) func(*Proc) int {
	s.commandsMu.Lock()
	defer s.commandsMu.Unlock()
	return s.commands[name]
}

// quirk reports whether the server has the quirk.
func (s *Server) quirk(q Quirk) bool { return s.cfg.quirks[q] }

// crash is what a keepalive interval of 0 does to a daemon: it starts again
// with nothing but its options.
func (s *Server) crash() {
	s.lifeMu.Lock()
	old := s.life
	s.life = newLife()
	if old.over() {
		s.life.end() // closed meanwhile
	}
	s.lifeMu.Unlock()
	s.procs.forget()
	s.settings.reset(s.cfg)
	old.end()
	s.polls.clear()
	s.changes.notify()
}

func (s *Server) currentLife() *life {
	s.lifeMu.Lock()
	defer s.lifeMu.Unlock()
	return s.life
}

// life lasts from the server's start to its end or crash. Each request belongs
// to one.
type life struct {
	ctx context.Context
	end context.CancelFunc
}

func newLife() *life {
	ctx, end := context.WithCancel(context.Background())
	return &life{ctx: ctx, end: end}
}

func (l *life) over() bool { return l.ctx.Err() != nil }

// broadcast wakes everybody who waits for something to change.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that is closed at the next change.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// homes are the home directories of users that have none of their own, in a
// temporary directory that is made when it is first needed.
type homes struct {
	mu   sync.Mutex
	root string
}

// dir returns the home directory that the server keeps for the user.
func (h *homes) dir(name string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.root == "" {
		root, err := os.MkdirTemp("", "envdtest-")
		if err != nil {
			return "", err
		}
		h.root = root
	}
	return makeHome(h.root, name)
}

func (h *homes) remove() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.root != "" {
		_ = os.RemoveAll(h.root)
		h.root = ""
	}
}
