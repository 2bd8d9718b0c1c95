// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
)

// localTree makes files below a new directory; a name that ends with a slash is
// a directory.
func localTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(at, 0o755)
		} else if err == nil {
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func copiedPaths(s *client.Summary) string {
	var names []string
	for _, e := range s.Copied {
		if e.Mode.IsRegular() {
			names = append(names, e.Path)
		}
	}
	return strings.Join(names, " ")
}

func TestUploadDirUpdate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are not those of unix")
	}
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		local := localTree(t, map[string]string{"a": "1", "sub/b": "2", "sub/deep/c": "3", "empty/": ""})
		remote := dir + "/tree"
		update := func(want string) *client.Summary {
			t.Helper()
			s, err := c.UploadDir(ctx, local, remote, client.WithUpdate())
			if err != nil {
				t.Fatal(err)
			}
			if got := copiedPaths(s); got != want {
				t.Errorf("uploaded %q, want %q", got, want)
			}
			return s
		}
		update("a sub/b sub/deep/c")
		entry, err := c.Stat(ctx, remote+"/a")
		if err != nil {
			t.Fatal(err)
		}
		if !entry.HasDetails() || entry.ModTime().IsZero() {
			update("a sub/b sub/deep/c") // it does not tell, so all goes up
			return
		}
		if s := update(""); s.Unchanged != 3 {
			t.Errorf("%d unchanged, want 3", s.Unchanged)
		}

		write := func(name, content string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(local, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("sub/b", "longer")
		update("sub/b")
		write("a", "x") // of the same size
		if err := os.Chtimes(filepath.Join(local, "a"), time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		update("a")
		if err := os.Chmod(filepath.Join(local, "sub/deep/c"), 0o600); err != nil {
			t.Fatal(err)
		}
		update("sub/deep/c")
		if got, err := c.ReadFile(ctx, remote+"/a"); err != nil || string(got) != "x" {
			t.Errorf("a holds %q, %v", got, err)
		}
		update("")
	})
}

func TestUploadDirDelete(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		remote := dir + "/tree"
		before := localTree(t, map[string]string{
			"same": "1", "gone": "2", "old/x": "3", "old/y/z": "4", "kept.log": "5", "half/kept.log": "6", "half/gone": "7",
			"file": "8", "dir/in": "9", "logs/one": "10",
		})
		if _, err := c.UploadDir(ctx, before, remote); err != nil {
			t.Fatal(err)
		}
		local := localTree(t, map[string]string{"same": "1", "file/in": "now a directory", "dir": "now a file", "new": "n"})
		opts := []client.TransferOption{client.WithDelete(), client.WithExclude("*.log", "/logs/")}
		want := []string{"dir", "file", "gone", "half/gone", "old"}

		s, err := c.UploadDir(ctx, local, remote, append(opts, client.WithDryRun())...)
		if err != nil || !slices.Equal(s.Removed, want) {
			t.Errorf("dry run removes %v, %v, want %v", s.Removed, err, want)
		}
		if _, err := c.Stat(ctx, remote+"/gone"); err != nil {
			t.Errorf("after a dry run: %v", err)
		}
		s, err = c.UploadDir(ctx, local, remote, opts...)
		if err != nil || !slices.Equal(s.Removed, want) {
			t.Fatalf("removed %v, %v, want %v", s.Removed, err, want)
		}
		var names []string
		for name := range walkNames(t, c, remote) {
			names = append(names, name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != "dir file file/in half half/kept.log kept.log logs logs/one new same" {
			t.Errorf("left is %s", got)
		}
		s, err = c.UploadDir(ctx, local, dir+"/not/there", append(opts, client.WithDryRun())...)
		if err != nil || s.Removed != nil {
			t.Errorf("dry run into nothing: %v, %v", s.Removed, err)
		}
	})
}

// walkNames lists what is below a directory of the sandbox.
func walkNames(t *testing.T, c *client.Client, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := fs.WalkDir(c.FS(t.Context(), dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if name != "." {
			names[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// What could not be read is not taken for gone.
func TestUploadDirDeleteUnreadable(t *testing.T) {
	_, c := embedded(t)
	local := localTree(t, map[string]string{"a": "1", "sub/b": "2"})
	remote := t.TempDir()
	if _, err := c.UploadDir(t.Context(), local, remote); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(local, "a")); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(local, "sub")
	if err := os.Chmod(long, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(long, 0o755) })
	if _, err := os.ReadDir(long); err == nil {
		t.Skip("this user can read everything")
	}
	s, err := c.UploadDir(t.Context(), local, remote, client.WithDelete(), client.WithKeepGoing())
	if err == nil || s.Removed != nil {
		t.Errorf("removed %v, error %v", s.Removed, err)
	}
	if _, err := os.Stat(filepath.Join(remote, "a")); errors.Is(err, fs.ErrNotExist) {
		t.Error("a was removed though a part of the tree could not be read")
	}
}

// A tree below a symlink is compared like any other.
func TestUploadDirUpdateThroughLink(t *testing.T) {
	_, c := embedded(t)
	local := localTree(t, map[string]string{"a": "1", "sub/b": "2"})
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o755), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{0, 2} {
		s, err := c.UploadDir(t.Context(), local, dir+"/link", client.WithUpdate(), client.WithDelete())
		if err != nil || s.Unchanged != want || s.Removed != nil {
			t.Errorf("%+v, %v, want %d unchanged", s, err, want)
		}
	}
}
