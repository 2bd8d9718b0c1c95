// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// maxLinks is how many symlinks are followed from one name.
const maxLinks = 8

// FS returns the directory root of the sandbox as a read-only file system. It
// is an [fs.ReadDirFS], [fs.ReadFileFS], [fs.StatFS], [fs.SubFS], [fs.GlobFS]
// and [fs.ReadLinkFS], for fs.WalkDir, http.FS, os.CopyFS and the like. Nothing
// is asked of the daemon until it is used. The context bounds all use, also of
// the files that are opened.
//
// Names are paths below root, as io/fs has them. As with os.DirFS, a symlink
// inside that leads out of root is followed, in the sandbox: this is a view,
// not a cage. Open, Stat and ReadFile follow links; ReadDir and Lstat describe
// them. ReadLink gives where a link leads in the end: relative to the link if
// that is below root, else an absolute path of the sandbox. Links that lead
// nowhere have no readable text, which is [errors.ErrUnsupported].
//
// What is neither file nor directory can be described but not opened. Before
// envd 0.2.5 permissions and times are zero, and sizes cost a request; before 0.2.6 links look
// like what they lead to, or like plain files.
func (c *Client) FS(ctx context.Context, root string) fs.FS {
	return &remoteFS{client: c, ctx: ctx, root: root}
}

type remoteFS struct {
	client *Client
	ctx    context.Context
	root   string
}

var (
	_ fs.ReadDirFS  = (*remoteFS)(nil)
	_ fs.ReadFileFS = (*remoteFS)(nil)
	_ fs.StatFS     = (*remoteFS)(nil)
	_ fs.SubFS      = (*remoteFS)(nil)
	_ fs.GlobFS     = (*remoteFS)(nil)
	_ fs.ReadLinkFS = (*remoteFS)(nil)
)

// path returns the sandbox's path of a name.
func (f *remoteFS) path(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", fs.ErrInvalid
	}
	return joinPath(f.root, name), checkRPCPath(f.root)
}

// fsError gives an error the name that the caller used, in place of the path.
func fsError(op, name string, err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		err = pe.Err
	}
	return pathError(op, name, err)
}

// Open opens a file or directory, after any symlinks.
func (f *remoteFS) Open(name string) (fs.File, error) {
	entry, err := f.follow(name)
	if err != nil {
		return nil, fsError("open", name, err)
	}
	switch {
	case entry.IsDir():
		return &remoteDir{fsys: f, name: name, entry: entry}, nil
	case entry.Type()&^fs.ModeIrregular != 0:
		return nil, fsError("open", name, fmt.Errorf("not a regular file (%v): %w", entry.Mode(), fs.ErrInvalid))
	}
	at, _ := f.path(name)
	file, err := f.client.Open(f.ctx, at)
	if err != nil {
		return nil, fsError("open", name, err)
	}
	if !entry.HasDetails() {
		entry = entry.sized(file.Size())
	}
	return &remoteFile{File: file, name: name, entry: entry}, nil
}

// ReadFile reads a whole file.
func (f *remoteFS) ReadFile(name string) ([]byte, error) {
	at, err := f.path(name)
	if err != nil {
		return nil, fsError("open", name, err)
	}
	data, err := f.client.ReadFile(f.ctx, at)
	if err != nil {
		return nil, fsError("open", name, err)
	}
	return data, nil
}

// Stat describes what a name leads to.
func (f *remoteFS) Stat(name string) (fs.FileInfo, error) {
	entry, err := f.follow(name)
	if err != nil {
		return nil, fsError("stat", name, err)
	}
	return f.measured(entry, name), nil
}

// Lstat describes a name itself.
func (f *remoteFS) Lstat(name string) (fs.FileInfo, error) {
	entry, err := f.look(name)
	if err != nil {
		return nil, fsError("lstat", name, err)
	}
	return f.measured(entry, name), nil
}

// measured adds the size of a file where the daemon does not tell it, which a
// download does. What looks like a file may be a FIFO there, so that takes only
// so long.
func (f *remoteFS) measured(entry *Entry, name string) *Entry {
	if entry.HasDetails() || !entry.Mode().IsRegular() {
		return entry
	}
	at, err := f.path(name)
	if err != nil {
		return entry
	}
	file, err := f.client.Open(f.ctx, at, WithIdleTimeout(cleanupTimeout))
	if err != nil {
		return entry
	}
	defer file.Close()
	return entry.sized(file.Size())
}

// look describes a name itself.
func (f *remoteFS) look(name string) (*Entry, error) {
	at, err := f.path(name)
	if err != nil {
		return nil, err
	}
	entry, err := f.client.stat(f.ctx, at)
	if err != nil {
		return nil, err
	}
	return entry.renamed(path.Base(name)), nil
}

// follow describes what a name leads to, under that name.
func (f *remoteFS) follow(name string) (*Entry, error) {
	entry, err := f.look(name)
	for range maxLinks {
		if err != nil || entry.Type()&fs.ModeSymlink == 0 {
			break
		}
		target := entry.SymlinkTarget()
		if target == "" {
			return nil, fmt.Errorf("symlink leads nowhere: %w", fs.ErrNotExist)
		}
		entry, err = f.client.stat(f.ctx, target)
	}
	switch {
	case err != nil:
		return nil, err
	case entry.Type()&fs.ModeSymlink != 0:
		return nil, syscall.ELOOP
	}
	return entry.renamed(path.Base(name)), nil
}

