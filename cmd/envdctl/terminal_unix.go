// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// watchTerminal returns a channel that gets a value when the terminal may have
// another size, or another mode.
func watchTerminal(ctx context.Context) <-chan os.Signal {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH, syscall.SIGCONT)
	context.AfterFunc(ctx, func() { signal.Stop(changed) })
	return changed
}
