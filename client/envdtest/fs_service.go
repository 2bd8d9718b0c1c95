// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"connectrpc.com/connect/v2"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/filesystem/filesystemconnect"
	"github.com/envd-go/envd/internal/envdversion"
)

// filesystemService answers the RPCs of filesystem.Filesystem.
type filesystemService struct{ srv *Server }

func (s *Server) registerFilesystem(server *connect.Server) {
	filesystemconnect.RegisterFilesystemHandler(server, filesystemService{s})
}

// path returns the user of a request and the path that one of its paths means.
func (h filesystemService) path(ctx context.Context, path string) (string, *identity, error) {
	id, err := h.srv.userOf(ctx)
	if err != nil {
		return "", nil, err
	}
	resolved, err := h.srv.resolve(path, id)
	return resolved, id, err
}

func (h filesystemService) internal(what string, err error) error {
	return connect.Errorf(connect.CodeInternal, "%s: %s", what, h.srv.errText(err))
}

// Stat describes a path.
func (h filesystemService) Stat(ctx context.Context, req *filesystempb.StatRequest) (*filesystempb.StatResponse, error) {
	path, _, err := h.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	entry, err := h.srv.entry(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, connect.Errorf(connect.CodeNotFound, "file not found: %s", h.srv.errText(err))
	case err != nil && !h.srv.cfg.version.Has(envdversion.LstatEntries):
		return nil, h.internal("error statting file", err)
	case err != nil:
		return nil, h.internal("error getting file info", err)
	}
	return &filesystempb.StatResponse{Entry: entry}, nil
}

// MakeDir makes a directory and its parents.
func (h filesystemService) MakeDir(ctx context.Context, req *filesystempb.MakeDirRequest) (*filesystempb.MakeDirResponse, error) {
	path, id, err := h.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	host := h.srv.host(path)
	info, err := os.Stat(host)
	switch {
	case err == nil && info.IsDir():
		return nil, connect.Errorf(connect.CodeAlreadyExists, "directory already exists: %s", path)
	case err == nil:
		return nil, connect.Errorf(connect.CodeInvalidArgument, "path already exists but it is not a directory: %s", path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, h.internal("error getting file info", err)
	}
	if err := h.srv.makeDirs(host, id); err != nil {
		return nil, h.internal("failed to create directory", err)
	}
	if info, err = os.Lstat(host); err != nil {
		return nil, h.internal("error getting file info", err)
	}
	if !h.srv.cfg.version.Has(envdversion.MakeDirDetails) {
		return &filesystempb.MakeDirResponse{Entry: h.srv.shortEntry(path, info)}, nil
	}
	return &filesystempb.MakeDirResponse{Entry: h.srv.describe(path, info)}, nil
}

// Move renames a path. It makes the parents of the destination first, and
// leaves them there whatever comes of it.
func (h filesystemService) Move(ctx context.Context, req *filesystempb.MoveRequest) (*filesystempb.MoveResponse, error) {
	source, id, err := h.path(ctx, req.GetSource())
	if err != nil {
		return nil, err
	}
	destination, _, err := h.path(ctx, req.GetDestination())
	if err != nil {
		return nil, err
	}
	from, to := h.srv.host(source), h.srv.host(destination)
	if err := h.srv.makeDirs(filepath.Dir(to), id); err != nil {
		return nil, h.internal("failed to create directory", err)
	}
	if !h.srv.cfg.version.Has(envdversion.LstatEntries) {
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			return nil, connect.Errorf(connect.CodeNotFound, "source path not found: %s", h.srv.errText(err))
		}
	}
	err = os.Rename(from, to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, connect.Errorf(connect.CodeNotFound, "source file not found: %s", h.srv.errText(err))
	case err != nil:
		return nil, h.internal("error renaming", err)
	}
	entry, err := h.srv.entry(destination)
	if err != nil {
		return nil, h.internal("error getting file info", err)
	}
	return &filesystempb.MoveResponse{Entry: entry}, nil
}

// Remove removes a path with everything below it. What is not there is no
// error.
func (h filesystemService) Remove(ctx context.Context, req *filesystempb.RemoveRequest) (*filesystempb.RemoveResponse, error) {
	path, _, err := h.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(h.srv.host(path)); err != nil {
		return nil, h.internal("error removing file or directory", err)
	}
	return &filesystempb.RemoveResponse{}, nil
}

// ListDir lists a directory down to a depth.
func (h filesystemService) ListDir(ctx context.Context, req *filesystempb.ListDirRequest) (*filesystempb.ListDirResponse, error) {
	path, _, err := h.path(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	if err := h.checkList(path); err != nil {
		if h.srv.cfg.dialect == FC && connect.CodeOf(err) == connect.CodeNotFound {
			return &filesystempb.ListDirResponse{}, nil
		}
		return nil, err
	}
	entries, err := h.walk(path, max(req.GetDepth(), 1))
	if err != nil {
		return nil, err
	}
	return &filesystempb.ListDirResponse{Entries: entries}, nil
}

// checkList says what stands against listing the path.
func (h filesystemService) checkList(path string) error {
	host := h.srv.host(path)
	v := h.srv.cfg.version
	if !v.Has(envdversion.ListSymlinkDir) {
		info, err := os.Stat(host)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return connect.Errorf(connect.CodeNotFound, "directory not found: %s", h.srv.errText(err))
		case err != nil:
			return h.internal("error statting directory", err)
		case !info.IsDir():
			return connect.Errorf(connect.CodeInvalidArgument, "path is not a directory: %s", path)
		}
		return nil
	}
	target, err := filepath.EvalSymlinks(host)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return connect.Errorf(connect.CodeNotFound, "path not found: %s", h.srv.errText(err))
	case err != nil && strings.Contains(err.Error(), "too many links"):
		return connect.Errorf(connect.CodeFailedPrecondition, "cyclic symlink or chain >255 links at %q", path)
	case err != nil:
		return h.internal("error resolving path", err)
	}
	info, err := os.Stat(target)
	if err != nil {
		return h.internal("error getting file info", err)
	}
	if !info.IsDir() {
		return connect.Errorf(connect.CodeInvalidArgument, "path is not a directory: %s", h.srv.guest(target))
	}
	return nil
}

// walk lists what is below path: parents first, by name. The paths begin as
// path does, also where that is a symlink.
func (h filesystemService) walk(path string, depth uint32) ([]*filesystempb.EntryInfo, error) {
	host := h.srv.host(path)
	if h.srv.cfg.version.Has(envdversion.ListSymlinkDir) {
		if target, err := filepath.EvalSymlinks(host); err == nil {
			host = target
		}
	}
	var entries []*filesystempb.EntryInfo
	err := filepath.WalkDir(host, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(host, at)
		if err != nil || rel == "." {
			return err
		}
		level := uint32(strings.Count(rel, string(filepath.Separator)) + 1)
		info, err := d.Info()
		if err != nil {
			return skipVanished(err)
		}
		entries = append(entries, h.srv.describe(filepath.Join(path, rel), info))
		if d.IsDir() && level >= depth {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, h.internal("error reading directory "+path, err)
	}
	return entries, nil
}

// skipVanished leaves out what is gone already.
func skipVanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
