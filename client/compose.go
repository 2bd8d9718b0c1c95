// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/internal/envdversion"
)

// Compose joins the parts, in their order, to the file dst and removes them. A
// part may be named twice. Whoever reads dst sees the old content or the new;
// a file that was there is replaced by a new one with the mode 0644. Nothing
// but the context limits the time.
//
// From envd 0.5.5 on the sandbox does it by itself. With an older one all bytes
// pass through the client, down and up again. If the call fails the parts are
// still there, unless the error says that some could not be removed. A part
// that does not exist is [fs.ErrNotExist], one that is no regular file
// [fs.ErrInvalid].
func (c *Client) Compose(ctx context.Context, dst string, parts ...string) error {
	const op = "compose"
	err := checkCompose(dst, parts)
	if err == nil {
		err = c.compose(ctx, op, dst, parts)
	}
	if err != nil {
		return transferError(op, dst, TransferError{Total: -1, Err: err})
	}
	return nil
}

func checkCompose(dst string, parts []string) error {
	if len(parts) == 0 {
		return fmt.Errorf("no parts to join: %w", fs.ErrInvalid)
	}
	for _, p := range append([]string{dst}, parts...) {
		if err := checkRPCPath(p); err != nil {
			return err
		}
	}
	if slices.Contains(parts, dst) {
		return fmt.Errorf("a part is the destination itself: %w", fs.ErrInvalid)
	}
	return nil
}

func (c *Client) compose(ctx context.Context, op, dst string, parts []string) error {
	if c.server(ctx).lacks(envdversion.Compose) {
		return c.composeHere(ctx, op, dst, parts)
	}
	err := c.composeOnto(ctx, op, dst, parts)
	if isMissingEndpoint(err) {
		return c.composeHere(ctx, op, dst, parts)
	}
	return err
}

// isMissingEndpoint reports whether the server does not know the endpoint. A
// missing part is a 404 too, but one that says so.
func isMissingEndpoint(err error) bool {
	switch statusOf(err) {
	case http.StatusNotFound:
		return !hasText(err, textNoSource) && !errors.Is(err, ErrSandboxNotFound)
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// longestComposed is the length of the longest name that envd joins files to:
// it appends 53 bytes to it while it does.
const longestComposed = 255 - 53

// composeOnto lets the server do it, under a shorter name where it has to be.
func (c *Client) composeOnto(ctx context.Context, op, dst string, parts []string) error {
	if len(path.Base(dst)) <= longestComposed {
		return c.composeThere(ctx, op, dst, parts)
	}
	temporary := temporaryName(dst)
	err := c.composeThere(ctx, op, temporary, parts)
	if err != nil {
		return err
	}
	if err := c.move(ctx, op, temporary, dst); err != nil {
		return fmt.Errorf("joined as %q, which could not be renamed: %w", temporary, err)
	}
	return nil
}

// composeThere lets the server do it.
func (c *Client) composeThere(ctx context.Context, op, dst string, parts []string) error {
	body, err := json.Marshal(struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		User        string   `json:"username,omitempty"`
	}{parts, dst, c.user})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.String()+"/files/compose", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.plain(req)
	if err != nil {
		return toError(ctx, domainFile, op, dst, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return toError(ctx, domainFile, op, dst, err)
	}
	var stored struct {
		Path string `json:"path"`
	}
	if json.Unmarshal(data, &stored) != nil || stored.Path == "" {
		return c.badAnswer(op, errors.New(c.clean(describe(req, resp, errorBody{raw: data, text: string(data)}))))
	}
	return nil
}

// composeHere does it with calls that every server has.
func (c *Client) composeHere(ctx context.Context, op, dst string, parts []string) error {
	for _, part := range parts {
		entry, err := c.statEntry(ctx, op, part)
		if err != nil {
			return err
		}
		if entry.GetType() != filesystempb.FileType_FILE_TYPE_FILE {
			return fmt.Errorf("part %q is not a regular file: %w", part, fs.ErrInvalid)
		}
	}
	o, err := newTransferOptions(optsUpload, nil)
	if err != nil {
		return err
	}
	temporary := temporaryName(dst)
	err = c.joinInto(ctx, op, temporary, parts, o)
	answered := err == nil || statusOf(err) != 0
	if err == nil {
		err = c.move(ctx, op, temporary, dst)
	}
	if err != nil {
		_ = c.discard(context.WithoutCancel(ctx), temporary, answered)
		return err
	}
	var left []error
	for _, part := range slices.Compact(slices.Sorted(slices.Values(parts))) {
		if err := c.removeFile(ctx, op, part); err != nil {
			left = append(left, fmt.Errorf("joined, but a part could not be removed: %w", err))
		}
	}
	return errors.Join(left...)
}

func (c *Client) joinInto(ctx context.Context, op, path string, parts []string, o *transferOptions) error {
	joined := &joinedFiles{client: c, ctx: ctx, paths: parts}
	defer joined.Close()
	src := &source{path: path, r: joined, size: -1}
	stored, err := c.post(ctx, op, path, url.Values{"path": {path}}, []part{{src: src}}, o)
	if err != nil {
		return err
	}
	return stored.check(op, path, 1, nil)
}

// joinedFiles reads files of the sandbox one after the other.
type joinedFiles struct {
	client *Client
	ctx    context.Context
	paths  []string
	file   *File
}

func (j *joinedFiles) Read(p []byte) (int, error) {
	for {
		if j.file == nil {
			if len(j.paths) == 0 {
				return 0, io.EOF
			}
			file, err := j.client.Open(j.ctx, j.paths[0])
			if err != nil {
				return 0, err
			}
			j.file, j.paths = file, j.paths[1:]
		}
		n, err := j.file.Read(p)
		if err == io.EOF {
			j.Close()
			err = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Close closes the file that is being read.
func (j *joinedFiles) Close() {
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
}
