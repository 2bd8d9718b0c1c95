// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxRequests is how many requests the server remembers.
const maxRequests = 1000

// Request is what the server remembers of a request.
type Request struct {
	// Time is when it came.
	Time time.Time
	// Method and Path are those of its first line; Path has no query.
	Method, Path string
	// Header is a copy of its header, with all secrets in it.
	Header http.Header
}

// requestLog remembers the latest requests.
type requestLog struct {
	mu       sync.Mutex
	requests []Request
}

func (l *requestLog) add(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requests) >= maxRequests {
		l.requests = slices.Delete(l.requests, 0, 1)
	}
	l.requests = append(l.requests, Request{
		Time:   time.Now(),
		Method: r.Method,
		Path:   r.URL.Path,
		Header: r.Header.Clone(),
	})
}

func (s *Server) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.log.add(r)
		s.changes.notify()
		next.ServeHTTP(w, r)
	})
}

// Requests returns the latest requests, oldest first, 1000 at most. Those that
// are being handled and those that were refused are among them.
func (s *Server) Requests() []Request {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return slices.Clone(s.log.requests)
}

// ProcessInfo describes a running process.
type ProcessInfo struct {
	// PID is the number that envd shows. OSPID is that of the operating system,
	// 0 for a command function.
	PID   uint32
	OSPID int
	// Tag is the tag; HasTag tells an empty one from none.
	Tag    string
	HasTag bool
	// Name, Args and Env are the command as it was asked for, and Dir and User
	// where it runs and as whom.
	Name string
	Args []string
	Env  map[string]string
	Dir  string
	User string
	// PTY says that it has a terminal.
	PTY bool
	// Subscribers is the number of streams that are attached to it.
	Subscribers int
}

// Processes returns the running processes, oldest first.
func (s *Server) Processes() []ProcessInfo {
	all := s.procs.list()
	infos := make([]ProcessInfo, 0, len(all))
	for _, p := range all {
		infos = append(infos, p.info())
	}
	return infos
}

func (p *process) info() ProcessInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	info := ProcessInfo{
		PID:         p.pid,
		OSPID:       p.run.osPID(),
		HasTag:      p.tag != nil,
		Name:        p.config.GetCmd(),
		Args:        slices.Clone(p.config.GetArgs()),
		Env:         p.config.GetEnvs(),
		Dir:         p.dir,
		User:        p.user,
		PTY:         p.pty,
		Subscribers: len(p.subs),
	}
	if p.tag != nil {
		info.Tag = *p.tag
	}
	return info
}

// WaitFor waits until cond is true. It is called again whenever a request
// comes, a process starts or ends, or a stream attaches or leaves. The error
// is that of the context, if it ends first.
func (s *Server) WaitFor(ctx context.Context, cond func() bool) error {
	for {
		changed := s.changes.wait()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WaitIdle waits until no process runs. The error is that of the context, if
// it ends first.
func (s *Server) WaitIdle(ctx context.Context) error {
	return s.WaitFor(ctx, func() bool { return len(s.procs.list()) == 0 })
}
