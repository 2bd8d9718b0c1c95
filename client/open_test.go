// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/envd-go/envd/client"
)

func TestOpen(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		data := randomBytes(300_000)
		path := dir + "/file"
		if err := c.WriteFile(t.Context(), path, data); err != nil {
			t.Fatal(err)
		}
		f, err := c.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Size() != int64(len(data)) || f.Name() != path {
			t.Errorf("Size, Name = %d, %q, want %d, %q", f.Size(), f.Name(), len(data), path)
		}
		if at := f.ModTime(); !at.IsZero() && time.Since(at).Abs() > time.Hour {
			t.Errorf("ModTime = %v", at)
		}
		first := make([]byte, 1000)
		if _, err := io.ReadFull(f, first); err != nil || !bytes.Equal(first, data[:1000]) {
			t.Fatalf("Read: wrong bytes or %v", err)
		}
		var wg sync.WaitGroup
		for _, off := range []int64{0, 1, 4096, 299_000, 299_999} {
			wg.Go(func() {
				p := make([]byte, 1000)
				n, err := f.ReadAt(p, off)
				want := data[off:min(off+1000, 300_000)]
				if !bytes.Equal(p[:n], want) {
					t.Errorf("ReadAt(%d) gave %d bytes, or wrong ones", off, n)
				}
				if (err == io.EOF) != (len(want) < 1000) || err != nil && err != io.EOF {
					t.Errorf("ReadAt(%d) = %v", off, err)
				}
			})
		}
		wg.Wait()
		if n, err := f.ReadAt(first, 300_000); n != 0 || err != io.EOF {
			t.Errorf("ReadAt at the end = %d, %v, want io.EOF", n, err)
		}
		if _, err := f.ReadAt(first, -1); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("ReadAt(-1) = %v, want fs.ErrInvalid", err)
		}
		if at, err := f.Seek(-10, io.SeekEnd); at != 299_990 || err != nil {
			t.Errorf("Seek = %d, %v", at, err)
		}
		if rest, err := io.ReadAll(f); err != nil || !bytes.Equal(rest, data[299_990:]) {
			t.Errorf("after Seek to the end: %d bytes, %v", len(rest), err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.Read(first); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("Read after Close = %v, want fs.ErrClosed", err)
		}
		if _, err := f.ReadAt(first, 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("ReadAt after Close = %v, want fs.ErrClosed", err)
		}
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("second Close = %v, want fs.ErrClosed", err)
		}
	})
}

// The reader keeps all the rules of io.Reader, io.Seeker and io.ReaderAt.
func TestOpenIotest(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		for _, size := range []int{0, 1, 100} {
			data := randomBytes(size)
			if err := c.WriteFile(t.Context(), dir+"/file", data); err != nil {
				t.Fatal(err)
			}
			f, err := c.Open(t.Context(), dir+"/file")
			if err != nil {
				t.Fatal(err)
			}
			if err := iotest.TestReader(f, data); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
			f.Close()
		}
	})
}

// Two versions of a file are never mixed.
func TestOpenChanged(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		path := dir + "/file"
		data := bytes.Repeat([]byte("1"), 100_000)
		if err := c.WriteFile(t.Context(), path, data); err != nil {
			t.Fatal(err)
		}
		f, err := c.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := make([]byte, 10)
		if _, err := f.ReadAt(p, 50_000); err != nil {
			t.Fatal(err)
		}
		if tellsTimes(t, c, path) {
			// The same size, in the same second.
			if err := c.WriteFile(t.Context(), path, bytes.Repeat([]byte("2"), 100_000)); err != nil {
				t.Fatal(err)
			}
			if n, err := f.ReadAt(p, 50_000); !errors.Is(err, client.ErrFileChanged) {
				t.Errorf("ReadAt after a change = %q, %v, want ErrFileChanged", p[:n], err)
			}
		}
		if err := c.WriteFile(t.Context(), path, []byte("short")); err != nil {
			t.Fatal(err)
		}
		if n, err := f.ReadAt(p, 0); !errors.Is(err, client.ErrFileChanged) {
			t.Errorf("ReadAt of a shorter file = %q, %v, want ErrFileChanged", p[:n], err)
		}
		if n, err := f.ReadAt(p, 50_000); !errors.Is(err, client.ErrFileChanged) {
			t.Errorf("ReadAt beyond a shorter file = %q, %v, want ErrFileChanged", p[:n], err)
		}
		if _, err := f.Seek(3, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if n, err := f.Read(p); !errors.Is(err, client.ErrFileChanged) {
			t.Errorf("Read after Seek = %q, %v, want ErrFileChanged", p[:n], err)
		}
	})
}

// tellsTimes reports whether the server tells when a file changed.
func tellsTimes(t *testing.T, c *client.Client, path string) bool {
	t.Helper()
	resp, err := c.FilesystemService().Stat(t.Context(), statRequest(path))
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetEntry().GetModifiedTime() != nil
}

// A FIFO that nobody writes to does not hang.
func TestOpenFIFO(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		path := dir + "/fifo"
		if err := c.WriteFile(t.Context(), dir+"/x", nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Command(t.Context(), "mkfifo", path).Run(); err != nil {
			t.Skipf("mkfifo: %v", err)
		}
		_, err := c.Open(t.Context(), path, client.WithIdleTimeout(50*time.Millisecond))
		checkPathError(t, "Open", err, path, client.ErrIdleTimeout)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open = %v, want one that matches context.DeadlineExceeded", err)
		}
		err = c.Download(t.Context(), path, io.Discard, client.WithIdleTimeout(50*time.Millisecond))
		checkPathError(t, "Download", err, path, client.ErrIdleTimeout)
		// Let the daemon's own opening of it end.
		_ = c.Command(t.Context(), "/bin/sh", "-c", `: > "$0"`, path).Run()
	})
}

func TestOpenCancel(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		if err := c.WriteFile(t.Context(), dir+"/file", randomBytes(1<<20)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		f, err := c.Open(ctx, dir+"/file")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cancel()
		if _, err := io.Copy(io.Discard, f); !errors.Is(err, context.Canceled) {
			t.Errorf("Read after cancel = %v, want context.Canceled", err)
		}
	})
}
