// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"net/http"
	"strings"

	"github.com/envd-go/envd/internal/envdversion"
)

// Dialect is a family of daemons that speak the protocol in their own way.
type Dialect int

const (
	// Upstream is envd itself: Connect with JSON and binary and gRPC-Web, pids
	// of the operating system (Go functions have numbers above them), and no
	// tag where none was given.
	Upstream Dialect = iota
	// FC is the sandbox of a cloud vendor that reports envd 0.5.2: Connect with
	// JSON only, anything else gets HTTP 400 before it is looked at; pids count
	// from 1; a process without a tag is listed with an empty one.
	FC
)

// String returns "upstream" or "fc".
func (d Dialect) String() string {
	switch d {
	case Upstream:
		return "upstream"
	case FC:
		return "fc"
	default:
		return "unknown"
	}
}

var fcVersion = envdversion.V(0, 5, 2)

const (
	// maxOSPID is above every pid that an operating system hands out here:
	// Linux stops at 4194304.
	maxOSPID = 5_000_000
	firstFC  = 1
)

// firstPID is where the server's own counter of pids starts.
func (d Dialect) firstPID() uint32 {
	if d == FC {
		return firstFC
	}
	return maxOSPID + 1
}

// countsPIDs reports whether real processes get their pid from the counter as
// well.
func (d Dialect) countsPIDs() bool { return d == FC }

// tag returns the tag as a listing shows it.
func (d Dialect) tag(tag *string) *string {
	if tag == nil && d == FC {
		return new(string)
	}
	return tag
}

// refuses answers a request whose content type the dialect cannot read, and
// reports whether it did.
func (d Dialect) refuses(w http.ResponseWriter, r *http.Request) bool {
	if d != FC || r.Method != http.MethodPost {
		return false
	}
	mime, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch strings.TrimSpace(mime) {
	case "application/json", "application/connect+json":
		return false
	}
	http.Error(w, `invalid character '\x00' after top-level value`, http.StatusBadRequest)
	return true
}
