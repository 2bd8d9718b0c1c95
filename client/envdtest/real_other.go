// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package envdtest

import (
	"os"
	"os/exec"
)

const hasGNUNice = false

func become(*exec.Cmd, *identity, bool) {}

// osSignal is KILL in any case: there is nothing else.
func osSignal(signal) os.Signal { return os.Kill }

func signalGroup(pid int, _ signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	return p.Kill()
}

func inodeOf(*os.File) uint64 { return 0 }

// cutReader reads from a pipe until it ends or is cut.
type cutReader struct{ file *os.File }

func (r *cutReader) Read(buf []byte) (int, error) {
	n, err := r.file.Read(buf)
	if err != nil {
		_ = r.file.Close()
	}
	return n, err
}

func (r *cutReader) cut() { _ = r.file.Close() }
