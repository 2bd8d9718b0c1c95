// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/types/known/timestamppb"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/internal/envdversion"
)

// entry describes a path, under the name that was asked for.
func (s *Server) entry(path string) (*filesystempb.EntryInfo, error) {
	look := os.Lstat
	if !s.cfg.version.Has(envdversion.LstatEntries) {
		look = os.Stat
	}
	info, err := look(s.host(path))
	if err != nil {
		return nil, err
	}
	return s.describe(path, info), nil
}

// describe makes the entry of a path that was looked at.
func (s *Server) describe(path string, info fs.FileInfo) *filesystempb.EntryInfo {
	v := s.cfg.version
	e := s.shortEntry(path, info)
	if !v.Has(envdversion.EntryDetails) {
		return e
	}
	host := s.host(path)
	e.Size = info.Size()
	e.Mode = uint32(info.Mode().Perm())
	e.Permissions = info.Mode().String()
	e.Owner, e.Group = ownerOf(info)
	if at := info.ModTime(); at.Unix() != 0 || at.Nanosecond() != 0 || !v.Has(envdversion.MakeDirDetails) {
		e.ModifiedTime = timestamppb.New(at)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		s.describeLink(e, path, host)
	}
	if v.Has(envdversion.Metadata) {
		e.Metadata = s.metadataOf(host)
	}
	return e
}

// describeLink adds what a link leads to. Type and mode are those of the
// target.
func (s *Server) describeLink(e *filesystempb.EntryInfo, path, host string) {
	target, err := filepath.EvalSymlinks(host)
	if err == nil {
		at := s.guest(target)
		e.SymlinkTarget = &at
		if info, err := os.Stat(host); err == nil {
			e.Mode = uint32(info.Mode().Perm())
		}
		return
	}
	if s.cfg.version.Has(envdversion.MakeDirDetails) {
		e.SymlinkTarget = &path
		e.Mode = 0
	}
}

// shortEntry has the name, path and type.
func (s *Server) shortEntry(path string, info fs.FileInfo) *filesystempb.EntryInfo {
	return &filesystempb.EntryInfo{
		Name: filepath.Base(path),
		Path: path,
		Type: s.typeOf(s.host(path), info),
	}
}

func (s *Server) typeOf(host string, info fs.FileInfo) filesystempb.FileType {
	if !s.cfg.version.Has(envdversion.LstatEntries) {
		// Whatever is no directory is a file, symlinks in a listing too.
		if info.IsDir() {
			return filesystempb.FileType_FILE_TYPE_DIRECTORY
		}
		return filesystempb.FileType_FILE_TYPE_FILE
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Stat(host)
		if err != nil {
			return filesystempb.FileType_FILE_TYPE_UNSPECIFIED
		}
		info = target
	}
	switch {
	case info.IsDir():
		return filesystempb.FileType_FILE_TYPE_DIRECTORY
	case info.Mode().IsRegular():
		return filesystempb.FileType_FILE_TYPE_FILE
	}
	return filesystempb.FileType_FILE_TYPE_UNSPECIFIED
}
