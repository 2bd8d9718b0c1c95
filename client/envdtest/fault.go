// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"io"
	"net/http"
	"slices"
	"sync"
)

// Action is what happens to a request that a [Fault] meets.
type Action int

const (
	// Respond answers with the Status, Header and Body of the fault. The request
	// is not handled: it starts nothing.
	Respond Action = iota
	// Refuse cuts the connection at once, before the request is handled.
	Refuse
	// Stall does not handle the request and does not answer it, until the client
	// gives up or the server closes.
	Stall
	// Cut handles the request and cuts the connection after so much of the
	// answer as After says. With a zero After that is before the first byte of
	// the header: the answer is lost, though what was asked for is done.
	Cut
	// Freeze is Cut, except that the connection stays open and silent until the
	// client gives up or the server closes.
	Freeze
)

// Fault is something that goes wrong with a request. It is used up by the
// requests that it meets.
type Fault struct {
	// Procedure is the path that the fault waits for, such as
	// "/process.Process/Start". Empty means any path.
	Procedure string
	// Action says what happens.
	Action Action
	// After says how much of the answer Cut and Freeze let through.
	After Amount
	// Status, Header and Body are the answer of Respond. A zero Status is 502.
	Status int
	Header http.Header
	Body   string
	// Times is the number of requests that the fault meets; 0 means 1, and a
	// negative number means all.
	Times int
}

// Amount is a part of an answer.
type Amount struct {
	// Events counts the events of a stream: an event is a frame, and the first
	// is usually the start event.
	Events int
	// Bytes counts bytes of the body behind those events. It is a way into the
	// middle of a frame, or of the body of an answer that is not a stream.
	Bytes int
}

type faultList struct {
	mu     sync.Mutex
	faults []*Fault
}

// Inject adds a fault. Of several that wait for the same request the oldest
// meets it.
func (s *Server) Inject(f Fault) {
	f.Header = f.Header.Clone()
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.faults = append(s.faults.faults, &f)
}

// ClearFaults removes the faults that have not been used up.
func (s *Server) ClearFaults() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.faults = nil
}

// take returns the fault that the path meets, or nil.
func (l *faultList) take(path string) *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.faults {
		if f.Procedure != "" && f.Procedure != path {
			continue
		}
		if f.Times > 0 {
			f.Times--
			if f.Times == 0 {
				l.faults = slices.Delete(l.faults, i, i+1)
			}
		}
		return f
	}
	return nil
}

func (s *Server) injectFaults(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := s.faults.take(r.URL.Path)
		if f == nil {
			next.ServeHTTP(w, r)
			return
		}
		stop := func() { panic(http.ErrAbortHandler) }
		stall := func() {
			<-r.Context().Done()
			stop()
		}
		switch f.Action {
		case Respond:
			f.respond(w)
		case Refuse:
			stop()
		case Stall:
			_ = drainBody(r)
			stall()
		case Freeze:
			f.truncate(w, r, next, stall)
		default:
			f.truncate(w, r, next, stop)
		}
	})
}

func (f *Fault) respond(w http.ResponseWriter) {
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	status := f.Status
	if status == 0 {
		status = http.StatusBadGateway
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(f.Body))
}

// truncate handles the request and stops in the middle of the answer, or at
// its end if it is shorter.
func (f *Fault) truncate(w http.ResponseWriter, r *http.Request, next http.Handler, stop func()) {
	t := &truncated{ResponseWriter: w, frames: frameCounter{left: f.After.Events}, bytes: f.After.Bytes, stop: stop}
	t.nothing = f.After == Amount{}
	next.ServeHTTP(t, r)
	t.flush()
	stop()
}

// truncated is an answer that stops.
type truncated struct {
	http.ResponseWriter
	// nothing is let through, not even the header.
	nothing bool
	frames  frameCounter
	bytes   int
	stop    func()
}

func (t *truncated) WriteHeader(status int) {
	if t.nothing {
		t.stop()
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *truncated) Write(data []byte) (int, error) {
	pass := t.frames.take(data)
	if more := min(t.bytes, len(data)-pass); more > 0 {
		pass += more
		t.bytes -= more
	}
	n, err := 0, error(nil)
	if pass > 0 {
		n, err = t.ResponseWriter.Write(data[:pass])
	}
	if t.frames.left == 0 && t.bytes == 0 {
		t.flush()
		t.stop()
	}
	return n, err
}

// Unwrap lets [http.ResponseController] reach the writer below.
func (t *truncated) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Flush implements [http.Flusher].
func (t *truncated) Flush() { t.flush() }

func (t *truncated) flush() {
	if t.nothing {
		t.stop() // a flush would send the header
	}
	_ = http.NewResponseController(t.ResponseWriter).Flush()
}

// frameCounter finds the ends of frames: a byte of flags, four bytes of
// length, and so many bytes.
type frameCounter struct {
	left   int // frames to let through
	header []byte
	body   int // bytes that the frame still has
}

// take returns how much of the data belongs to frames that may pass.
func (c *frameCounter) take(data []byte) int {
	used := 0
	for c.left > 0 && used < len(data) {
		if len(c.header) < 5 {
			n := min(5-len(c.header), len(data)-used)
			c.header = append(c.header, data[used:used+n]...)
			used += n
			if len(c.header) < 5 {
				return used
			}
			c.body = int(c.header[1])<<24 | int(c.header[2])<<16 | int(c.header[3])<<8 | int(c.header[4])
		}
		n := min(c.body, len(data)-used)
		used, c.body = used+n, c.body-n
		if c.body == 0 {
			c.left, c.header = c.left-1, c.header[:0]
		}
	}
	return used
}

// drainBody reads the request, so that the server notices when the client
// leaves.
func drainBody(r *http.Request) error {
	_, err := io.Copy(io.Discard, r.Body)
	return err
}
