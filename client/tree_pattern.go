// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"path"
	"strings"
)

// pattern chooses paths of a tree; [WithExclude] says how.
type pattern struct {
	segments []string
	anywhere bool // one segment, which may be at any depth
	dirOnly  bool
}

func parsePattern(text string) (pattern, error) {
	var p pattern
	rest, dirOnly := strings.CutSuffix(text, "/")
	rest, anchored := strings.CutPrefix(rest, "/")
	p.dirOnly = dirOnly
	p.segments = strings.Split(rest, "/")
	p.anywhere = !anchored && len(p.segments) == 1
	if len(p.segments) > 1 && p.segments[len(p.segments)-1] == anySegments {
		p.segments = append(p.segments, "*") // what is in a directory, not itself
	}
	for _, segment := range p.segments {
		if segment == "" {
			return pattern{}, fmt.Errorf("pattern %q has an empty element: %w", text, path.ErrBadPattern)
		}
		if _, err := path.Match(segment, ""); err != nil {
			return pattern{}, fmt.Errorf("pattern %q: %w", text, err)
		}
	}
	return p, nil
}

// match reports whether the pattern chooses the path, which is relative to the
// root of the tree.
func (p pattern) match(rel string, isDir bool) bool {
	if p.dirOnly && !isDir {
		return false
	}
	if p.anywhere {
		return matchSegment(p.segments[0], path.Base(rel))
	}
	return matchSegments(p.segments, strings.Split(rel, "/"))
}

const anySegments = "**"

// matchSegments compares segment by segment. On a mismatch it goes back to the
// last "**" alone and lets that take one more, which is enough and never slow.
func matchSegments(want, have []string) bool {
	w, h := 0, 0
	star, taken := -1, 0
	for h < len(have) {
		switch {
		case w < len(want) && want[w] == anySegments:
			star, taken = w, h
			w++
		case w < len(want) && matchSegment(want[w], have[h]):
			w++
			h++
		case star >= 0:
			taken++
			w, h = star+1, taken
		default:
			return false
		}
	}
	for w < len(want) && want[w] == anySegments {
		w++
	}
	return w == len(want)
}

func matchSegment(want, have string) bool {
	ok, err := path.Match(want, have)
	return ok && err == nil
}

// filter is what WithInclude and WithExclude add up to.
type filter struct{ include, exclude []pattern }

// excludes reports whether the path is left out, with all below it.
func (f filter) excludes(rel string, isDir bool) bool { return matchAny(f.exclude, rel, isDir) }

// includes reports whether the path, or a directory above it, is asked for.
func (f filter) includes(rel string, isDir bool) bool {
	if len(f.include) == 0 {
		return true
	}
	for rel != "." {
		if matchAny(f.include, rel, isDir) {
			return true
		}
		rel, isDir = path.Dir(rel), true
	}
	return false
}

func matchAny(patterns []pattern, rel string, isDir bool) bool {
	for _, p := range patterns {
		if p.match(rel, isDir) {
			return true
		}
	}
	return false
}
