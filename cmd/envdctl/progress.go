// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/envd-go/envd/client"
)

// progressInterval is how often the line is drawn anew.
const progressInterval = 100 * time.Millisecond

// progress is a line on the terminal that shows how far a transfer came. Where
// standard error is no terminal it shows nothing.
type progress struct {
	messages *messages
	shown    bool
	last     time.Time
	file     string
	started  time.Time
}

func (a *app) newProgress(quiet bool) *progress {
	file, ok := a.messages.w.(*os.File)
	if quiet || !ok || !term.IsTerminal(int(file.Fd())) {
		return &progress{}
	}
	return &progress{messages: a.messages}
}

// report draws the line for one file.
func (p *progress) report(at client.Progress) {
	if p.messages == nil {
		return
	}
	now := time.Now()
	if at.Path != p.file {
		p.file, p.started = at.Path, now
	}
	if now.Sub(p.last) < progressInterval && !at.Done {
		return
	}
	p.last, p.shown = now, true
	fmt.Fprint(p.messages, "\r\x1b[K"+progressLine(at, now.Sub(p.started)))
}

// progressLine is what is known of a transfer after some time.
func progressLine(at client.Progress, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s", printable(path.Base(at.Path)), formatBytes(uint64(at.Bytes)))
	if at.Total > 0 {
		fmt.Fprintf(&b, " of %s, %d%%", formatBytes(uint64(at.Total)), at.Bytes*100/at.Total)
	}
	rate := float64(at.Bytes) / max(took.Seconds(), 0.001)
	if at.Bytes > 0 {
		fmt.Fprintf(&b, "  %s/s", formatBytes(uint64(rate)))
	}
	if left := at.Total - at.Bytes; at.Total > 0 && left > 0 && rate > 0 {
		fmt.Fprintf(&b, "  %v left", time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second))
	}
	return b.String()
}

// done leaves the line.
func (p *progress) done() {
	if p.shown {
		fmt.Fprintln(p.messages)
	}
}
