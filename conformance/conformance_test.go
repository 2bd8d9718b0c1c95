// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// report runs the suite and fails the test for whatever was not expected.
func report(t *testing.T, target Target, opts Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Error(text.String())
	} else if testing.Verbose() {
		t.Log(text.String())
	}
	if r.LeftBehind != (LeftBehind{}) {
		t.Errorf("left behind: %s", r.LeftBehind)
	}
	return r
}

func TestEmbedded(t *testing.T) {
	for _, v := range envdversion.Supported() {
		t.Run(v.String(), func(t *testing.T) {
			srv := envdtest.NewServer(envdtest.WithVersion(v.String()))
			defer srv.Close()
			report(t, Target{URL: srv.URL, Version: v.String()}, Options{Run: os.Getenv("ENVD_CONFORMANCE_RUN"), AllowInit: true})
		})
		t.Run(v.String()+" with a token", func(t *testing.T) {
			srv := envdtest.NewServer(envdtest.WithVersion(v.String()), envdtest.WithAccessToken("secret"))
			defer srv.Close()
			report(t, Target{URL: srv.URL, Token: "secret", Version: v.String()}, Options{Run: "auth*,init*", AllowInit: true})
		})
	}
	t.Run("fc", func(t *testing.T) {
		srv := envdtest.NewServer(envdtest.WithDialect(envdtest.FC))
		defer srv.Close()
		known, err := LoadDeviations("fc-0.5.2")
		if err != nil {
			t.Fatal(err)
		}
		report(t, Target{URL: srv.URL, Version: "0.5.2"}, Options{Run: os.Getenv("ENVD_CONFORMANCE_RUN"), Deviations: known, AllowInit: true})
	})
}

// TestLive runs the suite on the envd that ENVD_URL names, with the deviations
// of its version. It calls POST /init only if ENVD_CONFORMANCE_INIT is set.
func TestLive(t *testing.T) {
	url := os.Getenv("ENVD_URL")
	if url == "" {
		t.Skip("set ENVD_URL to run the suite on a running envd")
	}
	opts := Options{Run: os.Getenv("ENVD_CONFORMANCE_RUN"), AllowInit: os.Getenv("ENVD_CONFORMANCE_INIT") != ""}
	version := os.Getenv("ENVD_VERSION")
	if name := "upstream-" + version; slices.Contains(ShippedDeviations(), name) {
		known, err := LoadDeviations(name)
		if err != nil {
			t.Fatal(err)
		}
		opts.Deviations = known
	}
	report(t, Target{URL: url, User: os.Getenv("ENVD_USER"), Token: os.Getenv("ENVD_ACCESS_TOKEN"), Version: version}, opts)
}

func TestCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.ID] {
			t.Errorf("%s is there twice", c.ID)
		}
		seen[c.ID] = true
		if strings.Count(c.ID, "/") != 2 || c.Procedure == "" || !strings.HasSuffix(c.Requirement, ".") || c.Run == nil {
			t.Errorf("%s lacks something: %+v", c.ID, c)
		}
	}
	if len(seen) < 200 {
		t.Errorf("want 200 cases at least, got %d", len(seen))
	}
}
