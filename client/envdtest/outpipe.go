// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"io"
	"slices"
	"sync"
)

// outputPipe is an output of a command function. Unlike in an [io.Pipe], a
// write returns only when what was read has been dealt with, which shows in
// the reader's coming back: so the order of all writes of a function is that
// of its events.
type outputPipe struct {
	size   int           // of the largest read
	turn   chan struct{} // holds a token while a write goes on
	data   chan []byte
	dealt  chan struct{}
	owes   bool // the reader has not said dealt yet
	once   sync.Once
	closed chan struct{}
}

func newOutputPipe(size int) *outputPipe {
	return &outputPipe{
		size:   size,
		turn:   make(chan struct{}, 1),
		data:   make(chan []byte),
		dealt:  make(chan struct{}),
		closed: make(chan struct{}),
	}
}

// Write implements [io.Writer] for the command function.
func (p *outputPipe) Write(data []byte) (int, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-p.closed:
		return 0, io.ErrClosedPipe
	}
	written := 0
	for written < len(data) {
		// A close lets the writer go, and use data again, while the reader
		// still copies.
		chunk := slices.Clone(data[written:min(written+p.size, len(data))])
		if !p.pass(chunk) {
			return written, io.ErrClosedPipe
		}
		written += len(chunk)
	}
	return written, nil
}

// pass gives a chunk to the reader and waits until it was dealt with.
func (p *outputPipe) pass(chunk []byte) bool {
	select {
	case <-p.closed:
		return false
	default:
	}
	select {
	case p.data <- chunk:
	case <-p.closed:
		return false
	}
	select {
	case <-p.dealt:
		return true
	case <-p.closed:
		return false
	}
}

// Read gives the next chunk, for which the buffer must have room. Only one
// goroutine may read.
func (p *outputPipe) Read(buf []byte) (int, error) {
	if p.owes {
		p.owes = false
		select {
		case p.dealt <- struct{}{}:
		case <-p.closed:
		}
	}
	select {
	case chunk := <-p.data:
		p.owes = true
		return copy(buf, chunk), nil
	case <-p.closed:
		return 0, io.EOF
	}
}

// close ends both sides.
func (p *outputPipe) close() { p.once.Do(func() { close(p.closed) }) }
