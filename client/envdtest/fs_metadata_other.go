// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package envdtest

func setAttributes(string, map[string]string) bool { return false }

func attributes(string) map[string]string { return nil }
