// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

const opDownloadDir = "download"

// DownloadDir copies what is in the directory remote of the sandbox into the
// local one, which is made if it is not there. Files that are there already are
// replaced, each when it is complete; others stay. Devices, sockets and pipes
// are left out; symlinks are as [WithSymlinks] says.
//
// The sandbox is not trusted: nothing is written outside the local directory,
// whatever names and symlinks it sends. A name that this system cannot have is
// an error, and so are two that it cannot tell apart.
//
// The summary and the error are as those of [Client.UploadDir]. Control
// characters in the paths of errors are escaped.
//
// Options for DownloadDir are WithParallel, WithInclude, WithExclude,
// WithDryRun, WithKeepGoing, WithPreserve, WithSymlinks, WithMaxBytes,
// WithProgress, WithIdleTimeout, WithRetries and WithGzip.
func (c *Client) DownloadDir(ctx context.Context, remote, local string, opts ...TransferOption) (*Summary, error) {
	fail := func(err error) (*Summary, error) {
		return &Summary{}, &fs.PathError{Op: opDownloadDir, Path: remote, Err: err}
	}
	o, err := newTransferOptions(optsDownloadDir, opts)
	if err == nil {
		err = checkFilePath(remote)
	}
	if err != nil {
		return fail(err)
	}
	o.progress = oneAtATime(o.progress)
	entry, err := c.statEntry(ctx, opDownloadDir, remote)
	switch {
	case err != nil:
		return fail(err)
	case entry.GetType() != filesystempb.FileType_FILE_TYPE_DIRECTORY:
		return fail(syscall.ENOTDIR)
	}
	down := &downloader{client: c, remote: remote, local: local, opts: o}
	foldsCase := false
	if !o.tree.dryRun {
		if err := os.MkdirAll(local, 0o777); err != nil {
			return &Summary{}, err
		}
		if down.root, err = os.OpenRoot(local); err != nil {
			return &Summary{}, err
		}
		defer down.root.Close()
		if foldsCase, err = ignoresCase(down.root); err != nil {
			return &Summary{}, err
		}
	}
	w := &remoteWalk{ctx: ctx, client: c, remote: remote, foldsCase: foldsCase, plan: &treePlan{opts: &o.tree}, seen: map[string]string{}}
	w.resolved = path.Clean(cmp.Or(entry.GetSymlinkTarget(), entry.GetPath(), remote))
	_ = w.dir(".", []string{w.resolved})
	return w.plan.run(ctx, down)
}

// ignoresCase reports whether the directory takes names that differ only in
// case for the same.
func ignoresCase(root *os.Root) (bool, error) {
	name := ".envd-case-" + strings.ToLower(rand.Text())
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	_ = f.Close()
	defer root.Remove(name)
	_, err = root.Lstat(strings.ToUpper(name))
	return err == nil, nil
}

// remoteWalk plans the download of a tree. It lists directory by directory, so
// that one that cannot be listed does not take the rest along.
type remoteWalk struct {
	ctx    context.Context
	client *Client
	remote string
	// resolved is where the root really is, as far as that can be known.
	resolved  string
	foldsCase bool
	plan      *treePlan
	// seen has the paths that are taken, by what this system tells apart.
	seen map[string]string
}

// dir walks one directory. The stack has the real paths of the directories
// above it and of itself.
func (w *remoteWalk) dir(rel string, stack []string) error {
	dir := joinPath(w.remote, rel)
	if len(dir) > maxPath {
		return w.plan.fail(treeError(opDownloadDir, dir, syscall.ENAMETOOLONG))
	}
	entries, err := w.list(dir)
	if err != nil {
		if w.ctx.Err() != nil {
			return errStopWalk
		}
		return w.plan.fail(treeError(opDownloadDir, dir, err))
	}
	for _, entry := range entries {
		if w.ctx.Err() != nil {
			return errStopWalk
		}
		if err := w.entry(rel, entry, stack); err != nil && err != errTaken {
			return err
		}
	}
	return nil
}

func (w *remoteWalk) entry(dir string, info *filesystempb.EntryInfo, stack []string) error {
	name := info.GetName()
	if err := checkEntryName(name); err != nil {
		return w.plan.fail(treeError(opDownloadDir, joinPath(w.remote, dir), err))
	}
	entry := newEntry(name, name, info)
	rel, mode := joinRel(dir, name), entry.Mode()
	filter := w.plan.opts.filter
	if filter.excludes(rel, mode.IsDir()) {
		return nil
	}
	item := treeItem{rel: rel, mode: mode.Type() | mode.Perm(), hasPerm: entry.HasDetails(), size: entry.Size(), modTime: entry.ModTime()}
	switch {
	case mode&fs.ModeSymlink != 0:
		return w.link(item, entry, stack)
	case mode.IsDir():
		return w.directory(item, append(slices.Clip(stack), joinPath(stack[len(stack)-1], name)))
	case !filter.includes(rel, false):
		return nil
	case mode.IsRegular():
		return w.take(item)
	}
	w.plan.skip(rel, "neither file, directory nor symlink")
	return nil
}

