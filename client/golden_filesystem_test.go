// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/envd-go/envd/client"
)

// recordedCall is a call of the filesystem service and what a real daemon
// answered; there is one for each line of testdata/filesystem.jsonl.
type recordedCall struct {
	Version, Case, Call, Path, Source, Destination string
	Depth, Status                                  int
	ContentType, Body                              string
	Frames                                         []struct {
		Flags byte
		JSON  json.RawMessage
	}
}

func recordedCalls(t *testing.T) []recordedCall {
	t.Helper()
	data, err := os.ReadFile("testdata/filesystem.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []recordedCall
	for line := range bytes.Lines(data) {
		var r recordedCall
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// ServeHTTP answers the recorded call; any other one is told that the path is a
// directory.
func (r recordedCall) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	if path.Base(req.URL.Path) != r.Call {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"entry":{"name":"x","type":"FILE_TYPE_DIRECTORY","path":%q,"permissions":"drwxr-xr-x"}}`, r.Path)
		return
	}
	w.Header().Set("Content-Type", r.ContentType)
	w.WriteHeader(r.Status)
	_, _ = io.WriteString(w, r.Body)
	for _, f := range r.Frames {
		head := binary.BigEndian.AppendUint32([]byte{f.Flags}, uint32(len(f.JSON)))
		_, _ = w.Write(append(head, f.JSON...))
	}
}

// do makes the call and says in a line what came.
func (r recordedCall) do(t *testing.T, c *client.Client) (string, error) {
	ctx := t.Context()
	switch r.Call {
	case "Stat":
		e, err := c.Stat(ctx, r.Path)
		if err != nil {
			return "", err
		}
		return line(e), nil
	case "ListDir":
		entries, err := c.List(ctx, r.Path, client.Depth(max(r.Depth, 1)))
		var lines []string
		for _, e := range entries {
			lines = append(lines, line(e))
		}
		return strings.Join(lines, ", "), err
	case "MakeDir":
		return "", c.Mkdir(ctx, r.Path)
	case "Move":
		return "", c.Rename(ctx, r.Source, r.Destination)
	case "Remove":
		return "", c.RemoveAll(ctx, r.Path)
	case "WatchDir":
		var lines []string
		for event, err := range c.Watch(ctx, "/w/watched") {
			if err != nil {
				return strings.Join(lines, ", "), err
			}
			lines = append(lines, event.Op.String()+" "+event.Name)
		}
		return strings.Join(lines, ", "), nil
	}
	t.Fatalf("no call %q", r.Call)
	return "", nil
}

func line(e *client.Entry) string {
	text := fmt.Sprint(e.Mode(), " ", e.Path())
	if target := e.SymlinkTarget(); target != "" {
		text += " -> " + target
	}
	return text
}

// What real daemons answered means what it meant.
func TestGoldenFilesystem(t *testing.T) {
	type want struct {
		err  error
		text string // of 0.2.0 where it differs, after a newline
	}
	wants := map[string]want{
		"list_dir":            {text: "-rw-r--r-- /w/dir/a.txt, drwxr-xr-x /w/dir/sub, -rw-r--r-- /w/dir/z_after.txt\n---------- /w/dir/a.txt, d--------- /w/dir/sub, ---------- /w/dir/z_after.txt"},
		"list_dir_depth2":     {},
		"list_empty_dir":      {},
		"list_file":           {err: syscall.ENOTDIR},
		"list_loop":           {err: syscall.ELOOP},
		"list_missing":        {err: fs.ErrNotExist},
		"list_nonutf8_name":   {err: errAny},
		"list_symlink_dir":    {},
		"list_with_symlinks":  {text: "Lrwxrwxrwx /w/linkd/broken, Lrwxrwxrwx /w/linkd/to_dir -> /w/dir, Lrwxrwxrwx /w/linkd/to_file -> /w/file.txt\n---------- /w/linkd/broken, ---------- /w/linkd/to_dir, ---------- /w/linkd/to_file"},
		"mkdir_exists":        {err: fs.ErrExist},
		"mkdir_new":           {},
		"mkdir_on_file":       {err: fs.ErrExist},
		"move_file":           {},
		"move_missing":        {err: fs.ErrNotExist},
		"move_onto_dir":       {err: fs.ErrExist},
		"move_overwrite":      {},
		"move_xdev":           {err: syscall.EXDEV},
		"remove_file":         {},
		"remove_missing":      {},
		"remove_tree":         {},
		"remove_under_file":   {err: syscall.ENOTDIR},
		"stat_after_metadata": {},
		"stat_bad_user":       {err: client.ErrUnauthenticated},
		"auth_missing_stat":   {err: client.ErrUnauthenticated},
		"stat_dir":            {text: "drwxr-xr-x /w/dir\nd--------- /w/dir"},
		"stat_empty_file":     {},
		"stat_epoch0":         {},
		"stat_fifo":           {text: "prw-r--r-- /w/fifo\n---------- /w/fifo"},
		"stat_file":           {text: "-rw-r--r-- /w/file.txt\n---------- /w/file.txt"},
		"stat_missing":        {err: fs.ErrNotExist},
		"stat_symlink_broken": {},
		"stat_symlink_file":   {text: "Lrwxrwxrwx /w/link_file -> /w/file.txt\n---------- /w/link_file"},
		"stat_under_file":     {err: syscall.ENOTDIR},
		"watch_create_write_chmod_rename_remove": {err: client.ErrStreamLost,
			text: "create a, write a, chmod a, rename a, create b, remove b"},
	}
	// What only some versions can do.
	since := map[string][]string{"stat_after_metadata": {"0.6.13"}, "stat_symlink_broken": {"0.3.7", "0.5.2", "0.6.13"}}
	for _, r := range recordedCalls(t) {
		t.Run(r.Case+"/"+r.Version, func(t *testing.T) {
			want, ok := wants[r.Case]
			if !ok {
				t.Fatal("nothing is expected of it")
			}
			if able, ok := since[r.Case]; ok && !slices.Contains(able, r.Version) {
				want.err = fs.ErrNotExist
			}
			got, err := r.do(t, serve(t, r.ServeHTTP, client.WithJSON()))
			if (err == nil) != (want.err == nil) || want.err != nil && want.err != errAny && !errors.Is(err, want.err) {
				t.Errorf("error %v, want %v", err, want.err)
			}
			text, oldest, differs := strings.Cut(want.text, "\n")
			if differs && r.Version == "0.2.0" {
				text = oldest
			}
			if text != "" && got != text {
				t.Errorf("got %s\nwant %s", got, text)
			}
		})
	}
}
