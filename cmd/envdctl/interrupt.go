// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/envd-go/envd/client"
)

// signalTimeout bounds the call that sends a signal on.
const signalTimeout = 5 * time.Second

// interrupts are the signals that ask envdctl to end.
type interrupts struct {
	signals chan os.Signal
	first   atomic.Int32 // number of the first signal, 0 before
	started chan struct{}
	done    chan struct{}
	cancel  context.CancelCauseFunc
}

// catchInterrupts begins to catch the signals. Until relay is called, the first one
// ends the context.
func catchInterrupts(ctx context.Context, signals ...os.Signal) (context.Context, *interrupts) {
	ctx, cancel := context.WithCancelCause(ctx)
	i := &interrupts{
		signals: make(chan os.Signal, 4),
		started: make(chan struct{}),
		done:    make(chan struct{}),
		cancel:  cancel,
	}
	for _, sig := range signals {
		// One that is ignored, as by nohup(1) or for a job in the background,
		// stays ignored.
		if !signal.Ignored(sig) {
			signal.Notify(i.signals, sig)
		}
	}
	go func() {
		select {
		case <-i.started:
		case <-i.done:
		case sig := <-i.signals:
			i.note(sig)
			cancel(fmt.Errorf("%v before the command had started", sig))
		}
	}()
	return ctx, i
}

func (i *interrupts) stop() {
	signal.Stop(i.signals)
	close(i.done)
	i.cancel(nil)
}

func (i *interrupts) note(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		i.first.CompareAndSwap(0, int32(number))
	}
}

// number is the number of the first signal, or 0 if there was none.
func (i *interrupts) number() int { return int(i.first.Load()) }

// relay sends the signals on to the command, which has started.
func (i *interrupts) relay(x *execution) {
	close(i.started)
	go func() {
		select {
		case <-i.done:
			return
		case sig := <-i.signals:
			i.note(sig)
			i.terminate(x, sig)
		}
		var patience <-chan time.Time
		if x.tty != nil {
			// An interactive shell does not heed SIGTERM, and whoever could send
			// another signal may have gone with the terminal.
			patience = time.After(client.DefaultWaitDelay)
		}
		select {
		case <-i.done:
			return
		case <-i.signals:
		case <-patience:
		}
		i.cancel(errors.New("interrupted"))
	}()
}

// terminate asks the command to end. Its descendants could not be found any
// more once it has ended, so a whole tree is killed at once.
func (i *interrupts) terminate(x *execution, sig os.Signal) {
	if x.flags.killTree {
		x.say("%v: killing %s and its descendants", sig, x.cmd.Process)
		i.cancel(errors.New("interrupted"))
		return
	}
	x.say("%v: sending SIGTERM to %s; once more kills it", sig, x.cmd.Process)
	ctx, cancel := context.WithTimeout(context.Background(), signalTimeout)
	defer cancel()
	if err := x.cmd.Process.Terminate(ctx); err != nil && !errors.Is(err, client.ErrProcessNotFound) {
		x.app.messages.printf("%s", printable(err.Error()))
	}
}
