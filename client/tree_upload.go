// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

const opUploadDir = "upload"

// UploadDir copies what is in the local directory into the directory remote of
// the sandbox, which is made if it is not there. Files that are there already
// are overwritten, others stay. Small files go up many at a time. Devices,
// sockets and pipes are left out; symlinks are as [WithSymlinks] says. Nothing
// outside the local directory is read, whatever its symlinks say. With
// [WithUpdate] and [WithDelete] it keeps the sandbox's directory like the local
// one, at the cost of a listing.
//
// The summary says what was copied, also next to an error. The error joins a
// [*fs.PathError] for each path that failed, in the order of their paths. What
// was uploaded when the context ends or a file fails stays there.
//
// Options for UploadDir are WithParallel, WithInclude, WithExclude, WithDryRun,
// WithKeepGoing, WithPreserve, WithSymlinks, WithUpdate, WithDelete, WithAtomic,
// WithMetadata, WithProgress, WithIdleTimeout and WithGzip.
func (c *Client) UploadDir(ctx context.Context, local, remote string, opts ...TransferOption) (*Summary, error) {
	o, err := newTransferOptions(optsUploadDir, opts)
	if err == nil {
		err = checkFilePath(remote)
	}
	if err == nil {
		err = c.checkUpload(ctx, opUploadDir, "x", o)
	}
	if err != nil {
		return &Summary{}, &fs.PathError{Op: opUploadDir, Path: remote, Err: err}
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return &Summary{}, err
	}
	defer root.Close()
	o.progress = oneAtATime(o.progress)

	w := &localWalk{ctx: ctx, root: root, local: local, plan: &treePlan{opts: &o.tree, seen: map[string]bool{}}}
	info, err := root.Stat(".")
	if err != nil {
		return &Summary{}, err
	}
	_ = w.dir(".", []fs.FileInfo{info})
	up := &uploader{client: c, root: root, local: local, remote: remote, opts: o}
	if !o.tree.dryRun && (len(w.plan.errs) == 0 || o.tree.keepGoing) && ctx.Err() == nil {
		if up.remote, err = c.makeRoot(ctx, remote); err != nil {
			return w.plan.summary(nil), treeError(opUploadDir, remote, err)
		}
	}
	if len(w.plan.errs) == 0 || o.tree.keepGoing {
		if err := up.reconcile(ctx, w.plan); err != nil {
			return w.plan.summary(nil), err
		}
	}
	return w.plan.run(ctx, up)
}

// makeRoot makes the directory if need be, and returns its absolute path.
func (c *Client) makeRoot(ctx context.Context, remote string) (string, error) {
	entry, err := c.statEntry(ctx, opUploadDir, remote)
	if errors.Is(err, fs.ErrNotExist) {
		entry, err = c.makeDir(ctx, opUploadDir, remote)
	}
	if err != nil {
		return "", err
	}
	if entry.GetType() != filesystempb.FileType_FILE_TYPE_DIRECTORY {
		return "", syscall.ENOTDIR
	}
	return cmp.Or(entry.GetPath(), remote), nil
}

// makeDir makes a directory and its parents.
func (c *Client) makeDir(ctx context.Context, op, path string) (*filesystempb.EntryInfo, error) {
	rctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	resp, err := c.filesystems.MakeDir(rctx, &filesystempb.MakeDirRequest{Path: path})
	return resp.GetEntry(), toError(rctx, domainFile, op, path, err)
}

// localWalk plans the upload of a local tree.
type localWalk struct {
	ctx   context.Context
	root  *os.Root
	local string
	plan  *treePlan
}

// dir walks one directory. The stack has the directories above it and itself.
func (w *localWalk) dir(rel string, stack []fs.FileInfo) error {
	entries, err := w.readDir(rel)
	if err != nil {
		return w.plan.fail(w.error(rel, err))
	}
	for _, entry := range entries {
		if w.ctx.Err() != nil {
			return errStopWalk
		}
		if err := w.entry(joinRel(rel, entry.Name()), stack); err != nil {
			return err
		}
	}
	return nil
}

