// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/envd-go/envd/client"
)

// fakeEntry is an entry as a server sends it.
type fakeEntry map[string]any

func fakeFileEntry(name string) fakeEntry {
	return fakeEntry{"name": name, "type": "FILE_TYPE_FILE", "path": "/r/" + name, "permissions": "-rw-r--r--", "mode": 420, "size": "4"}
}

func fakeDirEntry(name string) fakeEntry {
	return fakeEntry{"name": name, "type": "FILE_TYPE_DIRECTORY", "path": "/r/" + name, "permissions": "drwxr-xr-x", "mode": 493}
}

func fakeLinkEntry(name, typ, target string) fakeEntry {
	return fakeEntry{"name": name, "type": typ, "path": "/r/" + name, "permissions": "Lrwxrwxrwx", "mode": 420, "symlinkTarget": target}
}

// serveTree is a sandbox with the listings, by path. Every file has the content
// "evil".
func serveTree(t *testing.T, list func(path string) []fakeEntry) *client.Client {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/files" {
			w.Header().Set("Accept-Ranges", "bytes")
			_, _ = io.WriteString(w, "evil")
			return
		}
		var req struct{ Path string }
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		var reply any
		switch r.URL.Path {
		case "/filesystem.Filesystem/Stat":
			reply = map[string]any{"entry": fakeEntry{"name": "r", "type": "FILE_TYPE_DIRECTORY", "path": req.Path}}
		case "/filesystem.Filesystem/ListDir":
			reply = map[string]any{"entries": list(cmp.Or(strings.TrimSuffix(req.Path, "/"), "/"))}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(reply)
	}, client.WithJSON())
}

// No name that a sandbox sends leads out of the directory.
func TestDownloadDirHostileNames(t *testing.T) {
	bad := []string{"", ".", "..", "/etc/passwd", "../escape", "a/b", "nul\x00", "/"}
	if filepath.Separator == '\\' {
		bad = append(bad, `..\escape`, `C:\x`, "CON", "a:b")
	}
	outside := t.TempDir()
	local := filepath.Join(outside, "local")
	c := serveTree(t, func(path string) []fakeEntry {
		if path != "/r" {
			t.Errorf("the client asked for %q", path)
		}
		entries := []fakeEntry{fakeFileEntry("good")}
		for _, name := range bad {
			entries = append(entries, fakeFileEntry(name), fakeDirEntry(name), fakeLinkEntry(name, "FILE_TYPE_FILE", "/r/good"))
		}
		return entries
	})
	for _, mode := range []client.SymlinkMode{client.SymlinkSkip, client.SymlinkFollow, client.SymlinkCopy} {
		s, err := c.DownloadDir(t.Context(), "/r", local, client.WithKeepGoing(), client.WithSymlinks(mode))
		if n := len(pathErrors(err)); n != 3*len(bad) {
			t.Errorf("%d errors, want %d: %v", n, 3*len(bad), err)
		}
		if s.Files != 1 || s.Dirs != 0 || s.Links != 0 {
			t.Errorf("DownloadDir = %+v", s)
		}
		checkTree(t, "downloaded", readTree(t, outside), map[string]string{"local/good": "evil"})
	}
}

