// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is a daemon to test against, and how to talk to it.
type target struct {
	name    string
	version envdversion.Version // zero where it is not known
	// server options of an embedded envd; url is set for a running daemon.
	server []envdtest.Option
	url    string
	client []client.Option
}

// targets lists every version and dialect of the embedded envd and the daemon
// at ENVD_URL, each with both codecs.
func targets(t *testing.T) []target {
	t.Helper()
	var base []target
	for _, v := range envdversion.Supported() {
		base = append(base, target{name: v.String(), version: v, server: []envdtest.Option{envdtest.WithVersion(v.String())}})
	}
	base = append(base, target{name: "fc", version: envdversion.V(0, 5, 2), server: []envdtest.Option{envdtest.WithDialect(envdtest.FC)}})
	if url := os.Getenv(client.EnvURL); url != "" {
		live := target{name: "live", url: url}
		if token := os.Getenv(client.EnvAccessToken); token != "" {
			live.client = append(live.client, client.WithAccessToken(token))
		}
		if text := os.Getenv("ENVD_VERSION"); text != "" {
			v, err := envdversion.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			live.version = v
		}
		base = append(base, live)
	}
	var all []target
	for _, b := range base {
		for _, json := range []bool{false, true} {
			one := b
			one.name += "/binary"
			one.client = append([]client.Option{client.WithUser(targetUser(b)), client.WithRequestTimeout(20 * time.Second)}, b.client...)
			if json {
				one.name = b.name + "/json"
				one.client = append(one.client, client.WithJSON())
			}
			all = append(all, one)
		}
	}
	return all
}

func targetUser(b target) string {
	if user := os.Getenv(client.EnvUser); b.url != "" && user != "" {
		return user
	}
	return "root"
}

// needs skips the test where the version is known to lack the feature.
func (tg target) needs(t *testing.T, f envdversion.Feature) {
	t.Helper()
	if tg.version.Lacks(f) {
		t.Skipf("envd %v has no %v", tg.version, f)
	}
}

// dial returns a client for the target.
func (tg target) dial(t *testing.T, more ...client.Option) *client.Client {
	t.Helper()
	url := tg.url
	if url == "" {
		srv := envdtest.NewServer(tg.server...)
		t.Cleanup(srv.Close)
		url = srv.URL
	}
	return dial(t, url, append(append([]client.Option{}, tg.client...), more...)...)
}

func dial(t *testing.T, url string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// forTargets runs the test on every target.
func forTargets(t *testing.T, test func(ctx context.Context, t *testing.T, tg target, c *client.Client)) {
	t.Helper()
	t.Parallel()
	for _, tg := range targets(t) {
		t.Run(tg.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			test(ctx, t, tg, tg.dial(t))
		})
	}
}

// embedded starts an embedded envd and returns a client for it.
func embedded(t *testing.T, opts ...envdtest.Option) (*envdtest.Server, *client.Client) {
	t.Helper()
	srv := envdtest.NewServer(opts...)
	t.Cleanup(srv.Close)
	return srv, dial(t, srv.URL, client.WithUser("root"), client.WithRequestTimeout(20*time.Second))
}
