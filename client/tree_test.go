// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
)

// makeTree makes local files. A value that begins with "-> " is a symlink, a
// name that ends with a slash a directory.
func makeTree(t *testing.T, tree map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		p := filepath.Join(root, name)
		dir := filepath.Dir(p)
		if strings.HasSuffix(name, "/") {
			dir = p
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, isLink := strings.CutPrefix(tree[name], "-> "); {
		case strings.HasSuffix(name, "/"):
		case isLink:
			err = os.Symlink(target, p)
		default:
			err = os.WriteFile(p, []byte(tree[name]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// readTree is the opposite of makeTree.
func readTree(t *testing.T, root string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		switch {
		case d.IsDir():
			entries, err := os.ReadDir(p)
			if err == nil && len(entries) == 0 {
				tree[rel+"/"] = ""
			}
			return err
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			tree[rel] = "-> " + target
			return err
		}
		data, err := os.ReadFile(p)
		tree[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func checkTree(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s: %q is missing", what, name)
		} else if got[name] != want[name] {
			t.Errorf("%s: %q = %q, want %q", what, name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q is there, with %q", what, name, got[name])
		}
	}
}

func skippedPaths(s *client.Summary) []string {
	var paths []string
	for _, skipped := range s.Skipped {
		paths = append(paths, skipped.Path)
	}
	return paths
}

func TestTreeRoundTrip(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		tree := map[string]string{
			"a.txt":                           "a",
			"empty":                           "",
			"empty dir/":                      "",
			"sub/b.txt":                       strings.Repeat("b", 100_000),
			"sub/deep/er/c":                   "c",
			"name with\nnewline/x\ty":         "strange",
			"ünï/" + `quo"te\back`:            "quoted",
			"sub/" + strings.Repeat("n", 250): "long",
		}
		local := makeTree(t, tree)
		up, err := c.UploadDir(t.Context(), local, dir+"/up")
		if err != nil {
			t.Fatalf("UploadDir: %v", err)
		}
		if up.Files != 7 || up.Dirs != 6 || up.Links != 0 || up.Bytes != 100_019 || len(up.Copied) != 13 || len(up.Skipped) != 0 {
			t.Errorf("UploadDir = %+v", up)
		}
		back := filepath.Join(t.TempDir(), "new", "back")
		down, err := c.DownloadDir(t.Context(), dir+"/up", back)
		if err != nil {
			t.Fatalf("DownloadDir: %v", err)
		}
		checkTree(t, "downloaded", readTree(t, back), tree)
		if down.Files != up.Files || down.Dirs != up.Dirs || down.Bytes != up.Bytes {
			t.Errorf("DownloadDir = %+v, want as UploadDir = %+v", down, up)
		}
		// Again, over what is there.
		if _, err := c.UploadDir(t.Context(), local, dir+"/up", client.WithAtomic()); err != nil {
			t.Errorf("UploadDir again: %v", err)
		}
		if _, err := c.DownloadDir(t.Context(), dir+"/up/", back); err != nil {
			t.Errorf("DownloadDir again: %v", err)
		}
		checkTree(t, "downloaded again", readTree(t, back), tree)
	})
}

func TestTreePatterns(t *testing.T) {
	tree := map[string]string{
		"a.go": "1", "a.pyc": "2", "src/b.go": "3", "src/x/c.go": "4", "src/x/c.pyc": "5",
		"node_modules/m.go": "6", "src/node_modules/n.go": "7", "build": "8", "src/build": "9", "empty/": "",
	}
	tests := []struct {
		name string
		opts []client.TransferOption
		want []string
	}{
		{"all", nil, slices.Collect(maps.Keys(tree))},
		{"exclude a name anywhere", []client.TransferOption{client.WithExclude("*.pyc", "node_modules/")},
			[]string{"a.go", "src/b.go", "src/x/c.go", "build", "src/build", "empty/"}},
		{"exclude from the root", []client.TransferOption{client.WithExclude("/build", "src/**", "node_modules")},
			[]string{"a.go", "a.pyc", "src/", "empty/"}},
		{"include", []client.TransferOption{client.WithInclude("*.go")},
			[]string{"a.go", "src/b.go", "src/x/c.go", "node_modules/m.go", "src/node_modules/n.go"}},
		{"include a directory", []client.TransferOption{client.WithInclude("src/x", "empty")},
			[]string{"src/x/c.go", "src/x/c.pyc", "empty/"}},
		{"include, exclude wins", []client.TransferOption{client.WithInclude("src/**/*.go"), client.WithExclude("node_modules")},
			[]string{"src/b.go", "src/x/c.go"}},
	}
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		local := makeTree(t, tree)
		if _, err := c.UploadDir(t.Context(), local, dir+"/all"); err != nil {
			t.Fatal(err)
		}
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				remote := fmt.Sprintf("%s/up%d", dir, i)
				if _, err := c.UploadDir(t.Context(), local, remote, tt.opts...); err != nil {
					t.Fatal(err)
				}
				want := map[string]string{}
				for _, name := range tt.want {
					want[name] = tree[name]
				}
				back := t.TempDir()
				if _, err := c.DownloadDir(t.Context(), remote, back); err != nil {
					t.Fatal(err)
				}
				checkTree(t, "filtered on the way up", readTree(t, back), want)
				back = t.TempDir()
				if _, err := c.DownloadDir(t.Context(), dir+"/all", back, tt.opts...); err != nil {
					t.Fatal(err)
				}
				checkTree(t, "filtered on the way down", readTree(t, back), want)
			})
		}
	})
}

