// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/internal/envdversion"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of envdctl and of the contract that it speaks",
		Example: "  envdctl version",
		Args:    wantArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]string{"envdctl": release(), "contract": envdversion.Latest.String(),
					"oldest": envdversion.Oldest.String(), "go": runtime.Version(), "revision": revision()})
			}
			_, err := fmt.Fprintf(a.out, "envdctl   %s\ncontract  envd %s (works with %s and later)\ngo        %s %s/%s\nrevision  %s\n",
				release(), envdversion.Latest, envdversion.Oldest,
				runtime.Version(), runtime.GOOS, runtime.GOARCH, revision())
			return err
		},
	}
}

// release is the version that the go command has stamped into the program: a
// tag, or a pseudo-version of the commit. Without one it is the library's.
func release() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return client.Version
}

// revision is the commit that the program was built from.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	text := settings["vcs.revision"]
	if text == "" {
		return "unknown"
	}
	if at := settings["vcs.time"]; at != "" {
		text += " of " + at
	}
	if settings["vcs.modified"] == "true" {
		text += ", with changes"
	}
	return text
}
