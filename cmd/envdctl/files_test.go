// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

func TestProgressLine(t *testing.T) {
	tests := []struct {
		at    client.Progress
		took  time.Duration
		width int
		want  string
	}{
		{client.Progress{Path: "/a/file", Bytes: 1 << 20, Total: 4 << 20}, time.Second, 80, "file  [=====>              ]  25%  1.0 MiB of 4.0 MiB  1.0 MiB/s  3s left"},
		{client.Progress{Path: "/a/file", Total: 4 << 20}, time.Second, 80, "file  [>                   ]   0%  0 B of 4.0 MiB"},
		{client.Progress{Path: "/a/file", Bytes: 1 << 20, Total: 4 << 20}, time.Second, 60, "file  25%  1.0 MiB of 4.0 MiB  1.0 MiB/s  3s left"},
		{client.Progress{Path: "/a/" + strings.Repeat("n", 99), Bytes: 1 << 20, Total: 4 << 20}, time.Second, 80, "nnnnnnnnn…  [=====>              ]  25%"},
		{client.Progress{Path: "/a/" + strings.Repeat("n", 99), Bytes: 1 << 20, Total: 4 << 20}, time.Second, 20, "…  25%"},
		{client.Progress{Path: "/a/file", Bytes: 4 << 20, Total: 4 << 20, Done: true}, 2 * time.Second, 80, "file  [====================] 100%  4.0 MiB of 4.0 MiB  2.0 MiB/s"},
		{client.Progress{Path: "file", Bytes: 512, Total: -1}, time.Second, 80, "file  512 B  512 B/s"},
		{client.Progress{Path: "a\x1b[31m", Total: -1}, time.Second, 80, `a\u001b[31m  0 B`},
	}
	for _, tt := range tests {
		if got := progressLine(tt.at, tt.took, tt.width); !strings.HasPrefix(got, tt.want) {
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

// failingWriter fails once it is told to.
type failingWriter struct {
	syncBuffer
	fail atomic.Bool
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.fail.Load() {
		return 0, io.ErrClosedPipe
	}
	return w.syncBuffer.Write(p)
}

// sync follows what changes here, through trouble with the sandbox, until
// nobody reads what it says.
func TestSync(t *testing.T) {
	srv := envdtest.NewServer()
	defer srv.Close()
	local, remote := t.TempDir(), t.TempDir()
	write := func(name, content string) {
		t.Helper()
		at := filepath.Join(local, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("first", "1")
	write("skipped.log", "-")
	var out failingWriter
	var errOut syncBuffer
	done := make(chan int)
	env := map[string]string{client.EnvURL: srv.URL, client.EnvUser: "root"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	go func() {
		done <- run([]string{"sync", "--delete", "--exclude", "*.log", "--timeout", "60", local, ":" + remote}, strings.NewReader(""), &out, &errOut, lookup)
	}()
	errOut.waitFor(t, "in sync; watching")
	out.waitFor(t, "upload first\n")
	write("sub/deep/second", "2")
	out.waitFor(t, "upload sub/deep/second\n")
	write("sub/deep/third", "3") // in a directory that is new
	out.waitFor(t, "upload sub/deep/third\n")
	if err := os.Remove(filepath.Join(local, "first")); err != nil {
		t.Fatal(err)
	}
	out.waitFor(t, "remove first\n")

	srv.Inject(envdtest.Fault{Procedure: "/filesystem.Filesystem/Stat", Action: envdtest.Cut, Times: 3})
	write("fourth", "4")
	errOut.waitFor(t, "trying again")
	out.waitFor(t, "upload fourth\n")
	for name, want := range map[string]string{"sub/deep/second": "2", "sub/deep/third": "3", "fourth": "4", "first": "", "skipped.log": ""} {
		got, err := os.ReadFile(filepath.Join(remote, name))
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
	out.fail.Store(true)
	write("fifth", "5")
	if code := <-done; code != exitFailure {
		t.Errorf("exit code %d, want %d", code, exitFailure)
	}
}
