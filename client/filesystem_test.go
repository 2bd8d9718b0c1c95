// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
)

// script runs a shell script in the directory, which it makes first.
func script(t *testing.T, c *client.Client, dir, text string) {
	t.Helper()
	mustMkdir(t, c, dir)
	cmd := c.Command(t.Context(), "/bin/sh", "-ec", text)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("script: %v\n%s", err, out)
	}
}

func mustMkdir(t *testing.T, c *client.Client, dir string) {
	t.Helper()
	if err := c.MkdirAll(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
}

func mustWrite(t *testing.T, c *client.Client, name, text string) {
	t.Helper()
	if err := c.WriteFile(t.Context(), name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// hasDetails reports whether the daemon tells sizes and modes.
func hasDetails(t *testing.T, c *client.Client) bool {
	t.Helper()
	e, err := c.Stat(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	return e.HasDetails()
}

func names(entries []*client.Entry) []string {
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func wantFileError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
		return
	}
	var pe *fs.PathError
	var le *os.LinkError
	if !errors.As(err, &pe) && !errors.As(err, &le) {
		t.Errorf("%s: %T is neither PathError nor LinkError", what, err)
	}
}

func TestStatMkdirReadDir(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		before := time.Now().Add(-time.Minute)
		deep := path.Join(dir, "a", "b")
		if err := c.Mkdir(ctx, deep); err != nil {
			t.Fatal(err)
		}
		wantFileError(t, "Mkdir again", c.Mkdir(ctx, deep), fs.ErrExist)
		mustMkdir(t, c, deep)
		mustWrite(t, c, path.Join(dir, "a", "file"), "hello")
		e, err := c.Stat(ctx, path.Join(dir, "a", "file"))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != "file" || e.Path() != path.Join(dir, "a", "file") || !e.Mode().IsRegular() {
			t.Errorf("Stat = %v at %s", e, e.Path())
		}
		if hasDetails(t, c) && (e.Size() != 5 || e.Mode().Perm() != 0o644 || e.ModTime().Before(before) || e.Owner() == "" || e.Group() == "") {
			t.Errorf("Stat = %v, owner %q, group %q", e, e.Owner(), e.Group())
		}
		entries, err := c.ReadDir(ctx, path.Join(dir, "a"))
		if err != nil || !slices.Equal(names(entries), []string{"b", "file"}) {
			t.Fatalf("ReadDir = %v, %v", entries, err)
		}
		if !entries[0].IsDir() || entries[0].Path() != deep || entries[1].IsDir() {
			t.Errorf("ReadDir = %v", entries)
		}
		empty, err := c.ReadDir(ctx, deep)
		if err != nil || len(empty) != 0 {
			t.Errorf("ReadDir of an empty directory = %v, %v", empty, err)
		}
		root, err := c.Stat(ctx, "/")
		if err != nil || root.Name() != "/" || !root.IsDir() {
			t.Errorf("Stat(/) = %v, %v", root, err)
		}
	})
}

func TestFilesystemErrors(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		file := path.Join(dir, "file")
		missing := path.Join(dir, "missing")
		full := path.Join(dir, "full")
		mustWrite(t, c, file, "x")
		mustWrite(t, c, path.Join(full, "x"), "x")
		long := path.Join(dir, strings.Repeat("n", 256))
		calls := []struct {
			name string
			call func() error
			want error
		}{
			{"Stat missing", func() error { _, err := c.Stat(ctx, missing); return err }, fs.ErrNotExist},
			{"Stat below missing", func() error { _, err := c.Stat(ctx, missing+"/x/y"); return err }, fs.ErrNotExist},
			{"Stat below a file", func() error { _, err := c.Stat(ctx, file+"/x"); return err }, syscall.ENOTDIR},
			{"Stat of a long name", func() error { _, err := c.Stat(ctx, long); return err }, syscall.ENAMETOOLONG},
			{"Stat empty", func() error { _, err := c.Stat(ctx, ""); return err }, fs.ErrInvalid},
			{"Stat NUL", func() error { _, err := c.Stat(ctx, "/a\x00b"); return err }, fs.ErrInvalid},
			{"Stat not UTF-8", func() error { _, err := c.Stat(ctx, "/a\xff"); return err }, fs.ErrInvalid},
			{"ReadDir missing", func() error { _, err := c.ReadDir(ctx, missing); return err }, fs.ErrNotExist},
			{"ReadDir file", func() error { _, err := c.ReadDir(ctx, file); return err }, syscall.ENOTDIR},
			{"List missing", func() error { _, err := c.List(ctx, missing, client.Depth(3)); return err }, fs.ErrNotExist},
			{"List file", func() error { _, err := c.List(ctx, file, client.Depth(3)); return err }, syscall.ENOTDIR},
			{"List depth 0", func() error { _, err := c.List(ctx, dir, client.Depth(0)); return err }, fs.ErrInvalid},
			{"Mkdir on a file", func() error { return c.Mkdir(ctx, file) }, fs.ErrExist},
			{"Mkdir below a file", func() error { return c.Mkdir(ctx, file+"/x") }, syscall.ENOTDIR},
			{"MkdirAll on a file", func() error { return c.MkdirAll(ctx, file) }, syscall.ENOTDIR},
			{"Mkdir of a long name", func() error { return c.Mkdir(ctx, long) }, syscall.ENAMETOOLONG},
			{"Rename missing", func() error { return c.Rename(ctx, missing, file) }, fs.ErrNotExist},
			{"Rename onto a directory", func() error { return c.Rename(ctx, file, full) }, fs.ErrExist},
			{"Rename directory onto file", func() error { return c.Rename(ctx, full, file) }, syscall.ENOTDIR},
			{"Rename into itself", func() error { return c.Rename(ctx, full, full+"/in") }, fs.ErrInvalid},
			{"RemoveAll below a file", func() error { return c.RemoveAll(ctx, file+"/x") }, syscall.ENOTDIR},
			{"Watch missing", func() error { _, err := c.StartWatch(ctx, missing); return err }, fs.ErrNotExist},
			{"Watch file", func() error { _, err := c.StartWatch(ctx, file); return err }, syscall.ENOTDIR},
			{"Poll missing", func() error { _, err := c.StartWatch(ctx, missing, client.Polling(time.Second)); return err }, fs.ErrNotExist},
		}
		for _, tt := range calls {
			wantFileError(t, tt.name, tt.call(), tt.want)
		}
		if err := c.RemoveAll(ctx, missing); err != nil {
			t.Errorf("RemoveAll of what is not there: %v", err)
		}
		_, err := c.Stat(ctx, missing)
		if text := err.Error(); strings.Count(text, "envd:") != 0 || strings.Count(text, "stat "+missing) > 2 {
			t.Errorf("error repeats itself: %s", text)
		}
	})
}

