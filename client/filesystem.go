// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

// statError returns the error of looking at a path.
func (c *Client) statError(ctx context.Context, path string) error {
	_, err := c.filesystems.Stat(ctx, &filesystempb.StatRequest{Path: path})
	return toError(ctx, domainFile, "stat", path, err)
}
