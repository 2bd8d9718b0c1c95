// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"time"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/internal/envdversion"
)

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
		return f.failed(f.ctx, f.ctx.Err())
	}
	if at.size != f.size {
		return nil
	}
	f.version.mtime = at.modTime
	if !f.unchangedSince(at.modTime) {
		// What Stat saw may have come after what was opened: open what it saw.
		f.dropBody()
	}
	return nil
}

// unchangedSince reports whether the file that was opened is certainly the one
// that was last changed at that time: long enough before the answer, and at the
// time that the answer gave.
func (f *File) unchangedSince(at time.Time) bool {
	return at.Before(f.answered) && (f.modTime.IsZero() || f.modTime.Equal(at.Truncate(time.Second)))
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

// prefix tells the beginning of one content of a file from that of another, by
// its checksum. A changed file of the same size passes for the same once in 2³²
// times.
type prefix struct{ sum uint32 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *prefix) add(b []byte) {
	if p != nil {
		p.sum = crc32.Update(p.sum, castagnoli, b)
	}
}

// skip reads what was read of the file before, and makes sure that it is the
// same.
func (f *File) skip(body *fileBody) error {
	var again prefix
	buf := make([]byte, copyBuffer)
	for body.off < f.off {
		n, err := body.Read(buf[:min(int64(len(buf)), f.off-body.off)])
		again.add(buf[:n])
		if err != nil && body.off < f.off {
			return f.failed(f.ctx, cmp.Or(eofIsUnexpected(err), err))
		}
	}
	if again.sum != f.came.sum {
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
