// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"unicode/utf8"
)

// Small files go up together, many in one request: each request costs a round
// trip, and envd a good part of a millisecond.
const (
	smallFile       = 64 << 10
	maxBatchFiles   = 100
	maxBatchContent = 1 << 20
)

// errNotSmall says that a file has grown since the walk.
var errNotSmall = errors.New("file is not small any more")

// batch returns how many of the next files go up with one request.
func (u *uploader) batch(items []treeItem) int {
	if u.opts.atomic {
		return 1 // each goes to a name of its own first
	}
	n, size := 0, int64(0)
	for n < len(items) && n < maxBatchFiles {
		item := items[n]
		size += item.size
		if item.size > smallFile || size > maxBatchContent || !plainName(item.rel) {
			break
		}
		n++
	}
	return max(n, 1)
}

// plainName reports whether a name is the same to every server that reads it as
// the file name of a part.
func plainName(name string) bool {
	return utf8.ValidString(name) && escapeControls(name) == name
}

func (u *uploader) files(ctx context.Context, items []treeItem, done func(treeItem, error)) {
	batch := len(items) > 1 && !u.single.Load()
	if batch && u.together(ctx, items, done) {
		return
	}
	failed := false
	for _, item := range items {
		if ctx.Err() != nil {
			return
		}
		n, err := u.file(ctx, item)
		failed = failed || err != nil
		item.size = n
		done(item, err)
	}
	if batch && !failed {
		u.single.Store(true) // it was the server that does not do it
	}
}

// together uploads files with one request. It reports false when that failed:
// which of them is to blame, and what became of the others, shows when each is
// uploaded by itself, which does no harm to those that are stored.
func (u *uploader) together(ctx context.Context, items []treeItem, done func(treeItem, error)) bool {
	own := *u.opts
	parts := make([]part, len(items))
	for i, item := range items {
		data, err := u.readSmall(item)
		if err != nil {
			return false
		}
		name := joinPath(u.remote, item.rel)
		src, err := newSource(ctx, name, bytes.NewReader(data), &own)
		if err != nil {
			return false
		}
		parts[i] = part{filename: name, src: src}
	}
	stored, err := u.client.post(ctx, opUploadDir, u.remote, url.Values{}, parts, &own)
	if err == nil {
		err = stored.check(opUploadDir, u.remote, len(parts), own.metadata)
	}
	if err != nil || !stored.at(parts) {
		return false
	}
	for i, item := range items {
		item.size = parts[i].src.count.Load()
		u.opts.report(Progress{Path: parts[i].src.path, Bytes: item.size, Total: item.size, Done: true})
		done(item, nil)
	}
	return true
}

// at reports whether the files are where the parts belong. A server that is
// careless with the file names of parts may have put them elsewhere.
func (s storedFiles) at(parts []part) bool {
	stored := map[string]bool{}
	for _, file := range s {
		stored[file.Path] = true
	}
	for _, p := range parts {
		if !stored[path.Clean(p.filename)] {
			return false
		}
	}
	return true
}

func (u *uploader) readSmall(item treeItem) ([]byte, error) {
	f, err := u.root.Open(filepath.FromSlash(item.rel))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, smallFile+1))
	if err == nil && len(data) > smallFile {
		err = errNotSmall
	}
	return data, err
}
