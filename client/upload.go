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
	"strings"
	"syscall"

	"github.com/envd-go/envd/internal/envdversion"
)

// WriteFile writes the data to the file, as [Client.Upload] does. A new file
// gets the mode 0644, one that exists keeps its own.
//
// Options for WriteFile are WithAtomic, WithMetadata, WithIdleTimeout, WithGzip,
// WithParallel and WithProgress.
func (c *Client) WriteFile(ctx context.Context, path string, data []byte, opts ...TransferOption) error {
	const op = "write"
	o, err := newTransferOptions(optsWrite, opts)
	if err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	o.size = int64(len(data))
	return c.upload(ctx, op, path, bytes.NewReader(data), o)
}

// Upload writes what r has left to the file, in constant memory, and makes
// directories that are missing. The file belongs to the client's user then. A
// new file gets the mode 0644, one that exists keeps its own; a symlink is
// followed. Nothing but the context and [WithIdleTimeout] limits its time.
//
// The length is announced where it can be seen: from a Len method, from a
// Seek method, from a regular [os.File], from a reader with little in it, or
// from [WithSize].
//
// envd empties the file first and then writes what comes. If r, the network or
// the sandbox's disk fails in the middle, the beginning of the new content
// stays there; the error then is a [*fs.PathError] around a [*TransferError]
// with Incomplete set. [WithAtomic] never leaves such a file. A full disk is
// [ErrNoSpace], a directory at path matches syscall.EISDIR.
//
// When the context ends while a Read of r hangs, Upload gives it
// [DefaultWaitDelay] and then returns; r must not be used before that Read has
// come back.
//
// Options for Upload are WithAtomic, WithMetadata, WithSize, WithIdleTimeout,
// WithGzip, WithParallel and WithProgress.
func (c *Client) Upload(ctx context.Context, path string, r io.Reader, opts ...TransferOption) error {
	const op = "upload"
	o, err := newTransferOptions(optsUpload, opts)
	if err != nil {
		return &fs.PathError{Op: op, Path: path, Err: err}
	}
	return c.upload(ctx, op, path, r, o)
}

func (c *Client) upload(ctx context.Context, op, path string, r io.Reader, o *transferOptions) error {
	fail := func(e TransferError) error { return transferError(op, path, e) }
	if err := c.checkUpload(ctx, op, path, o); err != nil {
		return fail(TransferError{Total: -1, Err: err})
	}
	src, err := newSource(ctx, path, r, o)
	if err != nil {
		return fail(TransferError{Bytes: src.count.Load(), Total: src.size, Err: err})
	}
	incomplete, err := c.howToStore(ctx, path, src, o)(ctx, op, path, src, o)
	if err != nil {
		return fail(TransferError{Bytes: src.count.Load(), Total: src.size, Incomplete: incomplete, Err: err})
	}
	n := src.count.Load()
	o.report(Progress{Path: path, Bytes: n, Total: n, Done: true})
	return nil
}

// checkUpload refuses what cannot work, before anything is read.
func (c *Client) checkUpload(ctx context.Context, op, path string, o *transferOptions) error {
	if err := checkFilePath(path); err != nil {
		return err
	}
	if strings.HasSuffix(path, "/") {
		// envd would make the directory, and only then fail.
		return fmt.Errorf("path ends with a slash: %w", syscall.EISDIR)
	}
	if o.atomic {
		if err := checkRPCPath(path); err != nil {
			return err
		}
	}
	if len(o.metadata) > 0 {
		if err := c.gate(ctx, op, path, envdversion.Metadata); err != nil {
			return err
		}
	}
	if o.gzip {
		return c.gate(ctx, op, path, envdversion.FilesGzip)
	}
	return nil
}

// maxRaceTries is how often an upload is sent at most that loses races of old
// daemons for the making of a directory. There is one for each missing parent.
const maxRaceTries = 12

// store uploads the source to the path itself. Where it fails it reports
// whether the file may be incomplete now.
func (c *Client) store(ctx context.Context, op, path string, src *source, o *transferOptions) (incomplete bool, err error) {
	for try := 1; ; try++ {
		parts := []part{{src: src}}
		stored, err := c.post(ctx, op, path, url.Values{"path": {path}}, parts, o)
		if err == nil {
			return false, stored.check(op, path, 1, o.metadata)
		}
		if isParentRace(err) && try < maxRaceTries && src.rewind() && sleep(ctx, backoff(1)) {
			continue
		}
		return mayBeIncomplete(src, err), err
	}
}

