// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
)

// UploadFile is one of several files to upload.
type UploadFile struct {
	// Path is where the file goes.
	Path string
	// Reader has its content.
	Reader io.Reader
}

// UploadFiles writes several files with one request, in their order, which is
// quicker than one upload for each where files are small. Metadata goes to all
// of them. envd stops at the first file that it cannot write: those before it
// are stored, those after it are not. Otherwise it is as [Client.Upload].
//
// Options for UploadFiles are WithMetadata, WithIdleTimeout, WithGzip and
// WithProgress.
func (c *Client) UploadFiles(ctx context.Context, files []UploadFile, opts ...TransferOption) error {
	const op = "upload"
	if len(files) == 0 {
		return nil
	}
	first := files[0].Path
	o, err := newTransferOptions(optsUploadFiles, opts)
	if err != nil {
		return &fs.PathError{Op: op, Path: first, Err: err}
	}
	parts, err := c.newParts(ctx, op, files, o)
	if err != nil {
		return err
	}
	stored, err := c.post(ctx, op, first, url.Values{}, parts, o)
	if err == nil {
		err = stored.check(op, first, len(files), o.metadata)
	}
	if err != nil {
		at := failedPart(parts, err)
		return transferError(op, at.src.path, TransferError{Bytes: at.src.count.Load(), Total: at.src.size,
			Incomplete: mayBeIncomplete(at.src, err), Err: err})
	}
	for _, p := range parts {
		n := p.src.count.Load()
		o.report(Progress{Path: p.src.path, Bytes: n, Total: n, Done: true})
	}
	return nil
}

func (c *Client) newParts(ctx context.Context, op string, files []UploadFile, o *transferOptions) ([]part, error) {
	parts := make([]part, 0, len(files))
	seen := map[string]bool{}
	for _, file := range files {
		err := c.checkUpload(ctx, op, file.Path, o)
		if err == nil && seen[file.Path] {
			err = fmt.Errorf("path is there twice: %w", fs.ErrInvalid)
		}
		if err != nil {
			return nil, transferError(op, file.Path, TransferError{Total: -1, Err: err})
		}
		seen[file.Path] = true
		src, err := newSource(ctx, file.Path, file.Reader, o)
		if err != nil {
			return nil, transferError(op, file.Path, TransferError{Bytes: src.count.Load(), Total: src.size, Err: err})
		}
		parts = append(parts, part{filename: file.Path, src: src})
	}
	return parts, nil
}

// failedPart returns the part that an error is about: the one that the server
// names, or else the first that was not read to its end, or the last.
func failedPart(parts []part, err error) part {
	named := part{}
	for _, p := range parts {
		if len(p.filename) > len(named.filename) && strings.Contains(messageOf(err), p.filename) {
			named = p
		}
	}
	if named.src != nil {
		return named
	}
	for _, p := range parts {
		if !p.src.done.Load() {
			return p
		}
	}
	return parts[len(parts)-1]
}
