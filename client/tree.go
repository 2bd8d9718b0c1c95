// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// SymlinkMode says what becomes of the symlinks of a tree.
type SymlinkMode int

const (
	// SymlinkSkip leaves them out and says so in [Summary.Skipped].
	SymlinkSkip SymlinkMode = iota
	// SymlinkFollow copies what they lead to, where that is inside the tree.
	SymlinkFollow
	// SymlinkCopy makes symlinks of them. On the way up they keep their text,
	// and it takes a command, ln, that runs in the sandbox. On the way down,
	// where the protocol tells only what a link leads to in the end, those that
	// stay inside the tree become relative links to that.
	SymlinkCopy
)

// Summary is what became of a tree.
type Summary struct {
	// Files, Dirs and Links count what was copied; in a dry run, what would
	// be. Directories that were there already count too, the root does not.
	Files, Dirs, Links int
	// Bytes is the sum of the sizes of the files.
	Bytes int64
	// Copied lists it, sorted by path.
	Copied []CopiedEntry
	// Skipped lists what was left out without being excluded, sorted by path.
	Skipped []SkippedEntry
	// Unchanged counts the files that [WithUpdate] found to be there already.
	Unchanged int
	// Removed lists what [WithDelete] removed, relative to the root of the tree
	// and sorted.
	Removed []string
}

// CopiedEntry is one file, directory or symlink that was copied.
type CopiedEntry struct {
	// Path is relative to the root of the tree, with slashes. It is as it came:
	// names in a sandbox may hold any character.
	Path string
	// Mode has the type bits, and the permissions where they are known.
	Mode fs.FileMode
	// Size is the number of bytes of a file.
	Size int64
}

// SkippedEntry is something that was left out.
type SkippedEntry struct {
	// Path is relative to the root of the tree, with slashes.
	Path string
	// Reason says why.
	Reason string
}

type treeOptions struct {
	filter    filter
	parallel  int
	dryRun    bool
	keepGoing bool
	preserve  bool
	symlinks  SymlinkMode
	update    bool
	del       bool
}

// WithParallel moves n things at a time. For UploadDir and DownloadDir these are
// files, and the default is [DefaultParallel].
//
// For ReadFile, Download, WriteFile and Upload these are parts of the one file,
// and the default is 1. Several pay where the way is long: with one connection
// a sender waits for the other side's consent after each window of bytes. A
// download asks for ranges of 1 MiB and holds up to 2n of them; files whose
// change would not be noticed, and those of servers without ranges, come in one
// piece as without the option. An upload sends parts of 8 MiB or more under
// temporary names, lets envd join them ([Client.Compose], envd 0.5.5), and so is
// atomic as with [WithAtomic]; it needs a reader that is an [io.ReaderAt] and an
// [io.Seeker], such as a regular file. What cannot be cut up, has metadata, or
// goes to an older envd is sent in one piece. A part that fails is sent again.
func WithParallel(n int) TransferOption {
	return transferOption{optParallel | optStreams, "WithParallel", func(t *transferOptions) error {
		if n < 1 {
			return fmt.Errorf("%d is less than one: %w", n, fs.ErrInvalid)
		}
		if t.allowed&optStreams != 0 {
			t.streams = n
		} else {
			t.tree.parallel = n
		}
		return nil
	}}
}

// WithExclude leaves out what one of the patterns matches, a directory with all
// that is in it; exclusion wins over inclusion. Patterns are those of
// [path.Match], element by element, and the element ** stands for any number of
// elements, none among them, or at the end for at least one. One without a slash matches names at any depth
// ("*.pyc"); one with a slash matches paths from the root of the tree on
// ("src/**/*.go", "/build"); one with a slash at its end matches directories
// only ("node_modules/"). For UploadDir and DownloadDir.
func WithExclude(patterns ...string) TransferOption {
	return transferOption{optPatterns, "WithExclude", func(t *transferOptions) error {
		return addPatterns(&t.tree.filter.exclude, patterns)
	}}
}

// WithInclude copies only what one of the patterns matches, and all that is in
// a directory that one matches. The patterns are those of [WithExclude].
// Directories are made as far as they are needed. For UploadDir and
// DownloadDir.
func WithInclude(patterns ...string) TransferOption {
	return transferOption{optPatterns, "WithInclude", func(t *transferOptions) error {
		return addPatterns(&t.tree.filter.include, patterns)
	}}
}

func addPatterns(list *[]pattern, texts []string) error {
	for _, text := range texts {
		p, err := parsePattern(text)
		if err != nil {
			return err
		}
		*list = append(*list, p)
	}
	return nil
}

