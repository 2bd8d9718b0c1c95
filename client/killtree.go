// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// wrapTree makes a command the leader of a session of its own. setsid(1)
// replaces itself with the command, since a child of envd leads no group yet,
// so the pid stays that of the command.
func wrapTree(path string, args []string) (string, []string) {
	return "setsid", append([]string{path}, args...)
}

// unwrapTree undoes wrapTree for listings.
func unwrapTree(path string, args []string) (string, []string) {
	if path != "setsid" || len(args) == 0 {
		return path, args
	}
	return args[0], args[1:]
}

// killTreeScript kills everything whose environment has the marker $1: first
// the groups that such processes lead, which takes along members that changed
// their environment, then each process by itself. It goes round until a round
// finds nothing, because a dying tree may still fork. envd's pid is not used:
// it need not be the operating system's. The script's own marker differs.
const killTreeScript = `
round=0
while [ $round -lt 20 ]; do
	found=
	for file in $(grep -ls "` + StartMarker + `=$1" /proc/[0-9]*/environ); do
		dir=${file%/environ}
		pid=${dir#/proc/}
		read -r stat < "$dir/stat" || continue
		set -- "$1" ${stat##*) }
		[ "$2" = Z ] && continue
		found=1
		[ "$4" = "$pid" ] && kill -s KILL -- "-$pid"
		kill -s KILL -- "$pid"
	done 2>/dev/null
	[ -z "$found" ] && exit 0
	round=$((round + 1))
done
exit 1
`

// KillTree kills the command together with its descendants. It works for
// commands that were started with [Cmd.KillTree], by this client or another
// one, and is [errors.ErrUnsupported] for others. A command that has ended is
// [ErrProcessNotFound]; what it left running can then no longer be found.
func (p *Process) KillTree(ctx context.Context) error {
	const op = "kill tree of"
	if p.done.Load() {
		return p.goneError(op, nil)
	}
	s, err := p.client.resolve(ctx, op, p.selector)
	if err != nil {
		return err
	}
	listed, err := p.client.list(ctx)
	if err != nil {
		return toError(ctx, domainProcess, op, p.String(), err)
	}
	for _, info := range listed {
		if info.GetPid() != s.pid {
			continue
		}
		marker := startMarker(info.GetConfig().GetEnvs()[StartMarker])
		if !marker.tree() {
			return &Error{Op: op, Target: p.String(), Code: CodeUnimplemented,
				Err: fmt.Errorf("%w: the command was not started with KillTree", errors.ErrUnsupported)}
		}
		return p.killTree(ctx, marker)
	}
	return p.goneError(op, nil)
}

// killTree runs the script as the process's own user, then signals the leader
// too: that makes the daemon report its end even where something holds the
// output open.
func (p *Process) killTree(ctx context.Context, marker startMarker) error {
	out, treeErr := p.client.Command(ctx, "/bin/sh", "-c", killTreeScript, "sh", string(marker)).CombinedOutput()
	if exit, ok := errors.AsType[*ExitError](treeErr); ok {
		// It is not the command's own end, for which callers look.
		treeErr = errors.Join(ctx.Err(), fmt.Errorf("killing the tree ended with %s", exit))
	}
	if treeErr != nil && len(out) > 0 {
		treeErr = fmt.Errorf("%w: %s", treeErr, cut(escapeControls(strings.TrimSpace(string(out)))))
	}
	killErr := p.Kill(ctx)
	if errors.Is(killErr, ErrProcessNotFound) {
		killErr = nil
	}
	return errors.Join(treeErr, killErr)
}
