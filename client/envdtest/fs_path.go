// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// host returns where a path of the sandbox lies on this machine.
func (s *Server) host(path string) string {
	if s.cfg.root == "" {
		return path
	}
	mapped := filepath.Join(s.cfg.root, filepath.Clean("/"+path))
	if strings.HasSuffix(path, "/") {
		mapped += "/" // which says something about symlinks
	}
	return mapped
}

// guest is the way back.
func (s *Server) guest(host string) string {
	if s.cfg.root == "" {
		return host
	}
	rest, ok := strings.CutPrefix(host, s.cfg.root)
	if !ok {
		return host
	}
	if rest == "" {
		return "/"
	}
	return rest
}

// Path returns where a path of the sandbox lies on this machine: the path
// itself, or one below the directory of [WithRoot]. A relative path starts at
// the home directory of the default user.
func (s *Server) Path(path string) string {
	id := s.lookup(s.settings.user())
	if id == nil {
		return s.host(path)
	}
	resolved, err := s.resolve(path, id)
	if err != nil {
		return s.host(path)
	}
	return s.host(resolved)
}

// errText is the text of an error of package os, with the sandbox's paths.
func (s *Server) errText(err error) string {
	if s.cfg.root == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), s.cfg.root, "")
}

// makeDirs makes a directory and its parents; what is new belongs to the user.
func (s *Server) makeDirs(host string, id *identity) error {
	info, err := os.Stat(host)
	if err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: host, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if parent := filepath.Dir(strings.TrimRight(host, "/")); parent != host {
		if err := s.makeDirs(parent, id); err != nil {
			return err
		}
	}
	if err := os.Mkdir(host, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) && s.isDir(host) {
			return nil // made at the same time
		}
		return err
	}
	return s.giveTo(host, id)
}

func (s *Server) isDir(host string) bool {
	info, err := os.Stat(host)
	return err == nil && info.IsDir()
}
