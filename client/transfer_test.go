// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
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

// eachTarget runs the test on every target, with a directory of the sandbox that
// is removed afterwards. With JSON goes that the version is known, so that what
// depends on that is tested too.
func eachTarget(t *testing.T, test func(t *testing.T, c *client.Client, dir string)) {
	t.Helper()
	t.Parallel()
	runOn(t, targets(t), test)
}

// eachLockedTarget is eachTarget for daemons that want an access token.
func eachLockedTarget(t *testing.T, test func(t *testing.T, c *client.Client, dir string)) {
	t.Helper()
	t.Parallel()
	var locked []target
	for _, tg := range targets(t) {
		if tg.url != "" && os.Getenv(client.EnvAccessToken) == "" {
			t.Logf("%s wants no access token", tg.name)
			continue
		}
		if tg.url == "" {
			tg.server = append(slices.Clip(tg.server), envdtest.WithAccessToken("secret"))
			tg.client = append(slices.Clip(tg.client), client.WithAccessToken("secret"))
		}
		locked = append(locked, tg)
	}
	runOn(t, locked, test)
}

func runOn(t *testing.T, list []target, test func(t *testing.T, c *client.Client, dir string)) {
	t.Helper()
	for _, tg := range list {
		t.Run(tg.name, func(t *testing.T) {
			t.Parallel()
			var opts []client.Option
			if strings.HasSuffix(tg.name, "/json") && !tg.version.IsZero() {
				opts = append(opts, client.WithVersion(tg.version.String()))
			}
			c := tg.dial(t, opts...)
			dir := t.TempDir()
			if tg.url != "" {
				dir = "/tmp/envd-go-test-" + strings.ToLower(cryptorand.Text())
			}
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				if _, err := c.FilesystemService().Remove(ctx, &filesystempb.RemoveRequest{Path: dir}); err != nil {
					t.Errorf("removing %s: %v", dir, err)
				}
			})
			test(t, c, dir)
		})
	}
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

// modeOf returns the permission bits that the server shows, and whether it does.
func modeOf(t *testing.T, c *client.Client, path string) (fs.FileMode, bool) {
	t.Helper()
	resp, err := c.FilesystemService().Stat(t.Context(), statRequest(path))
	if err != nil {
		t.Fatal(err)
	}
	return fs.FileMode(resp.GetEntry().GetMode()), resp.GetEntry().GetPermissions() != ""
}

func TestUploadAtomic(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		path := dir + "/sub/file"
		for _, content := range []string{"first", "second"} {
			if err := c.WriteFile(ctx, path, []byte(content), client.WithAtomic()); err != nil {
				t.Fatalf("WriteFile: %v", err)
			}
			if got, err := c.ReadFile(ctx, path); err != nil || string(got) != content {
				t.Errorf("ReadFile = %q, %v, want %q", got, err, content)
			}
		}
		failure := errors.New("tape is torn")
		err := c.Upload(ctx, path, io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(failure)), client.WithAtomic())
		if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Incomplete || !errors.Is(err, failure) {
			t.Errorf("Upload = %v, want the reader's error, and not Incomplete", err)
		}
		if got, err := c.ReadFile(ctx, path); err != nil || string(got) != "second" {
			t.Errorf("after a failed upload ReadFile = %q, %v", got, err)
		}
		leftovers(t, c, dir, t.TempDir())

		err = c.Command(ctx, "/bin/sh", "-c", `cd "$0" && chmod 750 file && ln -s file link && mkfifo fifo && ln -s nowhere broken`, dir+"/sub").Run()
		if err != nil {
			t.Skipf("no commands: %v", err)
		}
		if err := c.WriteFile(ctx, path, []byte("third"), client.WithAtomic()); err != nil {
			t.Errorf("WriteFile of a file with a mode: %v", err)
		}
		mode, shown := modeOf(t, c, path)
		if !shown {
			return // before envd 0.2.5 neither modes nor links can be seen
		}
		if mode != 0o750 {
			t.Errorf("the mode is %v now, want %v", mode, fs.FileMode(0o750))
		}
		if err := c.WriteFile(ctx, dir+"/sub/link", []byte("fourth"), client.WithAtomic()); err != nil {
			t.Errorf("WriteFile through a symlink: %v", err)
		}
		if got, err := c.ReadFile(ctx, path); err != nil || string(got) != "fourth" || !tellsLinks(t, c, dir+"/sub/link") {
			t.Errorf("after an upload through a symlink ReadFile = %q, %v", got, err)
		}
		if err := c.WriteFile(ctx, dir+"/sub/fifo", nil, client.WithAtomic()); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("WriteFile onto a FIFO = %v, want fs.ErrInvalid", err)
		}
		if err := c.WriteFile(ctx, dir+"/sub/broken", []byte("x"), client.WithAtomic()); err != nil {
			t.Errorf("WriteFile onto a broken link = %v", err)
		}
	})
}

