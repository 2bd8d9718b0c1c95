// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdversion

import (
	"errors"
	"io"
	"testing"
)

func TestSplitStream(t *testing.T) {
	const message, end = "\x00\x00\x00\x00\x02{}", "\x02\x00\x00\x00\x02{}"
	tests := []struct {
		name   string
		body   string
		frames int
		whole  bool
	}{
		{"end alone", end, 1, true},
		{"message and end", message + end, 2, true},
		{"what follows the end", end + message, 1, true},
		{"nothing", "", 0, false},
		{"no end", message, 1, false},
		{"half a head", message + "\x00\x00", 1, false},
		{"half a message", message + "\x00\x00\x00\x00\x09{", 1, false},
		{"a huge length", "\x00\xff\xff\xff\xff{}", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			frames, err := SplitStream([]byte(tt.body))
			if len(frames) != tt.frames || (err == nil) != tt.whole {
				t.Errorf("%d frames, %v", len(frames), err)
			}
			if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func FuzzSplitStream(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02{}\x02\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		total := 0
		frames, _ := SplitStream(body)
		for _, frame := range frames {
			total += 5 + len(frame)
		}
		if total > len(body) {
			t.Errorf("%d bytes came out of %d", total, len(body))
		}
	})
}