func TestRenameRemoveAll(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		a, b := path.Join(dir, "a"), path.Join(dir, "new", "b")
		mustWrite(t, c, a, "one")
		mustWrite(t, c, b, "two")
		if err := c.Rename(ctx, a, b); err != nil {
			t.Fatal(err)
		}
		if data, err := c.ReadFile(ctx, b); err != nil || string(data) != "one" {
			t.Errorf("ReadFile = %q, %v", data, err)
		}
		_, err := c.Stat(ctx, a)
		wantFileError(t, "Stat of the old name", err, fs.ErrNotExist)
		if err := c.RemoveAll(ctx, path.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		_, err = c.ReadDir(ctx, path.Join(dir, "new"))
		wantFileError(t, "ReadDir of what was removed", err, fs.ErrNotExist)
	})
}

func TestStrangeDirNames(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		for _, name := range strangeNames {
			if err := c.Mkdir(t.Context(), dir+"/"+name); err != nil {
				t.Errorf("Mkdir %q: %v", name, err)
			}
		}
		entries, err := c.ReadDir(t.Context(), dir)
		if want := slices.Sorted(slices.Values(strangeNames)); err != nil || !slices.Equal(names(entries), want) {
			t.Errorf("ReadDir = %q, %v, want %q", names(entries), err, want)
		}
	})
}