func TestTreeDryRun(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		local := makeTree(t, map[string]string{"a": "1", "d/b": "22", "link": "-> a"})
		s, err := c.UploadDir(t.Context(), local, dir+"/up", client.WithDryRun())
		if err != nil || s.Files != 2 || s.Dirs != 1 || s.Bytes != 3 || !slices.Equal(skippedPaths(s), []string{"link"}) {
			t.Errorf("UploadDir = %+v, %v", s, err)
		}
		if _, err := c.DownloadDir(t.Context(), dir+"/up", t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after a dry run, DownloadDir = %v, want fs.ErrNotExist", err)
		}
		if _, err := c.UploadDir(t.Context(), local, dir+"/up"); err != nil {
			t.Fatal(err)
		}
		back := filepath.Join(t.TempDir(), "back")
		s, err = c.DownloadDir(t.Context(), dir+"/up", back, client.WithDryRun())
		if err != nil || s.Files != 2 || s.Dirs != 1 {
			t.Errorf("DownloadDir = %+v, %v", s, err)
		}
		if _, err := os.Lstat(back); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a dry run made the local directory: %v", err)
		}
	})
}

func TestTreeSymlinks(t *testing.T) {
	tree := map[string]string{
		"file": "content", "dir/inner": "inner", "to-file": "-> file", "dir/to-file": "-> ../file", "to-dir": "-> dir",
		"dir/to-root": "-> ..", "broken": "-> nowhere", "outside": "-> /etc/hostname", "dir/outside": "-> ../../x",
	}
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		local := makeTree(t, tree)
		upload := func(name string, mode client.SymlinkMode) *client.Summary {
			s, err := c.UploadDir(t.Context(), local, dir+"/"+name, client.WithSymlinks(mode))
			if err != nil {
				t.Fatalf("UploadDir %s: %v", name, err)
			}
			return s
		}
		links := []string{"broken", "dir/outside", "dir/to-file", "dir/to-root", "outside", "to-dir", "to-file"}
		if s := upload("skip", client.SymlinkSkip); !slices.Equal(skippedPaths(s), links) || s.Files != 2 {
			t.Errorf("UploadDir, skipping = %+v", s)
		}
		s := upload("follow", client.SymlinkFollow)
		if want := []string{"broken", "dir/outside", "dir/to-root", "outside", "to-dir/outside", "to-dir/to-root"}; !slices.Equal(skippedPaths(s), want) {
			t.Errorf("UploadDir, following, skipped %v, want %v", skippedPaths(s), want)
		}
		back := t.TempDir()
		if _, err := c.DownloadDir(t.Context(), dir+"/follow", back); err != nil {
			t.Fatal(err)
		}
		followed := map[string]string{"file": "content", "to-file": "content", "dir/inner": "inner", "dir/to-file": "content",
			"to-dir/inner": "inner", "to-dir/to-file": "content"}
		checkTree(t, "followed on the way up", readTree(t, back), followed)

		if s := upload("copy", client.SymlinkCopy); s.Links != len(links) {
			t.Errorf("UploadDir, copying = %+v, want %d links", s, len(links))
		}
		if !tellsLinks(t, c, dir+"/copy/to-file") {
			t.Skip("this envd does not tell symlinks from files")
		}
		download := func(mode client.SymlinkMode) (map[string]string, *client.Summary) {
			back := t.TempDir()
			s, err := c.DownloadDir(t.Context(), dir+"/copy", back, client.WithSymlinks(mode))
			if err != nil {
				t.Fatalf("DownloadDir: %v", err)
			}
			return readTree(t, back), s
		}
		got, s := download(client.SymlinkSkip)
		checkTree(t, "skipped on the way down", got, map[string]string{"file": "content", "dir/inner": "inner"})
		if !slices.Equal(skippedPaths(s), links) {
			t.Errorf("DownloadDir, skipping, skipped %v", skippedPaths(s))
		}
		got, _ = download(client.SymlinkFollow)
		checkTree(t, "followed on the way down", got, followed)
		got, s = download(client.SymlinkCopy)
		checkTree(t, "copied on the way down", got, map[string]string{"file": "content", "dir/inner": "inner", "to-file": "-> file",
			"dir/to-file": "-> ../file", "to-dir": "-> dir", "dir/to-root": "-> .."})
		if want := []string{"broken", "dir/outside", "outside"}; !slices.Equal(skippedPaths(s), want) {
			t.Errorf("DownloadDir, copying, skipped %v, want %v", skippedPaths(s), want)
		}
		// A link replaces a link, never a directory.
		upload("copy", client.SymlinkCopy)
		if _, err := c.UploadDir(t.Context(), makeTree(t, map[string]string{"dir": "-> file", "to-dir": "-> file"}), dir+"/copy",
			client.WithSymlinks(client.SymlinkCopy), client.WithKeepGoing()); err == nil || strings.Contains(err.Error(), "to-dir") {
			t.Errorf("UploadDir of a link over a directory: %v", err)
		}
	})
}

