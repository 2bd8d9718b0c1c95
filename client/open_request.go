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
	"net/http"
	"path"
	"strings"

	"connectrpc.com/connect/v2"
)

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
	b.guard.touch()
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
	// partial says that the body is a part of it.
	partial bool
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
	guard := newStallGuard(f.opts.idle, cancel, f.opts.moved)
	guard.arm()
	resp, err := f.client.plain(req)
	guard.disarm()
	if err != nil {
		if ranged && f.version.size >= 0 && statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
			return nil, fileReply{}, ErrFileChanged
		}
		return nil, fileReply{}, f.failed(ctx, err)
	}
	body := &fileBody{r: resp.Body, body: resp.Body, guard: guard, off: off}
	reply := fileReply{header: resp.Header}
	// A server need not send a part: the first request may be answered whole.
	whole := f.version.size < 0 && off == 0 && resp.StatusCode == http.StatusOK
	if reply.partial = ranged && !whole; reply.partial {
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
		return -1, f.failed(f.ctx, err)
	}
	body.r = zr
	return -1, nil
}

// isForeignPage reports whether a success is some proxy's page instead of the
// file: HTML, or nothing at all, without any of the headers that each envd puts
// beside a file.
func isForeignPage(resp *http.Response, name string) bool {
	empty := resp.ContentLength == 0 && resp.Header.Get("Content-Type") == ""
	if !isPage(resp) && !empty {
		return false
	}
	for _, header := range []string{"Accept-Ranges", "Last-Modified", "Content-Disposition", "Etag"} {
		if resp.Header.Get(header) != "" {
			return false
		}
	}
	return empty || !strings.HasPrefix(strings.ToLower(path.Ext(name)), ".htm")
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
	size := f.version.size
	if size < 0 {
		size = got.size // the first answer tells it
	}
	end := size
	if length >= 0 && (size < 0 || off+length < size) {
		end = off + length
	}
	switch {
	case !ok:
		return fail("answer does not say which part it is")
	case got.size >= 0 && got.size != size:
		return -1, ErrFileChanged
	case got.start != off || got.end != end-1:
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
