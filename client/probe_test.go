// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
)

// wantInRange checks that the range of versions holds v, and that it is no
// wider than one minor version.
func wantInRange(t *testing.T, caps *client.Capabilities, v envdversion.Version) {
	t.Helper()
	since, err := envdversion.Parse(caps.Since)
	if err != nil {
		t.Fatalf("Since is %q: %v", caps.Since, err)
	}
	if v.Compare(since) < 0 {
		t.Errorf("the daemon is %v, Probe says %s or later", v, caps.Since)
	}
	if caps.Before == "" {
		return
	}
	before, err := envdversion.Parse(caps.Before)
	if err != nil {
		t.Fatalf("Before is %q: %v", caps.Before, err)
	}
	if v.Compare(before) >= 0 {
		t.Errorf("the daemon is %v, Probe says before %s", v, caps.Before)
	}
	if before.Minor-since.Minor > 1 {
		t.Errorf("Probe says %s to %s, which is more than a minor version", caps.Since, caps.Before)
	}
}

func logFeatures(t *testing.T, caps *client.Capabilities) {
	t.Helper()
	t.Logf("%s or later, before %q", caps.Since, caps.Before)
	for _, f := range caps.Features {
		t.Logf("%-20s since %-7s %-8s conflict=%v %s", f.Name, f.Since, f.State, f.Conflict, f.Evidence)
	}
}

// everyVersion lists each release from the oldest on that the version table
// names: the embedded envd can be any of them.
func everyVersion() []envdversion.Version {
	all := envdversion.Supported()
	for _, row := range envdversion.Features() {
		if row.Since.Compare(envdversion.Oldest) > 0 {
			all = append(all, row.Since)
		}
	}
	slices.SortFunc(all, envdversion.Version.Compare)
	return slices.Compact(all)
}

func TestProbeVersions(t *testing.T) {
	for _, v := range everyVersion() {
		t.Run(v.String(), func(t *testing.T) {
			srv := envdtest.NewServer(envdtest.WithVersion(v.String()))
			defer srv.Close()
			c, err := client.New(srv.URL, client.WithUser("user"), client.WithTransport(srv.Client().Transport))
			if err != nil {
				t.Fatal(err)
			}
			caps, err := c.Probe(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			wantInRange(t, caps, v)
			for _, f := range caps.Features {
				if f.Conflict || f.State == "unknown" {
					logFeatures(t, caps)
					t.Fatalf("%s is %s, conflict %v", f.Name, f.State, f.Conflict)
				}
			}
		})
	}
}

func TestProbeLive(t *testing.T) {
	if os.Getenv(client.EnvURL) == "" {
		t.Skip("set ENVD_URL to probe a running envd")
	}
	c, err := client.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := runningShells(t, c)
	caps, err := c.Probe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	logFeatures(t, caps)
	if text := os.Getenv("ENVD_VERSION"); text != "" {
		v, err := envdversion.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		wantInRange(t, caps, v)
	}
	for pid, shell := range runningShells(t, c) {
		if shell && !before[pid] {
			t.Errorf("Probe left pid %d running", pid)
		}
	}
}

func runningShells(t *testing.T, c *client.Client) map[uint32]bool {
	t.Helper()
	processes, err := c.Processes(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	shells := map[uint32]bool{}
	for _, p := range processes {
		shells[p.PID] = p.Path == "/bin/sh" && p.Tag == "" && p.Dir == ""
	}
	return shells
}

func TestProbeRefused(t *testing.T) {
	srv := envdtest.NewServer(envdtest.WithAccessToken("secret"))
	defer srv.Close()
	c, err := client.New(srv.URL, client.WithAccessToken("wrong"), client.WithTransport(srv.Client().Transport))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Probe(context.Background()); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("Probe with a wrong token = %v, want ErrUnauthenticated", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Probe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Probe with a context that is over = %v, want context.Canceled", err)
	}
}

// A gateway that refuses one kind of call says nothing about the daemon's
// features.
func TestProbeBehindGate(t *testing.T) {
	srv := envdtest.NewServer()
	defer srv.Close()
	gate := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/filesystem.Filesystem/Stat" {
			return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}
		return srv.Client().Transport.RoundTrip(r)
	})
	c, err := client.New(srv.URL, client.WithUser("user"), client.WithTransport(gate))
	if err != nil {
		t.Fatal(err)
	}
	caps, err := c.Probe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range caps.Features {
		if f.State == envdversion.Absent.String() {
			t.Errorf("%s is said to be absent, by %s", f.Name, f.Evidence)
		}
	}
}

// With "auto" the daemon is asked once, and only when its version matters.
func TestVersionAuto(t *testing.T) {
	for _, v := range envdversion.Supported() {
		t.Run(v.String(), func(t *testing.T) {
			srv := envdtest.NewServer(envdtest.WithVersion(v.String()))
			defer srv.Close()
			srv.HandleCommand("cat", func(p *envdtest.Proc) int { io.Copy(p.Stdout, p.Stdin); return 0 })
			c, err := client.New(srv.URL, client.WithUser("user"), client.WithVersion("auto"), client.WithTransport(srv.Client().Transport))
			if err != nil {
				t.Fatal(err)
			}
			ctx := context.Background()
			if _, err := c.Processes(ctx); err != nil {
				t.Fatal(err)
			}
			if got := countRequests(srv, "/metrics"); got != 0 {
				t.Errorf("the daemon was examined for a call that needs no version")
			}
			for range 2 {
				cmd := c.Command(ctx, "cat")
				cmd.Stdin = strings.NewReader("hello")
				out, err := cmd.Output()
				if v.Has(envdversion.CloseStdin) && (err != nil || string(out) != "hello") {
					t.Errorf("cat = %q, %v", out, err)
				}
				if v.Lacks(envdversion.CloseStdin) && !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("cat = %v, want errors.ErrUnsupported", err)
				}
			}
			if got := countRequests(srv, "/metrics"); got != 1 {
				t.Errorf("the daemon was examined %d times, want once", got)
			}
		})
	}
}
