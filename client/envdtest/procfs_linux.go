// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// descendants returns the processes that descend from pid (if not 0), as far as the chain
// of parents is whole, and those that hold one of the pipes open. Children of
// this program are not counted among the latter: each of them holds every pipe
// from its fork until its exec.
func descendants(pid int, pipes []uint64) []int {
	self := os.Getpid()
	parents := map[int]int{}
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		n, err := strconv.Atoi(entry.Name())
		if err != nil || n == self || n == pid {
			continue
		}
		parents[n] = parentOf(n)
		if parents[n] != self && holds(n, pipes) {
			found = append(found, n)
		}
	}
	for n := range parents {
		if pid != 0 && descends(n, pid, parents) && !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

func descends(pid, ancestor int, parents map[int]int) bool {
	for range len(parents) {
		parent, ok := parents[pid]
		if !ok {
			return false
		}
		if parent == ancestor {
			return true
		}
		pid = parent
	}
	return false
}

// parentOf reads the parent out of /proc/N/stat, whose second field is a name
// in parentheses that may hold anything.
func parentOf(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

func holds(pid int, pipes []uint64) bool {
	if len(pipes) == 0 {
		return false
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue
		}
		for _, inode := range pipes {
			if target == fmt.Sprintf("pipe:[%d]", inode) {
				return true
			}
		}
	}
	return false
}