func TestListDepth(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		for _, name := range []string{"a/b/c/d", "a/f", "z"} {
			mustWrite(t, c, path.Join(dir, name), name)
		}
		tests := []struct {
			depth int
			want  []string
		}{
			{1, []string{"a", "z"}},
			{2, []string{"a", "a/b", "a/f", "z"}},
			{1 << 40, []string{"a", "a/b", "a/b/c", "a/b/c/d", "a/f", "z"}},
		}
		for _, tt := range tests {
			entries, err := c.List(t.Context(), dir, client.Depth(tt.depth))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, strings.TrimPrefix(e.Path(), dir+"/"))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("List with depth %d = %q, want %q", tt.depth, got, tt.want)
			}
		}
	})
}

func TestKindsOfFiles(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		script(t, c, dir, `mkdir d; echo x >f; chmod 6755 f; mkdir t; chmod 1777 t; mkfifo p; chmod 644 p
			ln -s f lf; ln -s d ld; ln -s nowhere broken; ln -s loop loop; : >none; chmod 0 none; echo y >d/in`)
		details := hasDetails(t, c)
		want := map[string]fs.FileMode{
			"d": fs.ModeDir | 0o755, "f": fs.ModeSetuid | fs.ModeSetgid | 0o755, "t": fs.ModeDir | fs.ModeSticky | 0o777,
			"p": fs.ModeNamedPipe | 0o644, "lf": fs.ModeSymlink | 0o777, "ld": fs.ModeSymlink | 0o777,
			"broken": fs.ModeSymlink | 0o777, "loop": fs.ModeSymlink | 0o777, "none": 0,
		}
		entries, err := c.ReadDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != len(want) {
			t.Errorf("ReadDir = %q", names(entries))
		}
		targets := map[string]string{"lf": dir + "/f", "ld": dir + "/d"}
		for _, e := range entries {
			if !details {
				if e.IsDir() != want[e.Name()].IsDir() {
					t.Errorf("%s: IsDir = %v", e.Name(), e.IsDir())
				}
				continue
			}
			again, err := c.Stat(t.Context(), e.Path())
			if err != nil {
				t.Errorf("Stat %s: %v", e.Name(), err)
				continue
			}
			if e.Mode() != want[e.Name()] || again.Mode() != want[e.Name()] {
				t.Errorf("%s: mode %v listed, %v by Stat, want %v", e.Name(), e.Mode(), again.Mode(), want[e.Name()])
			}
			if e.SymlinkTarget() != targets[e.Name()] {
				t.Errorf("%s: SymlinkTarget = %q, want %q", e.Name(), e.SymlinkTarget(), targets[e.Name()])
			}
		}
		linked, err := c.ReadDir(t.Context(), dir+"/ld")
		if err != nil || !slices.Equal(names(linked), []string{"in"}) || linked[0].Path() != dir+"/ld/in" {
			t.Errorf("ReadDir of a link to a directory = %v, %v", linked, err)
		}
		if err := c.MkdirAll(t.Context(), dir+"/ld"); err != nil {
			t.Errorf("MkdirAll of a link to a directory: %v", err)
		}
		_, err = c.ReadDir(t.Context(), dir+"/broken")
		wantFileError(t, "ReadDir of a broken link", err, fs.ErrNotExist)
		_, err = c.ReadDir(t.Context(), dir+"/loop")
		wantFileError(t, "ReadDir of a loop", err, syscall.ELOOP)
	})
}

func TestNameNotUTF8(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		script(t, c, dir, `: >"$(printf 'a\377')"`)
		_, err := c.ReadDir(t.Context(), dir)
		if err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("ReadDir = %v, want an error that speaks of UTF-8", err)
		}
	})
}

// TestListWhileTreeChanges lists a tree in which directories come and go.
func TestListWhileTreeChanges(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		script(t, c, dir, `mkdir keep; : >keep/f`)
		churn := c.Command(t.Context(), "/bin/sh", "-c", `echo; until [ -e stop ]; do mkdir -p x/1 x/2 x/3 y/1; : >x/f; rm -r x y; done`)
		churn.Dir = dir
		out, err := churn.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := churn.Start(); err != nil {
			t.Fatal(err)
		}
		defer churn.Wait()
		defer mustWrite(t, c, path.Join(dir, "stop"), "")
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			entries, err := c.List(t.Context(), dir, client.Depth(4))
			if err != nil {
				t.Fatalf("List: %v", err)
			}
			if got := names(entries); !slices.Contains(got, "keep") || !slices.Contains(got, "f") {
				t.Fatalf("List = %q, want keep and what is in it", got)
			}
		}
	})
}

