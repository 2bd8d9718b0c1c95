// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
)

// The tests in this file are numbered as the list of what a client of the files
// half should tolerate.

// 1: one server writes its errors in five ways.
func TestFileSurprise01ErrorShapes(t *testing.T) {
	tests := []struct {
		name        string
		status      int
		contentType string
		body        string
		want        error
	}{
		{"Connect error", 404, "application/json", `{"code":"not_found","message":"file not found: lstat /x: no such file or directory"}`, fs.ErrNotExist},
		{"REST error", 401, "application/json; charset=utf-8", `{"code":401,"message":"unauthorized access"}`, client.ErrUnauthenticated},
		{"text", 501, "text/plain", "not here", errors.ErrUnsupported},
		{"nothing", 404, "", "", fs.ErrNotExist},
		{"page", 429, "text/html", "<html><title>slow down</title></html>", client.ErrRateLimited},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.contentType)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := c.Stat(t.Context(), "/x")
			checkPathError(t, "Stat", err, "/x", tt.want)
		})
	}
}

// 2: a listing that broke because its directory changed is asked for again.
func TestFileSurprise02ListingVanishes(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/ListDir") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch calls.Add(1) {
		case 1:
			panic(http.ErrAbortHandler) // envd before 0.4.2
		case 2:
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"code":"internal","message":"error reading directory /x: open /x/sub: no such file or directory"}`)
		default:
			_, _ = io.WriteString(w, `{"entries":[{"name":"a","type":"FILE_TYPE_FILE","path":"/x/a"}]}`)
		}
	}, client.WithJSON())
	entries, err := c.ReadDir(t.Context(), "/x")
	if err != nil || len(entries) != 1 {
		t.Errorf("ReadDir = %v, %v", entries, err)
	}
}

// 3: uploads into one new tree at a time collide before 0.5.8.
func TestFileSurprise03ParentRace(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls.Add(1) == 1 {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"code":500,"message":"error ensuring directories: failed to create directory: mkdir /new: file exists"}`)
			return
		}
		_, _ = io.WriteString(w, `[{"name":"a","path":"/new/a","type":"file"}]`)
	})
	if err := c.WriteFile(t.Context(), "/new/a", []byte("x")); err != nil {
		t.Errorf("WriteFile = %v", err)
	}
}

// 4: a failed upload is answered with two JSON documents up to 0.5.2.
func TestFileSurprise04TwoDocuments(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusInsufficientStorage)
		_, _ = io.WriteString(w, `{"code":507,"message":"not enough disk space"}`+"\n[]")
	})
	err := c.WriteFile(t.Context(), "/a", []byte("x"))
	checkPathError(t, "WriteFile", err, "/a", client.ErrNoSpace)
}

// 5: up to 0.5.2 Last-Modified is the time of the request.
func TestFileSurprise05LastModified(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		if err := c.WriteFile(t.Context(), dir+"/old", []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := c.Command(t.Context(), "touch", "-d", "2020-01-02 03:04:05 UTC", dir+"/old").Run(); err != nil {
			t.Skipf("touch: %v", err)
		}
		f, err := c.Open(t.Context(), dir+"/old")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if want := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC); !f.ModTime().IsZero() && !f.ModTime().Equal(want) {
			t.Errorf("ModTime is %v, want %v or none", f.ModTime(), want)
		}
	})
}

// 6: an upload's answer calls itself text, and an empty list means that nothing
// was stored.
func TestFileSurprise06NothingStored(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, `[]`)
	})
	if err := c.WriteFile(t.Context(), "/a", []byte("x")); err == nil {
		t.Error("an upload that stored nothing succeeded")
	}
}

