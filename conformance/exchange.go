// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode"
)

const (
	maxExchanges     = 40
	maxRecordedBytes = 2048
)

// exchangeLog records the requests of one case and their answers, for the
// report of a failure.
type exchangeLog struct {
	secret  string
	mu      sync.Mutex
	stopped bool
	all     []*exchange
}

type exchange struct {
	mu       sync.Mutex
	method   string
	url      string
	reqHead  http.Header
	request  recorded
	status   string
	resHead  http.Header
	response recorded
	err      error
}

// recorded keeps the beginning of what is written to it.
type recorded struct {
	buf   bytes.Buffer
	total int
}

func (r *recorded) write(p []byte) {
	r.total += len(p)
	if room := maxRecordedBytes - r.buf.Len(); room > 0 {
		r.buf.Write(p[:min(room, len(p))])
	}
}

func (l *exchangeLog) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
}

func (l *exchangeLog) roundTrip(transport http.RoundTripper, req *http.Request) (*http.Response, error) {
	x := &exchange{method: req.Method, url: req.URL.RequestURI(), reqHead: req.Header.Clone()}
	l.mu.Lock()
	if !l.stopped && len(l.all) < maxExchanges {
		l.all = append(l.all, x)
	}
	l.mu.Unlock()
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &tap{req.Body, x, &x.request}
	}
	res, err := transport.RoundTrip(req)
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.err = err
		return nil, err
	}
	x.status, x.resHead = res.Status, res.Header.Clone()
	res.Body = &tap{res.Body, x, &x.response}
	return res, nil
}

type tap struct {
	io.ReadCloser
	x  *exchange
	to *recorded
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.x.mu.Lock()
	defer t.x.mu.Unlock()
	t.to.write(p[:n])
	if err != nil && err != io.EOF {
		t.x.err = err
	}
	return n, err
}

// String returns the exchange as text, without secrets.
func (l *exchangeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, x := range l.all {
		x.mu.Lock()
		fmt.Fprintf(&b, "> %s %s\n", x.method, x.url)
		writeHeader(&b, "> ", x.reqHead)
		writeBody(&b, "> ", &x.request)
		if x.status != "" {
			fmt.Fprintf(&b, "< %s\n", x.status)
			writeHeader(&b, "< ", x.resHead)
			writeBody(&b, "< ", &x.response)
		}
		if x.err != nil {
			fmt.Fprintf(&b, "< %v\n", x.err)
		}
		x.mu.Unlock()
	}
	text := b.String()
	if l.secret != "" {
		text = strings.ReplaceAll(text, l.secret, "…")
	}
	return text
}

func writeHeader(b *strings.Builder, prefix string, h http.Header) {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := strings.Join(h[name], ", ")
		if strings.Contains(strings.ToLower(name), "token") || name == "Cookie" || name == "Set-Cookie" ||
			name == "Authorization" && !strings.HasPrefix(value, "Basic ") {
			value = "…"
		}
		fmt.Fprintf(b, "%s%s: %s\n", prefix, name, printable(value))
	}
}

func writeBody(b *strings.Builder, prefix string, r *recorded) {
	if r.total == 0 {
		return
	}
	fmt.Fprintf(b, "%s%s", prefix, printable(r.buf.String()))
	if r.total > r.buf.Len() {
		fmt.Fprintf(b, " … (%d bytes)", r.total)
	}
	b.WriteByte('\n')
}

// printable escapes what a terminal might obey.
func printable(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == unicode.ReplacementChar:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
