// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package envdtest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// hasGNUNice says that nice takes "--" and reports as the daemons' nice does.
const hasGNUNice = runtime.GOOS == "linux"

// become makes the command run as the user, if that is possible and needed.
func become(cmd *exec.Cmd, id *identity, group bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
	if id.become {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id.uid, Gid: id.gid, Groups: id.groups}
	}
}

func osSignal(sig signal) os.Signal { return syscall.Signal(sig) }

func signalGroup(pid int, sig signal) error {
	return syscall.Kill(-pid, syscall.Signal(sig))
}

func inodeOf(f *os.File) uint64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Ino)
}

// afterCut is how much is still read from an output once it is cut.
const afterCut = 1 << 20

// cutReader reads from a pipe or terminal until it ends or is cut. After the
// cut it gives what is there already, and then the end, though somebody may
// still write to it.
type cutReader struct {
	file  *os.File
	isCut atomic.Bool
	late  int // bytes read after the cut
	once  sync.Once
}

func (r *cutReader) Read(buf []byte) (n int, err error) {
	defer func() {
		if err != nil {
			r.once.Do(func() { _ = r.file.Close() })
		}
	}()
	if !r.isCut.Load() {
		n, err = r.file.Read(buf)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	if r.late >= afterCut {
		return 0, io.EOF
	}
	n, err = readNow(r.file, buf)
	r.late += n
	return n, err
}

// readNow reads what is there, without waiting.
func readNow(f *os.File, buf []byte) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, readErr := 0, error(nil)
	err = raw.Control(func(fd uintptr) { n, readErr = syscall.Read(int(fd), buf) })
	if err != nil || readErr != nil || n <= 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *cutReader) cut() {
	r.isCut.Store(true)
	_ = r.file.SetReadDeadline(time.Unix(1, 0))
}
