// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"sync"
	"time"
)

// What a transfer does unless told otherwise.
const (
	// DefaultTransferIdleTimeout is how long a transfer may stand still.
	DefaultTransferIdleTimeout = 60 * time.Second
	// DefaultTransferRetries is how often a broken download is taken up again.
	DefaultTransferRetries = 5
	// DefaultParallel is how many files of a directory move at a time.
	DefaultParallel = 4
)

var (
	// ErrFileChanged: a file was changed or replaced between two requests for
	// parts of it, which therefore do not belong together.
	ErrFileChanged = errors.New("file changed while it was being read")
	// ErrFileTooLarge: a file has more bytes than the call may take.
	ErrFileTooLarge = errors.New("file is larger than the limit")
)

// TransferError says how far a transfer came. It stands between the
// [fs.PathError] that names the file and the cause.
type TransferError struct {
	// Bytes is how many bytes of the file were moved: written to the caller's
	// writer, or taken from the caller's reader, of which the last may not have
	// arrived. For a [File] it is where the reading stood.
	Bytes int64
	// Total is the size of the file, or -1 where it is not known.
	Total int64
	// Incomplete is true for an upload that broke off after envd began to write:
	// what the file holds now is a part of the new content. [WithAtomic] avoids
	// that.
	Incomplete bool
	// Err is the cause: an [*Error] for what the server or the network did, or
	// the error of the caller's reader or writer.
	Err error
}

// Error returns how far the transfer came, and the cause.
func (e *TransferError) Error() string {
	var b strings.Builder
	switch {
	case e.Bytes > 0 && e.Total >= 0:
		fmt.Fprintf(&b, "after %d of %d bytes: ", e.Bytes, e.Total)
	case e.Bytes > 0:
		fmt.Fprintf(&b, "after %d bytes: ", e.Bytes)
	}
	if e.Incomplete {
		b.WriteString("the file may be incomplete now: ")
	}
	if call, ok := e.Err.(*Error); ok {
		b.WriteString(cut(causeText(call.Err, call.Code))) // the operation and path stand further left
		return b.String()
	}
	b.WriteString(causeText(e.Err, ""))
	return b.String()
}

// Unwrap returns the cause.
func (e *TransferError) Unwrap() error { return e.Err }

// Progress is how far a transfer came.
type Progress struct {
	// Path is the file's path in the sandbox.
	Path string
	// Bytes is how many bytes of the file were moved.
	Bytes int64
	// Total is the file's size, or -1 where it is not known.
	Total int64
	// Done is true in the last report of a file, once it is stored.
	Done bool
}

// TransferOption changes how one file or directory is moved. A call that
// cannot do what an option asks for fails with [fs.ErrInvalid] instead of
// ignoring it; each option says which calls it is for.
type TransferOption interface {
	applyTransfer(*transferOptions) error
}

// optionSet names options, so that a call can say which it takes.
type optionSet uint32

const (
	optProgress optionSet = 1 << iota
	optIdle
	optGzip
	optAtomic
	optMetadata
	optMaxBytes
	optSize
	optRetries
	optParallel
	optStreams
	optPatterns
	optDryRun
	optKeepGoing
	optPreserve
	optSymlinks
	optUpdate

	optsRead        = optIdle | optRetries | optMaxBytes | optProgress | optGzip | optStreams
	optsOpen        = optIdle | optRetries
	optsWrite       = optIdle | optProgress | optGzip | optAtomic | optMetadata | optStreams
	optsUpload      = optsWrite | optSize
	optsUploadFiles = optIdle | optProgress | optGzip | optMetadata
	optsTree        = optIdle | optProgress | optGzip | optParallel | optPatterns | optDryRun | optKeepGoing | optPreserve | optSymlinks
	optsUploadDir   = optsTree | optAtomic | optMetadata | optUpdate
	optsDownloadDir = optsTree | optRetries | optMaxBytes
)

type transferOption struct {
	bit   optionSet
	name  string
	apply func(*transferOptions) error
}

func (o transferOption) applyTransfer(t *transferOptions) error {
	if o.bit&t.allowed == 0 {
		return fmt.Errorf("%s has no meaning for this call: %w", o.name, fs.ErrInvalid)
	}
	if err := o.apply(t); err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	return nil
}

type transferOptions struct {
	allowed  optionSet
	progress func(Progress)
	idle     time.Duration
	gzip     bool
	atomic   bool
	metadata map[string]string
	maxBytes int64 // 0 for no limit
	size     int64 // -1 for not known
	retries  int
	streams  int    // of one file
	moved    *clock // which they share; nil for one of its own
	tree     treeOptions
}