// take adds an item, unless its name is taken.
func (w *remoteWalk) take(item treeItem) error {
	key := item.rel
	if w.foldsCase {
		key = strings.ToLower(key)
	}
	if other, ok := w.seen[key]; ok {
		what := "server listed it twice"
		if other != item.rel {
			what = fmt.Sprintf("this filesystem cannot tell it from %q", other)
		}
		if err := w.plan.fail(treeError(opDownloadDir, joinPath(w.remote, item.rel), fmt.Errorf("%s: %w", what, fs.ErrExist))); err != nil {
			return err
		}
		return errTaken
	}
	w.seen[key] = item.rel
	return w.plan.add(item)
}

var errTaken = errors.New("name is taken")

func (w *remoteWalk) directory(item treeItem, stack []string) error {
	item.mode = fs.ModeDir | item.mode.Perm()
	if err := w.take(item); err != nil {
		return err
	}
	return w.dir(item.rel, stack)
}

func (w *remoteWalk) link(item treeItem, entry *Entry, stack []string) error {
	filter, mode := w.plan.opts.filter, w.plan.opts.symlinks
	toDir := entry.leadsToDir()
	if !filter.includes(item.rel, false) && !(toDir && mode == SymlinkFollow) {
		return nil
	}
	target := entry.SymlinkTarget()
	inside := target == w.resolved || strings.HasPrefix(target, strings.TrimSuffix(w.resolved, "/")+"/")
	switch {
	case mode == SymlinkSkip:
		w.plan.skip(item.rel, "symlink")
	case target == "" || !toDir && entry.info.GetType() != filesystempb.FileType_FILE_TYPE_FILE:
		w.plan.skip(item.rel, "symlink that leads nowhere, or to neither file nor directory")
	case !inside || path.Clean(target) != target:
		w.plan.skip(item.rel, "symlink that leads out of the tree")
	case mode == SymlinkCopy:
		item.link = relativeLink(item.rel, strings.TrimPrefix(strings.TrimPrefix(target, w.resolved), "/"))
		return w.take(item)
	case toDir && slices.Contains(stack, target):
		w.plan.skip(item.rel, "symlink to a directory above it")
	case toDir:
		if filter.excludes(item.rel, true) {
			return nil
		}
		return w.directory(item, append(slices.Clip(stack), target))
	default:
		// Size, time and permissions text are the link's own, the number is not.
		return w.take(treeItem{rel: item.rel, mode: fs.FileMode(entry.info.GetMode()).Perm(), hasPerm: item.hasPerm})
	}
	return nil
}

// relativeLink returns the text of a link at rel that leads to target, both
// relative to the same root.
func relativeLink(rel, target string) string {
	from := strings.Split(rel, "/")
	from = from[:len(from)-1]
	var to []string
	if target = path.Clean(target); target != "." {
		to = strings.Split(target, "/")
	}
	for len(from) > 0 && len(to) > 0 && from[0] == to[0] {
		from, to = from[1:], to[1:]
	}
	return path.Clean(strings.Repeat("../", len(from)) + strings.Join(to, "/"))
}

// checkEntryName refuses names that are none, or none here.
func checkEntryName(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if runtime.GOOS == "windows" && strings.ContainsAny(name, `\:*?"<>|`) || !filepath.IsLocal(name) {
		return fmt.Errorf("this system has no such name as %q: %w", escapeControls(cut(name)), fs.ErrInvalid)
	}
	return nil
}

// downloader copies from a sandbox.
type downloader struct {
	client *Client
	root   *os.Root
	remote string
	local  string
	opts   *transferOptions
}

func (d *downloader) dirs(_ context.Context, items []treeItem, done func(treeItem, error) bool) {
	for _, item := range items {
		err := d.root.MkdirAll(filepath.FromSlash(item.rel), 0o777)
		if err != nil {
			err = localError(d.local, item.rel, err)
		}
		if !done(item, err) {
			return
		}
	}
}

// file downloads into a temporary file beside the destination and renames it.
// batch is one file: the protocol has no download of several.
func (d *downloader) batch([]treeItem) int { return 1 }

