// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package envdversion knows envd's versions: how to read one, and which
// feature or behaviour came and went with which. It is the only place that
// does; the client's gates, the embedded envd and the conformance suite all
// read the one table in features.go.
package envdversion

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Version is an envd release such as 0.6.13. The zero Version means that the
// version is not known.
type Version struct {
	Major, Minor, Patch int
}

// V returns the version major.minor.patch.
func V(major, minor, patch int) Version {
	return Version{Major: major, Minor: minor, Patch: patch}
}

// Latest is the release that the contract in proto/ describes.
var Latest = V(0, 6, 13)

// Oldest is the oldest release that the client, the embedded envd and the
// conformance suite support.
var Oldest = V(0, 2, 0)

// Supported lists the releases whose behaviour was measured, oldest first.
func Supported() []Version {
	return []Version{Oldest, V(0, 3, 7), V(0, 5, 2), Latest}
}

// Parse reads a version as daemons and their vendors write it: an optional
// "v", two or three numbers, and a suffix after "-" or "+" that is ignored
// ("0.6.4-sandlock").
func Parse(s string) (Version, error) {
	text := strings.TrimPrefix(strings.TrimSpace(s), "v")
	if i := strings.IndexAny(text, "-+ "); i >= 0 {
		text = text[:i]
	}
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return Version{}, fmt.Errorf("envd version %q: want numbers such as %s", s, Latest)
	}
	var n [3]int
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return Version{}, fmt.Errorf("envd version %q: want numbers such as %s", s, Latest)
		}
		n[i] = int(v)
	}
	v := V(n[0], n[1], n[2])
	if v.IsZero() {
		return Version{}, fmt.Errorf("envd version %q: there is no such version", s)
	}
	return v, nil
}

// IsZero reports whether the version is not known.
func (v Version) IsZero() bool { return v == Version{} }

// String returns "0.6.13", or "unknown" for the zero Version.
func (v Version) String() string {
	if v.IsZero() {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}

// Compare returns a negative number, 0 or a positive one as v is older than,
// the same as, or newer than w.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor), cmp.Compare(v.Patch, w.Patch))
}

// Has reports whether a daemon of this version has the feature. A version that
// is not known has whatever Latest has: ask [Version.Lacks] before refusing a
// call.
func (v Version) Has(f Feature) bool {
	if v.IsZero() {
		v = Latest
	}
	row := f.Row()
	if v.Compare(row.Since) < 0 {
		return false
	}
	return row.Until.IsZero() || v.Compare(row.Until) < 0
}

// Lacks reports whether a daemon of this version is known not to have the
// feature. It is false for a version that is not known.
func (v Version) Lacks(f Feature) bool {
	return !v.IsZero() && !v.Has(f)
}