// WithDryRun looks at the tree and changes nothing. The summary says what would
// be copied. For UploadDir and DownloadDir.
func WithDryRun() TransferOption {
	return transferOption{optDryRun, "WithDryRun", func(t *transferOptions) error {
		t.tree.dryRun = true
		return nil
	}}
}

// WithKeepGoing copies what can be copied when something fails, and reports all
// failures at the end. Without it the first one stops the rest. For UploadDir
// and DownloadDir.
func WithKeepGoing() TransferOption {
	return transferOption{optKeepGoing, "WithKeepGoing", func(t *transferOptions) error {
		t.tree.keepGoing = true
		return nil
	}}
}

// WithPreserve keeps the permission bits and the modification times of files,
// and the permission bits of directories. On the way up the protocol has no
// call for that, so chmod and touch run in the sandbox. Owners, groups, setuid
// and the like, extended attributes and hard links are never kept. Without it
// new files of a sandbox have the mode 0644, and on the way down files have the
// bits that the umask leaves. For UploadDir and DownloadDir.
func WithPreserve() TransferOption {
	return transferOption{optPreserve, "WithPreserve", func(t *transferOptions) error {
		t.tree.preserve = true
		return nil
	}}
}

// WithSymlinks says what becomes of symlinks. The default is [SymlinkSkip].
// Before envd 0.2.5 a sandbox does not tell its symlinks from files, and they
// are followed on the way down. For UploadDir and DownloadDir.
func WithSymlinks(mode SymlinkMode) TransferOption {
	return transferOption{optSymlinks, "WithSymlinks", func(t *transferOptions) error {
		if mode < SymlinkSkip || mode > SymlinkCopy {
			return fmt.Errorf("mode %d: %w", mode, fs.ErrInvalid)
		}
		t.tree.symlinks = mode
		return nil
	}}
}

// maxTreeEntries bounds what a tree may make this program hold.
const maxTreeEntries = 1 << 20

// maxPath is the longest path that a daemon handles. It ends endless trees.
const maxPath = 4096

// treeItem is something to copy.
type treeItem struct {
	rel     string
	mode    fs.FileMode
	hasPerm bool
	size    int64
	modTime time.Time
	link    string // the text of a link to make
}

// treePlan is what a look at the source found.
type treePlan struct {
	opts    *treeOptions
	items   []treeItem
	skipped []SkippedEntry
	errs    []error
	// seen has every path that the source has, copied or not.
	seen      map[string]bool
	unchanged int
	removed   []string
}

var errStopWalk = errors.New("stop")

// add takes an entry into the plan.
func (p *treePlan) add(item treeItem) error {
	if len(p.items) >= maxTreeEntries {
		p.errs = append(p.errs, fmt.Errorf("tree has more than %d entries", maxTreeEntries))
		return errStopWalk
	}
	p.items = append(p.items, item)
	return nil
}

func (p *treePlan) skip(rel, reason string) {
	p.skipped = append(p.skipped, SkippedEntry{Path: rel, Reason: reason})
}

// fail notes an error. It returns errStopWalk if that ends the walk.
func (p *treePlan) fail(err error) error {
	p.errs = append(p.errs, err)
	if p.opts.keepGoing {
		return nil
	}
	return errStopWalk
}

// prune drops directories that were only looked through: those that nobody
// asked for and nothing is copied into.
func (p *treePlan) prune() {
	if len(p.opts.filter.include) == 0 {
		return
	}
	needed := map[string]bool{}
	for _, item := range p.items {
		if item.mode.IsDir() && !p.opts.filter.includes(item.rel, true) {
			continue
		}
		for dir := item.rel; dir != "."; dir = path.Dir(dir) {
			needed[dir] = true
		}
	}
	p.items = slices.DeleteFunc(p.items, func(item treeItem) bool { return !needed[item.rel] })
}

// copier copies the items of a plan to their destination.
type copier interface {
	// dirs makes the directories, which come with parents first.
	dirs(ctx context.Context, items []treeItem, done func(treeItem, error) bool)
	// batch says how many of the next files are copied together, 1 at least.
	batch(items []treeItem) int
	// files copies a batch, and tells of each file with the bytes that it had.
	files(ctx context.Context, items []treeItem, done func(treeItem, error))
	links(ctx context.Context, items []treeItem, done func(treeItem, error) bool)
	// finish sets what can only be set at the end.
	finish(ctx context.Context, items []treeItem) []error
}

// treeRun carries a plan out.
type treeRun struct {
	plan *treePlan
	to   copier

	cancel context.CancelFunc
	mu     sync.Mutex
	failed bool
	copied []treeItem
	errs   []error
}

