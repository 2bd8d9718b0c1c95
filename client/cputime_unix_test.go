// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package client_test

import (
	"syscall"
	"time"
)

// processorTime is how much of the processors this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