// answers serves fixed answers to calls of the filesystem service, by name.
func answers(t *testing.T, byCall map[string]string) (*client.Client, map[string]*atomic.Int32) {
	t.Helper()
	counts := map[string]*atomic.Int32{}
	for name := range byCall {
		counts[name] = new(atomic.Int32)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := path.Base(r.URL.Path)
		body, ok := byCall[call]
		if !ok {
			w.WriteHeader(http.StatusNotFound) // with an empty body
			return
		}
		counts[call].Add(1)
		status, text, hasStatus := strings.Cut(body, "|")
		w.Header().Set("Content-Type", "application/json")
		if hasStatus {
			w.WriteHeader(map[string]int{"404": 404, "500": 500}[status])
			body = text
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return dial(t, srv.URL, client.WithJSON()), counts
}

func TestEmptyListing(t *testing.T) {
	for _, answer := range []string{`{}`, `{"entries":[]}`, `{"entries":null}`} {
		c, _ := answers(t, map[string]string{"ListDir": answer})
		_, err := c.ReadDir(t.Context(), "/w")
		wantFileError(t, "ReadDir of what is not there, "+answer, err, fs.ErrNotExist)

		c, counts := answers(t, map[string]string{"ListDir": answer,
			"Stat": `{"entry":{"name":"w","type":2,"path":"/w","size":4096,"permissions":"drwxr-xr-x"}}`})
		entries, err := c.ReadDir(t.Context(), "/w")
		if err != nil || len(entries) != 0 || counts["Stat"].Load() != 1 {
			t.Errorf("ReadDir of an empty directory, %s = %v, %v after %d Stat calls", answer, entries, err, counts["Stat"].Load())
		}
	}
	c, counts := answers(t, map[string]string{"Stat": `{}`,
		"ListDir": `{"entries":[{"name":"a","type":1,"path":"/w/a","size":4096}]}`})
	entries, err := c.ReadDir(t.Context(), "/w")
	if err != nil || len(entries) != 1 || entries[0].Size() != 4096 || counts["Stat"].Load() != 0 {
		t.Errorf("ReadDir = %v, %v after %d Stat calls", entries, err, counts["Stat"].Load())
	}
	if _, err := c.Stat(t.Context(), "/w"); err == nil {
		t.Error("Stat took an empty answer for a success")
	}
}

func TestHostileListing(t *testing.T) {
	for _, entry := range []string{
		`{"name":"..","path":"/w/.."}`, `{"name":"","path":"/w/"}`, `{"name":"a/b","path":"/w/a/b"}`,
		`{"name":"passwd","path":"/etc/passwd"}`, `{"name":"a\u0000","path":"/w/a\u0000"}`,
		`{"name":"a","path":"/w/a"},{"name":"a","path":"/w/a"}`,
	} {
		c, _ := answers(t, map[string]string{"ListDir": `{"entries":[` + entry + `]}`})
		entries, err := c.ReadDir(t.Context(), "/w")
		if err == nil {
			t.Errorf("ReadDir took %s for %v", entry, entries)
		}
		if _, err := fs.ReadDir(c.FS(t.Context(), "/w"), "."); err == nil {
			t.Errorf("FS took %s", entry)
		}
	}
}

func TestListingRetries(t *testing.T) {
	c, counts := answers(t, map[string]string{
		"ListDir": `500|{"code":"internal","message":"error reading directory /w: open /w/x: no such file or directory"}`})
	if _, err := c.ReadDir(t.Context(), "/w"); err == nil {
		t.Error("ReadDir succeeded")
	}
	if n := counts["ListDir"].Load(); n != 4 {
		t.Errorf("the listing was sent %d times, want 4", n)
	}
}