// Symlinks that lead out are neither made nor followed, and those that are here
// already do not lead anything out.
func TestDownloadDirHostileLinks(t *testing.T) {
	outside := t.TempDir()
	for _, name := range []string{"elsewhere/dir/kept", "elsewhere/file"} {
		p := filepath.Join(outside, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte("mine"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	local := filepath.Join(outside, "local")
	if err := os.MkdirAll(filepath.Join(local, "deep", "er"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"dir": "../elsewhere/dir", "file": "../elsewhere/file", "up": ".", "deep/er/root": "../.."} {
		if err := os.Symlink(target, filepath.Join(local, name)); err != nil {
			t.Skipf("no symlinks here: %v", err)
		}
	}
	c := serveTree(t, func(path string) []fakeEntry {
		switch path {
		case "/r":
			return []fakeEntry{
				fakeDirEntry("dir"), fakeFileEntry("file"), fakeDirEntry("deep"),
				fakeLinkEntry("l1", "FILE_TYPE_FILE", "/etc/passwd"),
				fakeLinkEntry("l2", "FILE_TYPE_FILE", "/r/../etc/passwd"),
				fakeLinkEntry("l3", "FILE_TYPE_FILE", "/rest"),
				fakeLinkEntry("l4", "FILE_TYPE_FILE", "relative"),
			}
		case "/r/dir":
			return []fakeEntry{fakeFileEntry("kept"), fakeFileEntry("planted")}
		case "/r/deep":
			return []fakeEntry{fakeDirEntry("er")}
		case "/r/deep/er":
			return []fakeEntry{fakeDirEntry("root")}
		case "/r/deep/er/root":
			// Through the symlink that is here, this would lead two levels too
			// high.
			return []fakeEntry{fakeLinkEntry("escape", "FILE_TYPE_FILE", "/r/file")}
		}
		return nil
	})
	s, err := c.DownloadDir(t.Context(), "/r", local, client.WithKeepGoing(), client.WithSymlinks(client.SymlinkCopy))
	if want := []string{"l1", "l2", "l3", "l4"}; !slices.Equal(skippedPaths(s), want) {
		t.Errorf("skipped %v, want %v", skippedPaths(s), want)
	}
	var failed []string
	for _, pe := range pathErrors(err) {
		failed = append(failed, filepath.ToSlash(strings.TrimPrefix(pe.Path, local)))
	}
	slices.Sort(failed)
	if want := []string{"/deep/er/root/escape", "/dir", "/dir/kept", "/dir/planted"}; !slices.Equal(failed, want) {
		t.Errorf("failed for %q, want %q: %v", failed, want, err)
	}
	got := readTree(t, filepath.Join(outside, "elsewhere"))
	checkTree(t, "elsewhere", got, map[string]string{"dir/kept": "mine", "file": "mine"})
	if data, err := os.ReadFile(filepath.Join(local, "file")); err != nil || string(data) != "evil" {
		t.Errorf("a symlink in the place of a file became %q, %v, want the file", data, err)
	}
}

// A tree without an end comes to one.
func TestDownloadDirEndless(t *testing.T) {
	listed := atomic.Int32{}
	c := serveTree(t, func(path string) []fakeEntry {
		listed.Add(1)
		return []fakeEntry{fakeDirEntry(strings.Repeat("d", 200))}
	})
	_, err := c.DownloadDir(t.Context(), "/r", filepath.Join(t.TempDir(), "x"), client.WithDryRun())
	if !errors.Is(err, syscall.ENAMETOOLONG) || listed.Load() > 25 {
		t.Errorf("DownloadDir = %v after %d listings, want ENAMETOOLONG", err, listed.Load())
	}
}

// Following symlinks that lead in circles ends.
func TestDownloadDirCircle(t *testing.T) {
	c := serveTree(t, func(path string) []fakeEntry {
		switch path {
		case "/r":
			return []fakeEntry{fakeDirEntry("a"), fakeDirEntry("b")}
		case "/r/a", "/r/b/to-a":
			return []fakeEntry{fakeLinkEntry("to-b", "FILE_TYPE_DIRECTORY", "/r/b")}
		case "/r/b", "/r/a/to-b":
			return []fakeEntry{fakeLinkEntry("to-a", "FILE_TYPE_DIRECTORY", "/r/a"), fakeLinkEntry("to-root", "FILE_TYPE_DIRECTORY", "/r")}
		}
		t.Errorf("the client asked for %q", path)
		return nil
	})
	s, err := c.DownloadDir(t.Context(), "/r", t.TempDir(), client.WithSymlinks(client.SymlinkFollow))
	if err != nil || s.Dirs != 4 {
		t.Errorf("DownloadDir = %+v, %v, want 4 directories", s, err)
	}
}

func TestDownloadDirTwice(t *testing.T) {
	c := serveTree(t, func(string) []fakeEntry { return []fakeEntry{fakeFileEntry("a"), fakeFileEntry("a")} })
	if _, err := c.DownloadDir(t.Context(), "/r", t.TempDir()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("DownloadDir = %v, want fs.ErrExist", err)
	}
}

// Names are not printed raw.
func TestDownloadDirControls(t *testing.T) {
	name := "\x1b]0;owned\a"
	c := serveTree(t, func(path string) []fakeEntry {
		if path == "/r" {
			return []fakeEntry{fakeDirEntry(name)}
		}
		return []fakeEntry{fakeFileEntry("..")}
	})
	_, err := c.DownloadDir(t.Context(), "/r", t.TempDir())
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\a") || !strings.Contains(err.Error(), `\x1b]0;owned\x07`) {
		t.Errorf("DownloadDir = %q", err)
	}
}

// The first failure stops the rest, and is the only one that is reported.
func TestDownloadDirStops(t *testing.T) {
	var started atomic.Int32
	entries := make([]string, 100)
	for i := range entries {
		entries[i] = fmt.Sprintf("f%02d", i)
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/files":
			if started.Add(1) > 10 {
				http.Error(w, "no more", http.StatusInternalServerError)
				return
			}
			w.Header().Set("Accept-Ranges", "bytes")
			_, _ = io.WriteString(w, "ok")
		case "/filesystem.Filesystem/Stat":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"entry":{"name":"r","type":"FILE_TYPE_DIRECTORY","path":"/r"}}`)
		default:
			var list []fakeEntry
			for _, name := range entries {
				list = append(list, fakeFileEntry(name))
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"entries": list})
		}
	}, client.WithJSON())
	s, err := c.DownloadDir(t.Context(), "/r", t.TempDir(), client.WithParallel(1))
	if s.Files != 10 || len(pathErrors(err)) != 1 || started.Load() != 11 {
		t.Errorf("DownloadDir copied %d, asked %d times: %v", s.Files, started.Load(), err)
	}
	started.Store(0)
	s, err = c.DownloadDir(t.Context(), "/r", t.TempDir(), client.WithKeepGoing())
	if s.Files != 10 || len(pathErrors(err)) != 90 {
		t.Errorf("DownloadDir copied %d and failed for %d", s.Files, len(pathErrors(err)))
	}
}

// The end of the context ends everything, and leaves nothing half done.
func TestTreeCancel(t *testing.T) {
	started := make(chan struct{}, 100)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/files" && r.Method == http.MethodGet:
			w.Header().Set("Accept-Ranges", "bytes")
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.Write(make([]byte, 100_000))
			w.(http.Flusher).Flush()
			started <- struct{}{}
			<-r.Context().Done()
		case r.URL.Path == "/files":
			started <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		case r.URL.Path == "/filesystem.Filesystem/ListDir":
			_ = json.NewEncoder(w).Encode(map[string]any{"entries": []fakeEntry{fakeFileEntry("a"), fakeFileEntry("b"), fakeFileEntry("c")}})
		default:
			_, _ = io.WriteString(w, `{"entry":{"name":"r","type":"FILE_TYPE_DIRECTORY","path":"/r"}}`)
		}
	}, client.WithJSON())
	src := makeTree(t, map[string]string{"a": "1", "b": "2", "c": "3"})
	dst := t.TempDir()
	for name, run := range map[string]func(context.Context) (*client.Summary, error){
		"UploadDir":   func(ctx context.Context) (*client.Summary, error) { return c.UploadDir(ctx, src, "/r") },
		"DownloadDir": func(ctx context.Context) (*client.Summary, error) { return c.DownloadDir(ctx, "/r", dst) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-started
			<-started
			cancel()
		}()
		s, err := run(ctx)
		if !errors.Is(err, context.Canceled) || s == nil || s.Files != 0 {
			t.Errorf("%s = %+v, %v, want context.Canceled", name, s, err)
		}
		cancel()
		for len(started) > 0 {
			<-started
		}
	}
	checkTree(t, "what is left", readTree(t, dst), map[string]string{})
}
