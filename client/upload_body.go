// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// part is one file of an upload.
type part struct {
	// filename is the path, where the query has none.
	filename string
	src      *source
}

// uploadBody is the body of POST /files.
type uploadBody struct {
	r           io.Reader
	raw         bool
	boundary    string
	contentType string
	length      int64 // -1 if not known
	gzip        bool
	parts       []part
	opts        *transferOptions
	guard       *stallGuard
	began       time.Time

	over   <-chan struct{} // closed when the request has ended
	turn   chan struct{}   // held by the one Read that runs
	inside *interruptible  // nil where no reader can block
	closed atomic.Bool
	ended  bool // under turn
}

func newUploadBody(over <-chan struct{}, raw bool, parts []part, o *transferOptions, guard *stallGuard) *uploadBody {
	b := &uploadBody{over: over, raw: raw, boundary: "envd-" + rand.Text() + rand.Text(), parts: parts, opts: o, gzip: o.gzip, guard: guard}
	b.layOut()
	return b
}

func (b *uploadBody) layOut() {
	b.began, b.turn = time.Now(), make(chan struct{}, 1)
	if b.raw {
		b.contentType = "application/octet-stream"
		b.r, b.length = b.parts[0].src, b.parts[0].src.size
	} else {
		b.multipart()
	}
	if b.gzip {
		b.r, b.length = newGzipReader(b.r), -1
	}
	if slices.ContainsFunc(b.parts, func(p part) bool { return mayBlock(p.src.r) }) {
		b.inside = newInterruptible(b.r, b.over)
		b.r = b.inside
	}
}

// mayBlock reports whether a Read of r may take for ever. net/http waits for a
// Read that runs before it gives up a request, so such a reader needs help.
func mayBlock(r io.Reader) bool {
	switch r := r.(type) {
	case *bytes.Reader, *bytes.Buffer, *strings.Reader:
		return false
	case *os.File:
		info, err := r.Stat()
		return err != nil || !info.Mode().IsRegular()
	case *io.SectionReader:
		at, _, _ := r.Outer()
		outer, ok := at.(io.Reader)
		return !ok || mayBlock(outer)
	}
	return true
}

// interruptible is a reader that stops waiting for another one when over is
// closed.
type interruptible struct {
	r    io.Reader
	over <-chan struct{}
	busy chan struct{} // held while r reads
	got  chan readResult
	buf  []byte // of r while it reads
	rest []byte // was read and not asked for
	err  error
}

type readResult struct {
	n   int
	err error
}

const interruptibleBuffer = 64 << 10

func newInterruptible(r io.Reader, over <-chan struct{}) *interruptible {
	return &interruptible{r: r, over: over, busy: make(chan struct{}, 1), got: make(chan readResult, 1)}
}