// ReadLink returns where a symlink leads.
func (f *remoteFS) ReadLink(name string) (string, error) {
	text, err := f.readLink(name)
	if err != nil {
		return "", fsError("readlink", name, err)
	}
	return text, nil
}

func (f *remoteFS) readLink(name string) (string, error) {
	entry, err := f.look(name)
	if err != nil {
		return "", err
	}
	if entry.Type()&fs.ModeSymlink == 0 {
		return "", fmt.Errorf("not a symlink: %w", fs.ErrInvalid)
	}
	target := entry.SymlinkTarget()
	if target == "" || !path.IsAbs(target) {
		return "", fmt.Errorf("envd does not tell the text of a link that leads nowhere: %w", errors.ErrUnsupported)
	}
	target = path.Clean(target)
	root, err := f.resolvedRoot()
	if err != nil {
		return "", err
	}
	rel, below := strings.CutPrefix(target, strings.TrimSuffix(root, "/")+"/")
	switch {
	case target == root:
		return relativeLink(name, "."), nil
	case below:
		return relativeLink(name, rel), nil
	}
	return target, nil
}

// resolvedRoot returns where root really is.
func (f *remoteFS) resolvedRoot() (string, error) {
	entry, err := f.client.stat(f.ctx, f.root)
	if err != nil {
		return "", err
	}
	if target := entry.SymlinkTarget(); target != "" {
		return path.Clean(target), nil
	}
	return path.Clean(entry.Path()), nil
}

// ReadDir lists a directory, sorted by name.
func (f *remoteFS) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := f.path(name)
	if err != nil {
		return nil, fsError("readdir", name, err)
	}
	entries, err := f.client.list1(f.ctx, at)
	if err != nil {
		return nil, fsError("readdir", name, err)
	}
	list := make([]fs.DirEntry, len(entries))
	for i, e := range entries {
		list[i] = e
		if !e.HasDetails() {
			list[i] = &unmeasured{Entry: e, fsys: f, name: path.Join(name, e.name)}
		}
	}
	return list, nil
}

// unmeasured is an entry whose size is looked for when it is asked for.
type unmeasured struct {
	*Entry
	fsys *remoteFS
	name string
}

func (e *unmeasured) Info() (fs.FileInfo, error) { return e.fsys.Lstat(e.name) }

// Sub returns the file system below a directory.
func (f *remoteFS) Sub(dir string) (fs.FS, error) {
	at, err := f.path(dir)
	if err != nil {
		return nil, fsError("sub", dir, err)
	}
	return &remoteFS{client: f.client, ctx: f.ctx, root: at}, nil
}

// Glob returns the names that match the pattern.
func (f *remoteFS) Glob(pattern string) ([]string, error) {
	return fs.Glob(withoutGlob{f}, pattern)
}

// withoutGlob hides Glob from fs.Glob.
type withoutGlob struct{ fsys *remoteFS }

func (w withoutGlob) Open(name string) (fs.File, error)          { return w.fsys.Open(name) }
func (w withoutGlob) Stat(name string) (fs.FileInfo, error)      { return w.fsys.Stat(name) }
func (w withoutGlob) ReadDir(name string) ([]fs.DirEntry, error) { return w.fsys.ReadDir(name) }

// remoteFile is a regular file that is open, with Seek and ReadAt.
type remoteFile struct {
	*File
	name  string
	entry *Entry
}

var (
	_ io.ReadSeeker = (*remoteFile)(nil)
	_ io.ReaderAt   = (*remoteFile)(nil)
)

func (f *remoteFile) Stat() (fs.FileInfo, error) { return f.entry, nil }

func (f *remoteFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	return n, f.named("read", err)
}

func (f *remoteFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	return n, f.named("read", err)
}

func (f *remoteFile) Seek(offset int64, whence int) (int64, error) {
	at, err := f.File.Seek(offset, whence)
	return at, f.named("seek", err)
}

func (f *remoteFile) Close() error { return f.named("close", f.File.Close()) }

func (f *remoteFile) named(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return fsError(op, f.name, err)
}

// remoteDir is a directory that is open. It is listed when that is first asked
// for.
type remoteDir struct {
	fsys   *remoteFS
	name   string
	entry  *Entry
	list   []fs.DirEntry
	listed bool
	closed bool
}

var _ fs.ReadDirFile = (*remoteDir)(nil)

func (d *remoteDir) Stat() (fs.FileInfo, error) { return d.entry, nil }

func (d *remoteDir) Read([]byte) (int, error) { return 0, fsError("read", d.name, syscall.EISDIR) }

func (d *remoteDir) Close() error {
	if d.closed {
		return fsError("close", d.name, fs.ErrClosed)
	}
	d.closed, d.list = true, nil
	return nil
}

// ReadDir returns the next n entries, or all that are left if n is not
// positive.
func (d *remoteDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, fsError("readdir", d.name, fs.ErrClosed)
	}
	if !d.listed {
		list, err := d.fsys.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.list, d.listed = list, true
	}
	if n > 0 && len(d.list) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.list) {
		n = len(d.list)
	}
	next := d.list[:n:n]
	d.list = d.list[n:]
	return next, nil
}
