// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package envdtest

import (
	"os"
	"syscall"
	"unsafe"

	"github.com/creack/pty"
)

// startPTY starts the command on a new terminal, as the leader of a session of
// its own.
func (r *realProcess) startPTY(size Size) error {
	attrs := r.cmd.SysProcAttr
	attrs.Setsid, attrs.Setctty = true, true
	master, err := pty.StartWithAttrs(r.cmd, &pty.Winsize{Cols: size.Cols, Rows: size.Rows}, attrs)
	if err != nil {
		return err
	}
	r.pty, err = pollable(master)
	if err != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		return err
	}
	r.addOutput(kindPTY, r.pty, ptyRead)
	return nil
}

// pollable returns the file anew so that its reads can be ended: the pty
// package leaves it in blocking mode.
func pollable(f *os.File) (*os.File, error) {
	defer func() { _ = f.Close() }()
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		_ = syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// setSize resizes the terminal without putting it back into blocking mode.
func setSize(f *os.File, size Size) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	ws := pty.Winsize{Cols: size.Cols, Rows: size.Rows}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&ws)))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}