// atATime is how many requests of the call share the way to the sandbox.
func (o *transferOptions) atATime() int {
	if o.allowed&optParallel != 0 {
		return o.tree.parallel
	}
	return o.streams
}

func newTransferOptions(allowed optionSet, opts []TransferOption) (*transferOptions, error) {
	t := &transferOptions{
		allowed: allowed,
		idle:    DefaultTransferIdleTimeout,
		size:    -1,
		retries: DefaultTransferRetries,
		streams: 1,
		tree:    treeOptions{parallel: DefaultParallel},
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("nil TransferOption: %w", fs.ErrInvalid)
		}
		if err := opt.applyTransfer(t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// WithProgress calls fn as bytes move, and once more with Done set when a file
// is complete. Calls come one at a time and hold the transfer up while they
// run. For every call but Open.
func WithProgress(fn func(Progress)) TransferOption {
	return transferOption{optProgress, "WithProgress", func(t *transferOptions) error {
		t.progress = fn
		return nil
	}}
}

// WithIdleTimeout ends a transfer with [ErrIdleTimeout] when no byte has moved
// for d; 0 means never. A transfer has no other time limit than its context.
// For an upload, a reader that gives nothing for so long counts too; after the
// last byte envd may take as long again as the sending took, since a proxy may
// have kept everything to itself until then, or as long as it takes at 20 kB/s to
// send what this machine may have buffered, 4 MiB at most. The time that the
// caller takes for a download, or in a progress callback, does not count. The
// default is [DefaultTransferIdleTimeout]. For every call.
func WithIdleTimeout(d time.Duration) TransferOption {
	return transferOption{optIdle, "WithIdleTimeout", func(t *transferOptions) error {
		if d < 0 {
			return fmt.Errorf("%v is negative: %w", d, fs.ErrInvalid)
		}
		t.idle = d
		return nil
	}}
}

// WithGzip compresses the bytes on their way; what is stored is not
// compressed. It pays on slow links only. An upload needs envd 0.5.3. An older
// server answers a download uncompressed. A compressed download cannot be
// taken up again when it breaks. For every call but Open.
func WithGzip() TransferOption {
	return transferOption{optGzip, "WithGzip", func(t *transferOptions) error {
		t.gzip = true
		return nil
	}}
}

// WithAtomic uploads under a temporary name in the same directory and renames
// the file when it is complete: whoever reads the path sees the old content or
// the new, and a failed upload changes nothing. The permission bits of a file
// that is replaced are kept, by running chmod in the sandbox where they are not
// 0644, the ones that every new file gets. A symlink to a file stays and the
// file is replaced, from envd 0.2.5 on. Hard links to the old file keep the old
// content. For WriteFile, Upload and UploadDir.
func WithAtomic() TransferOption {
	return transferOption{optAtomic, "WithAtomic", func(t *transferOptions) error {
		t.atomic = true
		return nil
	}}
}

// WithMetadata stores keys and values with the file, to be seen in entries
// again. They replace those that the file had. Keys are stored in lower case;
// keys and values are printable ASCII, a key has at most 246 bytes, all of it
// together about 4 KiB. It needs envd 0.6.2 and a filesystem with extended
// attributes: an upload whose metadata was not stored fails with
// [errors.ErrUnsupported], though the file itself is there. For WriteFile,
// Upload, UploadFiles and UploadDir.
func WithMetadata(metadata map[string]string) TransferOption {
	return transferOption{optMetadata, "WithMetadata", func(t *transferOptions) error {
		checked, err := checkMetadata(metadata)
		t.metadata = checked
		return err
	}}
}

func checkMetadata(metadata map[string]string) (map[string]string, error) {
	checked := make(map[string]string, len(metadata))
	total := 0
	for key, value := range metadata {
		lower := strings.ToLower(key)
		switch _, twice := checked[lower]; {
		case !validHeaderName(key) || len(key) > 246:
			return nil, fmt.Errorf("key %q cannot be stored: %w", key, fs.ErrInvalid)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) || strings.TrimSpace(value) != value:
			return nil, fmt.Errorf("value of %q is not printable ASCII: %w", key, fs.ErrInvalid)
		case twice:
			return nil, fmt.Errorf("key %q is there twice: %w", lower, fs.ErrInvalid)
		}
		checked[lower] = value
		total += 9 + len(key) + len(value)
	}
	if total > 4096 {
		return nil, fmt.Errorf("%d bytes are too many: %w", total, fs.ErrInvalid)
	}
	return checked, nil
}

// WithMaxBytes fails with [ErrFileTooLarge] when a file has more than n bytes;
// a compressed one is counted as it is unpacked. For ReadFile, Download and
// DownloadDir, where it is the limit of each file.
func WithMaxBytes(n int64) TransferOption {
	return transferOption{optMaxBytes, "WithMaxBytes", func(t *transferOptions) error {
		if n <= 0 {
			return fmt.Errorf("%d is not positive: %w", n, fs.ErrInvalid)
		}
		t.maxBytes = n
		return nil
	}}
}

// WithSize says how many bytes the reader of an upload will give, where that
// cannot be seen from it. Proxies like uploads better whose length they know,
// and some refuse others. A reader that gives fewer fails the upload; what it
// has beyond is not read. For Upload.
func WithSize(n int64) TransferOption {
	return transferOption{optSize, "WithSize", func(t *transferOptions) error {
		if n < 0 {
			return fmt.Errorf("%d is negative: %w", n, fs.ErrInvalid)
		}
		t.size = n
		return nil
	}}
}

// WithRetries says how often a download that breaks is taken up where it broke
// without having moved a megabyte since; 0 means never, and that the first
// request is not repeated either. It is only taken up if the file is the same
// still. Of a file of up to 4 MiB that was changed just before, or whose server
// does not tell, what came is fetched once more and compared; a larger one takes
// envd 0.2.5. The default is [DefaultTransferRetries]. For Open, ReadFile, Download and DownloadDir.
func WithRetries(n int) TransferOption {
	return transferOption{optRetries, "WithRetries", func(t *transferOptions) error {
		if n < 0 {
			return fmt.Errorf("%d is negative: %w", n, fs.ErrInvalid)
		}
		t.retries = n
		return nil
	}}
}

// transferError makes the error of a transfer.
func transferError(op, path string, e TransferError) error {
	if pe, ok := e.Err.(*fs.PathError); ok && pe.Path == path {
		e.Err = pe.Err
	}
	return &fs.PathError{Op: op, Path: path, Err: &e}
}

// callError makes the [Error] of a request that belongs to a transfer. ctx is
// the caller's context; cause is what ended the transfer's own.
func callError(ctx context.Context, op, path string, cause, err error) error {
	stall, ok := errors.AsType[*stallError](cause)
	if ok && ctx.Err() == nil {
		return &Error{Op: op, Target: path, Code: CodeDeadlineExceeded, Err: stall,
			is: []error{ErrIdleTimeout, context.DeadlineExceeded}}
	}
	return toError(ctx, domainFile, op, path, err)
}

// stallError says that a transfer stood still.
type stallError struct{ after time.Duration }

func (e *stallError) Error() string { return fmt.Sprintf("no bytes moved for %v", e.after) }

// stallGuard ends a transfer that stands still.
type stallGuard struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	limit time.Duration
	timer *time.Timer
	armed bool
	moved *clock
}

