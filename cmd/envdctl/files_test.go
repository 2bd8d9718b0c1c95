// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

func TestProgressLine(t *testing.T) {
	tests := []struct {
		at   client.Progress
		took time.Duration
		want string
	}{
		{client.Progress{Path: "/a/file", Bytes: 1 << 20, Total: 4 << 20}, time.Second, "file  1.0 MiB of 4.0 MiB, 25%  1.0 MiB/s  3s left"},
		{client.Progress{Path: "/a/file", Bytes: 4 << 20, Total: 4 << 20, Done: true}, 2 * time.Second, "file  4.0 MiB of 4.0 MiB, 100%  2.0 MiB/s"},
		{client.Progress{Path: "file", Bytes: 512, Total: -1}, time.Second, "file  512 B  512 B/s"},
		{client.Progress{Path: "a\x1b[31m", Total: -1}, time.Second, `a\u001b[31m  0 B`},
	}
	for _, tt := range tests {
		if got := progressLine(tt.at, tt.took); got != tt.want {
			t.Errorf("progressLine(%+v) = %q, want %q", tt.at, got, tt.want)
		}
	}
}

// syncBuffer is a buffer for a program that runs meanwhile.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	for range 500 {
		s.mu.Lock()
		found := strings.Contains(s.b.String(), text)
		s.mu.Unlock()
		if found {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%q did not come: %s", text, s.b.String())
}

// watch shows changes and runs a command for them.
func TestWatch(t *testing.T) {
	srv := envdtest.NewServer()
	defer srv.Close()
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"lines", nil, "create "},
		{"JSON", []string{"--json"}, `"op":"create"`},
		{"polling", []string{"--poll", "0.02"}, "create "},
		{"exec", []string{"--exec", `echo "got $ENVD_EVENT $ENVD_PATH"`}, "got create "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			var out, errOut syncBuffer
			done := make(chan int)
			env := map[string]string{client.EnvURL: srv.URL, client.EnvUser: "root"}
			lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
			go func() {
				done <- run(append([]string{"watch", dir, "--timeout", "10"}, tt.args...), strings.NewReader(""), &out, &errOut, lookup)
			}()
			errOut.waitFor(t, "watching")
			if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			out.waitFor(t, tt.want)
			out.waitFor(t, filepath.Join(dir, "new"))
			// A watched directory that is removed ends the watch with an error.
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if code := <-done; code != exitFailure {
				t.Errorf("exit code %d, want %d", code, exitFailure)
			}
		})
	}
}
