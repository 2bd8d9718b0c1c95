// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"

	"github.com/envd-go/envd/client"
)

func TestParseSelector(t *testing.T) {
	tests := []struct {
		text string
		want client.Selector // the zero Selector for an error
	}{
		{"42", client.PID(42)},
		{"4294967295", client.PID(4294967295)},
		{"web", client.Tag("web")},
		{"tag:42", client.Tag("42")},
		{"tag:web", client.Tag("web")},
		{"-1", client.Tag("-1")},
		{"0x10", client.Tag("0x10")},
		{"", client.Selector{}},
		{"0", client.Selector{}},
		{"tag:", client.Selector{}},
		{"4294967296", client.Selector{}},
	}
	for _, tt := range tests {
		got, err := parseSelector(tt.text)
		if got != tt.want || (err != nil) != (tt.want == client.Selector{}) {
			t.Errorf("parseSelector(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
}

func TestDetachReader(t *testing.T) {
	detached := 0
	r := &detachReader{in: strings.NewReader("ls\r\x1dmore"), detach: func() { detached++ }}
	got, err := io.ReadAll(r)
	if string(got) != "ls\r" || err == nil || detached != 1 {
		t.Errorf("read %q, %v, detached %d times", got, err, detached)
	}
}

func TestQuoteCommand(t *testing.T) {
	tests := []struct {
		words []string
		want  string
	}{
		{[]string{"ls", "-l", "/tmp"}, "ls -l /tmp"},
		{[]string{"sh", "-c", "echo $HOME"}, "sh -c 'echo $HOME'"},
		{[]string{"echo", ""}, "echo ''"},
		{[]string{"echo", "it's"}, `echo 'it'\''s'`},
	}
	for _, tt := range tests {
		if got := quoteCommand(tt.words); got != tt.want {
			t.Errorf("quoteCommand(%q) = %s, want %s", tt.words, got, tt.want)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 1<<64 - 1: "16.0 EiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("formatBytes(%d) = %s, want %s", n, got, want)
		}
	}
}
