// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// source is the content of one file on its way up.
type source struct {
	path   string
	r      io.Reader
	size   int64     // -1 if not known
	seeker io.Seeker // to begin anew; nil if that cannot be
	start  int64

	count atomic.Int64 // bytes taken from r
	done  atomic.Bool  // all of it was taken
	mu    sync.Mutex
	err   error // of r
}

// newSource finds out how long the reader is. From one that does not tell, it
// reads a little, so that a short one is known after all and one that fails at
// once touches nothing.
func newSource(ctx context.Context, path string, r io.Reader, o *transferOptions) (*source, error) {
	src := &source{path: path, r: r, size: o.size}
	if r == nil {
		return src, fmt.Errorf("nil reader: %w", fs.ErrInvalid)
	}
	if src.size < 0 {
		src.size = sizeOf(r)
	}
	if seeker, ok := r.(io.Seeker); ok {
		if at, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			src.seeker, src.start = seeker, at
		}
	}
	if src.size < 0 {
		return src, src.peek(ctx, o.idle)
	}
	src.done.Store(src.size == 0)
	return src, nil
}

// sizeOf returns how many bytes are left in r, or -1.
func sizeOf(r io.Reader) int64 {
	switch r := r.(type) {
	case interface{ Len() int }:
		return int64(r.Len())
	case *os.File:
		info, err := r.Stat()
		// Files of size 0 may have content all the same, as in /proc.
		if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return -1
		}
		at, err := r.Seek(0, io.SeekCurrent)
		if err != nil || at > info.Size() {
			return -1
		}
		return info.Size() - at
	case io.Seeker:
		at, err := r.Seek(0, io.SeekCurrent)
		if err != nil {
			return -1
		}
		end, err := r.Seek(0, io.SeekEnd)
		if _, back := r.Seek(at, io.SeekStart); err != nil || back != nil || end < at {
			return -1
		}
		return end - at
	}
	return -1
}

// peekSize is how much is read ahead of a reader of unknown length.
const peekSize = 64 << 10

// peek reads ahead. The reader may block for ever, hence the goroutine.
func (s *source) peek(parent context.Context, idle time.Duration) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	guard := newStallGuard(idle, cancel, nil)
	guard.arm()
	defer guard.disarm()
	type result struct {
		head []byte
		err  error
	}
	results := make(chan result, 1)
	go func() {
		head, err := io.ReadAll(io.LimitReader(touching{s.r, guard}, peekSize))
		results <- result{head, err}
	}()
	select {
	case got := <-results:
		if got.err != nil {
			s.count.Store(int64(len(got.head)))
			return got.err
		}
		s.unread(got.head)
		return nil
	case <-ctx.Done():
		return callError(parent, "read", "what to upload", context.Cause(ctx), ctx.Err())
	}
}

// unread puts back what was read ahead.
func (s *source) unread(head []byte) {
	if len(head) == peekSize {
		s.r = io.MultiReader(bytes.NewReader(head), s.r)
		return
	}
	whole := bytes.NewReader(head)
	s.r, s.seeker, s.start, s.size = whole, whole, 0, int64(len(head))
	s.done.Store(s.size == 0)
}

// touching tells a guard of each read.
type touching struct {
	r     io.Reader
	guard *stallGuard
}

func (t touching) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.guard.touch()
	return n, err
}

// Read gives the next bytes, never more than the size.
func (s *source) Read(p []byte) (int, error) {
	count := s.count.Load()
	if s.size >= 0 {
		if count == s.size {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), s.size-count)]
	}
	n, err := s.r.Read(p)
	count = s.count.Add(int64(n))
	if err == io.EOF && s.size >= 0 && count < s.size {
		err = fmt.Errorf("reader ended after %d of %d bytes: %w", count, s.size, io.ErrUnexpectedEOF)
	}
	if err == io.EOF || count == s.size {
		s.done.Store(true)
		return n, err
	}
	if err != nil {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

func (s *source) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// rewind goes back to the first byte, where the reader can.
func (s *source) rewind() bool {
	if s.seeker == nil {
		return false
	}
	r, ok := s.seeker.(io.Reader)
	if !ok {
		return false
	}
	if _, err := s.seeker.Seek(s.start, io.SeekStart); err != nil {
		return false
	}
	s.r = r
	s.count.Store(0)
	s.done.Store(s.size == 0)
	return true
}

// at returns the reader as one that can be read at any place, or nil.
func (s *source) at() io.ReaderAt {
	at, ok := s.r.(io.ReaderAt)
	if !ok || s.seeker == nil {
		return nil
	}
	if file, ok := s.r.(fs.File); ok {
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			return nil
		}
	}
	return at
}
