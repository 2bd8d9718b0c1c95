// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	processpb "github.com/envd-go/envd/gen/process"
)

// Selector names a command that envd started: by [PID] or by [Tag]. The zero
// Selector names nothing. Selectors can be compared with ==.
type Selector struct {
	kind selectorKind
	pid  uint32
	tag  string
}

type selectorKind int

const (
	selectNothing selectorKind = iota
	selectPID
	selectTag
)

// PID selects the command that envd numbers pid. The number is envd's own: it
// comes from [Process.PID] or [Client.Processes] and means nothing to the
// operating system of either side.
func PID(pid uint32) Selector { return Selector{kind: selectPID, pid: pid} }

// Tag selects the command that was started with the tag. The client looks it up
// in the list of processes and goes on by pid, because daemons up to 0.6.13
// lose tags as soon as two different ones are in use. A tag that several
// commands share is [ErrTagAmbiguous].
func Tag(tag string) Selector { return Selector{kind: selectTag, tag: tag} }

// String returns `pid 42`, `tag "build"` or "nothing".
func (s Selector) String() string {
	switch s.kind {
	case selectPID:
		return "pid " + strconv.FormatUint(uint64(s.pid), 10)
	case selectTag:
		return fmt.Sprintf("tag %q", s.tag)
	default:
		return "nothing"
	}
}

func (s Selector) proto() *processpb.ProcessSelector {
	if s.kind == selectTag {
		return &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Tag{Tag: s.tag}}
	}
	return &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: s.pid}}
}

// resolve turns a tag into the pid of the one running command that has it.
func (c *Client) resolve(ctx context.Context, op string, s Selector) (Selector, error) {
	switch s.kind {
	case selectPID:
		return s, nil
	case selectNothing:
		return s, &Error{Op: op, Target: s.String(), Code: CodeInvalidArgument, Err: errNoSelector}
	}
	infos, err := c.Processes(ctx)
	if err != nil {
		return s, relabel(err, op, s.String())
	}
	var pids []uint32
	for _, info := range infos {
		if info.Tag == s.tag && s.tag != "" {
			pids = append(pids, info.PID)
		}
	}
	switch len(pids) {
	case 0:
		return s, &Error{Op: op, Target: s.String(), Code: CodeNotFound, Err: ErrProcessNotFound}
	case 1:
		return PID(pids[0]), nil
	}
	slices.Sort(pids)
	return s, &Error{Op: op, Target: s.String(), Code: CodeFailedPrecondition,
		Err: fmt.Errorf("%w: pids %s", ErrTagAmbiguous, joinPIDs(pids))}
}

func joinPIDs(pids []uint32) string {
	texts := make([]string, len(pids))
	for i, pid := range pids {
		texts[i] = strconv.FormatUint(uint64(pid), 10)
	}
	return strings.Join(texts, ", ")
}
