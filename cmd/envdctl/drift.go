// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/internal/drift"
	"github.com/envd-go/envd/internal/envdversion"
)

func (a *app) driftCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "drift",
		Short: "Compare what a daemon speaks with the contract, and guess its version",
		Long: `Drift calls what only reads, and a few harmless things in a directory of its
own below /tmp, and reports

  - which releases of envd the daemon may be, and by which behaviour;
  - what it says that the contract does not know: fields, JSON keys, enum values;
  - what the contract has that the daemon does not: RPCs and endpoints.

It ends with 1 when the daemon says what the contract does not know, and with 0
otherwise: an old daemon that lacks something is no surprise.`,
		Example: `  envdctl drift --url http://127.0.0.1:49983 --user user
  envdctl drift --json`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd, a.drift)
		},
	}
}

func (a *app) drift(ctx context.Context, c *client.Client) error {
	caps, err := c.Probe(ctx)
	if err != nil {
		return err
	}
	report, err := drift.Examine(ctx, plainCaller(c), c.User(), drift.Ours())
	if err != nil {
		return err
	}
	print := a.printDrift
	if a.json {
		print = a.printDriftJSON
	}
	if err := print(caps, report); err != nil {
		return err
	}
	if !report.Knows() {
		return &exitError{code: 1}
	}
	return nil
}

// plainCaller sends the requests of an examination through the client.
func plainCaller(c *client.Client) envdversion.Caller {
	return func(ctx context.Context, r envdversion.Request) (*envdversion.Reply, error) {
		req, err := http.NewRequestWithContext(ctx, r.Method, r.Path, bytes.NewReader(r.Body))
		if err != nil {
			return nil, err
		}
		for key, values := range r.Header {
			req.Header[key] = values
		}
		resp, err := c.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
		return &envdversion.Reply{Status: resp.StatusCode, Header: resp.Header, Body: body}, err
	}
}

func versionRange(caps *client.Capabilities) string {
	switch {
	case caps.Since == "":
		return "unknown"
	case caps.Before == "":
		return caps.Since + " or later"
	}
	return caps.Since + " or later, before " + caps.Before
}

func (a *app) printDrift(caps *client.Capabilities, report *drift.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "daemon    envd %s, by its behaviour\ncontract  envd %s\n", versionRange(caps), envdversion.Latest)
	if report.NoBinary {
		fmt.Fprintln(&b, "codec     JSON only")
	}
	fmt.Fprintln(&b, "\nfeatures")
	for _, f := range caps.Features {
		note := ""
		if f.Conflict {
			note = "  (does not fit that range)"
		}
		fmt.Fprintf(&b, "  %-8s %-20s since %-7s %s%s\n", f.State, f.Name, f.Since, f.Summary, note)
	}
	fmt.Fprintf(&b, "\ndifferences, in %d answers\n", report.Calls)
	for _, f := range report.Findings {
		fmt.Fprintf(&b, "  %s: %s", f.Kind, printable(f.Element))
		if f.Detail != "" {
			fmt.Fprintf(&b, " (%s)", printable(f.Detail))
		}
		fmt.Fprintf(&b, ", seen in %s\n", f.Where)
	}
	if len(report.Findings) == 0 {
		fmt.Fprintln(&b, "  none")
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

func (a *app) printDriftJSON(caps *client.Capabilities, report *drift.Report) error {
	type feature struct {
		Name     string `json:"name"`
		Since    string `json:"since"`
		State    string `json:"state"`
		Evidence string `json:"evidence"`
		Conflict bool   `json:"conflict,omitempty"`
	}
	features := make([]feature, 0, len(caps.Features))
	for _, f := range caps.Features {
		features = append(features, feature{f.Name, f.Since, f.State, f.Evidence, f.Conflict})
	}
	findings := report.Findings
	if findings == nil {
		findings = []drift.Finding{}
	}
	return a.printJSON(map[string]any{
		"since":       caps.Since,
		"before":      caps.Before,
		"contract":    envdversion.Latest.String(),
		"binary":      !report.NoBinary,
		"features":    features,
		"differences": findings,
	})
}
