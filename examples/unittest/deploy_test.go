// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	deploy "github.com/envd-go/envd/examples/unittest"
)

// newSandbox is an envd whose files lie in a directory of the test, and whose
// build-site is a Go function.
func newSandbox(t *testing.T, buildSite func(*envdtest.Proc) int) (*envdtest.Server, *client.Client) {
	t.Helper()
	srv := envdtest.NewServer(envdtest.WithRoot(t.TempDir()), envdtest.WithoutRealProcesses())
	t.Cleanup(srv.Close)
	srv.HandleCommand("build-site", buildSite)
	c, err := client.New(srv.URL, client.WithUser("user"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return srv, c
}

func TestSite(t *testing.T) {
	_, c := newSandbox(t, func(p *envdtest.Proc) int {
		fmt.Fprintf(p.Stdout, "<p>%v</p>", p.Args)
		return 0
	})
	page, err := deploy.Site(context.Background(), c, "# Hello")
	if err != nil || page != "<p>[site.md]</p>" {
		t.Errorf("Site = %q, %v", page, err)
	}
	source, err := c.ReadFile(context.Background(), "site.md")
	if err != nil || string(source) != "# Hello" {
		t.Errorf("the sandbox has the source %q, %v", source, err)
	}
}

func TestSiteBroken(t *testing.T) {
	_, c := newSandbox(t, func(p *envdtest.Proc) int {
		fmt.Fprintln(p.Stderr, "line 1: no title")
		return 2
	})
	_, err := deploy.Site(context.Background(), c, "Hello")
	if !errors.Is(err, deploy.ErrBroken) {
		t.Errorf("Site = %v, want ErrBroken", err)
	}
}

// A connection that breaks is neither a page nor a site that does not build.
func TestSiteConnectionLost(t *testing.T) {
	srv, c := newSandbox(t, func(p *envdtest.Proc) int {
		fmt.Fprint(p.Stdout, "<p>half a")
		<-p.Context.Done()
		return 0
	})
	srv.Inject(envdtest.Fault{Procedure: "/process.Process/Start", Action: envdtest.Cut, After: envdtest.Amount{Events: 2}})
	page, err := deploy.Site(context.Background(), c, "# Hello")
	if !errors.Is(err, client.ErrStreamLost) || page != "" {
		t.Errorf("Site = %q, %v; want ErrStreamLost", page, err)
	}
}
