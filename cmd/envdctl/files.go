// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

// entryJSON is a file of the sandbox for programs.
type entryJSON struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Size     int64             `json:"size"`
	Mode     string            `json:"mode"`
	Perm     string            `json:"perm"`
	Owner    string            `json:"owner,omitempty"`
	Group    string            `json:"group,omitempty"`
	ModTime  *time.Time        `json:"modTime,omitempty"`
	Target   string            `json:"target,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func newEntryJSON(e *client.Entry) entryJSON {
	j := entryJSON{
		Name: e.Name(), Path: e.Path(), Type: typeName(e.Type()), Size: e.Size(),
		Mode: e.Mode().String(), Perm: fmt.Sprintf("%04o", e.Mode().Perm()),
		Owner: e.Owner(), Group: e.Group(), Target: e.SymlinkTarget(), Metadata: e.Metadata(),
	}
	if at := e.ModTime(); !at.IsZero() {
		j.ModTime = &at
	}
	return j
}

func typeName(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "directory"
	case fs.ModeSymlink:
		return "symlink"
	case fs.ModeNamedPipe:
		return "fifo"
	case fs.ModeSocket:
		return "socket"
	}
	if mode&fs.ModeDevice != 0 {
		return "device"
	}
	return "other"
}

func (a *app) lsCommand() *cobra.Command {
	var long, recursive bool
	cmd := &cobra.Command{
		Use:   "ls [flags] [PATH...]",
		Short: "List directories of the sandbox",
		Long: `List directories of the sandbox, the home directory without a PATH. A PATH that is
