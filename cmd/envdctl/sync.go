// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

type syncFlags struct {
	del      bool
	once     bool
	dryRun   bool
	exclude  []string
	include  []string
	symlinks string
	parallel int
}

func (a *app) syncCommand() *cobra.Command {
	f := &syncFlags{}
	cmd := &cobra.Command{
		Use:   "sync [flags] DIRECTORY :DIRECTORY",
		Short: "Keep a directory of the sandbox like a local one",
		Long: `Keep a directory of the sandbox like a local one, until Ctrl+C: what differs in
size, mode or time is uploaded, now and whenever something changes here. Changes
in the sandbox are not looked at, but for what --delete removes.

Each file that was uploaded or removed is a line, or with --json an object. When
the sandbox cannot be reached later on, sync says so and goes on trying.`,
		Example: `  envdctl sync ./src :/app/src
  envdctl sync --delete --exclude .git/ --exclude '*.pyc' . :/app
  envdctl sync --once ./site :/var/www && envdctl exec -- nginx -s reload`,
		Args:              wantArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeCopy,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.sync(cmd, f, args[0], args[1])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&f.del, "delete", false, "remove what the sandbox's directory has and the local one has not")
	flags.StringArrayVar(&f.exclude, "exclude", nil, "leave out what matches the `PATTERN`, such as '*.log' or node_modules/; can be repeated")
	flags.StringArrayVar(&f.include, "include", nil, "copy only what matches the `PATTERN`; can be repeated")
	flags.BoolVar(&f.once, "once", false, "end when both are alike")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show what would be done, and do nothing")
	flags.StringVar(&f.symlinks, "symlinks", "skip", "what becomes of symlinks: skip, follow or copy")
	flags.IntVar(&f.parallel, "parallel", client.DefaultParallel, "upload so many files at a time")
	return cmd
}

func (a *app) sync(cmd *cobra.Command, f *syncFlags, local, remote string) error {
	to, ok := remotePath(remote)
	mode, err := symlinkMode(f.symlinks)
	switch {
	case err != nil:
		return &usageError{cmd, err}
	case !ok:
		return usagef(cmd, "the second directory must be in the sandbox: a path with a colon in front, such as :/app")
	case f.parallel < 1:
		return usagef(cmd, "--parallel is %d; want 1 or more", f.parallel)
	}
	if _, fromRemote := remotePath(local); fromRemote {
		return usagef(cmd, "the first directory must be on this machine: sync goes one way")
	}
	s := &syncer{app: a, flags: f, local: local, remote: to,
		plan: []client.TransferOption{client.WithExclude(f.exclude...), client.WithInclude(f.include...), client.WithSymlinks(mode)}}
	return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		s.client = c
		err := s.run(ctx)
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return nil // Ctrl+C
		}
		return err
	})
}

// syncer is one sync.
type syncer struct {
	app           *app
	client        *client.Client
	flags         *syncFlags
	local, remote string
	plan          []client.TransferOption // what belongs to the tree
	outErr        error                   // nobody reads what is shown
}

const (
	// syncQuiet is how long nothing must have changed before a sync begins, and
	// syncDelay how long it waits for that at most.
	syncQuiet = 100 * time.Millisecond
	syncDelay = 2 * time.Second
	// syncRetry is when a sync that failed is tried again, and how often a tree
	// is looked at that cannot be watched.
	syncRetry = 5 * time.Second
)

func (s *syncer) run(ctx context.Context) error {
	if s.flags.once || s.flags.dryRun {
		return s.round(ctx)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", s.local, err)
	}
	defer watcher.Close()
	blind := s.watch(ctx, watcher)
	if err := s.round(ctx); err != nil {
		return err
	}
	s.app.messages.printf("in sync; watching %s", printable(s.local))
	for failed := false; ; {
		if err := s.waitForChange(ctx, watcher, failed || blind); err != nil {
			return err
		}
		// Directories first: what comes into one later on is noticed then.
		blind = s.watch(ctx, watcher)
		err := s.round(ctx)
		if ctx.Err() != nil || s.outErr != nil {
			return errors.Join(s.outErr, ctx.Err())
		}
		if err != nil {
			s.app.messages.printf("%s; trying again", printable(err.Error()))
		} else if failed {
			s.app.messages.printf("in sync again")
		}
		failed = err != nil
	}
}

// watch watches every directory of the tree. It reports whether one cannot be.
func (s *syncer) watch(ctx context.Context, watcher *fsnotify.Watcher) (blind bool) {
	dirs := []string{"."}
	summary, _ := s.client.UploadDir(ctx, s.local, s.remote, append(s.plan, client.WithDryRun(), client.WithKeepGoing())...)
	for _, e := range summary.Copied {
		if e.Mode.IsDir() {
			dirs = append(dirs, e.Path)
		}
	}
	for _, dir := range dirs {
		err := watcher.Add(filepath.Join(s.local, filepath.FromSlash(dir)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.app.messages.printf("%s cannot be watched: %v; looking every %v", printable(dir), err, syncRetry)
			return true
		}
	}
	return false
}

// waitForChange waits until something changed and then for a moment of quiet.
func (s *syncer) waitForChange(ctx context.Context, watcher *fsnotify.Watcher, again bool) error {
	var retry <-chan time.Time
	if again {
		retry = time.After(syncRetry)
	}
	var quiet, latest <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-retry:
			return nil
		case <-quiet:
			return nil
		case <-latest:
			return nil
		case <-watcher.Events:
		case err := <-watcher.Errors:
			s.app.messages.printf("watching: %v", err) // perhaps some were lost
		}
		quiet = time.After(syncQuiet)
		if latest == nil {
			latest = time.After(syncDelay)
		}
	}
}

// round uploads what differs, and shows it.
func (s *syncer) round(ctx context.Context) error {
	opts := append([]client.TransferOption{client.WithUpdate(), client.WithParallel(s.flags.parallel), client.WithKeepGoing()}, s.plan...)
	if s.flags.del {
		opts = append(opts, client.WithDelete())
	}
	if s.flags.dryRun {
		opts = append(opts, client.WithDryRun())
	}
	summary, err := s.client.UploadDir(ctx, s.local, s.remote, opts...)
	for _, name := range summary.Removed {
		s.show("remove", name)
	}
	for _, e := range summary.Copied {
		s.show("upload", e.Path)
	}
	return errors.Join(err, s.outErr)
}

func (s *syncer) show(op, name string) {
	var err error
	if s.app.json {
		err = json.NewEncoder(s.app.out).Encode(map[string]string{"op": op, "path": name})
	} else {
		_, err = fmt.Fprintf(s.app.out, "%-6s %s\n", op, printable(name))
	}
	if s.outErr == nil {
		s.outErr = err
	}
}
