// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import (
	"context"
	"os"
)

// watchTerminal returns a channel that never gets a value: where there is no signal
// for it, the command's terminal keeps the size that it began with.
func watchTerminal(context.Context) <-chan os.Signal { return nil }
