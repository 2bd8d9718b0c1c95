// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"time"
)

// File is an open file of the sandbox, to be read. Its bytes come as they are
// asked for. Read and Seek work on one position and must not be called at the
// same time; ReadAt has none and may be called by any number of goroutines.
// Close it: until then it holds a connection.
type File struct {
	client *Client
	op     string // for errors
	path   string
	opts   *transferOptions
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc

	size    int64
	modTime time.Time
	version fileVersion
	// answered is when the server gave the first answer, by its own clock and
	// in whole seconds; zero where it does not say.
	answered time.Time
	// minSize is what the file had before a compressed download, whose end says
	// nothing; 0 where it is not known.
	minSize int64
	// end is where a section of the file ends; 0 where it is the whole.
	end int64
	// partial says that body is the first range alone.
	partial bool
	// came is what was read of a file whose version is not known; nil where it is
	// known or does not matter.
	came *prefix

	mu     sync.Mutex
	body   *fileBody
	off    int64
	closed bool
	// failures counts what went wrong since off was at settled.
	failures int
	settled  int64
}

// Open opens the file for reading. The context bounds everything that is done
// with it, until Close. A path that does not exist is [fs.ErrNotExist]; a
// directory matches syscall.EISDIR. What has no end or no bytes yet, such as a
// FIFO that nobody writes to, fails with [ErrIdleTimeout] after a minute; see
// [WithIdleTimeout].
//
// Options for Open are WithIdleTimeout and WithRetries.
func (c *Client) Open(ctx context.Context, path string, opts ...TransferOption) (*File, error) {
	o, err := newTransferOptions(optsOpen, opts)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f, err := c.open(ctx, "open", path, o)
	if err != nil {
		return nil, transferError("open", path, TransferError{Total: -1, Err: err})
	}
	f.op = "read"
	if err := f.remember(0); err != nil {
		_ = f.Close()
		return nil, transferError("open", path, TransferError{Total: f.size, Err: err})
	}
	return f, nil
}

// open sends the first request for the file.
func (c *Client) open(ctx context.Context, op, path string, o *transferOptions) (*File, error) {
	if err := checkFilePath(path); err != nil {
		return nil, err
	}
	f := &File{client: c, op: op, path: path, opts: o, parent: ctx, size: -1, version: fileVersion{size: -1}}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	body, reply, err := f.getRetrying()
	if err != nil {
		f.cancel(nil)
		return nil, err
	}
	f.body = body
	f.partial = reply.partial
	f.size = reply.size
	f.version.size = reply.size
	f.version.etag = strongETag(reply.header)
	f.answered, _ = http.ParseTime(reply.header.Get("Date"))
	if at, ok := c.trueModTime(reply.header); ok {
		f.modTime = at
		if longBefore(at, reply.header) {
			f.version.modified = reply.header.Get("Last-Modified")
		}
	}
	return f, nil
}

// getRetrying sends the first request, again where nothing of the file came:
// that is a call that only reads.
func (f *File) getRetrying() (*fileBody, fileReply, error) {
	length := int64(-1)
	if f.wantsRanges() {
		length = f.client.config.rangeSize
	}
	for try := 1; ; try++ {
		body, reply, err := f.get(f.ctx, 0, length)
		if length >= 0 && (statusOf(err) == http.StatusRequestedRangeNotSatisfiable || err == nil && reply.partial && reply.size < 0) {
			// An empty file, or a server that does not say how long it is.
			if err == nil {
				_ = body.Close()
			}
			length = -1
			body, reply, err = f.get(f.ctx, 0, length)
		}
		if err == nil || f.client.config.noRetries || try >= maxTries || try > f.opts.retries || !canRetry(err) {
			return body, reply, err
		}
		if !waitToRetry(f.ctx, backoff(try), err) {
			return nil, reply, f.failed(f.ctx, err)
		}
	}
}

// Name returns the path that the file was opened with.
func (f *File) Name() string { return f.path }

// Size returns the number of bytes, or -1 where it is not known: files below
// /proc and /sys have no true size.
func (f *File) Size() int64 { return f.size }

// ModTime returns when the file was last changed, in whole seconds, or the zero
// Time where the server does not say so truthfully: before envd 0.5.3. There,
// ask [Client.Stat].
func (f *File) ModTime() time.Time { return f.modTime }

// Read reads from the position. A connection that breaks is replaced, as
// [WithRetries] says; if the file is another one by then, Read fails with
// [ErrFileChanged].
func (f *File) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.read(p)
	if err != nil && err != io.EOF {
		err = transferError(f.op, f.path, TransferError{Bytes: f.off, Total: f.size, Err: err})
	}
	return n, err
}