// 7: uploads are written in place; WithAtomic never shows half of one.
func TestFileSurprise07NotAtomic(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		path := dir + "/file"
		if err := c.WriteFile(t.Context(), path, []byte("old")); err != nil {
			t.Fatal(err)
		}
		failing := io.MultiReader(bytes.NewReader(randomBytes(100_000)), failingReader{})
		if err := c.Upload(t.Context(), path, failing, client.WithAtomic()); err == nil {
			t.Error("an upload whose reader failed succeeded")
		}
		if got, err := c.ReadFile(t.Context(), path); err != nil || string(got) != "old" {
			t.Errorf("the file has %d bytes, %v; want the old ones", len(got), err)
		}
		entries, err := c.ReadDir(t.Context(), dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("the directory has %v, %v", entries, err)
		}
	})
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("the disk is on fire") }

// 8: zero is left out: an empty file has no size, mode 0 no mode, an empty
// directory no list, a FIFO no type.
func TestFileSurprise08ZeroFields(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		script := "cd " + dir + " && : > empty && chmod 0 empty && mkfifo fifo && mkdir dir"
		if err := c.Command(t.Context(), "/bin/sh", "-c", script).Run(); err != nil {
			t.Skipf("making files: %v", err)
		}
		empty, err := c.Stat(t.Context(), dir+"/empty")
		if err != nil || empty.Size() != 0 || empty.HasDetails() && empty.Mode() != 0 {
			t.Errorf("the empty file is %v, %v", empty, err)
		}
		if entries, err := c.ReadDir(t.Context(), dir+"/dir"); err != nil || len(entries) != 0 {
			t.Errorf("the empty directory has %v, %v", entries, err)
		}
		fifo, err := c.Stat(t.Context(), dir+"/fifo")
		if err != nil || fifo.HasDetails() && fifo.Type() != fs.ModeNamedPipe {
			t.Errorf("the FIFO is %v, %v", fifo, err)
		}
	})
}

// 9: events may be doubled or merged, and a watched directory may go without a
// word; a loop over them ends all the same.
func TestFileSurprise09Watches(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		watched := dir + "/watched"
		if err := c.MkdirAll(t.Context(), watched); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		w, err := c.StartWatch(ctx, watched)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := c.RemoveAll(t.Context(), watched); err != nil {
			t.Fatal(err)
		}
		var last error
		for _, err := range w.Events() {
			last = err
		}
		if !errors.Is(last, fs.ErrNotExist) {
			t.Errorf("the watch of a directory that was removed ended with %v", last)
		}
	})
}

// 10: old daemons refuse whoever names no user, for RPCs and for files.
func TestFileSurprise10UserNamed(t *testing.T) {
	for _, v := range envdversion.Supported() {
		t.Run(v.String(), func(t *testing.T) {
			srv, c := embedded(t, envdtest.WithVersion(v.String()))
			path := t.TempDir() + "/file"
			if err := c.WriteFile(t.Context(), path, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := c.ReadFile(t.Context(), path); err != nil {
				t.Error(err)
			}
			anonymous := dial(t, srv.URL)
			_, err := anonymous.Stat(t.Context(), path)
			if v.Has(envdversion.DefaultUser) != (err == nil) {
				t.Errorf("Stat without a user = %v", err)
			}
			if err != nil && !errors.Is(err, client.ErrUnauthenticated) {
				t.Errorf("Stat without a user = %v, want ErrUnauthenticated", err)
			}
		})
	}
}

// 11: a download has its length, since it is asked for as it is.
func TestFileSurprise11Length(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		data := bytes.Repeat([]byte("compressible "), 50_000)
		if err := c.WriteFile(t.Context(), dir+"/file", data); err != nil {
			t.Fatal(err)
		}
		f, err := c.Open(t.Context(), dir+"/file")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Size() != int64(len(data)) {
			t.Errorf("Size is %d, want %d", f.Size(), len(data))
		}
		middle := make([]byte, 1000)
		if _, err := f.ReadAt(middle, 300_000); err != nil || !bytes.Equal(middle, data[300_000:301_000]) {
			t.Errorf("ReadAt = %v", err)
		}
	})
}

