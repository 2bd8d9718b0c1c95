// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/process"
)

// Leftovers are what runs that were killed have left on a server.
type Leftovers struct {
	// PIDs are the processes that they started, Paths their directories.
	PIDs  []uint32
	Paths []string
}

// Clean finds what runs that were killed have left on the target, and with
// remove also ends and removes it. What runs at the same time is found as well.
func Clean(ctx context.Context, target Target, remove bool) (*Leftovers, error) {
	r, err := newRun(ctx, target, Options{})
	if err != nil {
		return nil, err
	}
	defer r.close()
	defer r.leftBehind(context.WithoutCancel(ctx))
	t := r.probeT(ctx, r.profile.Protocols[0])
	var found Leftovers
	if found.PIDs, err = markedPIDs(ctx, t, func(run string) bool { return run != r.id }); err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	entries, err := listStable(ctx, t, "/tmp")
	if err != nil {
		return nil, fmt.Errorf("list /tmp: %w", err)
	}
	for _, e := range entries {
		if p := "/tmp/" + e.GetName(); strings.HasPrefix(p, rootPrefix) && p != r.root() && !strings.Contains(e.GetName(), "/") {
			found.Paths = append(found.Paths, p)
		}
	}
	if !remove {
		return &found, nil
	}
	for _, n := range found.PIDs {
		if err := t.signal(pid(n), process.Signal_SIGNAL_SIGKILL); err != nil {
			return &found, fmt.Errorf("kill process %d: %w", n, err)
		}
	}
	for _, p := range found.Paths {
		if err := t.remove(p); err != nil {
			return &found, fmt.Errorf("remove %s: %w", p, err)
		}
	}
	return &found, nil
}

// listTries is how often a directory is listed that others change meanwhile.
const listTries = 50

// listStable lists a directory that is not the run's own. envd fails with an
// internal error when something vanishes while it lists, so that is tried again.
func listStable(ctx context.Context, t *T, dir string) ([]*filesystem.EntryInfo, error) {
	for try := 1; ; try++ {
		list, err := t.fs.ListDir(ctx, &filesystem.ListDirRequest{Path: dir, Depth: 1})
		if err == nil || try == listTries || connect.CodeOf(err) != connect.CodeInternal {
			return list.GetEntries(), err
		}
	}
}
