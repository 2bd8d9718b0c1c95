// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package envdtest

import (
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// giveTo makes the user the owner of a file, where the server may do that.
func (s *Server) giveTo(host string, id *identity) error {
	if !id.become || os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(host, int(id.uid), int(id.gid))
}

// ownerOf returns the names of a file's owner and group, or their numbers.
func ownerOf(info fs.FileInfo) (owner, group string) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", ""
	}
	owner = strconv.FormatUint(uint64(stat.Uid), 10)
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	group = strconv.FormatUint(uint64(stat.Gid), 10)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return owner, group
}

// errNoSpace is what a full disk says.
const errNoSpace = syscall.ENOSPC
