// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

func (a *app) psCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the commands that run under envd",
		Long: `List the commands that envd has started and that still run, of all users and all
clients. Their descendants are not among them.`,
		Example: `  envdctl ps
  envdctl ps -q | xargs envdctl kill
  envdctl ps --json | jq '.[].pid'`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				return a.ps(ctx, c, quiet)
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the pids only")
	return cmd
}

// processJSON is a running command for programs.
type processJSON struct {
	PID  uint32            `json:"pid"`
	Tag  string            `json:"tag,omitempty"`
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args"`
	Env  map[string]string `json:"env"`
	Dir  string            `json:"cwd,omitempty"`
}

func (a *app) ps(ctx context.Context, c *client.Client, quiet bool) error {
	processes, err := c.Processes(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(processes, func(a, b client.ProcessInfo) int { return cmp.Compare(a.PID, b.PID) })
	if a.json {
		list := make([]processJSON, 0, len(processes))
		for _, p := range processes {
			list = append(list, processJSON{p.PID, p.Tag, p.Path, append([]string{}, p.Args...), p.Env, p.Dir})
		}
		return a.printJSON(list)
	}
	if quiet {
		for _, p := range processes {
			if _, err := fmt.Fprintln(a.out, p.PID); err != nil {
				return err
			}
		}
		return nil
	}
	rows := make([][]string, 0, len(processes))
	for _, p := range processes {
		rows = append(rows, []string{
			strconv.FormatUint(uint64(p.PID), 10), cmp.Or(p.Tag, "-"), cmp.Or(p.Dir, "-"),
			quoteCommand(append([]string{p.Path}, p.Args...)),
		})
	}
	return a.table([]string{"PID", "TAG", "CWD", "COMMAND"}, rows)
}