// 12: no keepalive interval that crashes daemons is ever sent.
func TestFileSurprise12Keepalive(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second, time.Millisecond, 1500 * time.Millisecond} {
		if _, err := client.New("http://127.0.0.1:1", client.WithKeepalive(d)); err == nil {
			t.Errorf("WithKeepalive(%v) was accepted", d)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		srv := envdtest.NewPipeServer()
		defer srv.Close()
		c, err := client.New(srv.URL, client.WithHTTPClient(srv.Client()), client.WithUser("root"), client.WithKeepalive(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for range c.Watch(t.Context(), "/no/such/directory") {
		}
		for _, r := range srv.Requests() {
			sent = append(sent, r.Header["Keepalive-Ping-Interval"]...)
		}
		if !slices.Equal(sent, []string{"3"}) {
			t.Errorf("keepalive intervals sent: %q", sent)
		}
	})
}

// 13: Remove is silent about what is missing, MakeDir loud about what is there,
// and Move never merges directories.
func TestFileSurprise13Semantics(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		if err := c.RemoveAll(t.Context(), dir+"/none"); err != nil {
			t.Errorf("RemoveAll of nothing = %v", err)
		}
		if err := c.MkdirAll(t.Context(), dir+"/a/b"); err != nil {
			t.Fatal(err)
		}
		if err := c.MkdirAll(t.Context(), dir+"/a/b"); err != nil {
			t.Errorf("MkdirAll of what is there = %v", err)
		}
		checkPathError(t, "Mkdir", c.Mkdir(t.Context(), dir+"/a"), dir+"/a", fs.ErrExist)
		if err := c.MkdirAll(t.Context(), dir+"/c"); err != nil {
			t.Fatal(err)
		}
		err := c.Rename(t.Context(), dir+"/c", dir+"/a")
		if _, ok := errors.AsType[*os.LinkError](err); !ok || !errors.Is(err, fs.ErrExist) {
			t.Errorf("Rename onto a directory = %v, want an *os.LinkError that matches fs.ErrExist", err)
		}
	})
}

