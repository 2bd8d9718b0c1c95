// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package envdtest_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// poll calls cond until it is true or a second is over: there is nothing to
// wait on for processes that are not ours.
func poll(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("%s: never happened", what)
		}
		runtime.Gosched()
	}
}

// waitGone waits until the processes are dead.
func waitGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		poll(t, fmt.Sprintf("end of process %d", pid), func() bool {
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isZombie(pid)
		})
	}
}

func waitZombie(t *testing.T, pid int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	poll(t, "zombie", func() bool { return isZombie(pid) })
}

func isZombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(data), ") Z ")
}