func (w *localWalk) readDir(rel string) ([]fs.DirEntry, error) {
	dir, err := w.root.Open(filepath.FromSlash(rel))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (w *localWalk) entry(rel string, stack []fs.FileInfo) error {
	info, err := w.root.Lstat(filepath.FromSlash(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it vanished, as if it had never been
	}
	if err != nil {
		return w.plan.fail(w.error(rel, err))
	}
	w.plan.seen[rel] = true
	filter := w.plan.opts.filter
	if filter.excludes(rel, info.IsDir()) {
		return nil
	}
	item := treeItem{rel: rel, mode: info.Mode(), hasPerm: true, size: info.Size(), modTime: info.ModTime()}
	switch mode := info.Mode(); {
	case mode.IsDir():
		if err := w.plan.add(item); err != nil {
			return err
		}
		return w.dir(rel, append(slices.Clip(stack), info))
	case mode&fs.ModeSymlink != 0:
		return w.link(item, stack)
	case !filter.includes(rel, false):
		return nil
	case mode.IsRegular():
		return w.plan.add(item)
	}
	w.plan.skip(rel, "neither file, directory nor symlink")
	return nil
}

func (w *localWalk) link(item treeItem, stack []fs.FileInfo) error {
	switch w.plan.opts.symlinks {
	case SymlinkFollow:
		return w.follow(item, stack)
	case SymlinkCopy:
		if !w.plan.opts.filter.includes(item.rel, false) {
			return nil
		}
		text, err := w.root.Readlink(filepath.FromSlash(item.rel))
		if err != nil {
			return w.plan.fail(w.error(item.rel, err))
		}
		item.link, item.mode = filepath.ToSlash(text), fs.ModeSymlink|item.mode.Perm()
		return w.plan.add(item)
	}
	if w.plan.opts.filter.includes(item.rel, false) {
		w.plan.skip(item.rel, "symlink")
	}
	return nil
}

// follow takes what a link leads to for the link itself. The root refuses to
// leave the tree.
func (w *localWalk) follow(item treeItem, stack []fs.FileInfo) error {
	info, err := w.root.Stat(filepath.FromSlash(item.rel))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.plan.skip(item.rel, "symlink that leads nowhere")
		return nil
	case err != nil:
		w.plan.skip(item.rel, "symlink that cannot be followed inside the tree")
		return nil
	}
	item.mode, item.size, item.modTime = info.Mode(), info.Size(), info.ModTime()
	filter := w.plan.opts.filter
	switch {
	case info.IsDir() && slices.ContainsFunc(stack, func(above fs.FileInfo) bool { return os.SameFile(above, info) }):
		w.plan.skip(item.rel, "symlink to a directory above it")
		return nil
	case info.IsDir():
		if filter.excludes(item.rel, true) {
			return nil
		}
		if err := w.plan.add(item); err != nil {
			return err
		}
		return w.dir(item.rel, append(slices.Clip(stack), info))
	case !filter.includes(item.rel, false):
		return nil
	case info.Mode().IsRegular():
		return w.plan.add(item)
	}
	w.plan.skip(item.rel, "symlink to neither file nor directory")
	return nil
}

// error gives an error of the root the path as the caller knows it.
func (w *localWalk) error(rel string, err error) error { return localError(w.local, rel, err) }

func localError(local, rel string, err error) error {
	op := "open"
	if pe, ok := err.(*fs.PathError); ok {
		op, err = strings.TrimSuffix(pe.Op, "at"), pe.Err
	}
	return treeError(op, filepath.Join(local, filepath.FromSlash(rel)), err)
}

// uploader copies to a sandbox.
type uploader struct {
	client *Client
	root   *os.Root
	local  string
	remote string
	opts   *transferOptions
	// single says that files go up one by one, since the server does not take
	// several with one request.
	single atomic.Bool
}

// dirs makes the directories. Making one makes its parents, so only those
// without others inside are asked for.
func (u *uploader) dirs(ctx context.Context, items []treeItem, done func(treeItem, error) bool) {
	hasChild := map[string]bool{}
	for _, item := range items {
		if i := strings.LastIndexByte(item.rel, '/'); i > 0 {
			hasChild[item.rel[:i]] = true
		}
	}
	for _, item := range items {
		var err error
		if !hasChild[item.rel] {
			path := joinPath(u.remote, item.rel)
			if _, err = u.client.makeDir(ctx, opUploadDir, path); err != nil {
				err = treeError(opUploadDir, path, err)
			}
			if errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTDIR) {
				err = nil
			}
		}
		if !done(item, err) {
			return
		}
	}
}

func (u *uploader) file(ctx context.Context, item treeItem) (int64, error) {
	f, err := u.root.Open(filepath.FromSlash(item.rel))
	if err != nil {
		return 0, localError(u.local, item.rel, err)
	}
	defer f.Close()
	own := *u.opts
	if err := u.client.upload(ctx, opUploadDir, joinPath(u.remote, item.rel), f, &own); err != nil {
		return 0, err
	}
	return f.Seek(0, io.SeekCurrent)
}

