// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

type cpFlags struct {
	recursive bool
	atomic    bool
	resume    bool
	gzip      bool
	parallel  int
	quiet     bool
	preserve  bool
	symlinks  string
}

func (a *app) cpCommand() *cobra.Command {
	f := &cpFlags{}
	cmd := &cobra.Command{
		Use:   "cp [flags] SOURCE TARGET",
		Short: "Copy files to and from the sandbox",
		Long: `Copy files to and from the sandbox. A path of the sandbox has a colon in front; "-"
is standard input or output. A TARGET that is a directory, or ends with a slash,
gets the copy inside.

A local file is written beside its place and moved there when it is complete. In
the sandbox, --atomic does the same.`,
		Example: `  envdctl cp report.pdf :/tmp/
  envdctl cp -r ./src :/app/src
  envdctl cp :/var/log/app.log - | less
  tar c . | envdctl cp - :/tmp/tree.tar
  envdctl cp --resume :/data/large.bin large.bin
  envdctl cp --parallel 8 model.bin :/data/`,
		Args:              wantArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeCopy,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.cp(cmd, f, args[0], args[1])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&f.recursive, "recursive", "r", false, "copy a directory with all that is in it")
	flags.BoolVar(&f.atomic, "atomic", false, "replace files of the sandbox only when they are complete")
	flags.BoolVar(&f.resume, "resume", false, "keep what a download that breaks off has brought, and go on after what TARGET has already, which is believed to be the file's beginning")
	flags.BoolVar(&f.gzip, "gzip", false, "compress on the way; for slow links (envd 0.5.3 and later)")
	flags.IntVar(&f.parallel, "parallel", 0, "move so many parts of a file at a time, or files with -r (4 unless given); for links of high latency")
	flags.BoolVarP(&f.preserve, "preserve", "p", false, "keep modes and times, with -r")
	flags.StringVar(&f.symlinks, "symlinks", "skip", "what becomes of symlinks with -r: skip, follow or copy")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	return cmd
}

// remotePath returns the path of the sandbox that an argument means.
func remotePath(arg string) (string, bool) {
	rest, ok := strings.CutPrefix(arg, ":")
	if ok && rest == "" {
		rest = "." // the home directory, as for ls
	}
	return rest, ok
}

func (a *app) cp(cmd *cobra.Command, f *cpFlags, source, target string) error {
	from, fromRemote := remotePath(source)
	to, toRemote := remotePath(target)
	mode, err := symlinkMode(f.symlinks)
	switch {
	case err != nil:
		return &usageError{cmd, err}
	case fromRemote == toRemote:
		return usagef(cmd, "exactly one of SOURCE and TARGET must be in the sandbox: a path with a colon in front, such as :/tmp/file")
	case !f.recursive && (f.preserve || cmd.Flags().Changed("symlinks")):
		return usagef(cmd, "-p and --symlinks are for trees; use -r")
	case f.resume && (toRemote || f.recursive || to == "-" || f.gzip):
		return usagef(cmd, "--resume is for the download of one file")
	case cmd.Flags().Changed("parallel") && f.parallel < 1:
		return usagef(cmd, "--parallel is %d; want 1 or more", f.parallel)
	case f.resume && f.parallel > 1:
		return usagef(cmd, "--resume does not go with --parallel")
	case f.recursive && (from == "-" || to == "-"):
		return usagef(cmd, "-r does not go with standard input or output")
	}
	return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		ctx, interrupts := catchInterrupts(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer interrupts.stop()
		err := a.copyTo(ctx, c, f, mode, source, target)
		if n := interrupts.number(); n > 0 && err != nil {
			return &exitError{exitSignal + n, errors.New("interrupted")}
		}
		return err
	})
}

// copyTo is cp with a connection.
func (a *app) copyTo(ctx context.Context, c *client.Client, f *cpFlags, mode client.SymlinkMode, source, target string) error {
	from, _ := remotePath(source)
	to, toRemote := remotePath(target)
	bar := a.newProgress(f.quiet || to == "-")
	defer bar.done()
	t := &transfer{app: a, client: c, flags: f, symlinks: mode, bar: bar}
	if toRemote {
		return t.up(ctx, from, to)
	}
	return t.down(ctx, from, to)
}

