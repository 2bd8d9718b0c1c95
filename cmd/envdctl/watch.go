// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
)

type watchFlags struct {
	recursive bool
	polling   duration
	command   string
}

func (a *app) watchCommand() *cobra.Command {
	f := &watchFlags{}
	cmd := &cobra.Command{
		Use:   "watch [flags] DIRECTORY",
		Short: "Show what changes in a directory of the sandbox",
		Long: `Show what changes in a directory of the sandbox, until Ctrl+C: one line for each
event, or with --json one JSON object.

--exec runs a command on this machine for each event, with ENVD_EVENT (create,
write, remove, rename or chmod) and ENVD_PATH in its environment.`,
		Example: `  envdctl watch -R /app
  envdctl watch --json /app | jq -r .path
  envdctl watch /out --exec '[ "$ENVD_EVENT" != write ] || envdctl cp ":$ENVD_PATH" results/'`,
		Args:              wantArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(ctx context.Context, c *client.Client) error {
				return a.watch(ctx, c, f, args[0])
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "watch what is below, too")
	flags.Var(&f.polling, "poll", "ask this often instead of holding a stream open, for proxies that hold streams back")
	flags.StringVar(&f.command, "exec", "", "run this `SCRIPT` with sh for each event")
	return cmd
}

func (a *app) watch(ctx context.Context, c *client.Client, f *watchFlags, dir string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var opts []client.WatchOption
	if f.recursive {
		opts = append(opts, client.Recursive())
	}
	if f.polling > 0 {
		opts = append(opts, client.Polling(time.Duration(f.polling)))
	}
	w, err := c.StartWatch(ctx, dir, opts...)
	if err != nil {
		return err
	}
	defer w.Close()
	a.messages.printf("watching %s", printable(dir))
	for event, err := range w.Events() {
		if errors.Is(err, context.Canceled) {
			return nil // Ctrl+C
		}
		if err != nil {
			return err
		}
		if err := a.showEvent(ctx, f, event); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showEvent(ctx context.Context, f *watchFlags, event client.Event) error {
	op := strings.ToLower(event.Op.String())
	if f.command != "" {
		cmd := exec.CommandContext(ctx, "sh", "-c", f.command)
		cmd.Env = append(os.Environ(), "ENVD_EVENT="+op, "ENVD_PATH="+event.Path)
		cmd.Stdout, cmd.Stderr = a.out, a.messages.w
		if err := cmd.Run(); err != nil && ctx.Err() == nil {
			a.messages.printf("--exec: %v", err)
		}
		return nil
	}
	if a.json {
		return json.NewEncoder(a.out).Encode(map[string]string{"op": op, "name": event.Name, "path": event.Path})
	}
	_, err := fmt.Fprintf(a.out, "%-6s %s\n", op, printable(event.Path))
	return err
}

func (a *app) urlCommand() *cobra.Command {
	var upload bool
	var expires duration
	cmd := &cobra.Command{
		Use:   "url [flags] PATH",
		Short: "Print an address to download or upload a file without the token",
		Long: `Print an address from which anybody can download a file of the sandbox, or upload
it, without the access token. It is signed with the token, which is therefore
needed here. Nothing is sent.`,
		Example: `  curl -o report.pdf "$(envdctl url --expires 10m /tmp/report.pdf)"
  curl -F file=@data.csv "$(envdctl url --upload /tmp/data.csv)"`,
		Args: wantArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd, func(_ context.Context, c *client.Client) error {
				sign := c.SignedDownloadURL
				if upload {
					sign = c.SignedUploadURL
				}
				address, err := sign(args[0], time.Duration(expires))
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(map[string]string{"url": address})
				}
				_, err = fmt.Fprintln(a.out, address)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&upload, "upload", false, "an address to upload to")
	cmd.Flags().Var(&expires, "expires", "how long it works, as 90, 1.5h; 0 is until the token changes")
	return cmd
}