// newStallGuard returns a guard that is not armed yet. A limit of 0 means none.
// Requests that move one file together share a clock: on a slow link one may
// have to wait for the others.
func newStallGuard(limit time.Duration, cancel context.CancelCauseFunc, shared *clock) *stallGuard {
	if shared == nil {
		shared = &clock{}
	}
	return &stallGuard{limit: limit, cancel: cancel, moved: shared}
}

// arm starts the clock.
func (g *stallGuard) arm() { g.extend(0) }

// extend starts the clock with so much more time than usual.
func (g *stallGuard) extend(more time.Duration) {
	if g.limit <= 0 {
		return
	}
	g.moved.set()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = true
	g.limit += more
	if g.timer == nil {
		g.timer = time.AfterFunc(g.limit, g.fire)
		return
	}
	g.timer.Reset(g.limit)
}

// touch says that bytes moved.
func (g *stallGuard) touch() { g.moved.set() }

// disarm stops the clock.
func (g *stallGuard) disarm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	if g.timer != nil {
		g.timer.Stop()
	}
}

func (g *stallGuard) fire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.armed {
		return
	}
	if left := g.limit - g.moved.since(); left > 0 {
		g.timer.Reset(left)
		return
	}
	g.cancel(&stallError{g.limit})
}

// filesURL returns the address of a file. The user stands in the query, since
// /files does not look at the header.
func (c *Client) filesURL(query url.Values) string {
	if c.user != "" {
		query.Set("username", c.user)
	}
	// Not every server reads a plus sign as a space.
	return c.base.String() + "/files?" + strings.ReplaceAll(query.Encode(), "+", "%20")
}

// checkFilePath refuses paths that no file can have.
func checkFilePath(path string) error {
	if path == "" {
		return fmt.Errorf("path is empty: %w", fs.ErrInvalid)
	}
	if strings.ContainsRune(path, 0) {
		return fmt.Errorf("path contains NUL: %w", fs.ErrInvalid)
	}
	return nil
}
