// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"errors"
	"io"
	"sync"
)

// pipeCapacity is how much a pipe of Linux holds.
const pipeCapacity = 64 << 10

// errBrokenPipe has the text that a real pipe's error has.
var errBrokenPipe = errors.New("write |1: broken pipe")

// inputPipe is the standard input of a command function: it holds as much as a
// real pipe, and a write blocks when it is full.
type inputPipe struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    []byte
	eof     bool // nothing more will be written
	broken  bool // nothing more will be read
}

func newInputPipe() *inputPipe {
	p := &inputPipe{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// write returns when the pipe has taken all data. What comes after the end of
// the input is dropped.
func (p *inputPipe) write(data []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(data) > 0 {
		for len(p.data) >= pipeCapacity && !p.broken && !p.eof {
			p.changed.Wait()
		}
		if p.broken {
			return errBrokenPipe
		}
		if p.eof {
			return nil
		}
		n := min(len(data), pipeCapacity-len(p.data))
		p.data = append(p.data, data[:n]...)
		data = data[n:]
		p.changed.Broadcast()
	}
	return nil
}

// Read implements [io.Reader] for the command function.
func (p *inputPipe) Read(buf []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) == 0 {
		if p.eof || p.broken {
			return 0, io.EOF
		}
		p.changed.Wait()
	}
	n := copy(buf, p.data)
	p.data = p.data[n:]
	p.changed.Broadcast()
	return n, nil
}

func (p *inputPipe) closeWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eof = true
	p.changed.Broadcast()
}

func (p *inputPipe) closeRead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	p.changed.Broadcast()
}
