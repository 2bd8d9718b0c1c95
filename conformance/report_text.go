// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes the report for people at a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "envd conformance of %s, version %s (%s), speaking %s\n\n", printable(r.URL), r.Profile.Version, r.Profile.VersionFrom, protocols(r.Profile.Protocols))
	for _, trait := range r.Profile.Traits {
		fmt.Fprintf(&b, "  %-22s %s\n", trait.Name, printable(trait.Value))
	}
	if len(r.Profile.Traits) > 0 {
		b.WriteString("\n")
	}
	for _, g := range r.areas() {
		fmt.Fprintf(&b, "  %-22s %s\n", g.name, g.counts)
	}
	for i := range r.Results {
		if res := &r.Results[i]; !res.Status.OK() {
			res.writeText(&b, r.URL)
		}
	}
	r.writeReasons(&b, ExpectedFail, "known deviations")
	r.writeReasons(&b, NotRun, "not run")
	fmt.Fprintf(&b, "\n%d cases in %.1f s: %s\nleft behind: %s\n", r.Counts.Total(), r.Seconds, r.Counts, r.LeftBehind)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) writeText(b *strings.Builder, url string) {
	fmt.Fprintf(b, "\n%s %s over %s (%s)\n", strings.ToUpper(string(r.Status)), r.ID, r.Protocol, r.Procedure)
	fmt.Fprintf(b, "  %s: %s\n", strings.ToUpper(r.Level), r.Requirement)
	for line := range strings.Lines(printable(r.Message)) {
		fmt.Fprintf(b, "  %s\n", strings.TrimRight(line, "\n"))
	}
	for line := range strings.Lines(r.Exchange) {
		fmt.Fprintf(b, "    %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(b, "  again: envdctl conformance --url '%s' --run '%s'\n", printable(url), r.ID)
}

// writeReasons lists the results of one status by reason.
func (r *Report) writeReasons(b *strings.Builder, status Status, title string) {
	var order []string
	ids := map[string][]string{}
	for i := range r.Results {
		res := &r.Results[i]
		if res.Status != status {
			continue
		}
		if ids[res.Reason] == nil {
			order = append(order, res.Reason)
		}
		if all := ids[res.Reason]; len(all) == 0 || all[len(all)-1] != res.ID {
			ids[res.Reason] = append(all, res.ID)
		}
	}
	if len(order) > 0 {
		fmt.Fprintf(b, "\n%s:\n", title)
	}
	for _, reason := range order {
		fmt.Fprintf(b, "  %s\n      %s\n", printable(reason), strings.Join(ids[reason], " "))
	}
}

// String returns "12 passed, 1 failed", with what there is none of left out.
func (c Counts) String() string {
	parts := []string{fmt.Sprintf("%d passed", c.Pass)}
	for _, p := range []struct {
		n    int
		word string
	}{{c.Fail, "failed"}, {c.UnexpectedPass, "passed unexpectedly"}, {c.ExpectedFail, "failed as known"}, {c.NotRun, "not run"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.word))
		}
	}
	return strings.Join(parts, ", ")
}

func protocols(all []Protocol) string {
	var names []string
	for _, p := range all {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}