// read is Read without the path in its errors. Its io.EOF is a bare one.
func (f *File) read(p []byte) (int, error) {
	if f.closed {
		return 0, fs.ErrClosed
	}
	if err := f.ctx.Err(); err != nil {
		return 0, f.failed(f.ctx, err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if end := f.limit(); end >= 0 && f.off >= end {
			return 0, io.EOF
		}
		n, err := f.readBody(p)
		f.came.add(p[:n])
		f.off += int64(n)
		if n > 0 {
			return n, nil
		}
		if err == io.EOF {
			return 0, io.EOF
		}
		if err := f.afterFailure(err); err != nil {
			return 0, err
		}
	}
}

// limit returns where the reading ends, or -1 where that is not known.
func (f *File) limit() int64 {
	if f.end > 0 {
		return f.end
	}
	return f.size
}

// readBody reads from the connection, after making one that stands at the
// position if there is none.
func (f *File) readBody(p []byte) (int, error) {
	if f.body == nil || f.body.off != f.off {
		f.dropBody()
		if err := f.connect(); err != nil {
			return 0, err
		}
	}
	n, err := f.body.Read(p)
	if n > 0 || err == nil {
		return n, nil // the error comes again
	}
	if end := f.limit(); err == io.EOF && end >= 0 && f.off < end {
		err = io.ErrUnexpectedEOF
	}
	if err == io.EOF && f.off < f.minSize {
		return 0, fmt.Errorf("%d bytes came of a file of %d: %w", f.off, f.minSize, io.ErrUnexpectedEOF)
	}
	if err == io.EOF {
		return 0, err
	}
	return 0, f.failed(f.ctx, err)
}

// connect makes a connection that stands at the position.
func (f *File) connect() error {
	off, length := f.off, int64(-1)
	if f.end > 0 {
		length = f.end - off
	}
	if f.came != nil {
		off = 0
	}
	body, reply, err := f.get(f.ctx, off, length)
	if err != nil {
		return err
	}
	if f.size >= 0 && reply.size >= 0 && reply.size != f.size {
		_ = body.Close()
		return ErrFileChanged
	}
	if f.came != nil {
		if err := f.skip(body); err != nil {
			_ = body.Close()
			return err
		}
	}
	f.body = body
	return nil
}

// enoughProgress is how much must have moved for earlier failures to be
// forgotten.
const enoughProgress = 1 << 20

// afterFailure drops the connection and waits, or returns the error where it
// has to stand.
func (f *File) afterFailure(err error) error {
	f.dropBody()
	if !f.version.known() && f.came == nil || f.ctx.Err() != nil || !canRetry(err) {
		return err
	}
	if f.off-f.settled >= enoughProgress {
		f.failures, f.settled = 0, f.off
	}
	if f.failures >= f.opts.retries {
		return err
	}
	f.failures++
	if !waitToRetry(f.ctx, min(100*time.Millisecond<<(f.failures-1), 5*time.Second), err) {
		return f.failed(f.ctx, err)
	}
	return nil
}

// canRetry reports whether a read that failed so may go better the next time.
func canRetry(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || errors.Is(err, ErrSandboxNotFound) {
		return false
	}
	he, answered := errors.AsType[*HTTPError](err)
	if !answered {
		return e.Code == CodeUnknown || e.Code == CodeUnavailable
	}
	switch he.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// ReadAt reads len(p) bytes that begin at off, with a request of its own. It
// fails with [ErrFileChanged] if the file is not the one that was opened any
// more; before envd 0.2.5 only a change of its size shows.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.readAt(p, off)
	if err != nil && err != io.EOF {
		err = transferError(f.op, f.path, TransferError{Bytes: int64(n), Total: f.size, Err: err})
	}
	return n, err
}

func (f *File) readAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	switch {
	case closed:
		return 0, fs.ErrClosed
	case off < 0:
		return 0, fmt.Errorf("offset %d is negative: %w", off, fs.ErrInvalid)
	case f.size < 0:
		return 0, errNoPosition
	case off >= f.size:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	want := p[:min(int64(len(p)), f.size-off)]
	body, _, err := f.getWith(ctx, cancel, off, int64(len(want)))
	if err != nil {
		return 0, err
	}
	defer body.Close()
	n, err := io.ReadFull(body, want)
	switch {
	case err != nil:
		return n, f.failed(ctx, cmp.Or(eofIsUnexpected(err), err))
	case len(want) < len(p):
		return n, io.EOF
	}
	return n, nil
}

var errNoPosition = fmt.Errorf("file has no size, so it can only be read from its start: %w", errors.ErrUnsupported)

func eofIsUnexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Seek sets the position for the next Read, which then makes a request of its
// own. It costs nothing itself. A file without a known size cannot be sought
// in.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fail := func(err error) (int64, error) { return 0, &fs.PathError{Op: "seek", Path: f.path, Err: err} }
	if f.closed {
		return fail(fs.ErrClosed)
	}
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.off
	case io.SeekEnd:
		offset += f.size
	default:
		return fail(fmt.Errorf("whence %d: %w", whence, fs.ErrInvalid))
	}
	if f.size < 0 && offset != f.off {
		return fail(errNoPosition)
	}
	if offset < 0 {
		return fail(fmt.Errorf("position %d: %w", offset, fs.ErrInvalid))
	}
	f.off = offset
	return offset, nil
}

// Close lets go of the connection. A second Close is [fs.ErrClosed].
func (f *File) Close() error {
	f.cancel(nil) // a Read that waits gives up its lock
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	f.closed = true
	f.dropBody()
	return nil
}

// failed makes the error of a request, whose context is ctx.
func (f *File) failed(ctx context.Context, err error) error {
	if f.parent.Err() == nil && errors.Is(context.Cause(f.ctx), context.Canceled) {
		return fs.ErrClosed // nothing but Close ends the file's context so
	}
	return callError(f.parent, f.op, f.path, context.Cause(ctx), err)
}

func (f *File) dropBody() {
	if f.body != nil {
		_ = f.body.Close()
		f.body = nil
	}
}
