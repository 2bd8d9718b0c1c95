// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/envd-go/envd/internal/envdversion"
)

// wrapper is how daemons since 0.5.4 run commands: the pid stays that of the
// final program, and it is nice that says when there is none.
const (
	wrapperShell = "/bin/sh"
	wrapperNice  = "/usr/bin/nice"
	wrapper      = "exec " + wrapperNice + ` -n 0 -- "$@"`
)

// realProcess is a process of the operating system.
type realProcess struct {
	cmd    *exec.Cmd
	stdin  *os.File // nil without an input, or with a terminal
	pty    *os.File // nil without a terminal
	outs   []output
	cuts   []func()
	inodes []uint64 // of the output pipes
	group  bool     // it leads a process group that signals reach
}

// startReal starts the command in the operating system.
func (s *Server) startReal(spec *launchSpec) (running, error) {
	wrapped := s.cfg.version.Has(envdversion.ShellWrapper) && canWrap()
	cmd := exec.Command(s.lookPath(spec.name), spec.args...)
	cmd.Args[0] = spec.name
	if wrapped {
		args := append([]string{"-c", wrapper, "--", spec.name}, spec.args...)
		cmd = exec.Command(wrapperShell, args...)
	}
	cmd.Dir = spec.dir
	for name, value := range spec.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	r := &realProcess{cmd: cmd, group: s.quirk(QuirkGroupKill)}
	become(cmd, spec.user, r.group && spec.pty == nil)
	var err error
	if spec.pty != nil {
		err = r.startPTY(*spec.pty)
	} else {
		err = r.startPipes(spec.input)
	}
	if err == nil {
		return r, nil
	}
	line := spec.commandLine()
	if !wrapped {
		line = cmd.String()
	}
	return nil, startError(spec, line, err.Error())
}

// lookPath looks a command up in the daemon's PATH. What is not there is
// returned as it is, and the start of it fails.
func (s *Server) lookPath(name string) string {
	if name == "" || strings.Contains(name, "/") {
		return name
	}
	for _, dir := range filepath.SplitList(s.cfg.path) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return name
}

func canWrap() bool {
	for _, program := range []string{wrapperShell, wrapperNice} {
		if _, err := os.Stat(program); err != nil {
			return false
		}
	}
	return hasGNUNice
}

// startPipes starts the command with pipes for its standard streams.
func (r *realProcess) startPipes(input bool) error {
	var theirs, ours []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	pipe := func() (read, write *os.File, err error) {
		read, write, err = os.Pipe()
		return
	}
	fail := func(err error) error {
		for _, f := range ours {
			_ = f.Close()
		}
		return err
	}
	if input {
		read, write, err := pipe()
		if err != nil {
			return err
		}
		theirs, ours = append(theirs, read), append(ours, write)
		r.cmd.Stdin, r.stdin = read, write
	}
	for _, kind := range []outputKind{kindStdout, kindStderr} {
		read, write, err := pipe()
		if err != nil {
			return fail(err)
		}
		theirs, ours = append(theirs, write), append(ours, read)
		if kind == kindStdout {
			r.cmd.Stdout = write
		} else {
			r.cmd.Stderr = write
		}
		r.addOutput(kind, read, pipeRead)
	}
	if err := r.cmd.Start(); err != nil {
		return fail(err)
	}
	return nil
}

func (r *realProcess) addOutput(kind outputKind, f *os.File, size int) {
	reader := &cutReader{file: f}
	r.outs = append(r.outs, output{kind: kind, read: reader.Read, size: size})
	r.cuts = append(r.cuts, reader.cut)
	if inode := inodeOf(f); inode != 0 && kind != kindPTY {
		r.inodes = append(r.inodes, inode)
	}
}

func (r *realProcess) osPID() int        { return r.cmd.Process.Pid }
func (r *realProcess) outputs() []output { return r.outs }

func (r *realProcess) write(data []byte) error {
	f := r.stdin
	if r.pty != nil {
		f = r.pty
	}
	_, err := f.Write(data)
	if errors.Is(err, os.ErrClosed) {
		return errBrokenPipe // it ended meanwhile
	}
	return err
}

func (r *realProcess) closeInput() error {
	if r.stdin == nil {
		return nil
	}
	if err := r.stdin.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (r *realProcess) resize(size Size) error { return setSize(r.pty, size) }

func (r *realProcess) signal(sig signal) error {
	if r.group {
		return signalGroup(r.cmd.Process.Pid, sig)
	}
	return r.cmd.Process.Signal(osSignal(sig))
}

func (r *realProcess) wait() status {
	_ = r.cmd.Wait()
	state := r.cmd.ProcessState
	if state == nil {
		return killedStatus
	}
	return status{code: state.ExitCode(), exited: state.Exited(), text: state.String()}
}

// cutOutputs ends the reading of the outputs and closes them.
func (r *realProcess) cutOutputs() {
	for _, cut := range r.cuts {
		cut()
	}
}

func (r *realProcess) killTree() {
	pids := descendants(r.cmd.Process.Pid, r.inodes)
	if r.pty != nil || r.group {
		_ = signalGroup(r.cmd.Process.Pid, sigKill)
	}
	_ = r.cmd.Process.Kill()
	killAll(pids)
}

func killAll(pids []int) {
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
			_ = p.Release()
		}
	}
}

// needsStandIn reports whether a Go function must say that the command cannot
// be found, because the wrapper that would is not there.
func (s *Server) needsStandIn(spec *launchSpec) bool {
	if !s.cfg.version.Has(envdversion.ShellWrapper) || canWrap() {
		return false
	}
	_, code := lookupFailure(spec)
	return code != 0
}

// lookupFailure looks the command up as a shell would, in the PATH of its own
// environment. The code is 0 if it is there.
func lookupFailure(spec *launchSpec) (text string, code int) {
	text, code = "No such file or directory", 127
	candidates := []string{spec.name}
	if !strings.Contains(spec.name, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(spec.env["PATH"]) {
			candidates = append(candidates, filepath.Join(dir, spec.name))
		}
	}
	if spec.name == "" {
		return text, code
	}
	for _, path := range candidates {
		if !filepath.IsAbs(path) {
			path = filepath.Join(spec.dir, path)
		}
		info, err := os.Stat(path)
		switch {
		case err == nil && !info.IsDir() && info.Mode()&0o111 != 0:
			return "", 0
		case err == nil, errors.Is(err, fs.ErrPermission):
			text, code = "Permission denied", 126
		}
	}
	return text, code
}
