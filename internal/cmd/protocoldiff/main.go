// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Protocoldiff compares versions of envd's contract, for the make targets
// protocol-diff, breaking and baselines.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/envd-go/envd/internal/envdversion"
	"github.com/envd-go/envd/internal/protocoldiff"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit codes.
const (
	exitBreaking = 1
	exitFailure  = 2
)

const (
	ours      = "proto"
	baselines = "proto-baseline"
)

var errBreaking = errors.New("there are breaking changes")

func run(args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("protocoldiff", flag.ContinueOnError)
	flags.SetOutput(errOut)
	root := flags.String("root", ".", "folder of the repository")
	from := flags.String("from", "", "the other version: a folder with .proto files, a buf image, or a git revision")
	against := flags.String("against", ours, "what it is compared with")
	format := flags.String("format", "text", "text or json")
	mode := flags.String("mode", "diff", "diff, breaking or baselines")
	if err := flags.Parse(args); err != nil {
		return exitFailure
	}
	d := &tool{root: *root, buf: protocoldiff.Buf{Root: *root}, out: out, format: *format}
	var err error
	switch {
	case *format != "text" && *format != "json":
		err = fmt.Errorf("format %q: want text or json", *format)
	case *mode == "diff":
		err = d.diff(*against, *from)
	case *mode == "breaking":
		err = d.breaking()
	case *mode == "baselines":
		err = d.baselines()
	default:
		err = fmt.Errorf("mode %q: want diff, breaking or baselines", *mode)
	}
	switch {
	case errors.Is(err, errBreaking):
		return exitBreaking
	case err != nil:
		fmt.Fprintln(errOut, "protocoldiff:", err)
		return exitFailure
	}
	return 0
}

type tool struct {
	root   string
	buf    protocoldiff.Buf
	out    io.Writer
	format string
}

// diff prints what changes from one version to the other.
func (t *tool) diff(from, to string) error {
	if to == "" {
		return errors.New("FROM is empty: name a folder with .proto files, a buf image, or a git revision")
	}
	report, err := t.buf.Diff(context.Background(), from, to)
	if err != nil {
		return err
	}
	if err := report.Look(t.root); err != nil {
		return err
	}
	if err := t.print(report); err != nil {
		return err
	}
	if report.Breaks() {
		return errBreaking
	}
	return nil
}

func (t *tool) print(report *protocoldiff.Report) error {
	if t.format == "json" {
		enc := json.NewEncoder(t.out)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	return report.WriteText(t.out)
}

// breaking holds our contract against that of each supported version, and
// against the last release of this repository.
func (t *tool) breaking() error {
	var broken error
	for _, v := range envdversion.Supported() {
		if err := t.hold(baselinePath(v), fmt.Sprintf("envd %s speaks this, and daemons of that version would not understand us any more", v)); err != nil {
			if !errors.Is(err, errBreaking) {
				return err
			}
			broken = err
		}
	}
	tag, err := t.lastTag()
	if err != nil {
		return err
	}
	if tag == "" {
		fmt.Fprintln(t.out, "last release: there is none yet")
		return broken
	}
	if err := t.hold(tag, fmt.Sprintf("%s was released with this, and programs that use it would break", tag)); err != nil {
		if !errors.Is(err, errBreaking) {
			return err
		}
		broken = err
	}
	return broken
}

// hold compares ours with a version that it must not break.
func (t *tool) hold(version, reason string) error {
	report, err := t.buf.Diff(context.Background(), version, ours)
	if err != nil {
		return err
	}
	if !report.Breaks() {
		fmt.Fprintf(t.out, "%s: nothing breaks\n", version)
		return nil
	}
	fmt.Fprintf(t.out, "%s: %s:\n", version, reason)
	if err := report.WriteText(t.out); err != nil {
		return err
	}
	return errBreaking
}

// lastTag returns the tag of the last release, or "" if there is none.
func (t *tool) lastTag() (string, error) {
	cmd := exec.Command("git", "tag", "--list", "v*", "--sort=-v:refname")
	cmd.Dir = t.root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking git for the last release: %w", err)
	}
	tag, _, _ := strings.Cut(string(out), "\n")
	return tag, nil
}

func baselinePath(v envdversion.Version) string {
	return filepath.Join(baselines, v.String()+".json")
}

// baselines writes those images that are missing. One that is there stays: it
// is what was, whatever the contract says today.
func (t *tool) baselines() error {
	dir, err := os.MkdirTemp("", "baselines-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	image := filepath.Join(dir, "ours.binpb")
	if err := t.buf.Build(context.Background(), ours, image); err != nil {
		return err
	}
	for _, v := range envdversion.Supported() {
		path := filepath.Join(t.root, baselinePath(v))
		if _, err := os.Stat(path); err == nil {
			fmt.Fprintf(t.out, "%s is there\n", baselinePath(v))
			continue
		}
		data, err := protocoldiff.Baseline(image, v)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(t.out, "%s written\n", baselinePath(v))
	}
	return nil
}
