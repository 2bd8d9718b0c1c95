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
	"time"

	"github.com/envd-go/envd/internal/envdversion"
)

// WithUpdate uploads only files of which the sandbox has no copy with the same
// size, mode and modification time, and keeps modes and times as [WithPreserve]
// does, so that the next update sees what has not changed. Where the sandbox's
// touch knows whole seconds only, so does the comparison. The others are counted
// in [Summary.Unchanged]. Daemons that do not tell the sizes and times of files
// (before envd 0.2.5) get everything. For UploadDir.
func WithUpdate() TransferOption {
	return transferOption{optUpdate, "WithUpdate", func(t *transferOptions) error {
		t.tree.update, t.tree.preserve = true, true
		return nil
	}}
}

// WithDelete removes what the sandbox's directory has and the local one has not,
// before anything is uploaded: afterwards both are alike. What the patterns
// leave out stays, and nothing is removed when a part of the local tree could
// not be read. [Summary.Removed] lists what was removed; a directory stands for
// all that was in it. For UploadDir.
func WithDelete() TransferOption {
	return transferOption{optUpdate, "WithDelete", func(t *transferOptions) error {
		t.tree.del = true
		return nil
	}}
}

// reconcile compares the plan with what the sandbox has: it takes out what need
// not be uploaded, and removes what should not be there.
func (u *uploader) reconcile(ctx context.Context, plan *treePlan) error {
	if !plan.opts.update && !plan.opts.del {
		return nil
	}
	there, err := u.listRemote(ctx, plan)
	if err != nil {
		return err
	}
	if plan.opts.del && len(plan.errs) == 0 {
		if err := u.removeSurplus(ctx, plan, there); err != nil {
			return err
		}
	}
	if !plan.opts.update {
		return nil
	}
	plan.items = slices.DeleteFunc(plan.items, func(item treeItem) bool {
		same := isSame(item, there[item.rel])
		if same && item.mode.IsRegular() {
			plan.unchanged++
		}
		return same
	})
	return nil
}

// listRemote lists the sandbox's directory by relative path: as deep as the
// local tree goes and one level more, or all of it where a pattern may keep
// something in a directory that is to be removed.
func (u *uploader) listRemote(ctx context.Context, plan *treePlan) (map[string]*Entry, error) {
	depth := uint32(1)
	for _, item := range plan.items {
		depth = max(depth, uint32(2+strings.Count(item.rel, "/")))
	}
	if filter := plan.opts.filter; plan.opts.del && len(filter.include)+len(filter.exclude) > 0 {
		depth = maxPath
	}
	list := u.client.listTree
	if u.client.server(ctx).lacks(envdversion.ListDepth) {
		list = u.client.listByLevel
	}
	entries, err := list(ctx, u.remote, depth)
	if errors.Is(err, fs.ErrNotExist) && plan.opts.dryRun {
		return nil, nil
	}
	if err != nil {
		return nil, treeError(opUploadDir, u.remote, err)
	}
	there := make(map[string]*Entry, len(entries))
	for _, e := range entries {
		rel, ok := strings.CutPrefix(e.Path(), strings.TrimSuffix(u.remote, "/")+"/")
		if !ok {
			return nil, treeError(opUploadDir, u.remote, fmt.Errorf("server lists %q in it, which is elsewhere", cut(escapeControls(e.Path()))))
		}
		there[rel] = e
	}
	return there, nil
}

// isSame reports whether the sandbox has the file or directory already.
func isSame(item treeItem, e *Entry) bool {
	switch {
	case e == nil || !e.HasDetails() || e.Type() != item.mode.Type() || e.Mode().Perm() != item.mode.Perm():
		return false
	case item.mode.IsDir():
		return true
	}
	return item.mode.IsRegular() && e.Size() == item.size && sameTime(e.ModTime(), item.modTime)
}

// sameTime compares times of which one may have been set in whole seconds.
func sameTime(there, here time.Time) bool {
	return there.Equal(here) || !there.IsZero() && there.Nanosecond() == 0 && there.Equal(here.Truncate(time.Second))
}

// removeSurplus removes what the local tree does not have, or has as something
// else.
func (u *uploader) removeSurplus(ctx context.Context, plan *treePlan, there map[string]*Entry) error {
	removed := ""
	for _, rel := range surplus(plan, there) {
		if removed != "" && strings.HasPrefix(rel, removed+"/") {
			continue // went with its directory
		}
		if !plan.opts.dryRun {
			name := joinPath(u.remote, rel)
			if err := u.client.removeFile(ctx, opUploadDir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return treeError(opUploadDir, name, err)
			}
		}
		plan.removed = append(plan.removed, rel)
		removed = rel
	}
	return nil
}

// surplus lists the paths of what is to be removed, directories before what is
// in them.
func surplus(plan *treePlan, there map[string]*Entry) []string {
	kinds := make(map[string]fs.FileMode, len(plan.items))
	for _, item := range plan.items {
		kinds[item.rel] = item.mode.Type()
	}
	kept := map[string]bool{} // directories in which something stays
	var list []string
	for rel, e := range there {
		kind, copied := kinds[rel]
		switch {
		case hides(plan.opts.filter, rel, e.IsDir()), copied && kind == e.Type(), !copied && plan.seen[rel]:
			for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
				kept[dir] = true
			}
		default:
			list = append(list, rel)
		}
	}
	list = slices.DeleteFunc(list, func(rel string) bool { return kept[rel] })
	// A slash sorts before all else, so that a directory's own come next to it.
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
	return list
}

// hides reports whether the patterns leave a path out, or a directory above it.
func hides(f filter, rel string, isDir bool) bool {
	if !f.includes(rel, isDir) {
		return true
	}
	for rel != "." {
		if f.excludes(rel, isDir) {
			return true
		}
		rel, isDir = path.Dir(rel), true
	}
	return false
}
