// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/conformance"
)

type conformanceFlags struct {
	version     string
	run         string
	level       string
	protocols   []string
	parallel    int
	format      string
	output      string
	deviations  string
	caseTimeout duration
	allowCrash  bool
	allowInit   bool
	list        bool
	clean       string
}

func (a *app) conformanceCommand() *cobra.Command {
	f := &conformanceFlags{}
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Judge whether a server speaks envd",
		Long: `Conformance tries several hundred requirements on a server and reports which of
them it does not meet. Without --url it tries an embedded envd.

It is safe on a sandbox that is in use: it works in a directory of its own below
/tmp, kills what it starts, and calls POST /init only with --allow-init.

It ends with 0 when nothing unexpected happened, and with 1 otherwise. Failures
that are known belong in a list of deviations, a YAML file of ids and reasons.
A case in the list that passes is unexpected too. These lists come with envdctl: ` + strings.Join(conformance.ShippedDeviations(), ", ") + `.`,
		Example: `  # Is my daemon compatible?
  envdctl conformance --url http://127.0.0.1:49983 --user user

  # In CI
  envdctl conformance --url "$URL" --deviations known.yaml --report junit -o envd.xml

  # One case, with what was sent and what came
  envdctl conformance --url "$URL" --run process/start/exit-code`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.conformance(cmd, f) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.run, "run", "", "`PATTERNS` of the ids to try, with commas between; * stands for any characters")
	flags.StringVar(&f.level, "level", "may", "weakest level to try: must, should or may")
	flags.StringSliceVar(&f.protocols, "protocol", nil, "protocols to try: http, connect+json, connect+proto, grpc-web (default: all)")
	flags.StringVar(&f.version, "version", "auto", "envd release that the server claims to be; auto asks it")
	flags.StringVar(&f.deviations, "deviations", "", "`LIST` of known failures: a file, or one that comes with envdctl")
	flags.StringVar(&f.format, "report", "text", "form of the report: "+strings.Join(conformance.Formats(), ", "))
	flags.StringVarP(&f.output, "output", "o", "", "`FILE` to write the report to")
	flags.IntVar(&f.parallel, "parallel", 0, "cases at a time (default 8)")
	flags.Var(&f.caseTimeout, "case-timeout", "time for one case (default 20s)")
	flags.BoolVar(&f.allowCrash, "allow-crash", false, "try cases that crash daemons with a known bug")
	flags.BoolVar(&f.allowInit, "allow-init", false, "try cases that call POST /init, which changes the sandbox's variables and defaults for a moment")
	flags.BoolVar(&f.list, "list", false, "list the cases and try none")
	flags.StringVar(&f.clean, "clean", "", "show what killed runs have left; --clean=apply removes it")
	flags.Lookup("clean").NoOptDefVal = "show"
	return cmd
}

func (a *app) conformance(cmd *cobra.Command, f *conformanceFlags) error {
	target, opts, err := a.conformanceTarget(cmd, f)
	if err != nil {
		return err
	}
	if f.list {
		return a.listCases(opts)
	}
	ctx := cmd.Context()
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(a.timeout))
		defer cancel()
	}
	if f.clean != "" {
		return a.cleanConformance(ctx, cmd, target, f.clean)
	}
	report, err := conformance.Run(ctx, target, opts)
	if err != nil {
		return err
	}
	if err := a.writeConformance(report, f); err != nil {
		return err
	}
	if report.Counts.Total() == 0 {
		return usagef(cmd, "no case matches")
	}
	if !report.OK() {
		return &exitError{code: 1}
	}
	return nil
}

func (a *app) conformanceTarget(cmd *cobra.Command, f *conformanceFlags) (conformance.Target, conformance.Options, error) {
	target := conformance.Target{
		URL:     a.setting(cmd, "url", a.url, client.EnvURL),
		Token:   a.setting(cmd, "token", a.token, client.EnvAccessToken),
		User:    a.setting(cmd, "user", a.user, client.EnvUser),
		Version: f.version,
	}
	opts := conformance.Options{Run: f.run, Parallel: f.parallel, Timeout: time.Duration(f.caseTimeout), AllowCrash: f.allowCrash, AllowInit: f.allowInit}
	for _, header := range a.headers {
		key, value, ok := strings.Cut(header, "=")
		if !ok || key == "" {
			return target, opts, usagef(cmd, "--header wants KEY=VALUE")
		}
		if target.Header == nil {
			target.Header = http.Header{}
		}
		target.Header.Add(key, value)
	}
	level, ok := conformance.ParseLevel(f.level)
	if !ok {
		return target, opts, usagef(cmd, "level %q is none of must, should and may", f.level)
	}
	opts.Level = &level
	known := []conformance.Protocol{conformance.HTTP, conformance.JSON, conformance.Proto, conformance.GRPCWeb}
	for _, name := range f.protocols {
		if !slices.Contains(known, conformance.Protocol(name)) {
			return target, opts, usagef(cmd, "protocol %q is none of %v", name, known)
		}
		opts.Protocols = append(opts.Protocols, conformance.Protocol(name))
	}
	if a.json {
		f.format = "json"
	}
	if !slices.Contains(conformance.Formats(), f.format) {
		return target, opts, usagef(cmd, "report %q is none of %s", f.format, strings.Join(conformance.Formats(), ", "))
	}
	if f.deviations != "" {
		list, err := conformance.LoadDeviations(f.deviations)
		if err != nil {
			return target, opts, &usageError{cmd, err}
		}
		opts.Deviations = list
	}
	if file, ok := a.out.(*os.File); ok && a.outIsTerminal() && f.format == "text" {
		opts.Progress = func(done, total int, r *conformance.Result) {
			fmt.Fprintf(file, "\r\x1b[K%d/%d %s", done, total, r.ID)
			if done == total {
				fmt.Fprint(file, "\r\x1b[K")
			}
		}
	}
	return target, opts, nil
}

func (a *app) writeConformance(report *conformance.Report, f *conformanceFlags) error {
	if f.output == "" {
		return report.Write(a.out, f.format)
	}
	file, err := os.Create(f.output)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	err = report.Write(file, f.format)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing the report to %s: %w", f.output, err)
	}
	_, err = fmt.Fprintf(a.out, "%s; left behind: %s\n", report.Counts, report.LeftBehind)
	return err
}

func (a *app) listCases(opts conformance.Options) error {
	var b strings.Builder
	list := []map[string]string{}
	for _, c := range conformance.Cases() {
		if c.Level <= *opts.Level && (opts.Run == "" || conformance.Match(opts.Run, c.ID)) {
			list = append(list, map[string]string{"id": c.ID, "level": c.Level.String(), "requirement": c.Requirement})
			fmt.Fprintf(&b, "%-40s %-6s %s\n", c.ID, c.Level, c.Requirement)
		}
	}
	if a.json {
		return a.printJSON(list)
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

func (a *app) cleanConformance(ctx context.Context, cmd *cobra.Command, target conformance.Target, what string) error {
	if what != "show" && what != "apply" {
		return usagef(cmd, "--clean is --clean or --clean=apply, not %q", what)
	}
	if target.URL == "" {
		return usagef(cmd, "--clean needs --url")
	}
	found, err := conformance.Clean(ctx, target, what == "apply")
	if err != nil {
		return err
	}
	for _, n := range found.PIDs {
		fmt.Fprintf(a.out, "process %d\n", n)
	}
	for _, p := range found.Paths {
		fmt.Fprintf(a.out, "path %s\n", printable(p))
	}
	_, err = fmt.Fprintf(a.out, "%d processes, %d paths\n", len(found.PIDs), len(found.Paths))
	return err
}