// Read gives what was read, or waits for more.
func (i *interruptible) Read(p []byte) (int, error) {
	if len(i.rest) == 0 && i.err == nil {
		if err := i.fill(); err != nil {
			return 0, err
		}
	}
	if len(i.rest) == 0 {
		return 0, i.err
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// fill reads once, in a goroutine that is left to itself if it takes for ever.
func (i *interruptible) fill() error {
	if i.buf == nil {
		i.buf = make([]byte, interruptibleBuffer)
	}
	select {
	case <-i.over:
		return errBodyClosed // buf may be written to still
	default:
	}
	i.busy <- struct{}{}
	go i.read()
	select {
	case r := <-i.got:
		i.rest, i.err = i.buf[:r.n], r.err
		return nil
	case <-i.over:
		return errBodyClosed
	}
}

func (i *interruptible) read() {
	defer func() { <-i.busy }()
	n, err := i.r.Read(i.buf)
	i.got <- readResult{n, err}
}

// again returns the same body from its first byte, where the readers can go
// back. net/http wants it when a connection turns out to be closed already.
func (b *uploadBody) again() (*uploadBody, error) {
	b.detach()
	for _, p := range b.parts {
		if p.src.count.Load() > 0 && !p.src.rewind() {
			return nil, errors.New("connection was lost, and what was read of the data cannot be read again")
		}
	}
	next := &uploadBody{over: b.over, raw: b.raw, boundary: b.boundary, parts: b.parts, opts: b.opts, gzip: b.gzip, guard: b.guard}
	next.layOut()
	return next, nil
}

// multipart lays the parts out. It is done by hand so that the length is known
// without the content being read.
func (b *uploadBody) multipart() {
	b.contentType = "multipart/form-data; boundary=" + b.boundary
	b.length = 0
	var readers []io.Reader
	frame := func(text string) {
		readers = append(readers, strings.NewReader(text))
		b.length += int64(len(text))
	}
	known := true
	for i, p := range b.parts {
		lead := "\r\n"
		if i == 0 {
			lead = ""
		}
		frame(lead + "--" + b.boundary + "\r\nContent-Disposition: " + disposition(p.filename) +
			"\r\nContent-Type: application/octet-stream\r\n\r\n")
		readers = append(readers, p.src)
		b.length += p.src.size
		known = known && p.src.size >= 0
	}
	frame("\r\n--" + b.boundary + "--\r\n")
	b.r = io.MultiReader(readers...)
	if !known {
		b.length = -1
	}
}

// disposition names a part. Servers that read it by hand want the plain form,
// which cannot carry control characters and bytes that are not UTF-8.
func disposition(filename string) string {
	if filename == "" {
		filename = "file"
	}
	if escapeControls(filename) != filename || !utf8.ValidString(filename) {
		return mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": filename})
	}
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(filename)
	return `form-data; name="file"; filename="` + quoted + `"`
}

// expectFrom is the length from which on a server is asked for its consent
// before the bytes are sent.
const expectFrom = 1 << 20

// describe sets what the request says of its body.
func (b *uploadBody) describe(req *http.Request) {
	req.Header.Set("Content-Type", b.contentType)
	req.ContentLength = b.length
	if b.length == 0 {
		req.Body = http.NoBody
	}
	if b.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	if b.length < 0 || b.length >= expectFrom {
		// A refusal reaches us for sure only if it comes before the bytes do.
		req.Header.Set("Expect", "100-continue")
	}
}

var errBodyClosed = errors.New("upload is over")

// Read gives the transport its next bytes. It calls the caller's readers, on a
// goroutine of the transport.
func (b *uploadBody) Read(p []byte) (int, error) {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.closed.Load() {
		return 0, errBodyClosed
	}
	before := b.count()
	n, err := b.r.Read(p)
	if b.closed.Load() {
		return 0, errBodyClosed
	}
	b.guard.touch()
	if b.opts.progress != nil {
		b.guard.disarm() // the time of the callback is the caller's own
		b.report(before)
		if !b.closed.Load() {
			b.guard.arm()
		}
	}
	if b.whole() && !b.ended {
		b.ended = true
		b.guard.extend(max(time.Since(b.began), buffered(b.count()*int64(b.opts.atATime()))))
	}
	return n, err
}

const (
	// slowLink is the speed, in bytes a second, at which nothing times out.
	slowLink = 20_000
	// mostBuffered is how much this machine's network may have taken of an upload
	// without having sent it.
	mostBuffered = 4 << 20
)

// buffered is how long the bytes that are still on their way may take, when the
// last of n was taken.
func buffered(n int64) time.Duration {
	return time.Duration(min(n, mostBuffered)) * time.Second / slowLink
}

func (b *uploadBody) count() int64 {
	var n int64
	for _, p := range b.parts {
		n += p.src.count.Load()
	}
	return n
}

// report tells of the part that moved.
func (b *uploadBody) report(before int64) {
	if b.opts.progress == nil || b.count() == before {
		return
	}
	for i := len(b.parts) - 1; i >= 0; i-- {
		if src := b.parts[i].src; src.count.Load() > 0 {
			b.opts.progress(Progress{Path: src.path, Bytes: src.count.Load(), Total: src.size})
			return
		}
	}
}

// Close is called by the transport, which may still read.
func (b *uploadBody) Close() error {
	b.closed.Store(true)
	return nil
}

// detach makes sure that the caller's readers are not used any more. One that
// hangs in a Read is left to itself after a while.
func (b *uploadBody) detach() {
	b.closed.Store(true)
	timer := time.NewTimer(DefaultWaitDelay)
	defer timer.Stop()
	select {
	case b.turn <- struct{}{}:
		<-b.turn
	case <-timer.C:
		return
	}
	if b.inside == nil {
		return
	}
	select {
	case b.inside.busy <- struct{}{}:
		<-b.inside.busy
	case <-timer.C:
	}
}

// whole reports whether all of every file was taken.
func (b *uploadBody) whole() bool {
	for _, p := range b.parts {
		if !p.src.done.Load() {
			return false
		}
	}
	return true
}

// failure returns the error of a caller's reader.
func (b *uploadBody) failure() error {
	for _, p := range b.parts {
		if err := p.src.failure(); err != nil {
			return err
		}
	}
	return nil
}

// gzipReader compresses what it reads.
type gzipReader struct {
	src   io.Reader
	chunk []byte
	out   bytes.Buffer
	zw    *gzip.Writer
	err   error
}

func newGzipReader(src io.Reader) *gzipReader {
	g := &gzipReader{src: src, chunk: make([]byte, 32<<10)}
	g.zw = gzip.NewWriter(&g.out)
	return g
}

func (g *gzipReader) Read(p []byte) (int, error) {
	for g.out.Len() == 0 && g.err == nil {
		n, err := g.src.Read(g.chunk)
		if n > 0 {
			_, _ = g.zw.Write(g.chunk[:n]) // a Buffer takes everything
		}
		if err == io.EOF {
			_ = g.zw.Close()
		}
		g.err = err
	}
	if g.out.Len() > 0 {
		return g.out.Read(p)
	}
	return 0, g.err
}
