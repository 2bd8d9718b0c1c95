// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/envd-go/envd/client"
)

// sampleFiles are what the tests of FS look at.
var sampleFiles = map[string]string{
	"hello.txt": "hello, world\n", "empty": "", "sub/deep/leaf": "leaf", "sub/page.html": "<p>{{.}}</p>", "name with space": "x",
}

func writeSample(t *testing.T, c *client.Client, dir string) fs.FS {
	t.Helper()
	for name, text := range sampleFiles {
		mustWrite(t, c, path.Join(dir, name), text)
	}
	mustMkdir(t, c, path.Join(dir, "none"))
	return c.FS(t.Context(), dir)
}

func TestFS(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		fsys := writeSample(t, c, dir)
		want := []string{"none"}
		for name := range sampleFiles {
			want = append(want, name)
		}
		if err := fstest.TestFS(fsys, want...); err != nil {
			t.Error(err)
		}
	})
}

func TestFSWithLinks(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		script(t, c, dir, `mkdir -p tree/d; echo in >tree/d/f; ln -s d/f tree/lf; ln -s "$PWD/tree/d" tree/ld; ln -s ../lf tree/d/up
			ln -s . tree/self; echo out >out; ln -s ../out tree/lo; ln -s tree root`)
		for _, root := range []string{"tree", "root"} {
			fsys := c.FS(t.Context(), path.Join(dir, root))
			for name, want := range map[string]string{"lf": "in\n", "ld/f": "in\n", "d/up": "in\n", "lo": "out\n"} {
				if data, err := fs.ReadFile(fsys, name); err != nil || string(data) != want {
					t.Errorf("ReadFile(%s) = %q, %v", name, data, err)
				}
			}
			if info, err := fs.Stat(fsys, "ld"); err != nil || !info.IsDir() || info.Name() != "ld" {
				t.Errorf("Stat(ld) = %v, %v", info, err)
			}
			if !hasDetails(t, c) {
				continue
			}
			if err := fstest.TestFS(fsys, "d/f", "lf"); err != nil {
				t.Error(err)
			}
			for name, want := range map[string]string{"lf": "d/f", "ld": "d", "d/up": "f", "self": ".", "lo": dir + "/out"} {
				if text, err := fs.ReadLink(fsys, name); err != nil || text != want {
					t.Errorf("ReadLink(%s) = %q, %v, want %q", name, text, err, want)
				}
			}
			_, err := fs.ReadLink(fsys, "d/f")
			wantFileError(t, "ReadLink of a file", err, fs.ErrInvalid)
		}
	})
}

func TestFSIrregular(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		script(t, c, dir, `mkfifo p; ln -s nowhere broken`)
		if !hasDetails(t, c) {
			t.Skip("this envd does not tell a FIFO from a file")
		}
		fsys := c.FS(t.Context(), dir)
		_, err := fsys.Open("p")
		wantFileError(t, "Open of a FIFO", err, fs.ErrInvalid)
		_, err = fsys.Open("broken")
		wantFileError(t, "Open of a broken link", err, fs.ErrNotExist)
		_, err = fs.ReadLink(fsys, "broken")
		wantFileError(t, "ReadLink of a broken link", err, errors.ErrUnsupported)
		if info, err := fs.Lstat(fsys, "broken"); err != nil || info.Mode().Type() != fs.ModeSymlink {
			t.Errorf("Lstat of a broken link = %v, %v", info, err)
		}
	})
}

func TestFSErrors(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		fsys := writeSample(t, c, dir)
		tests := []struct {
			name string
			call func() error
			want error
		}{
			{"Open missing", func() error { _, err := fsys.Open("missing"); return err }, fs.ErrNotExist},
			{"Open dot dot", func() error { _, err := fsys.Open("../x"); return err }, fs.ErrInvalid},
			{"Open absolute", func() error { _, err := fsys.Open("/etc/passwd"); return err }, fs.ErrInvalid},
			{"Open below a file", func() error { _, err := fsys.Open("hello.txt/x"); return err }, syscall.ENOTDIR},
			{"ReadFile missing", func() error { _, err := fs.ReadFile(fsys, "missing"); return err }, fs.ErrNotExist},
			{"ReadFile directory", func() error { _, err := fs.ReadFile(fsys, "sub"); return err }, syscall.EISDIR},
			{"ReadDir missing", func() error { _, err := fs.ReadDir(fsys, "missing"); return err }, fs.ErrNotExist},
			{"ReadDir file", func() error { _, err := fs.ReadDir(fsys, "hello.txt"); return err }, syscall.ENOTDIR},
			{"Sub dot dot", func() error { _, err := fs.Sub(fsys, ".."); return err }, fs.ErrInvalid},
		}
		for _, tt := range tests {
			err := tt.call()
			wantFileError(t, tt.name, err, tt.want)
			if pe, ok := errors.AsType[*fs.PathError](err); ok && strings.HasPrefix(pe.Path, dir) {
				t.Errorf("%s: error names %s, not the name that was used", tt.name, pe.Path)
			}
		}
	})
}

func TestFSUses(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		fsys := writeSample(t, c, dir)

		found, err := fs.Glob(fsys, "sub/*.html")
		if err != nil || !slices.Equal(found, []string{"sub/page.html"}) {
			t.Errorf("Glob = %q, %v", found, err)
		}

		var walked []string
		err = fs.WalkDir(fsys, ".", func(name string, _ fs.DirEntry, err error) error {
			walked = append(walked, name)
			return err
		})
		if err != nil || len(walked) != 9 {
			t.Errorf("WalkDir = %q, %v", walked, err)
		}

		local := filepath.Join(t.TempDir(), "copy")
		if hasDetails(t, c) { // without permissions CopyFS cannot read its own directories
			if err := os.CopyFS(local, fsys); err != nil {
				t.Errorf("CopyFS: %v", err)
			}
			data, err := os.ReadFile(filepath.Join(local, "sub", "deep", "leaf"))
			if err != nil || string(data) != "leaf" {
				t.Errorf("CopyFS made %q, %v", data, err)
			}
		}

		srv := httptest.NewServer(http.FileServer(http.FS(fsys)))
		defer srv.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/hello.txt", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Range", "bytes=7-11")
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != "world" || resp.StatusCode != http.StatusPartialContent {
			t.Errorf("http.FS sent %d %q, %v", resp.StatusCode, body, err)
		}

		page, err := template.ParseFS(fsys, "sub/*.html")
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := page.Execute(&out, "a<b"); err != nil || out.String() != "<p>a&lt;b</p>" {
			t.Errorf("template = %q, %v", out.String(), err)
		}
	})
}
