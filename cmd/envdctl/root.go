// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// app is one call of envdctl: where it reads and writes, and the flags that all
// commands share.
type app struct {
	in        io.Reader
	out       io.Writer
	messages  *messages
	lookupEnv func(string) (string, bool)

	url     string
	token   string
	user    string
	headers []string
	verbose bool
	json    bool
	timeout duration
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "envdctl",
		Short: "Work with a sandbox through its envd",
		Long: `Envdctl works with a sandbox through envd, the daemon that runs inside it.

Without --url and ENVD_URL, or with an empty --url, it starts an embedded envd of
its own. That is good for a first try and isolates nothing: commands run on this
machine.

Envdctl ends with 125 when it fails itself: bad flags, no connection, a token
that is refused. Other exit codes are those of the command that it runs.`,
		Example: `  # Try it without a sandbox
  envdctl exec -- sh -c 'echo "hello from $(uname -s)"; exit 3'

  # Run a command in a sandbox
  export ENVD_URL=https://49983-SANDBOX.example.com ENVD_ACCESS_TOKEN=...
  envdctl exec -it bash

  # Serve an embedded envd for other clients
  envdctl serve`,
		Version:       release(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          runRoot,

		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd, err} })
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&a.url, "url", "", "URL of the envd (environment: "+client.EnvURL+")")
	flags.StringVar(&a.token, "token", "", "access token; better given as "+client.EnvAccessToken+", since others can see command lines")
	flags.StringVarP(&a.user, "user", "u", "", "user of the sandbox to act as (environment: "+client.EnvUser+")")
	flags.StringArrayVar(&a.headers, "header", nil, "header to send with each request, as `KEY=VALUE`; can be repeated")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log each request on standard error")
	flags.BoolVar(&a.json, "json", false, "print what a command finds as JSON, for programs")
	flags.Var(&a.timeout, "timeout", "give up after this time, as 90, 1.5s or 2m; 0 is never")
	root.AddGroup(&cobra.Group{ID: groupProcesses, Title: "Commands in the sandbox:"},
		&cobra.Group{ID: groupFiles, Title: "Files of the sandbox:"},
		&cobra.Group{ID: groupDaemon, Title: "The daemon:"})
	addGroup(root, groupProcesses, a.execCommand(), a.shellCommand(), a.psCommand(), a.attachCommand(), a.killCommand(), a.signalCommand())
	addGroup(root, groupFiles, a.lsCommand(), a.statCommand(), a.catCommand(), a.cpCommand(), a.syncCommand(), a.mkdirCommand(), a.mvCommand(),
		a.rmCommand(), a.watchCommand(), a.urlCommand())
	addGroup(root, groupDaemon, a.healthCommand(), a.metricsCommand(), a.envCommand(), a.initCommand(), a.driftCommand(),
		a.conformanceCommand(), a.serveCommand())
	root.AddCommand(a.versionCommand())
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = wantArgs(cobra.NoArgs), func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return root
}

// The groups of commands in the help.
const (
	groupProcesses = "processes"
	groupFiles     = "files"
	groupDaemon    = "daemon"
)

func addGroup(root *cobra.Command, id string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = id
		root.AddCommand(cmd)
	}
}

// runRoot is envdctl without a command that it knows.
func runRoot(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		text += "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usagef(cmd, "%s", text)
}

// wantArgs makes a wrong number of arguments a usage error.
func wantArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{cmd, err}
		}
		return nil
	}
}

// setting is the value of a flag, or of the variable that stands in for it.
func (a *app) setting(cmd *cobra.Command, flag, value, variable string) string {
	if cmd.Flags().Changed(flag) {
		return value
	}
	fromEnv, _ := a.lookupEnv(variable)
	return fromEnv
}

// connection is a client, and the embedded envd that it talks to if there is
// one.
type connection struct {
	*client.Client
	embedded *envdtest.Server
}

func (c *connection) close() {
	_ = c.Close()
	if c.embedded != nil {
		c.embedded.Close()
	}
}

// usesEmbedded reports whether connect will start an envd of its own.
func (a *app) usesEmbedded(cmd *cobra.Command) bool {
	return a.setting(cmd, "url", a.url, client.EnvURL) == ""
}

// connect makes the client that the shared flags describe. Nothing is sent.
func (a *app) connect(cmd *cobra.Command, more ...client.Option) (*connection, error) {
	opts, err := a.clientOptions(cmd)
	if err != nil {
		return nil, err
	}
	opts = append(opts, more...)
	if a.usesEmbedded(cmd) {
		return a.connectEmbedded(opts)
	}
	c, err := client.New(a.setting(cmd, "url", a.url, client.EnvURL), opts...)
	if err != nil {
		return nil, &usageError{cmd, err}
	}
	return &connection{Client: c}, nil
}

// connectEmbedded starts an envd in this process. It has no socket, so that
// nobody else can run commands through it.
func (a *app) connectEmbedded(opts []client.Option) (*connection, error) {
	srv := envdtest.NewPipeServer()
	c, err := client.New(srv.URL, append(opts, client.WithHTTPClient(srv.Client()))...)
	if err != nil {
		srv.Close()
		return nil, err
	}
	a.messages.printf("no --url or %s: using an embedded envd; commands run on this machine, with no isolation", client.EnvURL)
	return &connection{Client: c, embedded: srv}, nil
}

// withClient connects and calls do, for --timeout at most.
func (a *app) withClient(cmd *cobra.Command, do func(context.Context, *client.Client) error) error {
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	defer c.close()
	ctx := cmd.Context()
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(a.timeout), fmt.Errorf("--timeout of %v: %w", &a.timeout, context.DeadlineExceeded))
		defer cancel()
	}
	return do(ctx, c.Client)
}

func (a *app) outIsTerminal() bool {
	file, ok := a.out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func (a *app) clientOptions(cmd *cobra.Command) ([]client.Option, error) {
	var opts []client.Option
	if token := a.setting(cmd, "token", a.token, client.EnvAccessToken); token != "" {
		opts = append(opts, client.WithAccessToken(token))
	}
	if user := a.setting(cmd, "user", a.user, client.EnvUser); user != "" {
		opts = append(opts, client.WithUser(user))
	}
	for _, header := range a.headers {
		key, value, ok := strings.Cut(header, "=")
		if !ok || key == "" {
			return nil, usagef(cmd, "--header wants KEY=VALUE") // its value may be secret
		}
		opts = append(opts, client.WithHeader(key, value))
	}
	if a.verbose {
		opts = append(opts, client.WithLogger(a.logger()))
	}
	return opts, nil
}

func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.messages, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// hintFor says what to try after some errors.
func hintFor(err error) string {
	if usage, ok := errors.AsType[*usageError](err); ok {
		return fmt.Sprintf("run '%s --help' for how to use it", usage.cmd.CommandPath())
	}
	if errors.Is(err, client.ErrUnauthenticated) {
		return fmt.Sprintf("check --token or %s, and --user or %s", client.EnvAccessToken, client.EnvUser)
	}
	return ""
}