// tellsLinks reports whether the server shows that the path is a symlink.
func tellsLinks(t *testing.T, c *client.Client, path string) bool {
	t.Helper()
	resp, err := c.FilesystemService().Stat(t.Context(), statRequest(path))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetEntry().GetSymlinkTarget() != ""
}

func TestTreePreserve(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		local := makeTree(t, map[string]string{"run.sh": "#!/bin/sh\n", "secret": "x", "dir/ro": "y", "with space/'q'": "z"})
		when := time.Date(2020, 2, 3, 4, 5, 6, 700_000_000, time.UTC)
		modes := map[string]fs.FileMode{"run.sh": 0o755, "secret": 0o600, "dir/ro": 0o444, "with space/'q'": 0o640, "dir": 0o750}
		for name, mode := range modes {
			p := filepath.Join(local, name)
			if err := errors.Join(os.Chmod(p, mode), os.Chtimes(p, when, when)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.UploadDir(t.Context(), local, dir+"/up", client.WithPreserve()); err != nil {
			t.Fatalf("UploadDir: %v", err)
		}
		back := t.TempDir()
		if _, err := c.DownloadDir(t.Context(), dir+"/up", back, client.WithPreserve()); err != nil {
			t.Fatalf("DownloadDir: %v", err)
		}
		resp, err := c.FilesystemService().Stat(t.Context(), statRequest(dir+"/up/run.sh"))
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetEntry().GetPermissions() == "" {
			t.Skip("this envd tells neither modes nor times")
		}
		for name, mode := range modes {
			info, err := os.Stat(filepath.Join(back, name))
			if err != nil {
				t.Error(err)
				continue
			}
			if info.Mode().Perm() != mode {
				t.Errorf("%s has mode %v, want %v", name, info.Mode().Perm(), mode)
			}
			if !info.IsDir() && info.ModTime().Sub(when).Abs() >= time.Second {
				t.Errorf("%s has time %v, want %v", name, info.ModTime(), when)
			}
		}
	})
}

