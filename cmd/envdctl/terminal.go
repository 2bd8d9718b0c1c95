// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/envd-go/envd/client"
)

// terminal is the terminal that envdctl itself runs in. It is read only once it
// is in raw mode.
type terminal struct {
	file     *os.File
	messages *messages
	raw      chan struct{} // closed when raw mode is on, or cannot be
	last     client.Size   // what the command was told
}

func openTerminal(in io.Reader, m *messages) (*terminal, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, errors.New("standard input is not a terminal, so -t cannot be used; use -i to send it to the command")
	}
	t := &terminal{file: file, messages: m, raw: make(chan struct{})}
	t.last = t.size()
	return t, nil
}

func (t *terminal) Read(p []byte) (int, error) {
	<-t.raw
	return t.file.Read(p)
}

// size is the terminal's size, or the usual one where it has none.
func (t *terminal) size() client.Size {
	cols, rows, err := term.GetSize(int(t.file.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return client.Size{Cols: 80, Rows: 24}
	}
	return client.Size{Cols: uint32(cols), Rows: uint32(rows)}
}

// attach hands the terminal over to the command until stop is called, which
// leaves it as it was.
func (t *terminal) attach(p *client.Process) (stop func(), err error) {
	defer close(t.raw)
	ctx, cancel := context.WithCancel(context.Background())
	changed := watchTerminal(ctx) // first, so that nothing is missed
	fd := int(t.file.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return cancel, fmt.Errorf("putting the terminal into raw mode: %w", err)
	}
	t.messages.setRaw(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.follow(ctx, p, changed)
	}()
	return func() {
		cancel()
		<-done
		t.messages.setRaw(false)
		_ = term.Restore(fd, before)
	}, nil
}

// follow passes on the terminal's size, which may have changed while the
// command was starting. A resize that fails is not worth a word: the command
// has ended, or the next one may work.
func (t *terminal) follow(ctx context.Context, p *client.Process, changed <-chan os.Signal) {
	for {
		if now := t.size(); now != t.last {
			t.last = now
			_ = p.Resize(ctx, now)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			// A shell takes the terminal out of raw mode when it stops a job.
			_, _ = term.MakeRaw(int(t.file.Fd()))
		}
	}
}