func symlinkMode(text string) (client.SymlinkMode, error) {
	switch text {
	case "skip":
		return client.SymlinkSkip, nil
	case "follow":
		return client.SymlinkFollow, nil
	case "copy":
		return client.SymlinkCopy, nil
	}
	return 0, fmt.Errorf("--symlinks is %q; want skip, follow or copy", text)
}

// transfer is one cp.
type transfer struct {
	app      *app
	client   *client.Client
	flags    *cpFlags
	symlinks client.SymlinkMode
	bar      *progress
}

// options are those that fit a call.
func (t *transfer) options(upload, tree bool) []client.TransferOption {
	opts := []client.TransferOption{client.WithProgress(t.bar.report)}
	if t.flags.gzip {
		opts = append(opts, client.WithGzip())
	}
	if t.flags.parallel > 0 {
		opts = append(opts, client.WithParallel(t.flags.parallel))
	}
	if upload && t.flags.atomic {
		opts = append(opts, client.WithAtomic())
	}
	if tree {
		opts = append(opts, client.WithSymlinks(t.symlinks))
		if t.flags.preserve {
			opts = append(opts, client.WithPreserve())
		}
	}
	return opts
}

func (t *transfer) up(ctx context.Context, from, to string) error {
	if from == "-" {
		return t.client.Upload(ctx, to, t.app.in, t.options(true, false)...)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	to, err = insideRemote(ctx, t.client, to, from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if !t.flags.recursive {
			return fmt.Errorf("%s is a directory; use -r", from)
		}
		summary, err := t.client.UploadDir(ctx, from, to, t.options(true, true)...)
		return t.told(summary, err)
	}
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	return t.client.Upload(ctx, to, file, t.options(true, false)...)
}

// told says what was left out of a tree.
func (t *transfer) told(summary *client.Summary, err error) error {
	for _, skipped := range summary.Skipped {
		t.app.messages.printf("left out: %s (%s)", printable(skipped.Path), printable(skipped.Reason))
	}
	return err
}

// insideRemote returns where a copy of source goes: below target if that is a
// directory of the sandbox.
func insideRemote(ctx context.Context, c *client.Client, target, source string) (string, error) {
	base := path.Base(filepath.ToSlash(source))
	if strings.HasSuffix(target, "/") {
		return target + base, nil
	}
	entry, err := c.Stat(ctx, target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return target, nil
	case err != nil:
		return "", err
	case entry.IsDir():
		return path.Join(target, base), nil
	}
	return target, nil
}

func (t *transfer) down(ctx context.Context, from, to string) error {
	if to == "-" {
		return t.client.Download(ctx, from, t.app.out, t.options(false, false)...)
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() || strings.HasSuffix(to, string(filepath.Separator)) {
		name := path.Base(from)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%s has no name to copy it under; name the file in TARGET", from)
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		to = filepath.Join(to, name)
	}
	if t.flags.recursive {
		summary, err := t.client.DownloadDir(ctx, from, to, t.options(false, true)...)
		return t.told(summary, err)
	}
	if t.flags.resume {
		return t.resume(ctx, from, to)
	}
	return t.downFile(ctx, from, to)
}

// downFile writes beside the file's place and moves it there when complete.
func (t *transfer) downFile(ctx context.Context, from, to string) error {
	temp, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	err = t.client.Download(ctx, from, temp, t.options(false, false)...)
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.Chmod(temp.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(temp.Name(), to)
}

// resume appends to what the file has already.
func (t *transfer) resume(ctx context.Context, from, to string) error {
	local, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer local.Close()
	have, err := local.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	remote, err := t.client.Open(ctx, from)
	if err != nil {
		return err
	}
	defer remote.Close()
	switch size := remote.Size(); {
	case size >= 0 && have > size:
		return fmt.Errorf("%s has %d bytes already and %s only %d: it is another file", to, have, from, size)
	case size >= 0 && have == size:
		return nil
	}
	if _, err := remote.Seek(have, io.SeekStart); err != nil {
		return err
	}
	report := &reportingWriter{w: local, bytes: have, total: remote.Size(), path: from, report: t.bar.report}
	if _, err := io.Copy(report, remote); err != nil {
		return err
	}
	return local.Close()
}

// reportingWriter counts what it passes on.
type reportingWriter struct {
	w            io.Writer
	bytes, total int64
	path         string
	report       func(client.Progress)
}

func (r *reportingWriter) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	r.bytes += int64(n)
	r.report(client.Progress{Path: r.path, Bytes: r.bytes, Total: r.total})
	return n, err
}