// Whoever reads a file that is replaced atomically gets one content or another.
func TestUploadAtomicReaders(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		path := dir + "/file"
		content := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i%26)}, 200_000) }
		if err := c.WriteFile(t.Context(), path, content(0), client.WithAtomic()); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 20 {
				if err := c.WriteFile(t.Context(), path, content(i), client.WithAtomic()); err != nil {
					t.Errorf("WriteFile: %v", err)
				}
			}
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			got, err := c.ReadFile(t.Context(), path)
			if err != nil || len(got) != 200_000 || !bytes.Equal(got, bytes.Repeat(got[:1], len(got))) {
				t.Fatalf("ReadFile gave %d bytes, not all the same: %v", len(got), err)
			}
		}
	})
}

func TestGzipBothWays(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		data := bytes.Repeat([]byte("compressible "), 50_000)
		path := dir + "/file"
		up := c.Upload(ctx, path, bytes.NewReader(data), client.WithGzip())
		if errors.Is(up, errors.ErrUnsupported) {
			if err := c.WriteFile(ctx, path, data); err != nil {
				t.Fatal(err)
			}
		} else if up != nil {
			t.Fatalf("Upload: %v", up)
		}
		if got, err := c.ReadFile(ctx, path); err != nil || !bytes.Equal(got, data) {
			t.Errorf("ReadFile = %d bytes, %v, want %d", len(got), err, len(data))
		}
		var got bytes.Buffer
		var last client.Progress
		err := c.Download(ctx, path, &got, client.WithGzip(), client.WithProgress(func(p client.Progress) { last = p }))
		if err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("Download = %d bytes, %v, want %d", got.Len(), err, len(data))
		}
		if !last.Done || last.Bytes != int64(len(data)) {
			t.Errorf("the last report is %+v", last)
		}
		if err := c.WriteFile(ctx, path, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := c.ReadFile(ctx, path, client.WithGzip()); err != nil || len(got) != 0 {
			t.Errorf("ReadFile of an empty file = %q, %v", got, err)
		}
	})
}

func TestMetadataStored(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		err := c.WriteFile(t.Context(), dir+"/file", []byte("x"), client.WithMetadata(map[string]string{"Owner": "me", "empty": ""}))
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.FilesystemService().Stat(t.Context(), statRequest(dir+"/file"))
		if err != nil || resp.GetEntry().GetMetadata()["owner"] != "me" {
			t.Errorf("metadata = %v, %v", resp.GetEntry().GetMetadata(), err)
		}
	})
}

// Files of the kernel have no true size. From envd 0.5.3 on they can be read.
func TestReadKernelFiles(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		if err := c.WriteFile(t.Context(), dir+"/probe", nil, client.WithGzip()); errors.Is(err, errors.ErrUnsupported) {
			_, err := c.ReadFile(t.Context(), "/proc/version")
			if !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("ReadFile = %v, want errors.ErrUnsupported", err)
			}
			return
		}
		for _, path := range []string{"/proc/version", "/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled"} {
			got, err := c.ReadFile(t.Context(), path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil || len(got) == 0 {
				t.Errorf("ReadFile(%s) = %q, %v", path, got, err)
			}
		}
		if f, err := c.Open(t.Context(), "/proc/version"); err != nil {
			t.Errorf("Open: %v", err)
		} else {
			if _, err := f.ReadAt(make([]byte, 1), 0); f.Size() != -1 || !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Size = %d, ReadAt = %v, want -1 and errors.ErrUnsupported", f.Size(), err)
			}
			f.Close()
		}
	})
}

