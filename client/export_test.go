// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

// WithPieces makes the pieces of parallel transfers n bytes long, so that tests
// have many of them.
func WithPieces(n int64) Option {
	return optionFunc(func(c *config) error {
		c.rangeSize, c.partSize = n, n
		return nil
	})
}
