// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
)

// restartable is the size up to which a download is not worth a Stat to be
// taken up again: where it breaks, what came already is fetched once more and
// compared.
const restartable = 4 << 20

// ReadFile returns the content of the file. It takes at most as much as a
// message may have ([WithMaxMessageBytes], 64 MiB unless set) or as
// [WithMaxBytes] says, and fails with [ErrFileTooLarge] beyond; for larger
// files there are [Client.Download] and [Client.Open]. A path that does not
// exist is [fs.ErrNotExist]; a directory matches syscall.EISDIR.
//
// Options for ReadFile are WithMaxBytes, WithIdleTimeout, WithRetries,
// WithGzip, WithParallel and WithProgress.
func (c *Client) ReadFile(ctx context.Context, path string, opts ...TransferOption) ([]byte, error) {
	const op = "read"
	o, err := newTransferOptions(optsRead, opts)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: path, Err: err}
	}
	if o.maxBytes == 0 {
		o.maxBytes = int64(c.config.maxMessage)
	}
	var b bytes.Buffer
	if err := c.download(ctx, op, path, &b, o); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Download writes the content of the file to w as it comes, in constant
// memory. Nothing but the context and [WithIdleTimeout] limits its time; a slow
// w slows the sandbox down. A connection that breaks is replaced and the
// download taken up where it was, if the file is the same still; see
// [WithRetries]. An error is a [*fs.PathError] around a [*TransferError] that
// says how many bytes w has got. A path that does not exist is
// [fs.ErrNotExist]; a directory matches syscall.EISDIR.
//
// Options for Download are WithProgress, WithIdleTimeout, WithRetries,
// WithMaxBytes, WithParallel and WithGzip.
func (c *Client) Download(ctx context.Context, path string, w io.Writer, opts ...TransferOption) error {
	const op = "download"
	o, err := newTransferOptions(optsRead, opts)
	if err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return c.download(ctx, op, path, w, o)
}

func (c *Client) download(ctx context.Context, op, path string, w io.Writer, o *transferOptions) error {
	moved := TransferError{Total: -1}
	fail := func(err error) error {
		moved.Err = err
		return transferError(op, path, moved)
	}
	var before fileStatus
	if o.gzip && !unseekable(path) {
		// A compressed answer ends well even where envd could not read on.
		before, _ = c.fileStat(ctx, path)
	}
	f, err := c.open(ctx, op, path, o)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	if f.size < 0 {
		f.minSize = before.size
	}
	if err := f.remember(f.worthStat()); err != nil {
		return fail(err)
	}
	if !f.version.known() && f.opts.retries > 0 && f.size <= restartable {
		f.came = &prefix{}
	}
	moved.Total = f.size
	if o.maxBytes > 0 && f.size > o.maxBytes {
		return fail(tooLarge(o.maxBytes))
	}
	if b, ok := w.(*bytes.Buffer); ok && f.size > 0 && o.maxBytes > 0 {
		b.Grow(int(f.size) + bytes.MinRead)
	}
	if err := f.copyAll(w, &moved.Bytes); err != nil {
		return fail(err)
	}
	f.opts.report(Progress{Path: path, Bytes: moved.Bytes, Total: moved.Bytes, Done: true})
	return nil
}

func tooLarge(limit int64) error { return fmt.Errorf("%w of %d bytes", ErrFileTooLarge, limit) }

// copyBuffer is how much is moved at a time. It is what a transfer needs of
// memory.
const copyBuffer = 64 << 10

// worthStat returns up to which size a file is not worth one.
func (f *File) worthStat() int64 {
	if f.partial {
		return f.client.config.rangeSize
	}
	return restartable
}

// copyAll writes the file to w as it was asked for.
func (f *File) copyAll(w io.Writer, moved *int64) error {
	switch {
	case !f.wantsRanges() || f.size <= f.client.config.rangeSize:
	case f.partial && f.version.known():
		return f.copyRanges(w, moved)
	case f.partial:
		f.dropBody() // parts of it could be those of different files
	}
	return f.copyTo(w, moved)
}

// copyTo writes what is left of the file to w, and adds what was written to
// moved.
func (f *File) copyTo(w io.Writer, moved *int64) error {
	buf := make([]byte, copyBuffer)
	for {
		n, err := f.read(buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if limit := f.opts.maxBytes; limit > 0 && *moved+int64(n) > limit {
			return tooLarge(limit)
		}
		if err := writeAll(w, buf[:n], moved); err != nil {
			return err
		}
		f.opts.report(Progress{Path: f.path, Bytes: *moved, Total: f.size})
	}
}

func writeAll(w io.Writer, p []byte, moved *int64) error {
	n, err := w.Write(p)
	*moved += int64(max(n, 0))
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

func (o *transferOptions) report(p Progress) {
	if o.progress != nil {
		o.progress(p)
	}
}