func TestUploadFilesStops(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		if err := c.WriteFile(t.Context(), dir+"/d/x", nil); err != nil {
			t.Fatal(err)
		}
		err := c.UploadFiles(t.Context(), []client.UploadFile{
			{Path: dir + "/a", Reader: strings.NewReader("a")},
			{Path: dir + "/d", Reader: strings.NewReader("is a directory")},
			{Path: dir + "/z", Reader: strings.NewReader("z")},
		})
		checkPathError(t, "UploadFiles", err, dir+"/d", syscall.EISDIR)
		if got, err := c.ReadFile(t.Context(), dir+"/a"); err != nil || string(got) != "a" {
			t.Errorf("ReadFile of the file before = %q, %v", got, err)
		}
		if _, err := c.ReadFile(t.Context(), dir+"/z"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("ReadFile of the file behind = %v, want fs.ErrNotExist", err)
		}
	})
}

// Up to envd 0.5.7 uploads into a new directory collide.
func TestUploadNewTreeAtOnce(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		for round := range 10 {
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					if err := c.WriteFile(t.Context(), fmt.Sprintf("%s/%d/a/b/c/d/%d", dir, round, i), []byte("x")); err != nil {
						t.Errorf("WriteFile: %v", err)
					}
				})
			}
			wg.Wait()
		}
	})
}

// A file name is bytes. Only calls that list or describe want UTF-8.
func TestNotUTF8(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		path := dir + "/\xff\xfe"
		if err := c.WriteFile(t.Context(), path, []byte("content")); err != nil {
			t.Fatalf("WriteFile: %v", err)
		}
		if got, err := c.ReadFile(t.Context(), path); err != nil || string(got) != "content" {
			t.Errorf("ReadFile = %q, %v", got, err)
		}
		if _, err := c.DownloadDir(t.Context(), dir, t.TempDir()); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("DownloadDir = %v, want an error that speaks of UTF-8", err)
		}
	})
}

// The time of a file is the true one or none.
func TestOpenModTime(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		path := dir + "/file"
		err := c.WriteFile(t.Context(), path, []byte("x"), client.WithGzip())
		tells := err == nil // came with the same release
		if err != nil {
			if err := c.WriteFile(t.Context(), path, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Command(t.Context(), "touch", "-d", "@1700000000", path).Run(); err != nil {
			t.Skipf("touch: %v", err)
		}
		f, err := c.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got := f.ModTime(); tells && got.Unix() != 1700000000 || !tells && !got.IsZero() {
			t.Errorf("ModTime = %v", got)
		}
	})
}

// Sizes and ranges need bytes as they are, which Go's own client does not ask
// for.
func TestIdentity(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Accept-Encoding"))
		_, _ = io.WriteString(w, "x")
	})
	for _, opts := range [][]client.TransferOption{nil, {client.WithGzip()}} {
		if _, err := c.ReadFile(t.Context(), "/f", opts...); err != nil {
			t.Fatal(err)
		}
	}
	if asked = slices.DeleteFunc(asked, func(s string) bool { return s == "" }); !slices.Equal(asked, []string{"identity", "identity", "gzip"}) {
		t.Errorf("Accept-Encoding = %q", asked)
	}
}

// A refusal arrives although the bytes were not wanted.
func TestUploadUnauthenticated(t *testing.T) {
	eachLockedTarget(t, func(t *testing.T, c *client.Client, dir string) {
		stranger := dial(t, c.URL(), client.WithUser(c.User()), client.WithAccessToken("wrong"))
		for _, size := range []int{1, 300_000, 8 << 20} {
			err := stranger.Upload(t.Context(), dir+"/file", bytes.NewReader(make([]byte, size)))
			checkPathError(t, "Upload", err, dir+"/file", client.ErrUnauthenticated)
			if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Incomplete {
				t.Errorf("Upload of %d bytes = %v, which should not be Incomplete", size, err)
			}
		}
		if _, err := stranger.ReadFile(t.Context(), dir+"/file"); !errors.Is(err, client.ErrUnauthenticated) {
			t.Errorf("ReadFile = %v, want ErrUnauthenticated", err)
		}
	})
}
