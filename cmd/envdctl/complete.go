// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

// completePath offers paths of the sandbox.
func (a *app) completePath(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if a.usesEmbedded(cmd) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.connect(cmd, client.WithRequestTimeout(completionTimeout), client.WithoutRetries())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer c.close()
	dir, base := path.Split(prefix)
	entries, err := c.ReadDir(cmd.Context(), orDot(dir))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offers []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), base) || printable(e.Name()) != e.Name() {
			continue
		}
		offer := dir + e.Name()
		if e.IsDir() {
			offer += "/"
		}
		offers = append(offers, offer)
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func orDot(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

// completeCopy offers paths of the sandbox after a colon, and else files of
// this machine.
func (a *app) completeCopy(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	remote, ok := strings.CutPrefix(prefix, ":")
	if !ok {
		return nil, cobra.ShellCompDirectiveDefault
	}
	offers, directive := a.completePath(cmd, args, remote)
	for i := range offers {
		offers[i] = ":" + offers[i]
	}
	return offers, directive
}
