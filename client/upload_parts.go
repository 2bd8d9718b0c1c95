// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/envd-go/envd/internal/envdversion"
)

const (
	// partSize is how much each request of a parallel upload carries at least.
	partSize = 8 << 20
	// maxParts is how many parts a file is cut into at most: their names have to
	// fit into one request.
	maxParts = 512
)

// howToStore chooses how the source is sent.
func (c *Client) howToStore(ctx context.Context, path string, src *source, o *transferOptions) func(context.Context, string, string, *source, *transferOptions) (bool, error) {
	whole := c.store
	if o.atomic {
		whole = c.storeAtomic
	}
	if o.streams < 2 || src.size <= c.config.partSize || src.at() == nil || len(o.metadata) > 0 ||
		!utf8.ValidString(path) || !c.canCompose(ctx) {
		return whole
	}
	return func(ctx context.Context, op, path string, src *source, o *transferOptions) (bool, error) {
		incomplete, err := c.storeParts(ctx, op, path, src, o)
		if errors.Is(err, errInOnePiece) && src.rewind() {
			return whole(ctx, op, path, src, o)
		}
		return incomplete, err
	}
}

// errInOnePiece says that a file cannot be sent in parts after all.
var errInOnePiece = errors.New("file has to be sent in one piece")

// canCompose reports whether the server joins files. Where that is not known it
// asks with a request that names none, and takes what is no clear answer for no.
func (c *Client) canCompose(ctx context.Context) bool {
	known := c.server(ctx)
	if known.has(envdversion.Compose) || known.lacks(envdversion.Compose) {
		return known.has(envdversion.Compose)
	}
	if answer := c.composes.Load(); answer != answerUnknown {
		return answer == answerYes
	}
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	err := c.composeThere(ctx, "compose", "", nil)
	switch {
	case statusOf(err) == http.StatusBadRequest && hasText(err, textNoSources):
		c.composes.Store(answerYes)
		return true
	case isMissingEndpoint(err):
		c.composes.Store(answerNo)
	}
	return false
}

// storeParts uploads parts of the file beside it, several at a time, and lets
// the server join them. It never leaves the file in between.
func (c *Client) storeParts(ctx context.Context, op, name string, src *source, o *transferOptions) (bool, error) {
	target, mode, err := c.replaced(ctx, op, name)
	if errors.Is(err, fs.ErrInvalid) && !o.atomic {
		return false, errInOnePiece // a device, perhaps
	}
	if err != nil {
		return false, err
	}
	own := *o
	own.moved = &clock{}
	u := &partUpload{client: c, op: op, target: target, src: src, opts: &own, began: time.Now()}
	u.cut()
	err = u.send(ctx)
	if err == nil {
		err = u.joinInTime(ctx, mode)
	}
	if err != nil {
		u.giveUp()
	}
	u.discard(ctx)
	if err == nil {
		_, _ = src.seeker.Seek(src.start+src.size, io.SeekStart) // as if it had been read
	}
	return false, err
}

// partUpload is a parallel upload under way.
type partUpload struct {
	client *Client
	op     string
	target string
	src    *source
	opts   *transferOptions
	parts  []uploadPart
	began  time.Time

	mu    sync.Mutex // for what follows, and for progress
	moved int64
	left  []leftPart
}

// leftPart is a file that was not joined, or may not have been.
type leftPart struct {
	name     string
	answered bool
}

// uploadPart is a part of a file.
type uploadPart struct {
	off, size int64
	name      string       // under which it is stored
	moved     atomic.Int64 // of the try under way
}

func (u *partUpload) cut() {
	size := max(u.client.config.partSize, (u.src.size+maxParts-1)/maxParts)
	for off := int64(0); off < u.src.size; off += size {
		u.parts = append(u.parts, uploadPart{off: off, size: min(size, u.src.size-off)})
	}
}