// 14: Init repeats the token, and tells a daemon that has another one.
func TestFileSurprise14InitToken(t *testing.T) {
	for _, v := range envdversion.Supported() {
		t.Run(v.String(), func(t *testing.T) {
			srv := envdtest.NewServer(envdtest.WithVersion(v.String()), envdtest.WithAccessToken("first"))
			defer srv.Close()
			c := dial(t, srv.URL, client.WithUser("root"), client.WithAccessToken("first"))
			if _, err := c.Init(t.Context(), client.InitRequest{EnvVars: map[string]string{"A": "1"}}); err != nil {
				t.Errorf("Init with the token = %v", err)
			}
			if envs, err := c.Envs(t.Context()); err != nil || envs["A"] != "1" {
				t.Errorf("Envs = %v, %v", envs, err)
			}
			_, err := c.Init(t.Context(), client.InitRequest{AccessToken: "second"})
			if !errors.Is(err, client.ErrUnauthenticated) && !errors.Is(err, fs.ErrExist) {
				t.Errorf("Init with another token = %v, want ErrUnauthenticated or fs.ErrExist", err)
			}
			if err != nil && strings.Contains(err.Error(), "second") {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
}

// What SDKs got wrong, beside the list.

// A slow upload is not cut while bytes move; one that stands still is, and says
// how far it came.
func TestFileDefectSlowUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := envdtest.NewPipeServer()
		defer srv.Close()
		dir := t.TempDir()
		c, err := client.New(srv.URL, client.WithHTTPClient(srv.Client()), client.WithUser("root"), client.WithRequestTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		const size, chunk = 400_000, 2_000
		slow := &pausingReader{left: size, chunk: chunk, pause: 100 * time.Millisecond} // 20 KB/s
		if err := c.Upload(t.Context(), dir+"/slow", slow); err != nil {
			t.Errorf("a slow upload = %v", err)
		}
		if info, err := os.Stat(srv.Path(dir + "/slow")); err != nil || info.Size() != size {
			t.Errorf("the file is %v, %v", info, err)
		}
		stalled := &pausingReader{left: size, chunk: chunk, pause: 100 * time.Millisecond, stallAt: 100_000, stall: t.Context().Done()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		stalled.stall = ctx.Done()
		err = c.Upload(ctx, dir+"/stalled", stalled, client.WithIdleTimeout(30*time.Second))
		if !errors.Is(err, client.ErrIdleTimeout) {
			t.Errorf("a stalled upload = %v, want ErrIdleTimeout", err)
		}
		if te, ok := errors.AsType[*client.TransferError](err); !ok || te.Bytes < 90_000 || te.Bytes > 110_000 {
			t.Errorf("the error %v does not tell that about 100000 bytes moved", err)
		}
		cancel()
		synctest.Wait()
	})
}

// pausingReader gives a chunk after each pause, and stands still at stallAt.
type pausingReader struct {
	left, chunk, given int
	pause              time.Duration
	stallAt            int
	stall              <-chan struct{}
}

func (r *pausingReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if r.stallAt > 0 && r.given >= r.stallAt {
		<-r.stall
		return 0, errors.New("stalled")
	}
	time.Sleep(r.pause)
	n := min(r.chunk, r.left, len(p))
	clear(p[:n])
	r.left, r.given = r.left-n, r.given+n
	return n, nil
}

// The size of a file of more than 4 GiB is right, in JSON and binary.
func TestFileDefectLargeSize(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		const size = 5 << 30
		if err := c.Command(t.Context(), "truncate", "-s", fmt.Sprint(int64(size)), dir+"/sparse").Run(); err != nil {
			t.Skipf("truncate: %v", err)
		}
		entry, err := c.Stat(t.Context(), dir+"/sparse")
		if err != nil || entry.HasDetails() && entry.Size() != size {
			t.Errorf("Stat = %v, %v", entry, err)
		}
		f, err := c.Open(t.Context(), dir+"/sparse")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Size() != size {
			t.Errorf("Open tells %d bytes, want %d", f.Size(), int64(size))
		}
		end := make([]byte, 10)
		if n, err := f.ReadAt(end, size-10); n != 10 || err != nil && err != io.EOF {
			t.Errorf("ReadAt of the end = %d, %v", n, err)
		}
	})
}

// What is not there is fs.ErrNotExist by whatever call, on every dialect; an
// empty directory is no error; and types are right for numbers and for names.
func TestFileDefectMissing(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		missing := dir + "/none"
		_, err := c.Stat(t.Context(), missing)
		checkPathError(t, "Stat", err, missing, fs.ErrNotExist)
		_, err = c.ReadDir(t.Context(), missing)
		checkPathError(t, "ReadDir", err, missing, fs.ErrNotExist)
		_, err = c.ReadFile(t.Context(), missing)
		checkPathError(t, "ReadFile", err, missing, fs.ErrNotExist)
		_, err = c.Open(t.Context(), missing)
		checkPathError(t, "Open", err, missing, fs.ErrNotExist)
		dir += "/dir"
		if err := c.MkdirAll(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if entries, err := c.ReadDir(t.Context(), dir); err != nil || len(entries) != 0 {
			t.Errorf("ReadDir of an empty directory = %v, %v", entries, err)
		}
		if err := c.Mkdir(t.Context(), dir+"/sub"); err != nil {
			t.Fatal(err)
		}
		if err := c.WriteFile(t.Context(), dir+"/file", nil); err != nil {
			t.Fatal(err)
		}
		entries, err := c.ReadDir(t.Context(), dir)
		if err != nil || len(entries) != 2 || entries[0].IsDir() || !entries[1].IsDir() {
			t.Errorf("ReadDir = %v, %v", entries, err)
		}
	})
}
