// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect/v2"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/internal/envdversion"
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
	// minSize is what the file had before a compressed download, whose end says
	// nothing; 0 where it is not known.
	minSize int64

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
	f := &File{client: c, op: op, path: path, opts: o, parent: ctx, size: -1}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	body, reply, err := f.get(f.ctx, 0, -1)
	if err != nil {
		f.cancel(nil)
		return nil, err
	}
	f.body = body
	f.size = reply.size
	f.version.size = reply.size
	f.version.etag = strongETag(reply.header)
	if at, ok := c.trueModTime(reply.header); ok {
		f.modTime = at
		if longBefore(at, reply.header) {
			f.version.modified = reply.header.Get("Last-Modified")
		}
	}
	return f, nil
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
		return 0, callError(f.parent, f.op, f.path, context.Cause(f.ctx), err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if f.size >= 0 && f.off >= f.size {
			return 0, io.EOF
		}
		n, err := f.readBody(p)
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

// readBody reads from the connection, after making one that stands at the
// position if there is none.
func (f *File) readBody(p []byte) (int, error) {
	if f.body == nil || f.body.off != f.off {
		f.dropBody()
		body, _, err := f.get(f.ctx, f.off, -1)
		if err != nil {
			return 0, err
		}
		f.body = body
	}
	n, err := f.body.Read(p)
	if n > 0 || err == nil {
		return n, nil // the error comes again
	}
	if err == io.EOF && f.size >= 0 && f.off < f.size {
		err = io.ErrUnexpectedEOF
	}
	if err == io.EOF && f.off < f.minSize {
		return 0, fmt.Errorf("%d bytes came of a file of %d: %w", f.off, f.minSize, io.ErrUnexpectedEOF)
	}
	if err == io.EOF {
		return 0, err
	}
	return 0, callError(f.parent, f.op, f.path, context.Cause(f.ctx), err)
}

// enoughProgress is how much must have moved for earlier failures to be
// forgotten.
const enoughProgress = 1 << 20

// afterFailure drops the connection and waits, or returns the error where it
// has to stand.
func (f *File) afterFailure(err error) error {
	f.dropBody()
	if !f.version.known() || f.ctx.Err() != nil || !canRetry(err) {
		return err
	}
	if f.off-f.settled >= enoughProgress {
		f.failures, f.settled = 0, f.off
	}
	if f.failures >= f.opts.retries {
		return err
	}
	f.failures++
	timer := time.NewTimer(min(100*time.Millisecond<<(f.failures-1), 5*time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-f.ctx.Done():
		return callError(f.parent, f.op, f.path, context.Cause(f.ctx), err)
	}
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
		return n, callError(f.parent, f.op, f.path, context.Cause(ctx), cmp.Or(eofIsUnexpected(err), err))
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

func (f *File) dropBody() {
	if f.body != nil {
		_ = f.body.Close()
		f.body = nil
	}
}

// fileBody is the body of one answer, which starts at some byte of the file.
type fileBody struct {
	r     io.Reader
	body  io.Closer
	guard *stallGuard
	off   int64
}

// Read reads under the guard: the time between two reads is the caller's own.
func (b *fileBody) Read(p []byte) (int, error) {
	b.guard.arm()
	n, err := b.r.Read(p)
	b.guard.disarm()
	b.off += int64(n)
	return n, err
}

func (b *fileBody) Close() error {
	b.guard.disarm()
	return b.body.Close()
}

// fileReply is what an answer says about the file.
type fileReply struct {
	header http.Header
	size   int64 // of the whole file, -1 if not known
}

func (f *File) get(ctx context.Context, off, length int64) (*fileBody, fileReply, error) {
	return f.getWith(ctx, f.cancel, off, length)
}

// getWith asks for length bytes from off on, or for all from there if length is
// negative. It is the one place that sends GET /files.
func (f *File) getWith(ctx context.Context, cancel context.CancelCauseFunc, off, length int64) (*fileBody, fileReply, error) {
	ranged := off > 0 || length >= 0
	req, err := f.request(ctx, off, length, ranged)
	if err != nil {
		return nil, fileReply{}, err
	}
	guard := newStallGuard(f.opts.idle, cancel)
	guard.arm()
	resp, err := f.client.plain(req)
	guard.disarm()
	if err != nil {
		if ranged && f.version.size >= 0 && statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
			return nil, fileReply{}, ErrFileChanged
		}
		return nil, fileReply{}, callError(f.parent, f.op, f.path, context.Cause(ctx), err)
	}
	body := &fileBody{r: resp.Body, body: resp.Body, guard: guard, off: off}
	reply := fileReply{header: resp.Header}
	if ranged {
		reply.size, err = f.checkRange(ctx, req, resp, off, length)
	} else {
		reply.size, err = f.checkWhole(req, resp, body)
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, fileReply{}, err
	}
	return body, reply, nil
}

func (f *File) request(ctx context.Context, off, length int64, ranged bool) (*http.Request, error) {
	url := f.client.filesURL(map[string][]string{"path": {f.path}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if !ranged {
		if f.opts.gzip || unseekable(f.path) {
			req.Header.Set("Accept-Encoding", "gzip")
		}
		return req, nil
	}
	if length < 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", off))
	} else {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+length-1))
	}
	if v := cmp.Or(f.version.etag, f.version.modified); v != "" {
		req.Header.Set("If-Range", v)
	}
	return req, nil
}

// unseekable reports whether the path is one whose size is not true. envd reads
// such files properly only when it compresses them.
func unseekable(name string) bool {
	clean := path.Clean(name)
	return strings.HasPrefix(clean, "/proc/") || strings.HasPrefix(clean, "/sys/")
}

// checkWhole examines the answer to a request for the whole file, and returns
// the file's size.
func (f *File) checkWhole(req *http.Request, resp *http.Response, body *fileBody) (int64, error) {
	fail := func(code connect.Code, format string, args ...any) (int64, error) {
		err := connect.NewError(code, fmt.Sprintf(format, args...))
		return -1, toError(f.parent, domainFile, f.op, f.path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fail(connect.CodeInternal, "HTTP %d is no answer to a request for a file", resp.StatusCode)
	}
	if isForeignPage(resp, f.path) {
		failed, _ := readErrorBody(resp)
		return fail(connect.CodeInternal, "%s", f.client.clean(describe(req, resp, failed)))
	}
	switch coding := strings.ToLower(resp.Header.Get("Content-Encoding")); {
	case coding == "" || coding == "identity":
		return resp.ContentLength, nil
	case coding != "gzip" || req.Header.Get("Accept-Encoding") != "gzip":
		return fail(connect.CodeInternal, "answer is coded as %q, which was not asked for", f.client.clean(coding))
	}
	body.guard.arm()
	zr, err := gzip.NewReader(resp.Body)
	body.guard.disarm()
	if err != nil {
		return -1, callError(f.parent, f.op, f.path, context.Cause(f.ctx), err)
	}
	body.r = zr
	return -1, nil
}

// isForeignPage reports whether a success is some proxy's page instead of the
// file: HTML without any of the headers that each envd puts beside a file.
func isForeignPage(resp *http.Response, name string) bool {
	if !strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/html") {
		return false
	}
	for _, header := range []string{"Accept-Ranges", "Last-Modified", "Content-Disposition", "Etag"} {
		if resp.Header.Get(header) != "" {
			return false
		}
	}
	return !strings.HasPrefix(strings.ToLower(path.Ext(name)), ".htm")
}

// checkRange examines the answer to a request for a part, and returns the size
// of the whole.
func (f *File) checkRange(ctx context.Context, req *http.Request, resp *http.Response, off, length int64) (int64, error) {
	fail := func(text string) (int64, error) {
		return -1, toError(f.parent, domainFile, f.op, f.path, connect.NewError(connect.CodeInternal, text))
	}
	if resp.StatusCode == http.StatusOK {
		if req.Header.Get("If-Range") != "" || resp.ContentLength >= 0 && resp.ContentLength != f.version.size {
			return -1, ErrFileChanged
		}
		return -1, fmt.Errorf("server does not send parts of files: %w", errors.ErrUnsupported)
	}
	if resp.StatusCode != http.StatusPartialContent {
		return fail(fmt.Sprintf("HTTP %d is no answer to a request for a part", resp.StatusCode))
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return fail("a part is coded, which was not asked for")
	}
	got, ok := parseContentRange(resp.Header.Get("Content-Range"))
	switch {
	case !ok:
		return fail("answer does not say which part it is")
	case got.size >= 0 && got.size != f.version.size:
		return -1, ErrFileChanged
	case got.start != off || length >= 0 && got.end != off+length-1 || length < 0 && got.end != f.version.size-1:
		return fail(fmt.Sprintf("answer is bytes %d to %d, not the part from %d on that was asked for", got.start, got.end, off))
	case resp.ContentLength >= 0 && resp.ContentLength != got.end-got.start+1:
		return fail("the length of the answer is not that of the part")
	}
	return got.size, f.checkVersion(ctx, resp.Header)
}

// contentRange is a Content-Range header: the first and the last byte, and the
// size of the whole or -1.
type contentRange struct{ start, end, size int64 }

func parseContentRange(value string) (contentRange, bool) {
	var none contentRange
	unit, rest, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(unit, "bytes") {
		return none, false
	}
	span, size, ok1 := strings.Cut(rest, "/")
	start, end, ok2 := strings.Cut(span, "-")
	if !ok1 || !ok2 {
		return none, false
	}
	r := contentRange{size: -1}
	var good [3]bool
	r.start, good[0] = parseCount(start)
	r.end, good[1] = parseCount(end)
	if size != "*" {
		r.size, good[2] = parseCount(size)
	} else {
		good[2] = true
	}
	if good != [3]bool{true, true, true} || r.end < r.start || r.size >= 0 && r.end >= r.size {
		return none, false
	}
	return r, true
}

// parseCount reads a number of digits alone.
func parseCount(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// fileVersion tells one content of a file from another.
type fileVersion struct {
	size int64
	// etag is a strong ETag, which other servers than envd may send.
	etag string
	// modified is the Last-Modified of a file that was not changed in the very
	// second of the request.
	modified string
	// mtime is from Stat, where the headers do not do.
	mtime time.Time
}

// known reports whether a change that leaves the size alone would be seen.
func (v fileVersion) known() bool {
	return v.size >= 0 && (v.etag != "" || v.modified != "" || !v.mtime.IsZero())
}

// remember makes sure that a changed file is noticed. Where the headers do not
// say enough this costs a Stat, which files of up to small bytes are not worth.
func (f *File) remember(small int64) error {
	if f.size <= small || f.version.known() {
		return nil
	}
	at, err := f.client.fileStat(f.ctx, f.path)
	if err != nil {
		// Without it the file can be read all the same, once.
		return callError(f.parent, f.op, f.path, nil, f.ctx.Err())
	}
	if at.size == f.size {
		f.version.mtime = at.modTime
	}
	return nil
}

// checkVersion compares what a later answer says of the file with the first.
func (f *File) checkVersion(ctx context.Context, header http.Header) error {
	v := f.version
	if v.etag != "" && header.Get("Etag") != v.etag {
		return ErrFileChanged
	}
	if v.modified != "" && header.Get("Last-Modified") != v.modified {
		return ErrFileChanged
	}
	if v.mtime.IsZero() {
		return nil
	}
	now, err := f.client.fileStat(ctx, f.path)
	if err != nil {
		return err
	}
	if now.size != v.size || !now.modTime.Equal(v.mtime) {
		return ErrFileChanged
	}
	return nil
}

// trueModTime returns what Last-Modified says where that is the file's time.
// Before envd 0.5.3 it is the time of the request. Where the version is not
// known, Vary tells, which came with the same release.
func (c *Client) trueModTime(header http.Header) (time.Time, bool) {
	at, err := http.ParseTime(header.Get("Last-Modified"))
	if err != nil {
		return time.Time{}, false
	}
	if s := c.knownServer(); s.isKnown() {
		return at, s.has(envdversion.FilesGzip)
	}
	for _, vary := range header.Values("Vary") {
		if strings.Contains(strings.ToLower(vary), "accept-encoding") {
			return at, true
		}
	}
	return time.Time{}, false
}

// longBefore reports whether the time lies so long before the answer that a
// change after it would show another one.
func longBefore(at time.Time, header http.Header) bool {
	date, err := http.ParseTime(header.Get("Date"))
	return err == nil && date.Sub(at) >= 2*time.Second
}

func strongETag(header http.Header) string {
	if tag := header.Get("Etag"); strings.HasPrefix(tag, `"`) {
		return tag
	}
	return ""
}

// fileStatus is what Stat says of a file's content.
type fileStatus struct {
	size    int64
	modTime time.Time
}

// fileStat describes the content behind a path: for a symlink that of the file
// it leads to. Servers that do not tell the time give an error.
func (c *Client) fileStat(ctx context.Context, path string) (fileStatus, error) {
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	resp, err := c.filesystems.Stat(ctx, &filesystempb.StatRequest{Path: path})
	if target := resp.GetEntry().GetSymlinkTarget(); err == nil && target != "" && target != path {
		resp, err = c.filesystems.Stat(ctx, &filesystempb.StatRequest{Path: target})
	}
	if err != nil {
		return fileStatus{}, toError(ctx, domainFile, "stat", path, err)
	}
	entry := resp.GetEntry()
	if entry.GetModifiedTime() == nil {
		return fileStatus{}, &Error{Op: "stat", Target: path, Code: CodeUnimplemented,
			Err: fmt.Errorf("server does not say when the file changed: %w", errors.ErrUnsupported)}
	}
	return fileStatus{size: entry.GetSize(), modTime: entry.GetModifiedTime().AsTime()}, nil
}

// statusOf returns the HTTP status of a failed request, or 0.
func statusOf(err error) int {
	if he, ok := errors.AsType[*HTTPError](err); ok {
		return he.StatusCode
	}
	return 0
}
