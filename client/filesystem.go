// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/internal/envdversion"
)

// listTries is how often a listing is asked for that fails because something
// vanished under it.
const listTries = 4

// Stat describes what is at the path. Of a symlink that is the link itself, as
// with os.Lstat; envd before 0.2.6 follows it. A path that does not exist is
// [fs.ErrNotExist]; one below a file matches syscall.ENOTDIR. Every error is an
// [*fs.PathError].
//
// Relative paths begin at the user's home directory, as everywhere.
func (c *Client) Stat(ctx context.Context, path string) (*Entry, error) {
	e, err := c.stat(ctx, path)
	if err != nil {
		return nil, pathError("stat", path, err)
	}
	return e, nil
}

func (c *Client) stat(ctx context.Context, name string) (*Entry, error) {
	if err := checkRPCPath(name); err != nil {
		return nil, err
	}
	info, err := c.statEntry(ctx, "stat", name)
	if err != nil {
		return nil, err
	}
	if info == nil {
		return nil, &Error{Op: "stat", Target: name, Code: CodeInternal, Err: errors.New("server's answer describes nothing")}
	}
	base := info.GetName()
	if checkName(base) != nil && base != "/" {
		base = path.Base(name)
	}
	at := name
	if said := info.GetPath(); !path.IsAbs(name) && path.IsAbs(said) {
		at = said // the daemon knows where the home directory is
	}
	return newEntry(base, at, info), nil
}

// statError returns the error of looking at a path.
func (c *Client) statError(ctx context.Context, path string) error {
	_, err := c.statEntry(ctx, "stat", path)
	return err
}

// ReadDir lists the directory, sorted by name. A symlink to a directory may be
// named. A directory that does not exist is [fs.ErrNotExist], something else
// matches syscall.ENOTDIR. Every error is an [*fs.PathError].
//
// envd lists nothing of a directory in which one name is not UTF-8; that is an
// error which says so.
func (c *Client) ReadDir(ctx context.Context, path string) ([]*Entry, error) {
	entries, err := c.list1(ctx, path)
	if err != nil {
		return nil, pathError("readdir", path, err)
	}
	return entries, nil
}

// ListOption changes what [Client.List] gives.
type ListOption interface {
	applyList(*listOptions) error
}

type listOptions struct{ depth uint32 }

type listOption func(*listOptions) error

func (o listOption) applyList(opts *listOptions) error { return o(opts) }

// Depth makes [Client.List] go n levels deep; 1, which is the default, is the
// directory alone. n must be positive and may be as large as wanted.
func Depth(n int) ListOption {
	return listOption(func(o *listOptions) error {
		if n < 1 {
			return fmt.Errorf("depth %d is not positive: %w", n, fs.ErrInvalid)
		}
		o.depth = uint32(min(int64(n), math.MaxUint32))
		return nil
	})
}

// List lists what is below the directory, in lexical order, each directory
// before what is in it; the directory itself is not listed and symlinks are not
// followed. [Entry.Path] tells where an entry is.
//
// A tree that changes while it is listed is listed again, and at last directory
// by directory without those that vanished, so that the result need not be the
// tree of one moment. Errors are as those of [Client.ReadDir].
func (c *Client) List(ctx context.Context, path string, opts ...ListOption) ([]*Entry, error) {
	o := listOptions{depth: 1}
	for _, opt := range opts {
		if err := opt.applyList(&o); err != nil {
			return nil, pathError("list", path, err)
		}
	}
	entries, err := c.listTree(ctx, path, o.depth)
	if err != nil {
		return nil, pathError("list", path, err)
	}
	return entries, nil
}

// list1 lists one level.
func (c *Client) list1(ctx context.Context, path string) ([]*Entry, error) {
	entries, err := c.listStable(ctx, path, 1)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b *Entry) int { return strings.Compare(a.name, b.name) })
	return entries, nil
}

// listTree lists several levels.
func (c *Client) listTree(ctx context.Context, path string, depth uint32) ([]*Entry, error) {
	if depth <= 1 {
		return c.list1(ctx, path)
	}
	if err := c.gate(ctx, "list", path, envdversion.ListDepth); err != nil {
		return nil, err
	}
	entries, err := c.listStable(ctx, path, depth)
	if !vanished(err) || c.config.noRetries {
		return entries, err
	}
	return c.listByLevel(ctx, path, depth)
}

// listByLevel lists a tree that changes too fast for a listing of the whole.
func (c *Client) listByLevel(ctx context.Context, dir string, depth uint32) ([]*Entry, error) {
	level, err := c.list1(ctx, dir)
	if err != nil || depth == 1 {
		return level, err
	}
	var all []*Entry
	for _, e := range level {
		all = append(all, e)
		if !e.IsDir() || len(e.path) > maxPath {
			continue
		}
		below, err := c.listByLevel(ctx, e.path, depth-1)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			all = all[:len(all)-1]
		case err != nil:
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}

// listStable lists, and lists again when something vanished meanwhile.
func (c *Client) listStable(ctx context.Context, path string, depth uint32) ([]*Entry, error) {
	if err := checkRPCPath(path); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		entries, err := c.listOnce(ctx, path, depth)
		if !vanished(err) || try == listTries || c.config.noRetries {
			return entries, err
		}
		if !sleep(ctx, backoff(1)) {
			return nil, toError(ctx, domainFile, "list", path, ctx.Err())
		}
	}
}

// vanished reports whether a listing failed because a directory inside it went
// away, or because a file did, on which daemons before 0.4.2 drop the
// connection.
func vanished(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || errors.Is(err, ErrSandboxNotFound) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if _, answered := errors.AsType[*HTTPError](err); answered {
		return false
	}
	dropped := e.Code == CodeUnavailable && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF))
	return dropped || hasText(err, textReadingDir) && errors.Is(err, fs.ErrNotExist)
}

