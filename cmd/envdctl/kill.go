// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

func (a *app) killCommand() *cobra.Command {
	var signal string
	var tree bool
	cmd := &cobra.Command{
		Use:   "kill [flags] PID|TAG...",
		Short: "Kill commands",
		Long: `Kill commands that run under envd, by pid or by tag ("tag:5" is the tag 5).

The signal reaches the command itself and not its descendants, because envd
sends no others. --tree reaches them for commands that were started with
--kill-tree.`,
		Example: `  envdctl kill 42
  envdctl kill -s TERM web
  envdctl kill --tree build`,
		Args:              wantArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeSelector,
		RunE: func(cmd *cobra.Command, args []string) error {
			sig, err := parseSignal(signal)
			if err != nil {
				return &usageError{cmd, err}
			}
			if tree && sig != client.SIGKILL {
				return usagef(cmd, "--tree kills; it does not go with another signal")
			}
			return a.forEachProcess(cmd, args, func(ctx context.Context, p *client.Process) error {
				if tree {
					return p.KillTree(ctx)
				}
				return p.Signal(ctx, sig)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&signal, "signal", "s", "KILL", "`SIGNAL` to send: KILL or TERM")
	flags.BoolVar(&tree, "tree", false, "kill the descendants too")
	return cmd
}

func (a *app) signalCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "signal SIGNAL PID|TAG...",
		Short: "Send a signal to commands",
		Long: `Send a signal to commands that run under envd. envd sends TERM and KILL; for
others, run kill(1) in the sandbox:

  envdctl exec -- sh -c 'kill -INT PID'

with the number that the sandbox itself has for the process.`,
		Example:           "  envdctl signal TERM web",
		Args:              wantArgs(cobra.MinimumNArgs(2)),
		ValidArgsFunction: a.completeSignal,
		RunE: func(cmd *cobra.Command, args []string) error {
			sig, err := parseSignal(args[0])
			if err != nil {
				return &usageError{cmd, err}
			}
			return a.forEachProcess(cmd, args[1:], func(ctx context.Context, p *client.Process) error {
				return p.Signal(ctx, sig)
			})
		},
	}
}

func (a *app) completeSignal(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return []string{"TERM", "KILL"}, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeSelector(cmd, args, prefix)
}

// parseSignal reads a signal as kill(1) does: a name with or without SIG, or a
// number.
func parseSignal(text string) (client.Signal, error) {
	switch strings.TrimPrefix(strings.ToUpper(text), "SIG") {
	case "TERM", "15":
		return client.SIGTERM, nil
	case "KILL", "9":
		return client.SIGKILL, nil
	}
	return 0, fmt.Errorf("envd sends TERM and KILL, and not %q", text)
}

// forEachProcess does something to each of the commands, and goes on after a
// failure.
func (a *app) forEachProcess(cmd *cobra.Command, args []string, do func(context.Context, *client.Process) error) error {
	selectors := make([]client.Selector, len(args))
	for i, arg := range args {
		selector, err := parseSelector(arg)
		if err != nil {
			return &usageError{cmd, err}
		}
		selectors[i] = selector
	}
	return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
		var errs []error
		for _, selector := range selectors {
			if err := do(ctx, c.Process(selector)); err != nil {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}