func TestTreeFailures(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		local := makeTree(t, map[string]string{"a": "1", "b/x": "2", "c/y": "3", "d": "4", "e": "5"})
		// What is in the way in the sandbox: files for directories and the
		// other way round.
		for _, p := range []string{"a/in-the-way", "c", "d/in-the-way"} {
			if err := c.WriteFile(t.Context(), dir+"/up/"+p, nil); err != nil {
				t.Fatal(err)
			}
		}
		s, err := c.UploadDir(t.Context(), local, dir+"/up", client.WithKeepGoing())
		var got []string
		for _, pe := range pathErrors(err) {
			got = append(got, strings.TrimPrefix(pe.Path, dir+"/up/"))
		}
		if want := []string{"a", "c", "c/y", "d"}; !slices.Equal(got, want) {
			t.Errorf("UploadDir failed for %q, want %q: %v", got, want, err)
		}
		if !errors.Is(err, syscall.EISDIR) || !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("UploadDir = %v, want EISDIR and ENOTDIR in it", err)
		}
		if s.Files != 2 {
			t.Errorf("UploadDir = %+v, want 2 files", s)
		}
		s, err = c.UploadDir(t.Context(), local, dir+"/up", client.WithParallel(1))
		if len(pathErrors(err)) != 1 || s.Files > 1 {
			t.Errorf("UploadDir that stops = %+v, %v", s, err)
		}

		back := makeTree(t, map[string]string{"a": "old", "b": "in the way", "e/in-the-way": ""})
		_, err = c.DownloadDir(t.Context(), dir+"/up", back, client.WithKeepGoing())
		got = nil
		for _, pe := range pathErrors(err) {
			got = append(got, strings.TrimPrefix(pe.Path, back+"/"))
		}
		slices.Sort(got)
		if want := []string{"a", "a/in-the-way", "b", "b/x", "e"}; !slices.Equal(got, want) {
			t.Errorf("DownloadDir failed for %q, want %q: %v", got, want, err)
		}
		for _, name := range []string{dir + "/up/e", dir + "/missing"} {
			if _, err := c.DownloadDir(t.Context(), name, t.TempDir()); len(pathErrors(err)) != 1 {
				t.Errorf("DownloadDir(%s) = %v", name, err)
			}
		}
		if _, err := c.UploadDir(t.Context(), filepath.Join(local, "a"), dir+"/n"); err == nil {
			t.Error("UploadDir of a file succeeded")
		}
		if _, err := c.UploadDir(t.Context(), local, dir+"/up/e"); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("UploadDir onto a file = %v, want ENOTDIR", err)
		}
		leftovers(t, c, dir, back)
	})
}

// leftovers checks that no temporary file stayed.
func leftovers(t *testing.T, c *client.Client, remote, local string) {
	t.Helper()
	s, err := c.DownloadDir(t.Context(), remote, t.TempDir(), client.WithDryRun(), client.WithInclude(".envd-*"))
	if err != nil || s.Files > 0 {
		t.Errorf("temporary files were left in the sandbox: %+v, %v", s, err)
	}
	for name := range readTree(t, local) {
		if strings.Contains(name, ".envd-") {
			t.Errorf("temporary file %s was left", name)
		}
	}
}

// pathErrors returns the errors that err joins.
func pathErrors(err error) []*fs.PathError {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*fs.PathError
		for _, err := range joined.Unwrap() {
			all = append(all, pathErrors(err)...)
		}
		return all
	}
	if pe, ok := err.(*fs.PathError); ok {
		return []*fs.PathError{pe}
	}
	return nil
}

// The root of a tree may be a symlink.
func TestTreeOfSymlink(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		local := makeTree(t, map[string]string{"real/a/file": "x", "real/b": "-> a", "link": "-> real"})
		if _, err := c.UploadDir(t.Context(), local, dir, client.WithSymlinks(client.SymlinkCopy)); err != nil {
			t.Fatal(err)
		}
		back := t.TempDir()
		if _, err := c.DownloadDir(t.Context(), dir+"/link", back, client.WithSymlinks(client.SymlinkCopy)); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a/file": "x"}
		if tellsLinks(t, c, dir+"/link") {
			want["b"] = "-> a"
		}
		checkTree(t, "downloaded", readTree(t, back), want)
		if _, err := c.UploadDir(t.Context(), makeTree(t, map[string]string{"new": "y"}), dir+"/link"); err != nil {
			t.Fatal(err)
		}
		if got, err := c.ReadFile(t.Context(), dir+"/real/new"); err != nil || string(got) != "y" {
			t.Errorf("ReadFile = %q, %v", got, err)
		}
	})
}

// Random trees go up, are listed as they are, and come back the same.
func TestTreeRandom(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		r := rand.New(rand.NewPCG(1, 2))
		for round := range 5 {
			tree := randomTree(r)
			local := makeTree(t, tree)
			modes := randomModes(t, r, local, tree)
			remote := fmt.Sprintf("%s/%d", dir, round)
			opts := []client.TransferOption{client.WithParallel(1 + r.IntN(8)), client.WithSymlinks(client.SymlinkCopy), client.WithPreserve()}
			up, err := c.UploadDir(t.Context(), local, remote, opts...)
			if err != nil {
				t.Fatalf("round %d: UploadDir: %v", round, err)
			}
			details := checkListed(t, c, remote, up)
			if !details {
				// Such a daemon shows no links, and follows them.
				for name, content := range tree {
					if strings.HasPrefix(content, "-> ") {
						dropLink(tree, name)
						opts = append(opts, client.WithExclude("/"+escapePattern(name)))
					}
				}
			}
			back := t.TempDir()
			if _, err := c.DownloadDir(t.Context(), remote, back, opts...); err != nil {
				t.Fatalf("round %d: DownloadDir: %v", round, err)
			}
			checkTree(t, fmt.Sprint("round ", round), readTree(t, back), tree)
			for name, want := range modes {
				info, err := os.Stat(filepath.Join(back, name))
				if details && (err != nil || info.Mode().Perm() != want) {
					t.Errorf("round %d: %q has mode %v, %v, want %v", round, name, info.Mode().Perm(), err, want)
				}
			}
		}
	})
}

