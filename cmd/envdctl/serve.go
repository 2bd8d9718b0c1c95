// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
)

type serveFlags struct {
	addr        string
	allowRemote bool
	dialect     string
	version     string
	root        string
	quirks      []string
}

func (a *app) serveCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve an embedded envd for tests and demos",
		Long: `Serve an embedded envd for tests and demos.

It isolates nothing: whoever reaches it can run any command as you. It listens
on 127.0.0.1 only, unless told otherwise, where other users of this machine and
web pages in your browser can still reach it. Set a token to keep them out.

The first line on standard output is the server's URL. SIGINT or SIGTERM end the
server and everything that it has started.

Quirks are bugs and habits of real daemons that clients must live with:
  ` + strings.Join(quirkNames(), ", "),
		Example: `  # Behave as an older release, for a test of your own client
  envdctl serve --addr 127.0.0.1:0 --version 0.5.2

  # Keep the files that clients write in a directory of their own
  envdctl serve --root "$(mktemp -d)"

  # A server that only those who know the token can use
  ENVD_ACCESS_TOKEN=secret envdctl serve`,
		Args: wantArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, f) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.addr, "addr", "127.0.0.1:"+client.Port, "`HOST:PORT` to listen on; port 0 takes a free one")
	flags.BoolVar(&f.allowRemote, "allow-remote", false, "listen on an address that other machines can reach")
	flags.StringVar(&f.dialect, "dialect", envdtest.Upstream.String(), "whose daemon to be: upstream or fc")
	flags.StringVar(&f.version, "version", "", "release to be, such as 0.5.2 (default: the dialect's newest)")
	flags.StringVar(&f.root, "root", "", "`DIR` that clients see as /; commands still run with the files of this machine")
	flags.StringArrayVar(&f.quirks, "quirk", nil, "`NAME` of a quirk to have; can be repeated")
	return cmd
}

func quirkNames() []string {
	var names []string
	for _, q := range envdtest.Quirks() {
		names = append(names, q.String())
	}
	return names
}

func (a *app) printAddress(url string) error {
	if a.json {
		return a.printJSON(map[string]string{"url": url})
	}
	_, err := fmt.Fprintln(a.out, url)
	return err
}

func (a *app) serve(cmd *cobra.Command, f *serveFlags) error {
	for _, name := range []string{"url", "user", "header"} {
		if cmd.Flags().Changed(name) {
			return usagef(cmd, "--%s is for clients; it has no meaning for a server", name)
		}
	}
	opts, err := f.options(cmd)
	if err != nil {
		return err
	}
	token := a.setting(cmd, "token", a.token, client.EnvAccessToken)
	opts = append(opts, envdtest.WithAccessToken(token))
	listener, err := f.listen(cmd)
	if err != nil {
		return err
	}
	defer listener.Close()

	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv := envdtest.NewUnstartedServer(opts...)
	defer srv.Close()
	web := &http.Server{Handler: a.logRequests(srv.Handler()), ReadHeaderTimeout: 30 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	defer web.Close()

	if err := a.printAddress("http://" + listener.Addr().String()); err != nil {
		return fmt.Errorf("printing the URL: %w", err)
	}
	a.warn(token != "")
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	a.messages.printf("%v; ending what still runs", context.Cause(ctx))
	return nil
}

func (a *app) warn(hasToken bool) {
	a.messages.printf("WARNING: this envd isolates nothing. Whoever reaches it can run any command as you on this machine.")
	if !hasToken {
		a.messages.printf("WARNING: it asks for no token: other users of this machine, and web pages in a browser here, can reach it. Set --token or %s.", client.EnvAccessToken)
	}
}

// logRequests logs each request as it comes, with -v.
func (a *app) logRequests(next http.Handler) http.Handler {
	if !a.verbose {
		return next
	}
	log := a.logger()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		log.Debug("envd request", "method", req.Method, "path", req.URL.Path, "content-type", req.Header.Get("Content-Type"))
		next.ServeHTTP(w, req)
	})
}

func (f *serveFlags) options(cmd *cobra.Command) ([]envdtest.Option, error) {
	var opts []envdtest.Option
	switch f.dialect {
	case envdtest.Upstream.String():
	case envdtest.FC.String():
		opts = append(opts, envdtest.WithDialect(envdtest.FC))
	default:
		return nil, usagef(cmd, "dialect %q is neither upstream nor fc", f.dialect)
	}
	if f.version != "" {
		v, err := envdversion.Parse(f.version)
		if err != nil {
			return nil, &usageError{cmd, err}
		}
		if v.Compare(envdversion.Oldest) < 0 || v.Compare(envdversion.Latest) > 0 {
			return nil, usagef(cmd, "envd version %s is not among %s to %s", v, envdversion.Oldest, envdversion.Latest)
		}
		opts = append(opts, envdtest.WithVersion(v.String()))
	}
	if cmd.Flags().Changed("root") {
		if err := isDir(f.root); err != nil {
			return nil, &usageError{cmd, err}
		}
		opts = append(opts, envdtest.WithRoot(f.root))
	}
	for _, name := range f.quirks {
		q, err := quirk(name)
		if err != nil {
			return nil, &usageError{cmd, err}
		}
		opts = append(opts, envdtest.WithQuirk(q))
	}
	return opts, nil
}

func isDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "root", Path: dir, Err: syscall.ENOTDIR}
	}
	return nil
}

func quirk(name string) (envdtest.Quirk, error) {
	for _, q := range envdtest.Quirks() {
		if q.String() == name {
			return q, nil
		}
	}
	return 0, fmt.Errorf("unknown quirk %q; there are %s", name, strings.Join(quirkNames(), ", "))
}

// listen refuses addresses that are not this machine's alone. It listens on the
// very address that it has looked at, since a name may change its meaning.
func (f *serveFlags) listen(cmd *cobra.Command) (net.Listener, error) {
	addr, err := net.ResolveTCPAddr("tcp", f.addr)
	if err != nil {
		return nil, &usageError{cmd, fmt.Errorf("address %q: %w", f.addr, err)}
	}
	if !addr.IP.IsLoopback() && !f.allowRemote {
		return nil, &usageError{cmd, errors.New("address " + f.addr + " can be reached from other machines, and whoever reaches it can run any command as you; use 127.0.0.1, or --allow-remote if that is what you want")}
	}
	listener, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return listener, nil
}
