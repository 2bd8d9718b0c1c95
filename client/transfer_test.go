// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/envd-go/envd/client"
	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

// randomBytes returns n bytes that gzip cannot shorten.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte("envd"))).Read(b)
	return b
}

// strangeNames are file names that are legal and easy to get wrong.
var strangeNames = []string{
	"plain.txt", "with space", "a+b", "100%", "%41", `quo"te`, `back\slash`, "new\nline", "tab\tbed", "semi;colon", "q?u&e=r#y",
	"ünïcödé", "日本", "-dash", ".hidden", "~tilde", strings.Repeat("n", 255),
}

func TestUploadDownload(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		for _, size := range []int{0, 1, 4096, 64 << 10, 64<<10 + 1, 3 << 20} {
			data := randomBytes(size)
			name := path.Join(dir, "new", "deep", "file")
			var up, down []client.Progress
			err := c.Upload(ctx, name, io.MultiReader(bytes.NewReader(data)), client.WithProgress(func(p client.Progress) { up = append(up, p) }))
			if err != nil {
				t.Fatalf("Upload of %d bytes: %v", size, err)
			}
			var got bytes.Buffer
			err = c.Download(ctx, name, &got, client.WithProgress(func(p client.Progress) { down = append(down, p) }))
			if err != nil {
				t.Fatalf("Download of %d bytes: %v", size, err)
			}
			if !bytes.Equal(got.Bytes(), data) {
				t.Fatalf("Download of %d bytes gave other bytes", size)
			}
			for _, reports := range [][]client.Progress{up, down} {
				last := reports[len(reports)-1]
				want := client.Progress{Path: name, Bytes: int64(size), Total: int64(size), Done: true}
				if last != want {
					t.Errorf("last report of %d bytes = %+v, want %+v", size, last, want)
				}
			}
		}
	})
}

func TestStrangeNames(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		var files []client.UploadFile
		for _, name := range strangeNames {
			p := dir + "/" + name
			if err := c.WriteFile(t.Context(), p, []byte("one "+name)); err != nil {
				t.Errorf("WriteFile(%q): %v", name, err)
				continue
			}
			got, err := c.ReadFile(t.Context(), p)
			if err != nil || string(got) != "one "+name {
				t.Errorf("ReadFile(%q) = %q, %v", name, got, err)
			}
			files = append(files, client.UploadFile{Path: p, Reader: strings.NewReader("two " + name)})
		}
		if err := c.UploadFiles(t.Context(), files); err != nil {
			t.Fatalf("UploadFiles: %v", err)
		}
		for _, name := range strangeNames {
			got, err := c.ReadFile(t.Context(), dir+"/"+name)
			if err != nil || string(got) != "two "+name {
				t.Errorf("after UploadFiles, ReadFile(%q) = %q, %v", name, got, err)
			}
		}
	})
}

func TestReadErrors(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		if err := c.WriteFile(ctx, dir+"/file", []byte("x")); err != nil {
			t.Fatal(err)
		}
		tests := []struct {
			name, path string
			want       error
		}{
			{"missing", dir + "/missing", fs.ErrNotExist},
			{"missing parent", dir + "/no/such", fs.ErrNotExist},
			{"sounds like an error", dir + "/permission denied/is a directory", fs.ErrNotExist},
			{"directory", dir, syscall.EISDIR},
			{"below a file", dir + "/file/x", syscall.ENOTDIR},
			{"empty path", "", fs.ErrInvalid},
			{"NUL", dir + "/a\x00b", fs.ErrInvalid},
			{"name too long", dir + "/" + strings.Repeat("n", 256), syscall.ENAMETOOLONG},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				_, err := c.ReadFile(ctx, tt.path)
				checkPathError(t, "ReadFile", err, tt.path, tt.want)
				if errors.Is(err, fs.ErrPermission) {
					t.Errorf("ReadFile: %v matches fs.ErrPermission", err)
				}
				_, err = c.Open(ctx, tt.path)
				checkPathError(t, "Open", err, tt.path, tt.want)
				err = c.Download(ctx, tt.path, io.Discard)
				checkPathError(t, "Download", err, tt.path, tt.want)
			})
		}
	})
}

func TestWriteErrors(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		if err := c.WriteFile(ctx, dir+"/file", []byte("x")); err != nil {
			t.Fatal(err)
		}
		tests := []struct {
			name, path string
			want       error
		}{
			{"directory", dir, syscall.EISDIR},
			{"trailing slash", dir + "/new/", syscall.EISDIR},
			{"below a file", dir + "/file/x", syscall.ENOTDIR},
			{"empty path", "", fs.ErrInvalid},
			{"NUL", dir + "/a\x00b", fs.ErrInvalid},
			{"name too long", dir + "/" + strings.Repeat("n", 256), syscall.ENAMETOOLONG},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				err := c.WriteFile(ctx, tt.path, []byte("data"))
				checkPathError(t, "WriteFile", err, tt.path, tt.want)
				err = c.Upload(ctx, tt.path, strings.NewReader("data"), client.WithAtomic())
				checkPathError(t, "Upload", err, tt.path, tt.want)
				if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Incomplete {
					t.Errorf("Upload: %v, want a TransferError that is not Incomplete", err)
				}
			})
		}
		if _, err := c.ReadFile(ctx, dir+"/new"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a refused upload made something: ReadFile = %v", err)
		}
	})
}

// checkPathError checks that err is a *fs.PathError about the path that
// matches want.
func checkPathError(t *testing.T, call string, err error, path string, want error) {
	t.Helper()
	pe, ok := errors.AsType[*fs.PathError](err)
	if !ok || pe.Path != path {
		t.Errorf("%s: %v (%T), want a *fs.PathError about %q", call, err, err, path)
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want one that matches %v", call, err, want)
	}
	if strings.Count(err.Error(), "envd:") > 0 {
		t.Errorf("%s: %v repeats itself", call, err)
	}
}

func statRequest(path string) *filesystempb.StatRequest {
	return &filesystempb.StatRequest{Path: path}
}

func eachTarget(t *testing.T, test func(t *testing.T, c *client.Client, dir string)) {
	url := os.Getenv(client.EnvURL)
	if url == "" {
		t.Skip("no URL")
	}
	var opts []client.Option
	if v := os.Getenv("ENVD_TEST_GATE"); v != "" {
		opts = append(opts, client.WithVersion(v))
	}
	c, err := client.FromEnv(append(opts, client.WithUser("user"))...)
	if err != nil {
		t.Fatal(err)
	}
	dir := "/tmp/tt-" + strings.ReplaceAll(t.Name(), "/", "-")
	defer os.RemoveAll(dir)
	test(t, c, dir)
}

// serve runs the handler and returns a client for it.
func serve(t *testing.T, handler http.HandlerFunc, opts ...client.Option) *client.Client {
	t.Helper()
	srv := httptest.NewServer(handler)
	c, err := client.New(srv.URL, append([]client.Option{client.WithUser("user")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		srv.Close()
	})
	return c
}
