// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy is a proxy for tests that stands between a client and an
// envd and does to their connection what networks, gateways and hostile
// sandboxes do: it cuts, stalls, garbles and answers by itself.
//
// It speaks HTTP/1.1 on TCP and knows Connect's frames, so that a fault can
// strike at a place that matters, such as between the end event of a command
// and the end of its stream.
package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Proxy forwards requests to one server. All methods may be called
// concurrently.
type Proxy struct {
	// URL is the base URL for clients.
	URL string

	upstream string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	done     sync.WaitGroup

	mu       sync.Mutex
	rules    []*rule
	met      int
	accepted int
	open     map[net.Conn]bool // connections of clients
	resume   chan struct{}     // nil, or closed at the end of a pause
}

// rule is a fault that waits for requests.
type rule struct {
	path  string
	fault Fault
	left  int // negative for any number
}

// New starts a proxy on a free port of the loopback in front of the server at
// baseURL.
func New(baseURL string) (*Proxy, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" {
		return nil, errors.New("faultproxy: only plain HTTP is forwarded")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		URL:      "http://" + listener.Addr().String(),
		upstream: u.Host,
		listener: listener,
		open:     map[net.Conn]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.done.Go(p.accept)
	return p, nil
}

// Close cuts all connections and waits until nothing of the proxy is left.
func (p *Proxy) Close() {
	p.cancel()
	p.listener.Close()
	p.mu.Lock()
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

// Inject makes the next requests whose path ends in path meet the fault: so
// many, or all where times is negative. An empty path means any. Of several
// faults that wait for a request the oldest meets it.
func (p *Proxy) Inject(path string, times int, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &rule{path: path, fault: f, left: times})
}

// Clear takes the faults back that no request has met yet.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

// Met returns how many requests met a fault.
func (p *Proxy) Met() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met
}

// Connections returns how many connections clients have open, and how many they
// ever opened.
func (p *Proxy) Connections() (open, accepted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open), p.accepted
}

// Pause stops everything that passes through the proxy for so long, as a
// sandbox does that is frozen and thawed. Connections stay open.
func (p *Proxy) Pause(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resume != nil {
		return
	}
	resume := make(chan struct{})
	p.resume = resume
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.resume = nil
		close(resume)
	})
}

// awaitResume returns when the proxy is not paused, or false when it closes.
func (p *Proxy) awaitResume() bool {
	p.mu.Lock()
	resume := p.resume
	p.mu.Unlock()
	if resume == nil {
		return p.ctx.Err() == nil
	}
	select {
	case <-resume:
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		p.open[conn] = true
		p.mu.Unlock()
		if p.ctx.Err() != nil {
			conn.Close()
		}
		p.done.Go(func() {
			defer p.forget(conn)
			p.serve(conn)
		})
	}
}

func (p *Proxy) forget(conn net.Conn) {
	conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
}

// serve handles the requests of one connection, one after the other.
func (p *Proxy) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil || !p.awaitResume() {
			return
		}
		if req.Header.Get("Expect") == "100-continue" {
			req.Header.Del("Expect")
			if _, err := conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
				return
			}
		}
		x := &exchange{proxy: p, client: conn.(*net.TCPConn), in: in, request: req}
		if !x.run(p.take(req.URL.Path)) {
			return
		}
	}
}

// take returns the fault that a request meets.
func (p *Proxy) take(path string) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.left == 0 || !strings.HasSuffix(path, r.path) {
			continue
		}
		if r.left > 0 {
			r.left--
		}
		p.met++
		return r.fault
	}
	return nil
}
