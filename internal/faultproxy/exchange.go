// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// exchange is one request and its answer on their way through the proxy.
type exchange struct {
	proxy   *Proxy
	client  *net.TCPConn
	in      *bufio.Reader
	request *http.Request

	server net.Conn
	// quiet is closed when the client has sent its request and then something
	// more, or hung up.
	quiet chan struct{}
	// sent is set before quiet is closed.
	sent, gone bool

	response *http.Response
	// body writes to the client in the framing that its header announced.
	body io.Writer
	end  func() error
	// broken says that the connection to the client cannot be used any more.
	broken bool
	// slow is called before each write of the body, which has at most step
	// bytes; zero means any number.
	slow func()
	step int
}

var errGone = errors.New("faultproxy: connection is gone")

// run performs the exchange and reports whether another one may follow on the
// connection.
func (x *exchange) run(fault Fault) bool {
	if fault == nil {
		fault = Pass
	}
	defer x.hangUp()
	err := fault(x)
	if err != nil || x.broken {
		return false
	}
	if x.quiet == nil { // the proxy answered by itself
		_, err := io.Copy(io.Discard, x.request.Body)
		return err == nil
	}
	<-x.quiet
	return x.sent && !x.gone
}

// hangUp closes the connection to the server. The server notices.
func (x *exchange) hangUp() {
	if x.server != nil {
		x.server.Close()
	}
	if x.quiet != nil && x.broken {
		x.client.Close()
		<-x.quiet
	}
}

// forward sends the request on and reads the head of the answer.
func (x *exchange) forward() error {
	var dialer net.Dialer
	server, err := dialer.DialContext(x.proxy.ctx, "tcp", x.proxy.upstream)
	if err != nil {
		x.broken = true
		return err
	}
	x.server = server
	stop := context.AfterFunc(x.proxy.ctx, func() { server.Close() })
	x.quiet = make(chan struct{})
	x.request.Close = true // a connection of its own for each request
	go func() {
		defer close(x.quiet)
		defer stop()
		err := x.request.Write(server)
		x.sent = err == nil
		if _, err := x.in.Peek(1); err != nil || !x.sent {
			x.gone = true
			server.Close()
		}
	}()
	x.response, err = http.ReadResponse(bufio.NewReader(server), x.request)
	if err != nil {
		x.broken = true
		return err
	}
	if !x.proxy.awaitResume() {
		return errGone
	}
	return nil
}

// head sends the head of the answer. With rechunk the body may have another
// length than the server's.
func (x *exchange) head(rechunk bool) error {
	resp := x.response
	header := resp.Header.Clone()
	header.Del("Connection")
	length := resp.ContentLength
	if rechunk {
		length = -1
	}
	switch {
	case resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified || x.request.Method == http.MethodHead:
		x.body, x.end = io.Discard, func() error { return nil }
	case length >= 0:
		header.Set("Content-Length", strconv.FormatInt(length, 10))
		x.body, x.end = x.client, func() error { return nil }
	default:
		header.Del("Content-Length")
		header.Set("Transfer-Encoding", "chunked")
		chunks := httputil.NewChunkedWriter(x.client)
		x.body = chunks
		x.end = func() error {
			if err := chunks.Close(); err != nil {
				return err
			}
			_, err := io.WriteString(x.client, "\r\n")
			return err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %03d %s\r\n", resp.StatusCode, http.StatusText(resp.StatusCode))
	_ = header.Write(&b)
	b.WriteString("\r\n")
	if x.slow != nil && x.step == 0 {
		x.slow()
	}
	return x.raw([]byte(b.String()))
}

// raw writes bytes to the client as they are.
func (x *exchange) raw(p []byte) error {
	_, err := x.client.Write(p)
	x.broken = x.broken || err != nil
	return err
}

// write sends a piece of the body.
func (x *exchange) write(p []byte) error {
	for len(p) > 0 {
		piece := p
		if x.step > 0 {
			piece = p[:min(len(p), x.step)]
		}
		if x.slow != nil {
			x.slow()
		}
		if !x.proxy.awaitResume() {
			return errGone
		}
		if _, err := x.body.Write(piece); err != nil {
			x.broken = true
			return err
		}
		p = p[len(piece):]
	}
	return nil
}

// streaming reports whether the answer is made of Connect's frames.
func (x *exchange) streaming() bool {
	return strings.HasPrefix(x.response.Header.Get("Content-Type"), "application/connect+")
}

// pieces calls each for each piece of the answer's body: each frame of a
// stream, and whatever comes of another body.
func (x *exchange) pieces(each func(piece) error) error {
	if !x.streaming() {
		buf := make([]byte, 32<<10)
		for {
			n, err := x.response.Body.Read(buf)
			if n > 0 {
				if err := each(piece{kind: kindBytes, data: buf[:n]}); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				x.broken = true
				return err
			}
		}
	}
	for {
		p, err := readFrame(x.response.Body)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			x.broken = true
			return err
		}
		if strings.HasSuffix(x.request.URL.Path, "/WatchDir") {
			p.kind = kindOfWatch(p.data)
		}
		if err := each(p); err != nil {
			return err
		}
	}
}

// sleep waits, unless the proxy closes.
func (x *exchange) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.proxy.ctx.Done():
	}
}