// mayBeIncomplete reports whether an upload that failed so left a part of the
// file. An answer says what happened; without one, envd had begun to write.
func mayBeIncomplete(src *source, err error) bool {
	if src.count.Load() == 0 {
		return false
	}
	switch status := statusOf(err); {
	case status == 0:
		return true
	case status == http.StatusInsufficientStorage:
		return !hasText(err, textNoSpaceBefore)
	default:
		return hasText(err, textWritingFile) || hasText(err, textReadingFile)
	}
}

// isParentRace reports whether the error is that of a daemon before 0.5.8 that
// made a directory at the same time for somebody else.
func isParentRace(err error) bool { return hasText(err, textMkdirRace) }

// post sends POST /files. It is the one place that does.
func (c *Client) post(ctx context.Context, op, path string, query url.Values, parts []part, o *transferOptions) (storedFiles, error) {
	tctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guard := newStallGuard(o.idle, cancel, o.moved)
	defer guard.disarm()

	body := newUploadBody(tctx.Done(), c.sendsRaw(ctx, parts), parts, o, guard)
	defer func() { body.detach() }()
	req, err := http.NewRequestWithContext(tctx, http.MethodPost, c.filesURL(query), body)
	if err != nil {
		return nil, err
	}
	body.describe(req)
	req.GetBody = func() (io.ReadCloser, error) {
		next, err := body.again()
		if err == nil {
			body = next
		}
		return next, err
	}
	for key, value := range o.metadata {
		req.Header.Set("X-Metadata-"+key, value)
	}
	guard.arm()
	resp, err := c.plain(req)
	if failure := body.failure(); failure != nil {
		if err == nil {
			_ = resp.Body.Close()
		}
		return nil, failure // it says more than what the network made of it
	}
	if err != nil {
		return nil, c.uploadError(ctx, op, path, context.Cause(tctx), err, o)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return nil, callError(ctx, op, path, context.Cause(tctx), err)
	}
	if !body.whole() {
		return nil, c.badAnswer(op, errors.New("it came before all bytes were sent"))
	}
	stored, err := parseStored(data)
	if err == errNotJSON {
		err = errors.New(c.clean(describe(req, resp, errorBody{raw: data, text: string(data)})))
	}
	if err != nil {
		return nil, c.badAnswer(op, err)
	}
	return stored, nil
}

func (c *Client) uploadError(ctx context.Context, op, path string, cause, err error, o *transferOptions) error {
	err = callError(ctx, op, path, cause, err)
	e, ok := err.(*Error)
	if ok && o.gzip && hasText(err, textNextPart) {
		// An old daemon looked for the parts in compressed bytes.
		e.is = append(e.is, errors.ErrUnsupported)
	}
	return err
}

var errNotJSON = errors.New("answer is not JSON")

// storedFiles is the answer to an upload.
type storedFiles []struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Metadata map[string]string `json:"metadata"`
}

// parseStored reads the first JSON value of the answer, which is not labelled
// as JSON and may be followed by another.
func parseStored(data []byte) (storedFiles, error) {
	var first json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&first); err != nil {
		return nil, errNotJSON
	}
	if fields, ok := errorFields(data); ok {
		message, _ := fields["message"].(string)
		return nil, errors.New(cut(escapeControls(message)))
	}
	var stored storedFiles
	err := json.Unmarshal(first, &stored)
	return stored, err
}

// check makes sure that so many files were stored, with their metadata.
func (s storedFiles) check(op, path string, want int, metadata map[string]string) error {
	if len(s) < want {
		return &Error{Op: op, Target: path, Code: CodeInternal,
			Err: fmt.Errorf("server stored %d of %d files, and calls that success", len(s), want)}
	}
	for _, file := range s {
		for key, value := range metadata {
			if got, ok := file.Metadata[key]; !ok || got != value {
				row := envdversion.Metadata.Row()
				return &Error{Op: op, Target: path, Code: CodeUnimplemented,
					Err: fmt.Errorf("file was stored without its metadata: %w before envd %s and on some filesystems", errors.ErrUnsupported, row.Since)}
			}
		}
	}
	return nil
}

// sendsRaw reports whether the parts go as a bare body. Every daemon reads
// multipart; the bare form is for those that are known to.
func (c *Client) sendsRaw(ctx context.Context, parts []part) bool {
	return len(parts) == 1 && parts[0].filename == "" && c.server(ctx).has(envdversion.RawUpload)
}