// maxBatch is how much of arguments goes into one command.
const (
	maxBatch      = 200
	maxBatchBytes = 64 << 10
)

// linkScript makes the link $2 with the text $1, for each pair, and prints the
// number of each that it could not make, counting from 0. It does not put a
// link inside a directory that stands in the way.
const linkScript = `
n=0
while [ $# -ge 2 ]; do
	if [ -d "$2" ] && [ ! -L "$2" ]; then
		echo "$n a directory is in the way"
	else
		out=$(ln -s -f -n -- "$1" "$2" 2>&1) || echo "$n $out"
	fi
	n=$((n + 1))
	shift 2
done
`

// links makes the links with ln, since the protocol has no call for it.
func (u *uploader) links(ctx context.Context, items []treeItem, done func(treeItem, error) bool) {
	args := func(item treeItem) []string { return []string{item.link, joinPath(u.remote, item.rel)} }
	failed := u.runScript(ctx, linkScript, items, args)
	for i, item := range items {
		if !done(item, failed[i]) {
			return
		}
	}
}

// modeScript gives $3 the mode $1 and the modification time $2, for each three.
// Not every touch reads fractions of a second.
const modeScript = `
n=0
while [ $# -ge 3 ]; do
	out=$({ { [ -z "$2" ] || touch -m -d "@$2" -- "$3" || touch -m -d "@${2%.*}" -- "$3"; } && chmod "$1" -- "$3"; } 2>&1) || echo "$n $out"
	n=$((n + 1))
	shift 3
done
`

// finish sets modes and times with chmod and touch. Directories come last, what
// is inside before them.
func (u *uploader) finish(ctx context.Context, items []treeItem) []error {
	var set []treeItem
	for _, item := range items {
		if item.mode&fs.ModeSymlink == 0 {
			set = append(set, item)
		}
	}
	slices.SortFunc(set, insideFirst)
	args := func(item treeItem) []string {
		when := ""
		if !item.mode.IsDir() {
			when = fmt.Sprintf("%d.%09d", item.modTime.Unix(), item.modTime.Nanosecond())
		}
		return []string{fmt.Sprintf("%04o", item.mode.Perm()), when, joinPath(u.remote, item.rel)}
	}
	failed := u.runScript(ctx, modeScript, set, args)
	var errs []error
	for i := range set {
		if failed[i] != nil {
			errs = append(errs, failed[i])
		}
	}
	return errs
}

// insideFirst orders what is in a directory before the directory.
func insideFirst(a, b treeItem) int { return cmp.Compare(b.rel, a.rel) }

// runScript runs the script on the arguments of all items, in batches, and
// returns the error of each that failed.
func (u *uploader) runScript(ctx context.Context, script string, items []treeItem, args func(treeItem) []string) map[int]error {
	failed := map[int]error{}
	fail := func(i int, err error) { failed[i] = treeError(opUploadDir, joinPath(u.remote, items[i].rel), err) }
	for first := 0; first < len(items); {
		var batch []string
		var inBatch []int
		size, next := 0, first
		for ; next < len(items) && len(inBatch) < maxBatch && size < maxBatchBytes; next++ {
			own := args(items[next])
			if !utf8.ValidString(strings.Join(own, "")) {
				fail(next, fmt.Errorf("name is not UTF-8, which a command cannot be told: %w", fs.ErrInvalid))
				continue
			}
			inBatch = append(inBatch, next)
			for _, arg := range own {
				batch = append(batch, arg)
				size += len(arg) + 1
			}
		}
		first = next
		if len(inBatch) == 0 {
			continue
		}
		out, err := u.client.Command(ctx, "/bin/sh", append([]string{"-c", script, "sh"}, batch...)...).Output()
		reasons := scriptReasons(string(out))
		for n, i := range inBatch {
			cause := err
			if reason, ok := reasons[n]; ok {
				cause = errors.New(reason)
			}
			if cause != nil {
				fail(i, cause)
			}
		}
	}
	return failed
}

// scriptReasons reads the lines that a script printed for what it could not do.
func scriptReasons(out string) map[int]string {
	reasons := map[int]string{}
	for line := range strings.Lines(out) {
		number, reason, ok := strings.Cut(strings.TrimRight(line, "\n"), " ")
		n, err := strconv.Atoi(number)
		if ok && err == nil && n >= 0 {
			reasons[n] = cut(escapeControls(reason))
		}
	}
	return reasons
}
