// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"bufio"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// currentUsage reads /proc. The share of the processor is the load of the last
// minute.
func currentUsage() usage {
	mem := memInfo()
	u := usage{
		memTotal: mem["MemTotal"],
		memUsed:  mem["MemTotal"] - min(mem["MemAvailable"], mem["MemTotal"]),
		memCache: mem["Cached"],
		cpu:      load(),
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/", &fs); err == nil {
		size := uint64(fs.Bsize)
		u.diskTotal = fs.Blocks * size
		u.diskUsed = (fs.Blocks - fs.Bfree) * size
	}
	return u
}

// memInfo reads /proc/meminfo, in bytes.
func memInfo() map[string]uint64 {
	info := map[string]uint64{}
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return info
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if fields := strings.Fields(rest); len(fields) > 0 {
			kib, _ := strconv.ParseUint(fields[0], 10, 64)
			info[name] = kib << 10
		}
	}
	return info
}

func load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	n, _ := strconv.ParseFloat(first, 64)
	return math.Round(min(n*100, 100)*100) / 100
}
