// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"io"
	"sync"
)

// rangeSize is how much of a file each request of a parallel download asks for.
// Smaller ones cost more round trips, larger ones more memory: for each stream
// two are held at most.
const rangeSize = 1 << 20

// wantsRanges reports whether the file is to be fetched by several requests for
// its parts. What is compressed, or has no true size, has no parts.
func (f *File) wantsRanges() bool {
	return f.opts.streams > 1 && !f.opts.gzip && !unseekable(f.path)
}

// copyRanges writes the file to w, of which the first range is on its way. The
// ranges come by several requests at a time and are written in order.
func (f *File) copyRanges(w io.Writer, moved *int64) error {
	ctx, cancel := context.WithCancelCause(f.ctx)
	own := *f.opts
	own.moved = &clock{}
	f.opts = &own
	streams := int(min(int64(own.streams), (f.size+f.client.config.rangeSize-1)/f.client.config.rangeSize))
	r := &rangeCopy{
		file:    f,
		ctx:     ctx,
		work:    make(chan *fileRange),
		ordered: make(chan *fileRange, 2*streams),
		buffers: make(chan []byte, 2*streams),
	}
	for range cap(r.buffers) {
		r.buffers <- nil // made when it is needed
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(context.Canceled)
	running.Go(r.cut)
	for range streams {
		running.Go(r.fetch)
	}
	return r.write(w, moved)
}

// rangeCopy is a parallel download under way.
type rangeCopy struct {
	file    *File
	ctx     context.Context
	work    chan *fileRange // to be fetched
	ordered chan *fileRange // the same, in the order in which they are written
	buffers chan []byte     // that are free: they bound how far fetching is ahead
}

// fileRange is a part of a file.
type fileRange struct {
	section *File
	buf     []byte
	fetched chan struct{}
	err     error // once fetched
}

// cut hands out the parts, as buffers become free.
func (r *rangeCopy) cut() {
	defer close(r.ordered)
	defer close(r.work)
	size := r.file.client.config.rangeSize
	for off := int64(0); off < r.file.size; off += size {
		part := &fileRange{fetched: make(chan struct{})}
		select {
		case part.buf = <-r.buffers:
		case <-r.ctx.Done():
			return
		}
		end := min(off+size, r.file.size)
		if cap(part.buf) == 0 {
			part.buf = make([]byte, end-off)
		}
		part.buf = part.buf[:end-off]
		part.section = r.file.section(r.ctx, off, end)
		r.ordered <- part // has as much room as there are buffers
		select {
		case r.work <- part:
		case <-r.ctx.Done():
			_ = part.section.Close()
			part.err = r.file.failed(r.ctx, r.ctx.Err())
			close(part.fetched)
			return
		}
	}
}

func (r *rangeCopy) fetch() {
	for part := range r.work {
		part.err = part.section.fill(part.buf)
		_ = part.section.Close()
		close(part.fetched)
	}
}

// write writes the parts as they become complete.
func (r *rangeCopy) write(w io.Writer, moved *int64) error {
	for part := range r.ordered {
		<-part.fetched
		if part.err != nil {
			return part.err
		}
		if err := writeAll(w, part.buf, moved); err != nil {
			return err
		}
		r.buffers <- part.buf
		r.file.opts.report(Progress{Path: r.file.path, Bytes: *moved, Total: r.file.size})
	}
	if *moved < r.file.size {
		return r.file.failed(r.ctx, r.ctx.Err()) // before the next part was cut
	}
	return nil
}

// section is the file from off to end, with requests of its own. The first one
// takes the connection that the file was opened with.
func (f *File) section(ctx context.Context, off, end int64) *File {
	s := &File{
		client: f.client, op: f.op, path: f.path, opts: f.opts, parent: f.parent,
		size: f.size, version: f.version, off: off, settled: off, end: end,
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	if off == 0 {
		s.body, f.body = f.body, nil
	}
	return s
}

// fill reads the section whole. What breaks is taken up again.
func (f *File) fill(buf []byte) error {
	for len(buf) > 0 {
		n, err := f.read(buf)
		if err != nil {
			return f.failed(f.ctx, cmp.Or(eofIsUnexpected(err), err))
		}
		buf = buf[n:]
	}
	return nil
}
