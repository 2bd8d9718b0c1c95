// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy is code that uses a sandbox, with the tests that it deserves:
// on commands that are Go functions, and on connections that break.
package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/envd-go/envd/client"
)

// ErrBroken says that the site does not build.
var ErrBroken = errors.New("the site does not build")

// Site builds the site whose source is given, and returns the page.
func Site(ctx context.Context, c *client.Client, source string) (string, error) {
	if err := c.WriteFile(ctx, "site.md", []byte(source)); err != nil {
		return "", fmt.Errorf("deploy: %w", err)
	}
	cmd := c.Command(ctx, "build-site", "site.md")
	out, err := cmd.Output()
	var exit *client.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("deploy: %w: %s", ErrBroken, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("deploy: %w", err)
	}
	return string(out), nil
}