func (c *Client) listOnce(ctx context.Context, path string, depth uint32) ([]*Entry, error) {
	infos, err := c.listInfos(ctx, path, depth)
	if err != nil {
		return nil, err
	}
	if len(infos) == 0 {
		return c.listEmpty(ctx, path, depth)
	}
	return entriesOf(path, depth, infos)
}

// listEmpty decides what an empty listing means: some daemons answer so where
// there is no directory, and those before 0.2.2 for a symlink to one.
func (c *Client) listEmpty(ctx context.Context, path string, depth uint32) ([]*Entry, error) {
	e, err := c.stat(ctx, path)
	switch {
	case err != nil:
		return nil, err
	case e.Type() == fs.ModeSymlink && e.info.GetType() == filesystempb.FileType_FILE_TYPE_UNSPECIFIED:
		return nil, &Error{Op: "list", Target: path, Code: CodeNotFound,
			Err: fmt.Errorf("symlink leads nowhere: %w", fs.ErrNotExist)}
	case !e.leadsToDir():
		return nil, &Error{Op: "list", Target: path, Code: CodeInvalidArgument, Err: syscall.ENOTDIR}
	case e.HasDetails() || strings.HasSuffix(path, "/"):
		return nil, nil
	}
	infos, err := c.listInfos(ctx, path+"/", depth)
	if err != nil {
		return nil, err
	}
	return entriesOf(path, depth, infos)
}

func (c *Client) listInfos(ctx context.Context, path string, depth uint32) ([]*filesystempb.EntryInfo, error) {
	rctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	resp, err := c.filesystems.ListDir(rctx, &filesystempb.ListDirRequest{Path: path, Depth: depth})
	return resp.GetEntries(), toError(rctx, domainFile, "list", path, err)
}

func entriesOf(dir string, depth uint32, infos []*filesystempb.EntryInfo) ([]*Entry, error) {
	entries := make([]*Entry, 0, len(infos))
	seen := make(map[string]bool, len(infos))
	for _, info := range infos {
		at, err := childPath(dir, info.GetName(), info.GetPath(), depth)
		if err != nil {
			return nil, err
		}
		if seen[at] {
			return nil, fmt.Errorf("server sent %q twice: %w", escapeControls(at), fs.ErrInvalid)
		}
		seen[at] = true
		entries = append(entries, newEntry(info.GetName(), at, info))
	}
	return entries, nil
}

// Mkdir makes the directory, with mode 0755 and owned by the client's user.
// What is there already is [fs.ErrExist]. Unlike os.Mkdir it makes missing
// parents too: envd has no other way. Every error is an [*fs.PathError].
func (c *Client) Mkdir(ctx context.Context, path string) error {
	if err := c.mkdir(ctx, path); err != nil {
		return pathError("mkdir", path, err)
	}
	return nil
}

// MkdirAll makes the directory and its missing parents. A directory that is
// there already, or a symlink to one, is left as it is; something else matches
// syscall.ENOTDIR. Every error is an [*fs.PathError].
func (c *Client) MkdirAll(ctx context.Context, path string) error {
	err := c.mkdir(ctx, path)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == CodeAlreadyExists {
		var there *Entry
		if there, err = c.stat(ctx, path); err == nil && !there.leadsToDir() {
			err = syscall.ENOTDIR
		}
	}
	if err != nil {
		return pathError("mkdir", path, err)
	}
	return nil
}

func (c *Client) mkdir(ctx context.Context, path string) error {
	if err := checkRPCPath(path); err != nil {
		return err
	}
	_, err := c.makeDir(ctx, "mkdir", path)
	return err
}

// Rename moves a file, directory or symlink. A file at newPath is replaced, in
// one step; a directory there, even an empty one, is [fs.ErrExist]. Unlike
// os.Rename it makes missing parents of newPath, and leaves them there even if
// it fails then. Between file systems it fails with syscall.EXDEV. Every error
// is an [*os.LinkError].
//
// After a lost connection it is not known whether the move was done.
func (c *Client) Rename(ctx context.Context, oldPath, newPath string) error {
	err := checkRPCPath(oldPath)
	if err == nil {
		err = checkRPCPath(newPath)
	}
	if err == nil {
		rctx, cancel := c.withRequestTimeout(ctx)
		defer cancel()
		_, err = c.filesystems.Move(rctx, &filesystempb.MoveRequest{Source: oldPath, Destination: newPath})
		err = toError(rctx, domainFile, "rename", oldPath, err)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldPath, New: newPath, Err: bare(err)}
	}
	return nil
}

// RemoveAll removes what is at the path, and for a directory all that is in it.
// Of a symlink it removes the link. A path that does not exist is no error.
// Every error is an [*fs.PathError]; part of a directory may be gone then.
//
// There is no Remove that spares directories with something in them: envd
// cannot do that in one step.
func (c *Client) RemoveAll(ctx context.Context, path string) error {
	err := checkRPCPath(path)
	if err == nil {
		err = c.removeFile(ctx, "remove", path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pathError("remove", path, err)
	}
	return nil
}

// checkRPCPath refuses paths that a call cannot carry.
func checkRPCPath(path string) error {
	if !utf8.ValidString(path) {
		return fmt.Errorf("path is not UTF-8, which the protocol requires: %w", fs.ErrInvalid)
	}
	return checkFilePath(path)
}

func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: bare(err)}
}

// bare returns the error without the operation and path in its text, for an
// error around it that has them.
func bare(err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	short := *e
	short.bare = true
	return &short
}
