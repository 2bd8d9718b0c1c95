// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

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
	fmt.Fprint(p.messages, "\r\x1b[K"+progressLine(at, now.Sub(p.started), p.width()))
}

// width is how many characters a line of the terminal has.
func (p *progress) width() int {
	if file, ok := p.messages.w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

const (
	barWidth = 20
	// minName is how much of a name is shown where there is no room for it.
	minName = 8
)

// progressLine is what is known of a transfer after some time, in one line of
// the terminal: where there is no room the name is cut, and then the bar left
// out.
func progressLine(at client.Progress, took time.Duration, width int) string {
	var b strings.Builder
	if at.Total > 0 {
		fmt.Fprintf(&b, " %3d%%  %s of %s", at.Bytes*100/at.Total, formatBytes(uint64(at.Bytes)), formatBytes(uint64(at.Total)))
	} else {
		fmt.Fprintf(&b, "  %s", formatBytes(uint64(at.Bytes)))
	}
	rate := float64(at.Bytes) / max(took.Seconds(), 0.001)
	if at.Bytes > 0 {
		fmt.Fprintf(&b, "  %s/s", formatBytes(uint64(rate)))
	}
	if left := at.Total - at.Bytes; at.Total > 0 && left > 0 && rate > 0 {
		fmt.Fprintf(&b, "  %v left", time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second))
	}
	name, rest := []rune(printable(path.Base(at.Path))), b.String()
	room := width - 1 - utf8.RuneCountInString(rest) // some terminals wrap at the last column
	if at.Total > 0 && room >= min(len(name), minName)+barWidth+4 {
		rest = "  " + bar(at) + rest
		room -= barWidth + 4
	}
	if len(name) > max(room, 1) {
		name = append(name[:max(room, 1)-1], '…')
	}
	return string(name) + rest
}

// bar shows the part of a transfer that is done.
func bar(at client.Progress) string {
	done := int(min(at.Bytes, at.Total) * barWidth / at.Total)
	text := strings.Repeat("=", done)
	if done < barWidth {
		text += ">" + strings.Repeat(" ", barWidth-done-1)
	}
	return "[" + text + "]"
}

// done leaves the line.
func (p *progress) done() {
	if p.shown {
		fmt.Fprintln(p.messages)
	}
}