// run carries the plan out and sums up.
func (p *treePlan) run(ctx context.Context, to copier) (*Summary, error) {
	p.prune()
	if err := ctx.Err(); err != nil {
		return p.summary(nil), errors.Join(append(p.errs, err)...)
	}
	if p.opts.dryRun || len(p.errs) > 0 && !p.opts.keepGoing {
		copied := p.items
		if !p.opts.dryRun {
			copied = nil
		}
		return p.summary(copied), joinErrors(p.errs)
	}
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &treeRun{plan: p, to: to, cancel: cancel, errs: p.errs}
	r.carryOut(rctx)
	if err := ctx.Err(); err != nil && !slices.ContainsFunc(r.errs, func(e error) bool { return errors.Is(e, err) }) {
		r.errs = append(r.errs, err)
	}
	return p.summary(r.copied), joinErrors(r.errs)
}

func (r *treeRun) carryOut(ctx context.Context) {
	kind := func(want fs.FileMode) []treeItem {
		var items []treeItem
		for _, item := range r.plan.items {
			if item.mode.Type() == want {
				items = append(items, item)
			}
		}
		return items
	}
	done := func(item treeItem, err error) bool {
		r.done(item, err)
		return ctx.Err() == nil
	}
	// Directories come first: parallel uploads into a new tree collide on old
	// daemons.
	if dirs := kind(fs.ModeDir); len(dirs) > 0 && ctx.Err() == nil {
		r.to.dirs(ctx, dirs, done)
	}
	r.files(ctx, kind(0))
	if links := kind(fs.ModeSymlink); len(links) > 0 && ctx.Err() == nil {
		r.to.links(ctx, links, done)
	}
	if r.plan.opts.preserve && ctx.Err() == nil {
		r.errs = append(r.errs, r.to.finish(ctx, r.copied)...)
	}
}

// files copies the files, several batches at a time.
func (r *treeRun) files(ctx context.Context, items []treeItem) {
	batches := r.batches(items)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(r.plan.opts.parallel, len(batches)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(batches) {
					return
				}
				r.to.files(ctx, batches[i], r.done)
			}
		})
	}
	workers.Wait()
}

func (r *treeRun) batches(items []treeItem) [][]treeItem {
	var all [][]treeItem
	for len(items) > 0 {
		n := r.to.batch(items)
		all = append(all, items[:n])
		items = items[n:]
	}
	return all
}

// done notes what became of an item. The first failure stops the rest, unless
// asked not to; what fails because of that is not reported.
func (r *treeRun) done(item treeItem, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.copied = append(r.copied, item)
		return
	}
	if skip, ok := errors.AsType[skipError](err); ok {
		r.plan.skip(item.rel, string(skip))
		return
	}
	if r.failed && errors.Is(err, context.Canceled) {
		return
	}
	r.errs = append(r.errs, err)
	if !r.plan.opts.keepGoing {
		r.failed = true
		r.cancel()
	}
}

// skipError is the reason why something turned out not to be copied.
type skipError string

func (e skipError) Error() string { return string(e) }

func (p *treePlan) summary(copied []treeItem) *Summary {
	s := &Summary{Skipped: p.skipped, Unchanged: p.unchanged, Removed: p.removed}
	slices.SortFunc(copied, func(a, b treeItem) int { return cmp.Compare(a.rel, b.rel) })
	slices.Sort(s.Removed)
	slices.SortFunc(s.Skipped, func(a, b SkippedEntry) int { return cmp.Compare(a.Path, b.Path) })
	for _, item := range copied {
		switch {
		case item.mode.IsDir():
			s.Dirs++
			item.size = 0
		case item.mode&fs.ModeSymlink != 0:
			s.Links++
			item.size = 0
		default:
			s.Files++
			s.Bytes += item.size
		}
		s.Copied = append(s.Copied, CopiedEntry{Path: item.rel, Mode: item.mode, Size: item.size})
	}
	return s
}

// joinErrors joins errors in an order that does not depend on who was first.
func joinErrors(errs []error) error {
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(pathOf(a), pathOf(b)) })
	return errors.Join(errs...)
}

func pathOf(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Path
	}
	return ""
}

// oneAtATime makes a callback fit for several goroutines.
func oneAtATime(fn func(Progress)) func(Progress) {
	if fn == nil {
		return nil
	}
	var mu sync.Mutex
	return func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		fn(p)
	}
}

// treeError names a path of a tree. Such a path may come from the sandbox, so
// it is made fit for terminals.
func treeError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: escapeControls(path), Err: bare(err)}
}

// joinPath puts a relative path below a directory of the sandbox.
func joinPath(dir, rel string) string {
	if rel == "." || rel == "" {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + rel
}

func joinRel(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