func (d *downloader) files(ctx context.Context, items []treeItem, done func(treeItem, error)) {
	for _, item := range items {
		n, err := d.file(ctx, item)
		item.size = n
		done(item, err)
	}
}

func (d *downloader) file(ctx context.Context, item treeItem) (int64, error) {
	remote := joinPath(d.remote, item.rel)
	perm := fs.FileMode(0o666)
	if item.hasPerm {
		perm = item.mode.Perm() | 0o600
	}
	temporary := path.Join(path.Dir(item.rel), ".envd-"+strings.ToLower(rand.Text())+".tmp")
	f, err := d.root.OpenFile(filepath.FromSlash(temporary), os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return 0, localError(d.local, item.rel, err)
	}
	n, err := d.fill(ctx, f, remote)
	if err == nil && d.opts.tree.preserve {
		err = d.setTimes(item, temporary)
	}
	if err == nil {
		if err = d.root.Rename(filepath.FromSlash(temporary), filepath.FromSlash(item.rel)); err != nil {
			err = localError(d.local, item.rel, errors.Unwrap(err))
		}
	}
	if err != nil {
		_ = d.root.Remove(filepath.FromSlash(temporary))
	}
	return n, err
}

func (d *downloader) fill(ctx context.Context, f *os.File, remote string) (int64, error) {
	own := *d.opts
	err := d.client.download(ctx, opDownloadDir, remote, f, &own)
	n, seekErr := f.Seek(0, 1)
	closeErr := f.Close()
	if pe, ok := err.(*fs.PathError); ok {
		if errors.Is(err, syscall.EISDIR) {
			return 0, skipError("symlink to a directory, listed as a file")
		}
		return n, treeError(pe.Op, pe.Path, pe.Err)
	}
	return n, cmp.Or(seekErr, closeErr)
}

// setTimes gives a file the mode and time that it has in the sandbox.
func (d *downloader) setTimes(item treeItem, name string) error {
	name = filepath.FromSlash(name)
	var err error
	if item.hasPerm {
		err = d.root.Chmod(name, item.mode.Perm())
	}
	if err == nil && !item.modTime.IsZero() {
		err = d.root.Chtimes(name, item.modTime, item.modTime)
	}
	if err != nil {
		return localError(d.local, item.rel, err)
	}
	return nil
}

// links makes the links. Only those that stay inside came this far, and the
// root does not follow others either.
func (d *downloader) links(_ context.Context, items []treeItem, done func(treeItem, error) bool) {
	for _, item := range items {
		err := d.link(item)
		if err != nil {
			err = localError(d.local, item.rel, err)
		}
		if !done(item, err) {
			return
		}
	}
}

func (d *downloader) link(item treeItem) error {
	for dir := path.Dir(item.rel); dir != "."; dir = path.Dir(dir) {
		// Below a link that was here before, ".." would lead elsewhere.
		if info, err := d.root.Lstat(filepath.FromSlash(dir)); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is no directory of its own, so a relative link cannot be made in it: %w", dir, fs.ErrInvalid)
		}
	}
	name := filepath.FromSlash(item.rel)
	if info, err := d.root.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		_ = d.root.Remove(name) // an older link gives way
	}
	if err := d.root.Symlink(filepath.FromSlash(item.link), name); err != nil {
		return errors.Unwrap(err) // without the names, which stand beside it
	}
	return nil
}

// finish sets the modes of directories, what is inside before them: a directory
// may allow less than its making took.
func (d *downloader) finish(_ context.Context, items []treeItem) []error {
	var errs []error
	slices.SortFunc(items, insideFirst)
	for _, item := range items {
		if !item.mode.IsDir() || !item.hasPerm {
			continue
		}
		if err := d.root.Chmod(filepath.FromSlash(item.rel), item.mode.Perm()); err != nil {
			errs = append(errs, localError(d.local, item.rel, err))
		}
	}
	return errs
}

// list lists one level, as [Client.ReadDir] does, but leaves it to the caller to
// judge each name. The slash makes envd 0.2.0 look behind a symlink; without it
// one to a directory seems empty there.
func (w *remoteWalk) list(dir string) ([]*filesystempb.EntryInfo, error) {
	c := w.client
	dir = strings.TrimSuffix(dir, "/") + "/"
	for try := 1; ; try++ {
		infos, err := c.listInfos(w.ctx, dir, 1)
		if err == nil && len(infos) == 0 {
			_, err = c.listEmpty(w.ctx, dir, 1)
		}
		if !vanished(err) || try == listTries || c.config.noRetries || !sleep(w.ctx, backoff(try)) {
			return infos, err
		}
	}
}
