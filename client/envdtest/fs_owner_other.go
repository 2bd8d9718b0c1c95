// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package envdtest

import (
	"errors"
	"io/fs"
)

func (s *Server) giveTo(string, *identity) error { return nil }

// ownerOf knows no owners here.
func ownerOf(fs.FileInfo) (owner, group string) { return "user", "user" }

// errNoSpace is what a full disk says.
var errNoSpace = errors.New("no space left on device")
