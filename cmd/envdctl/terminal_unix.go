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

// watchSize returns a channel that gets a value when the terminal may have
// another size.
func watchSize(ctx context.Context) <-chan os.Signal {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	context.AfterFunc(ctx, func() { signal.Stop(resized) })
	return resized
}