no directory is listed itself.`,
		Example: `  envdctl ls -l /app
  envdctl ls -R --json src | jq -r '.[].path'`,
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				return a.ls(ctx, c, args, long, recursive)
			})
		},
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "show mode, owner, group, size, time and where symlinks lead")
	cmd.Flags().BoolVarP(&recursive, "recursive", "R", false, "list everything below, too")
	return cmd
}

// ls lists each of the paths, and goes on after a failure.
func (a *app) ls(ctx context.Context, c *client.Client, paths []string, long, recursive bool) error {
	var errs []error
	var all []*client.Entry
	for i, name := range paths {
		entries, err := listPath(ctx, c, name, recursive)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(paths) > 1 && !a.json {
			errs = append(errs, a.printListing(i, name, entries, long, recursive))
			continue
		}
		all = append(all, entries...)
	}
	if len(paths) > 1 && !a.json {
		return errors.Join(errs...)
	}
	if len(all) > 0 || len(errs) == 0 {
		errs = append(errs, a.printEntries(all, long, recursive))
	}
	return errors.Join(errs...)
}

// printListing prints one of several listings, with its name above it as ls
// does.
func (a *app) printListing(i int, name string, entries []*client.Entry, long, recursive bool) error {
	gap := "\n"
	if i == 0 {
		gap = ""
	}
	if _, err := fmt.Fprintf(a.out, "%s%s:\n", gap, printable(name)); err != nil {
		return err
	}
	return a.printEntries(entries, long, recursive)
}

func listPath(ctx context.Context, c *client.Client, path string, recursive bool) ([]*client.Entry, error) {
	depth := 1
	if recursive {
		depth = maxDepth
	}
	entries, err := c.List(ctx, path, client.Depth(depth))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return entries, err
	}
	if entry, statErr := c.Stat(ctx, path); statErr == nil && !entry.IsDir() {
		return []*client.Entry{entry}, nil
	}
	return nil, err
}

// maxDepth is deeper than any tree.
const maxDepth = 1 << 30

func (a *app) printEntries(entries []*client.Entry, long, recursive bool) error {
	if a.json {
		list := make([]entryJSON, 0, len(entries))
		for _, e := range entries {
			list = append(list, newEntryJSON(e))
		}
		return a.printJSON(list)
	}
	if long {
		return a.printLong(entries, recursive)
	}
	for _, e := range entries {
		if _, err := fmt.Fprintln(a.out, printable(shownName(e, recursive))); err != nil {
			return err
		}
	}
	return nil
}

func shownName(e *client.Entry, recursive bool) string {
	if recursive {
		return e.Path()
	}
	return e.Name()
}

func (a *app) printLong(entries []*client.Entry, recursive bool) error {
	rows := make([][]string, 0, len(entries))
	for _, e := range entries {
		name := shownName(e, recursive)
		if target := e.SymlinkTarget(); target != "" {
			name += " -> " + target
		}
		at := "-"
		if !e.ModTime().IsZero() {
			at = e.ModTime().Local().Format("2006-01-02 15:04:05")
		}
		rows = append(rows, []string{shownMode(e), orDash(e.Owner()), orDash(e.Group()), shownSize(e), at, name})
	}
	return a.table([]string{"MODE", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME"}, rows)
}

// shownMode and shownSize do not show as 0 what an old daemon does not tell.
func shownMode(e *client.Entry) string {
	text := e.Mode().String()
	if !e.HasDetails() {
		return text[:len(text)-9] + "?????????"
	}
	return text
}

func shownSize(e *client.Entry) string {
	if !e.HasDetails() {
		return "-"
	}
	return strconv.FormatInt(e.Size(), 10)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (a *app) statCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "stat PATH...",
		Short:             "Describe files of the sandbox",
		Long:              "Describe files of the sandbox. A symlink is described itself.",
		Example:           "  envdctl stat /etc/passwd",
		Args:              wantArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				var entries []*client.Entry
				var errs []error
				for _, path := range args {
					entry, err := c.Stat(ctx, path)
					if err != nil {
						errs = append(errs, err)
						continue
					}
					entries = append(entries, entry)
				}
				if a.json {
					errs = append(errs, a.printEntries(entries, false, false))
				} else {
					errs = append(errs, a.printStat(entries))
				}
				return errors.Join(errs...)
			})
		},
	}
}

func permAndMode(e *client.Entry, j entryJSON) string {
	if !e.HasDetails() {
		return "-"
	}
	return j.Perm + " (" + j.Mode + ")"
}

func (a *app) printStat(entries []*client.Entry) error {
	for _, e := range entries {
		j := newEntryJSON(e)
		text := fmt.Sprintf("path     %s\ntype     %s\nsize     %s\nmode     %s\nowner    %s:%s\n",
			printable(j.Path), j.Type, shownSize(e), permAndMode(e, j), printable(orDash(j.Owner)), printable(orDash(j.Group)))
		if j.ModTime != nil {
			text += "modified " + j.ModTime.UTC().Format(time.RFC3339Nano) + "\n"
		}
		if j.Target != "" {
			text += "target   " + printable(j.Target) + "\n"
		}
		for key, value := range j.Metadata {
			text += "metadata " + printable(key+"="+value) + "\n"
		}
		if _, err := fmt.Fprint(a.out, text); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) catCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "cat PATH...",
		Short:             "Print files of the sandbox",
		Example:           "  envdctl cat /etc/os-release",
		Args:              wantArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				var errs []error
				for _, path := range args {
					err := c.Download(ctx, path, &outputWriter{name: "standard output", w: a.out})
					if lost, ok := errors.AsType[*outputError](err); ok {
						if lost.readerGone() {
							return &exitError{code: exitSignal + sigpipe}
						}
						return lost
					}
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		},
	}
}

func (a *app) mkdirCommand() *cobra.Command {
	var parents bool
	cmd := &cobra.Command{
		Use:               "mkdir [flags] PATH...",
		Short:             "Make directories in the sandbox",
		Example:           "  envdctl mkdir -p /app/src",
		Args:              wantArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.forEachPath(cmd, args, func(ctx context.Context, c *client.Client, path string) error {
				if parents {
					return c.MkdirAll(ctx, path)
				}
				return makeDir(ctx, c, path)
			})
		},
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "make missing parents; a directory that exists is no error")
	return cmd
}

// makeDir looks at the parent first: envd would make it.
func makeDir(ctx context.Context, c *client.Client, name string) error {
	if parent := path.Dir(strings.TrimRight(name, "/")); parent != "/" {
		if _, err := c.Stat(ctx, parent); err != nil {
			return err
		}
	}
	return c.Mkdir(ctx, name)
}

func (a *app) rmCommand() *cobra.Command {
	var recursive, force bool
	cmd := &cobra.Command{
		Use:               "rm [flags] PATH...",
		Short:             "Remove files of the sandbox",
		Example:           "  envdctl rm -r /tmp/build",
		Args:              wantArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.forEachPath(cmd, args, func(ctx context.Context, c *client.Client, path string) error {
				return remove(ctx, c, path, recursive, force)
			})
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove directories and what is in them")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "a path that does not exist is no error")
	return cmd
}

// remove looks first, unless everything is to go: envd itself removes whole
// directories unasked, and finds nothing wrong with a path that is not there.
func remove(ctx context.Context, c *client.Client, path string, recursive, force bool) error {
	if !recursive || !force {
		entry, err := c.Stat(ctx, path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && force:
			return nil
		case err != nil:
			return err
		case entry.IsDir() && !recursive:
			return fmt.Errorf("%s is a directory; use -r", path)
		}
	}
	return c.RemoveAll(ctx, path)
}

func (a *app) mvCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mv SOURCE TARGET",
		Short: "Move or rename a file of the sandbox",
		Long: `Move or rename a file, directory or symlink of the sandbox. A TARGET that is a
directory gets it inside. A file in the way is replaced.`,
		Example:           "  envdctl mv /tmp/report.txt /app/",
		Args:              wantArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				target, err := insideRemote(ctx, c, args[1], args[0])
				if err != nil {
					return err
				}
				return c.Rename(ctx, args[0], target)
			})
		},
	}
}

// forEachPath does something to each path, and goes on after a failure.
func (a *app) forEachPath(cmd *cobra.Command, paths []string, do func(context.Context, *client.Client, string) error) error {
	return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		var errs []error
		for _, path := range paths {
			errs = append(errs, do(ctx, c, path))
		}
		return errors.Join(errs...)
	})
}
