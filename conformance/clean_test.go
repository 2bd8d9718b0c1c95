// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/envd-go/envd/client/envdtest"
)

// Others make and remove directories in /tmp all the time, at which envd fails
// a listing.
func TestCleanWhileTmpChanges(t *testing.T) {
	srv := envdtest.NewServer(envdtest.WithRoot(t.TempDir()))
	defer srv.Close()
	left := rootPrefix + "left"
	if err := os.MkdirAll(srv.Path(left), 0o755); err != nil {
		t.Fatal(err)
	}
	var failures atomic.Int32
	failures.Store(5)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/ListDir") && failures.Add(-1) >= 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"code":"internal","message":"error reading directory /tmp: open /tmp/x: no such file or directory"}`)
			return
		}
		srv.Handler().ServeHTTP(w, r)
	}))
	defer web.Close()
	target := Target{URL: web.URL}
	found, err := Clean(t.Context(), target, false)
	if err != nil || !slices.Equal(found.Paths, []string{left}) {
		t.Fatalf("found %v, error %v, want %s", found, err, left)
	}
	failures.Store(1 << 20)
	if _, err := Clean(t.Context(), target, false); err == nil {
		t.Error("a listing that never works is no error")
	}
}
