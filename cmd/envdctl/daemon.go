// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

func (a *app) healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "health",
		Short:   "Ask whether envd is there",
		Long:    "Ask whether envd is there. It ends with 0 when it is, and with 125 when it is not.",
		Example: "  envdctl health",
		Args:    wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				start := time.Now()
				if err := c.Health(ctx); err != nil {
					return err
				}
				took := time.Since(start).Round(time.Microsecond)
				if a.json {
					return a.printJSON(map[string]any{"healthy": true, "seconds": took.Seconds()})
				}
				_, err := fmt.Fprintf(a.out, "healthy, answered in %v\n", took)
				return err
			})
		},
	}
}

func (a *app) envCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "env",
		Short:   "Print the variables that every command gets",
		Long:    "Print the variables that envd adds to the environment of every command.",
		Example: "  envdctl env",
		Args:    wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				envs, err := c.Envs(ctx)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(envs)
				}
				var b strings.Builder
				for _, key := range slices.Sorted(maps.Keys(envs)) {
					fmt.Fprintf(&b, "%s=%s\n", printable(key), printable(envs[key]))
				}
				_, err = fmt.Fprint(a.out, b.String())
				return err
			})
		},
	}
}

func (a *app) initCommand() *cobra.Command {
	var env []string
	var request client.InitRequest
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Set up a daemon",
		Long: `Set up a daemon, as a platform does when it starts a sandbox: variables for all
commands, the access token, the default user and directory. In a sandbox that a
platform runs, leave it alone.

An access token cannot be taken back, and from then on every call needs it.`,
		Example: `  envdctl init -e STAGE=test --default-user user
  ENVD_ACCESS_TOKEN= envdctl init --access-token "$(openssl rand -hex 16)"`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			vars, err := a.environ(cmd, env)
			if err != nil {
				return err
			}
			request.EnvVars = vars
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				result, err := c.Init(ctx, request)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]any{"version": result.Version})
				}
				if result.Version != "" {
					_, err = fmt.Fprintf(a.out, "envd %s\n", printable(result.Version))
				}
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&env, "env", "e", nil, "variable for every command, as `KEY=VALUE`, or KEY to take it from the environment; can be repeated")
	flags.StringVar(&request.AccessToken, "access-token", "", "lock the daemon with this `TOKEN`")
	flags.StringVar(&request.DefaultUser, "default-user", "", "`USER` for requests that name none")
	flags.StringVar(&request.DefaultWorkdir, "default-workdir", "", "`DIRECTORY` for commands that name none")
	return cmd
}

func (a *app) metricsCommand() *cobra.Command {
	var watch bool
	interval := duration(2 * time.Second)
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print the sandbox's load",
		Long: `Print the sandbox's load: processors, memory and disk. With --watch it goes on
until Ctrl+C; on a terminal the lines are drawn anew each time.`,
		Example: `  envdctl metrics
  envdctl metrics --watch --interval 5
  envdctl metrics --watch --json | jq .cpuUsedPercent`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval <= 0 {
				return usagef(cmd, "--interval must be more than 0")
			}
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				if !watch {
					return a.metrics(ctx, c, 0)
				}
				return a.watchMetrics(ctx, c, time.Duration(interval))
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on until Ctrl+C")
	cmd.Flags().Var(&interval, "interval", "time between two looks with --watch")
	return cmd
}

// metricsJSON are the figures for programs: bytes, percent, seconds.
type metricsJSON struct {
	Time           time.Time `json:"time"`
	CPUCount       int       `json:"cpuCount"`
	CPUUsedPercent float64   `json:"cpuUsedPercent"`
	MemTotal       uint64    `json:"memTotal"`
	MemUsed        uint64    `json:"memUsed"`
	MemCache       uint64    `json:"memCache"`
	DiskTotal      uint64    `json:"diskTotal"`
	DiskUsed       uint64    `json:"diskUsed"`
}

// metrics prints the figures once, over the given number of lines before.
func (a *app) metrics(ctx context.Context, c *client.Client, over int) error {
	m, err := c.Metrics(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(metricsJSON(*m))
	}
	var b strings.Builder
	if over > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", over)
	}
	fmt.Fprintf(&b, "time   %s\n", m.Time.UTC().Format(time.RFC3339))
	fmt.Fprintf(&b, "cpu    %.1f%% of %d\n", m.CPUUsedPercent, m.CPUCount)
	fmt.Fprintf(&b, "memory %s of %s\n", formatBytes(m.MemUsed), formatBytes(m.MemTotal))
	fmt.Fprintf(&b, "disk   %s of %s\n", formatBytes(m.DiskUsed), formatBytes(m.DiskTotal))
	_, err = fmt.Fprint(a.out, b.String())
	return err
}

const metricsLines = 4

func (a *app) watchMetrics(ctx context.Context, c *client.Client, interval time.Duration) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for over := 0; ; {
		if err := a.metrics(ctx, c, over); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if a.outIsTerminal() {
			over = metricsLines
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// formatBytes writes a size for people.
func formatBytes(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, units := float64(n)/unit, "KMGTPE"
	i := 0
	for value >= unit && i < len(units)-1 {
		value /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[i])
}
