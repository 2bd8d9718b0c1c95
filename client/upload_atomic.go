// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

// storeAtomic uploads under another name, then renames. It never leaves the
// file in between.
func (c *Client) storeAtomic(ctx context.Context, op, path string, src *source, o *transferOptions) (bool, error) {
	target, mode, err := c.replaced(ctx, op, path)
	if err != nil {
		return false, err
	}
	temporary := temporaryName(target)
	_, err = c.store(ctx, op, temporary, src, o)
	answered := err == nil || statusOf(err) != 0
	if err == nil && mode.set && mode.perm != newFileMode {
		err = c.chmod(ctx, mode.perm, temporary)
	}
	if err == nil {
		err = c.move(ctx, op, temporary, target)
	}
	if err != nil {
		_ = c.discard(context.WithoutCancel(ctx), temporary, answered) // also when the context has ended
	}
	return false, err
}

// newFileMode is what envd gives new files.
const newFileMode fs.FileMode = 0o644

type keptMode struct {
	perm fs.FileMode
	set  bool
}

// temporaryName returns a name beside path. It is short, since path may have
// the longest name there is.
func temporaryName(path string) string {
	dir := path[:strings.LastIndexByte(path, '/')+1]
	return dir + ".envd-" + strings.ToLower(rand.Text()) + ".tmp"
}

// replaced looks at what an upload will replace: the path to rename onto, which
// for a symlink is where it leads, and the mode to keep.
func (c *Client) replaced(ctx context.Context, op, path string) (string, keptMode, error) {
	entry, err := c.statEntry(ctx, op, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, keptMode{}, nil
	case err != nil:
		return "", keptMode{}, err
	case entry.GetSymlinkTarget() != "" && entry.GetSymlinkTarget() != entry.GetPath():
		path = entry.GetSymlinkTarget()
	case entry.GetPath() != "":
		path = entry.GetPath() // absolute, for chmod
	}
	switch {
	case entry.GetType() == filesystempb.FileType_FILE_TYPE_DIRECTORY:
		return "", keptMode{}, syscall.EISDIR
	case entry.GetType() == filesystempb.FileType_FILE_TYPE_FILE && entry.GetPermissions() != "":
		return path, keptMode{perm: fs.FileMode(entry.GetMode()) & fs.ModePerm, set: true}, nil
	case entry.GetType() == filesystempb.FileType_FILE_TYPE_UNSPECIFIED && !strings.HasPrefix(entry.GetPermissions(), "L"):
		return "", keptMode{}, fmt.Errorf("path is no regular file, which cannot be replaced: %w", fs.ErrInvalid)
	}
	return path, keptMode{}, nil // a broken link, or a daemon that says little
}

func (c *Client) statEntry(ctx context.Context, op, path string) (*filesystempb.EntryInfo, error) {
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	resp, err := c.filesystems.Stat(ctx, &filesystempb.StatRequest{Path: path})
	return resp.GetEntry(), toError(ctx, domainFile, op, path, err)
}

// chmod runs the command of that name: the protocol has no call for it.
func (c *Client) chmod(ctx context.Context, perm fs.FileMode, path string) error {
	out, err := c.Command(ctx, "chmod", fmt.Sprintf("%04o", perm), path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mode %04o could not be kept: %w %s", perm, err, cut(escapeControls(string(out))))
	}
	return nil
}

func (c *Client) move(ctx context.Context, op, from, to string) error {
	rctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	_, err := c.filesystems.Move(rctx, &filesystempb.MoveRequest{Source: from, Destination: to})
	return toError(rctx, domainFile, op, to, err)
}

// lateMakings is when a daemon is looked after that may not have noticed yet
// that its upload broke off, and may still make the file.
var lateMakings = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}

// discard removes a temporary file.
func (c *Client) discard(ctx context.Context, path string, answered bool) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err := c.removeFile(ctx, "remove", path)
	for _, wait := range lateMakings {
		if answered || err != nil || !sleep(ctx, wait) {
			break
		}
		err = c.removeFile(ctx, "remove", path) // a missing file is no error
	}
	if err != nil {
		c.config.logger.WarnContext(ctx, "temporary file was left behind", "path", path, "error", c.clean(err.Error()))
	}
	return err
}

// removeFile removes a file, if it is there.
func (c *Client) removeFile(ctx context.Context, op, path string) error {
	rctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	_, err := c.filesystems.Remove(rctx, &filesystempb.RemoveRequest{Path: path})
	return toError(rctx, domainFile, op, path, err)
}
