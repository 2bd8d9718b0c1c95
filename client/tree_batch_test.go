// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// smallFiles is a tree of n files of some bytes each, ten in a directory.
func smallFiles(n int) map[string]string {
	tree := map[string]string{}
	for i := range n {
		tree[fmt.Sprintf("d%d/f%d", i/10, i)] = fmt.Sprintf("content of %d", i)
	}
	return tree
}

func TestUploadDirTogether(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		tree := smallFiles(130)
		tree["large"] = strings.Repeat("x", 200_000)
		tree["empty"] = ""
		var mu sync.Mutex
		finished := map[string]int64{}
		summary, err := c.UploadDir(t.Context(), makeTree(t, tree), dir+"/up", client.WithProgress(func(p client.Progress) {
			mu.Lock()
			defer mu.Unlock()
			if p.Done {
				finished[p.Path] = p.Bytes
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		if summary.Files != len(tree) || len(finished) != len(tree) || finished[dir+"/up/large"] != 200_000 {
			t.Errorf("%d files copied and %d finished, want %d", summary.Files, len(finished), len(tree))
		}
		back := t.TempDir()
		if _, err := c.DownloadDir(t.Context(), dir+"/up", back); err != nil {
			t.Fatal(err)
		}
		checkTree(t, "downloaded", readTree(t, back), tree)
	})
}

// uploadsTo counts the requests that store files.
func uploadsTo(srv *envdtest.Server) int {
	n := 0
	for _, r := range srv.Requests() {
		if r.Method == http.MethodPost && r.Path == "/files" {
			n++
		}
	}
	return n
}

func TestUploadDirRequests(t *testing.T) {
	tests := []struct {
		name string
		tree map[string]string
		opts []client.TransferOption
		want int
	}{
		{"small ones together", smallFiles(250), nil, 3},
		{"atomic ones each", smallFiles(20), []client.TransferOption{client.WithAtomic()}, 20},
		{"large ones each", map[string]string{"a": strings.Repeat("a", 70_000), "b": strings.Repeat("b", 70_000)}, nil, 2},
		{"no more than a megabyte", map[string]string{"a": strings.Repeat("a", 60_000)}, nil, 1},
		{"strange names each", map[string]string{"a\nb": "1", "c\nd": "2", "e": "3", "f": "4"}, nil, 3},
	}
	for i := range 40 {
		tests[3].tree[fmt.Sprint(i)] = strings.Repeat("x", 60_000)
	}
	tests[3].want = 3
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := envdtest.NewServer()
			defer srv.Close()
			c := dial(t, srv.URL, client.WithUser("user"))
			if _, err := c.UploadDir(t.Context(), makeTree(t, tt.tree), scratch(t), tt.opts...); err != nil {
				t.Fatal(err)
			}
			if got := uploadsTo(srv); got != tt.want {
				t.Errorf("%d requests, want %d", got, tt.want)
			}
		})
	}
}

// scratch is a directory of an embedded envd that goes with the test.
func scratch(t *testing.T) string {
	t.Helper()
	dir := fmt.Sprintf("/tmp/envd-go-batch-%d", time.Now().UnixNano())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A file that cannot be stored is named, and those beside it are stored.
func TestUploadDirOneOfManyFails(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		if err := c.MkdirAll(t.Context(), dir+"/up/d0/f7"); err != nil {
			t.Fatal(err)
		}
		tree := smallFiles(30)
		summary, err := c.UploadDir(t.Context(), makeTree(t, tree), dir+"/up", client.WithKeepGoing())
		var pe *fs.PathError
		if !errors.As(err, &pe) || pe.Path != dir+"/up/d0/f7" || !errors.Is(err, syscall.EISDIR) {
			t.Errorf("UploadDir = %v, want EISDIR of d0/f7", err)
		}
		if summary.Files != 29 {
			t.Errorf("%d files copied, want 29", summary.Files)
		}
		for _, name := range []string{"d0/f6", "d0/f8", "d2/f29"} {
			if got, err := c.ReadFile(t.Context(), dir+"/up/"+name); err != nil || string(got) != tree[name] {
				t.Errorf("%s = %q, %v", name, got, err)
			}
		}
	})
}

// Servers that do not keep the directories in file names of parts, or refuse
// several parts, get the files one by one.
func TestUploadDirServerWithoutBatches(t *testing.T) {
	tests := []struct {
		name string
		wrap func(http.Handler) http.Handler
	}{
		{"names cut", func(next http.Handler) http.Handler {
			dirs := regexp.MustCompile(`filename="(/tmp/envd-go-batch-[^/"]*)?/[^"]*/`)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/files" && r.Method == http.MethodPost && !r.URL.Query().Has("path") {
					body, _ := io.ReadAll(r.Body)
					body = dirs.ReplaceAll(body, []byte(`filename="$1/`))
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				}
				next.ServeHTTP(w, r)
			})
		}},
		{"refused", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/files" && r.Method == http.MethodPost && !r.URL.Query().Has("path") {
					http.Error(w, `{"code":400,"message":"path is missing"}`, http.StatusBadRequest)
					return
				}
				next.ServeHTTP(w, r)
			})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := envdtest.NewUnstartedServer()
			defer srv.Close()
			web := httptest.NewServer(tt.wrap(srv.Handler()))
			defer web.Close()
			c := dial(t, web.URL, client.WithUser("user"))
			tree, dir := smallFiles(300), scratch(t)
			summary, err := c.UploadDir(t.Context(), makeTree(t, tree), dir+"/in/up", client.WithParallel(1))
			if err != nil || summary.Files != 300 {
				t.Fatalf("UploadDir = %d files, %v", summary.Files, err)
			}
			back := t.TempDir()
			if _, err := c.DownloadDir(t.Context(), dir+"/in/up", back); err != nil {
				t.Fatal(err)
			}
			checkTree(t, "downloaded", readTree(t, back), tree)
			if got := uploadsTo(srv); got > 301 {
				t.Errorf("%d uploads, want the batches to end after the first", got)
			}
		})
	}
}

// A file that grew since the walk, or went, does not spoil those beside it.
func TestUploadDirChanging(t *testing.T) {
	srv := envdtest.NewServer()
	defer srv.Close()
	c := dial(t, srv.URL, client.WithUser("user"))
	local, dir := makeTree(t, smallFiles(120)), scratch(t)
	var once sync.Once
	_, err := c.UploadDir(t.Context(), local, dir, client.WithParallel(1), client.WithKeepGoing(), client.WithProgress(func(p client.Progress) {
		once.Do(func() { // while the first batch goes up
			if err := os.WriteFile(filepath.Join(local, "d9/f99"), bytes.Repeat([]byte("g"), 100_000), 0o644); err != nil {
				t.Error(err)
			}
			if err := os.Remove(filepath.Join(local, "d9/f98")); err != nil {
				t.Error(err)
			}
		})
	}))
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), "\n") != 0 {
		t.Errorf("UploadDir = %v, want that one file does not exist", err)
	}
	if got, err := c.ReadFile(t.Context(), dir+"/d9/f99"); err != nil || len(got) != 100_000 {
		t.Errorf("the file that grew has %d bytes, %v", len(got), err)
	}
}
