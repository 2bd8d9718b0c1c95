// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package envdtest

// descendants finds nothing where there is no /proc.
func descendants(int, []uint64) []int { return nil }
