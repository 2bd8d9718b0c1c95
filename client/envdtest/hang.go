// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"net/http"
	"time"
)

// hangsBelow is the timeout below which the deadline is over before the start
// event could be sent.
const hangsBelow = 10 * time.Millisecond

// hang never answers, as a stream does under [QuirkDeadlineHang]. The process
// is killed and stays in the listing, unless the timeout was 0: then it runs
// without a limit.
func (f *feed) hang(ctx context.Context, timeout time.Duration) error {
	if timeout > 0 {
		f.proc.stuck.Store(true)
		f.proc.timedOut.Store(true)
		_ = f.proc.signal(sigKill)
	}
	for {
		select {
		case <-f.sub.events:
		case <-callOf(ctx).gone:
			panic(http.ErrAbortHandler)
		}
	}
}

// untilGone waits until the client has gone, whatever its deadline, or the
// server ends.
func untilGone(ctx context.Context) error {
	<-callOf(ctx).gone
	panic(http.ErrAbortHandler)
}
