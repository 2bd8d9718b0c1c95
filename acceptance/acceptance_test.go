// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package acceptance tries clients that others wrote on the embedded envd: they
// know nothing of this project, and share none of its mistakes.
package acceptance

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sdkAddr is where the SDK looks for envd in its debug mode.
const sdkAddr = "127.0.0.1:49983"

// TestJavaScriptSDK runs the official SDK, which npm fetches, against envdctl
// serve. It needs npm and the network, and is therefore asked for: make
// acceptance.
func TestJavaScriptSDK(t *testing.T) {
	if os.Getenv("ACCEPTANCE") == "" {
		t.Skip("set ACCEPTANCE=1 to install the JavaScript SDK and try it on the embedded envd")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is missing: the JavaScript SDK is not tried")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("javascript")); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm could not install the JavaScript SDK, which is not tried: %v\n%s", err, out)
	}
	serve(t, sdkAddr)
	test := exec.CommandContext(t.Context(), "node", "--test")
	test.Dir = dir
	out, err := test.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// serve runs envdctl serve until the test is over.
func serve(t *testing.T, addr string) {
	t.Helper()
	envdctl := filepath.Join(t.TempDir(), "envdctl")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", envdctl, "../cmd/envdctl").CombinedOutput(); err != nil {
		t.Fatalf("building envdctl: %v\n%s", err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, envdctl, "serve", "--addr", addr)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errors strings.Builder
	cmd.Stderr = &errors
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		_ = cmd.Wait()
		t.Fatalf("envdctl serve printed no address but %q, %v: %s", line, err, &errors)
	}
}
