// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envd-go/envd/client/envdtest"
)

// pipeListener makes connections within the process, whose time can be faked.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.close.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// blackHole loses what comes once it is shut.
type blackHole struct {
	net.Conn
	shut *atomic.Bool
}

func (b *blackHole) Read(p []byte) (int, error) {
	for {
		n, err := b.Conn.Read(p)
		if err != nil || !b.shut.Load() {
			return n, err
		}
	}
}

// A peer behind TLS that answers no more is noticed by HTTP/2 pings, long before
// three keepalives are missed.
func TestHTTP2Pings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		envd := envdtest.NewUnstartedServer()
		defer envd.Close()
		running := make(chan struct{})
		envd.HandleCommand("slow", func(p *envdtest.Proc) int {
			close(running)
			<-p.Context.Done()
			return 0
		})
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		web := httptest.NewUnstartedServer(envd.Handler())
		web.Listener.Close()
		web.Listener, web.EnableHTTP2 = l, true
		web.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that were lost
		web.StartTLS()
		defer web.Close()

		var shut atomic.Bool
		transport := newHTTPTransport()
		transport.Proxy = nil
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			l.conns <- far
			return &blackHole{near, &shut}, nil
		}
		c, err := New(web.URL, WithTransport(transport), WithUser("user"))
		if err != nil {
			t.Fatal(err)
		}
		defer transport.CloseIdleConnections()
		cmd := c.Command(t.Context(), "slow")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-running
		shut.Store(true)
		began := time.Now()
		err = cmd.Wait()
		if !errors.Is(err, ErrStreamLost) {
			t.Errorf("Wait = %v, want ErrStreamLost", err)
		}
		// 30 s without a frame, 15 s for the answer to the ping, and what it takes
		// to find out that the sandbox does not answer at all.
		if took := time.Since(began); took < 45*time.Second || took >= 3*DefaultKeepalive {
			t.Errorf("it took %v, want less than the %v of three keepalives", took, 3*DefaultKeepalive)
		}
	})
}
