// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package linkproxy is a proxy for tests that makes a connection as slow and as
// far as a real one: it delays bytes, shares a bandwidth among all connections,
// and lets each have only a window of bytes under way, which begins small, as
// TCP does.
package linkproxy

import (
	"net"
	"net/url"
	"sync"
	"time"
)

// Link is what lies between the two sides.
type Link struct {
	// RoundTrip is how long a byte and the answer to it take together.
	RoundTrip time.Duration
	// Rate is how many bytes a second all connections together move in one
	// direction; 0 means any number.
	Rate int64
	// Window is how many bytes of one connection may be under way in one
	// direction; 0 means [DefaultWindow].
	Window int
}

const (
	// DefaultWindow is the most that many systems and proxies let be under way.
	DefaultWindow = 1 << 20
	// segment is what TCP sends at a time.
	segment = 1460
	// firstWindow is what TCP begins with.
	firstWindow = 10 * segment
	// mostAtOnce is how much is passed on at a time where that takes no time.
	mostAtOnce = 16 << 10
)

// piece is how much is passed on at a time: what takes a fiftieth of a second.
func (l Link) piece() int {
	if l.Rate <= 0 {
		return mostAtOnce
	}
	return min(max(segment, int(l.Rate/50)), mostAtOnce)
}

// Proxy forwards TCP connections to one server.
type Proxy struct {
	// URL is the base URL for clients.
	URL string

	link     Link
	upstream string
	listener net.Listener
	up, down lane
	done     sync.WaitGroup
	closed   chan struct{}

	mu   sync.Mutex
	open map[net.Conn]bool
}

// lane is one direction of the link.
type lane struct {
	mu   sync.Mutex
	free time.Time // when the last byte so far will have left
}

// leave returns when n bytes will have left, if they wait in line now.
func (l *lane) leave(n int, rate int64) time.Time {
	now := time.Now()
	if rate <= 0 {
		return now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(int64(n) * int64(time.Second) / rate))
	return l.free
}

// New starts a proxy on a free port of the loopback, with the link between it
// and the server at baseURL.
func New(baseURL string, link Link) (*Proxy, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if link.Window == 0 {
		link.Window = DefaultWindow
	}
	p := &Proxy{
		URL:      "http://" + listener.Addr().String(),
		link:     link,
		upstream: u.Host,
		listener: listener,
		closed:   make(chan struct{}),
		open:     map[net.Conn]bool{},
	}
	p.done.Go(p.accept)
	return p, nil
}

// Close cuts all connections and waits until nothing of the proxy is left.
func (p *Proxy) Close() {
	close(p.closed)
	p.listener.Close()
	p.mu.Lock()
	for conn := range p.open {
		conn.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(conn) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	if tcp, ok := client.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(mostAtOnce) // what waits is to wait on the other side
	}
	defer p.drop(client)
	if !p.wait(time.Now().Add(p.link.RoundTrip)) { // the handshake
		return
	}
	server, err := net.Dial("tcp", p.upstream)
	if err != nil || !p.keep(server) {
		return
	}
	defer p.drop(server)
	var both sync.WaitGroup
	both.Go(func() { p.relay(server, client, &p.up) })
	both.Go(func() { p.relay(client, server, &p.down) })
	both.Wait()
}

func (p *Proxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		conn.Close()
		return false
	default:
	}
	p.open[conn] = true
	return true
}

func (p *Proxy) drop(conn net.Conn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
}

// wait waits until a time, or returns false when the proxy is closed first.
func (p *Proxy) wait(until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.closed:
		return false
	}
}

// flight is a piece that is under way.
type flight struct {
	data   []byte
	arrive time.Time
}

// window is how much of one direction may be under way.
type window struct {
	limit int
	grown chan struct{} // something was acknowledged

	mu    sync.Mutex
	size  int
	under int
	acks  []acknowledgement
}

// acknowledgement says when the sender hears that a piece has arrived.
type acknowledgement struct {
	at time.Time
	n  int
}

func newWindow(limit int) *window {
	return &window{limit: limit, size: min(firstWindow, limit), grown: make(chan struct{}, 1)}
}

// room returns how much may be sent now. If that is nothing it returns when
// there will be some, or the zero Time where that is not known yet.
func (w *window) room() (n int, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for len(w.acks) > 0 && !w.acks[0].at.After(now) {
		w.under -= w.acks[0].n
		w.size = min(w.size+w.acks[0].n, w.limit) // doubles with each round trip
		w.acks = w.acks[1:]
	}
	if w.under < w.size {
		return w.size - w.under, time.Time{}
	}
	if len(w.acks) > 0 {
		next = w.acks[0].at
	}
	return 0, next
}

func (w *window) sent(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.under += n
}

func (w *window) acknowledge(at time.Time, n int) {
	w.mu.Lock()
	w.acks = append(w.acks, acknowledgement{at, n})
	w.mu.Unlock()
	select {
	case w.grown <- struct{}{}:
	default:
	}
}

// relay passes on one direction of a connection.
func (p *Proxy) relay(to, from net.Conn, l *lane) {
	w := newWindow(p.link.Window)
	flights := make(chan flight, 4096)
	gone := make(chan struct{})
	var delivering sync.WaitGroup
	delivering.Go(func() {
		defer close(gone)
		p.deliver(to, flights, w)
		if tcp, ok := to.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	})
	p.send(from, l, flights, w, gone)
	close(flights)
	delivering.Wait()
	if tcp, ok := from.(*net.TCPConn); ok {
		_ = tcp.CloseRead()
	}
}

// send reads pieces and puts them on their way, as the window allows.
func (p *Proxy) send(from net.Conn, l *lane, flights chan<- flight, w *window, gone <-chan struct{}) {
	for {
		room, next := w.room()
		if room == 0 {
			if !next.IsZero() && !p.wait(next) {
				return
			}
			if next.IsZero() {
				select {
				case <-w.grown:
				case <-gone:
					return
				}
			}
			continue
		}
		buf := make([]byte, min(p.link.piece(), room))
		n, err := from.Read(buf)
		if n > 0 {
			w.sent(n)
			arrive := l.leave(n, p.link.Rate).Add(p.link.RoundTrip / 2)
			select {
			case flights <- flight{buf[:n], arrive}:
			case <-gone:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver writes pieces as they arrive, until one cannot be.
func (p *Proxy) deliver(to net.Conn, flights <-chan flight, w *window) {
	for f := range flights {
		if !p.wait(f.arrive) {
			return
		}
		if _, err := to.Write(f.data); err != nil {
			return
		}
		w.acknowledge(time.Now().Add(p.link.RoundTrip/2), len(f.data))
	}
}
