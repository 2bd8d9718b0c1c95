// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"sync/atomic"

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
func (c *Client) howToStore(ctx context.Context, src *source, o *transferOptions) (func(context.Context, string, string, *source, *transferOptions) (bool, error), error) {
	store := c.store
	if o.atomic {
		store = c.storeAtomic
	}
	if o.streams < 2 || src.size <= c.config.partSize || src.at() == nil || len(o.metadata) > 0 {
		return store, nil
	}
	can, err := c.canCompose(ctx)
	if err != nil {
		return nil, err
	}
	if can {
		store = c.storeParts
	}
	return store, nil
}

// canCompose reports whether the server joins files. Where that is not known it
// asks once, with a request that names none.
func (c *Client) canCompose(ctx context.Context) (bool, error) {
	known := c.server(ctx)
	if known.has(envdversion.Compose) || known.lacks(envdversion.Compose) {
		return known.has(envdversion.Compose), nil
	}
	if answer := c.composes.Load(); answer != answerUnknown {
		return answer == answerYes, nil
	}
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	err := c.composeThere(ctx, "compose", "", nil)
	switch {
	case statusOf(err) == http.StatusBadRequest:
		c.composes.Store(answerYes)
		return true, nil
	case isMissingEndpoint(err):
		c.composes.Store(answerNo)
		return false, nil
	case err == nil:
		return false, c.badAnswer("compose", errors.New("nothing was joined, and that is called success"))
	}
	return false, err
}

// storeParts uploads parts of the file beside it, several at a time, and lets
// the server join them. It never leaves the file in between.
func (c *Client) storeParts(ctx context.Context, op, path string, src *source, o *transferOptions) (bool, error) {
	target, mode, err := c.replaced(ctx, op, path)
	if err != nil {
		return false, err
	}
	own := *o
	own.moved = &clock{}
	u := &partUpload{client: c, op: op, target: target, src: src, opts: &own}
	u.cut()
	err = u.send(ctx)
	if err == nil {
		err = u.join(ctx, mode)
	}
	if err != nil {
		u.giveUp()
	}
	u.discard(ctx)
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
	name      string // under which it is stored
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
		u.leave(name, statusOf(err) != 0)
		if c.config.noRetries || try >= maxTries || ctx.Err() != nil || !canRetry(err) || !waitToRetry(ctx, backoff(try), err) {
			return err
		}
	}
}

func (u *partUpload) tryPart(ctx context.Context, p *uploadPart, name string) error {
	r := io.NewSectionReader(u.src.at(), u.src.start+p.off, p.size)
	part := &source{path: name, r: r, seeker: r, size: p.size}
	o := *u.opts
	var before int64
	o.progress = func(Progress) {
		count := part.count.Load()
		u.advance(count - before)
		before = count
	}
	_, err := u.client.store(ctx, u.op, name, part, &o)
	if err != nil {
		u.advance(-before)
	}
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

// join makes the file of its parts. Where the file that was there had a mode of
// its own they are joined beside it first.
func (u *partUpload) join(ctx context.Context, mode keptMode) error {
	names := make([]string, len(u.parts))
	for i := range u.parts {
		names[i] = u.parts[i].name
	}
	c := u.client
	if !mode.set || mode.perm == newFileMode {
		return c.composeThere(ctx, u.op, u.target, names)
	}
	temporary := temporaryName(u.target)
	err := c.composeThere(ctx, u.op, temporary, names)
	if err == nil {
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
	for _, p := range u.parts {
		if p.name != "" {
			u.leave(p.name, true)
		}
	}
}

// discard removes what was left, as many at a time as were sent.
func (u *partUpload) discard(ctx context.Context) {
	slots := make(chan struct{}, u.opts.streams)
	var running sync.WaitGroup
	for _, left := range u.left {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			u.client.discard(ctx, left.name, left.answered)
		})
	}
	running.Wait()
}

// at returns the reader as one that can be read at any place, or nil.
func (s *source) at() io.ReaderAt {
	at, ok := s.r.(io.ReaderAt)
	if !ok || s.seeker == nil {
		return nil
	}
	if file, ok := s.r.(fs.File); ok {
		if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
			return nil
		}
	}
	return at
}
