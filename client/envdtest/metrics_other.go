// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package envdtest

import "runtime"

// currentUsage invents a machine, except for the memory of the program.
func currentUsage() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{
		memTotal:  max(m.Sys, 1<<30),
		memUsed:   m.Sys,
		diskTotal: 16 << 30,
		diskUsed:  4 << 30,
	}
}