// send uploads all parts, or as many as it can until one fails.
func (u *partUpload) send(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(u.opts.streams, len(u.parts)) {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(u.parts)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := u.sendPart(ctx, &u.parts[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	if ctx.Err() == nil {
		return nil
	}
	err := context.Cause(ctx) // what failed first
	if err == ctx.Err() {
		return toError(ctx, domainFile, u.op, u.target, err)
	}
	return err
}

// sendPart uploads a part. It is sent again under another name where that may
// help: nobody has looked at the first one.
func (u *partUpload) sendPart(ctx context.Context, p *uploadPart) error {
	c := u.client
	for try := 1; ; try++ {
		name := temporaryName(u.target)
		err := u.tryPart(ctx, p, name)
		if err == nil {
			p.name = name
			return nil
		}
		// What another part's failure ended may come to be all the same.
		u.leave(name, statusOf(err) != 0 && ctx.Err() == nil)
		if c.config.noRetries || try >= maxTries || ctx.Err() != nil || !canRetry(err) || !waitToRetry(ctx, backoff(try), err) {
			return err
		}
		u.advance(-p.moved.Swap(0))
	}
}

func (u *partUpload) tryPart(ctx context.Context, p *uploadPart, name string) error {
	r := io.NewSectionReader(u.src.at(), u.src.start+p.off, p.size)
	part := &source{path: name, r: r, seeker: r, size: p.size}
	o := *u.opts
	o.progress = func(Progress) {
		count := part.count.Load()
		u.advance(count - p.moved.Swap(count))
	}
	_, err := u.client.store(ctx, u.op, name, part, &o)
	return err
}

// advance counts bytes, and tells of them.
func (u *partUpload) advance(n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.moved += n
	u.src.count.Store(u.moved)
	if n > 0 {
		u.opts.report(Progress{Path: u.src.path, Bytes: u.moved, Total: u.src.size})
	}
}

// joinInTime joins the parts. That may take as long as the sending took, and as
// long as a transfer may stand still: nothing tells how far it is.
func (u *partUpload) joinInTime(ctx context.Context, mode keptMode) error {
	jctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	guard := newStallGuard(u.opts.idle, cancel, nil)
	guard.extend(time.Since(u.began))
	defer guard.disarm()
	err := u.join(jctx, mode)
	switch {
	case err != nil && jctx.Err() != nil:
		return callError(ctx, u.op, u.target, context.Cause(jctx), err)
	case isMissingEndpoint(err):
		u.client.composes.Store(answerNo)
		return errInOnePiece
	}
	return err
}

// join makes the file of its parts. They are joined beside it first where the
// file that was there had a mode of its own, or its name is too long to join to.
func (u *partUpload) join(ctx context.Context, mode keptMode) error {
	names := make([]string, len(u.parts))
	for i := range u.parts {
		names[i] = u.parts[i].name
	}
	c := u.client
	ownMode := mode.set && mode.perm != newFileMode
	if !ownMode && len(path.Base(u.target)) <= longestComposed {
		return c.composeThere(ctx, u.op, u.target, names)
	}
	temporary := temporaryName(u.target)
	err := c.composeThere(ctx, u.op, temporary, names)
	if err == nil && ownMode {
		err = c.chmod(ctx, mode.perm, temporary)
	}
	if err == nil {
		err = c.move(ctx, u.op, temporary, u.target)
	}
	if err != nil {
		u.leave(temporary, statusOf(err) != 0)
	}
	return err
}

func (u *partUpload) leave(name string, answered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.left = append(u.left, leftPart{name, answered})
}

// giveUp leaves the parts that were stored.
func (u *partUpload) giveUp() {
	for i := range u.parts {
		if name := u.parts[i].name; name != "" {
			u.leave(name, true)
		}
	}
}

// discard removes what was left, as many at a time as were sent. A sandbox that
// does not answer is not asked again for each.
func (u *partUpload) discard(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	slots := make(chan struct{}, min(u.opts.streams, max(len(u.left), 1)))
	var running sync.WaitGroup
	for _, left := range u.left {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if err := u.client.discard(ctx, left.name, left.answered); err != nil {
				cancel()
			}
		})
	}
	running.Wait()
}