// checkListed compares a listing with the summary of the upload. It reports
// whether the daemon tells more than names.
func checkListed(t *testing.T, c *client.Client, remote string, s *client.Summary) bool {
	t.Helper()
	listed, err := c.List(t.Context(), remote, client.Depth(100))
	if err != nil {
		t.Fatal(err)
	}
	details := true
	got := map[string]bool{}
	for _, e := range listed {
		got[strings.TrimPrefix(e.Path(), remote+"/")] = e.IsDir()
		details = details && e.HasDetails()
	}
	for _, e := range s.Copied {
		isDir, ok := got[e.Path]
		if !ok || isDir != e.Mode.IsDir() {
			t.Errorf("%q was copied as %v, and is listed: %v, as a directory: %v", e.Path, e.Mode, ok, isDir)
		}
		delete(got, e.Path)
	}
	if len(got) > 0 {
		t.Errorf("listed, but not copied: %q", slices.Collect(maps.Keys(got)))
	}
	return details
}

// dropLink takes a link out of a tree, and leaves its directory there.
func dropLink(tree map[string]string, name string) {
	delete(tree, name)
	dir := filepath.Dir(name)
	if dir == "." {
		return
	}
	for other := range tree {
		if strings.HasPrefix(other, dir+"/") {
			return
		}
	}
	tree[dir+"/"] = ""
}

func escapePattern(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}

func randomModes(t *testing.T, r *rand.Rand, root string, tree map[string]string) map[string]fs.FileMode {
	t.Helper()
	choice := []fs.FileMode{0o600, 0o644, 0o755, 0o440, 0o400}
	modes := map[string]fs.FileMode{}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if strings.HasPrefix(tree[name], "-> ") || strings.HasSuffix(name, "/") {
			continue
		}
		modes[name] = choice[r.IntN(len(choice))]
		if err := os.Chmod(filepath.Join(root, name), modes[name]); err != nil {
			t.Fatal(err)
		}
	}
	return modes
}

func randomTree(r *rand.Rand) map[string]string {
	letters := []rune("ab é日+%&'\"\\;#?\n~-.")
	name := func() string {
		var b strings.Builder
		b.WriteRune('n') // no "." and ".."
		for range r.IntN(12) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	tree := map[string]string{}
	var files []string
	var fill func(prefix string, depth int)
	fill = func(prefix string, depth int) {
		taken := map[string]bool{}
		for range 1 + r.IntN(5) {
			n := name()
			if taken[n] {
				continue
			}
			taken[n] = true
			switch {
			case depth < 3 && r.IntN(2) == 0:
				fill(prefix+n+"/", depth+1)
			case r.IntN(5) == 0:
				tree[prefix+n+"/"] = ""
			case r.IntN(4) == 0 && len(files) > 0:
				target, err := filepath.Rel(filepath.Dir(prefix+n), files[r.IntN(len(files))])
				if err == nil {
					tree[prefix+n] = "-> " + target
				}
			default:
				tree[prefix+n] = strings.Repeat("x", r.IntN(1<<r.IntN(17)))
				files = append(files, prefix+n)
			}
		}
	}
	fill("", 0)
	return tree
}

// A name that a command cannot be told costs the others nothing.
func TestUploadDirPreserveBadName(t *testing.T) {
	_, c := embedded(t)
	local, remote := t.TempDir(), t.TempDir()
	for _, name := range []string{"good", "bad\xff"} {
		if err := errors.Join(os.WriteFile(filepath.Join(local, name), []byte("x"), 0o600), os.Chmod(filepath.Join(local, name), 0o755)); err != nil {
			t.Skipf("this disk has no such names: %v", err)
		}
	}
	_, err := c.UploadDir(t.Context(), local, remote, client.WithPreserve(), client.WithKeepGoing())
	if !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "good") {
		t.Errorf("error %v", err)
	}
	if info, err := os.Stat(filepath.Join(remote, "good")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("good: %v, %v", info, err)
	}
}
