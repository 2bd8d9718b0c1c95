// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode"
)

// messages is the standard error for what envdctl itself says. Lines stay lines
// while the terminal is in raw mode.
type messages struct {
	mu  sync.Mutex
	w   io.Writer
	raw bool
}

func (m *messages) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := p
	if m.raw {
		text = bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))
	}
	if _, err := m.w.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// printf writes one line with envdctl's name in front. A standard error that
// is closed is nobody's loss.
func (m *messages) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(m, "envdctl: "+format+"\n", args...)
}

func (m *messages) setRaw(raw bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raw = raw
}

// isUnprintable reports whether the character can steer a terminal, or hide or
// turn around the text next to it.
func isUnprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}
