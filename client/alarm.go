// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"sync/atomic"
	"time"
)

// alarm fires when something has not happened for a while. The moment it last
// happened is asked for when the timer fires, so that an event costs nothing.
type alarm struct {
	after time.Duration
	since func() time.Duration
	timer *time.Timer
}

func newAlarm(after time.Duration, since func() time.Duration) *alarm {
	a := &alarm{after: after, since: since}
	if after > 0 {
		a.timer = time.NewTimer(after)
	}
	return a
}

func (a *alarm) c() <-chan time.Time {
	if a.timer == nil {
		return nil
	}
	return a.timer.C
}

// due reports whether the time is really over, and sets the timer anew if not.
func (a *alarm) due() bool {
	left := a.after - a.since()
	if left <= 0 {
		return true
	}
	a.timer.Reset(left)
	return false
}

func (a *alarm) rearm() { a.timer.Reset(a.after) }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// clock remembers when something last happened, for goroutines that only look.
type clock struct{ last atomic.Int64 }

var clockBase = time.Now()

func (c *clock) set()                 { c.last.Store(int64(time.Since(clockBase))) }
func (c *clock) since() time.Duration { return time.Since(clockBase) - time.Duration(c.last.Load()) }
