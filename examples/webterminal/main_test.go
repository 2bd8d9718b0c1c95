// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// TestBrowser uses the page as a person does.
func TestBrowser(t *testing.T) {
	if _, err := os.Stat("node_modules/@xterm/xterm"); err != nil {
		t.Skip("xterm.js is missing: npm ci")
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is missing")
	}
	srv := envdtest.NewServer()
	defer srv.Close()
	c, err := client.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	web := httptest.NewServer(handler(c))
	defer web.Close()

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath("chromium"))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()

	do(t, ctx, "size of the page", chromedp.EmulateViewport(900, 600))
	do(t, ctx, "page", chromedp.Navigate(web.URL))
	do(t, ctx, "terminal", chromedp.WaitReady(".xterm-helper-textarea"))
	do(t, ctx, "connection", chromedp.Poll[bool](`socket.readyState === 1`))
	// Keys of the browser's driver reach xterm.js twice; its own call does not.
	enter := func(line string) {
		do(t, ctx, line, chromedp.Evaluate[any]("terminal.input("+strconv.Quote(line+"\r")+")"))
	}
	enter("echo $((6*7))-ünï")
	shows(t, ctx, "42-ünï")
	do(t, ctx, "size of the page", chromedp.EmulateViewport(500, 300))
	do(t, ctx, "size of the terminal", chromedp.Poll[bool](`terminal.cols < 80`))
	enter(`test "$(stty size | cut -d" " -f2)" -lt 80 && echo narrow''er`)
	shows(t, ctx, "narrower")
	enter("exit 3")
	shows(t, ctx, "[exit status 3]")
}

func do[T any](t *testing.T, ctx context.Context, what string, action chromedp.Action[T]) {
	t.Helper()
	if _, err := chromedp.Run(ctx, action); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// shows waits until the terminal shows a text.
func shows(t *testing.T, ctx context.Context, text string) {
	t.Helper()
	const screen = `(() => {
		const b = terminal.buffer.active
		let all = ''
		for (let i = 0; i < b.length; i++) all += b.getLine(i).translateToString(true) + '\n'
		return all.trimEnd()
	})()`
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](screen+".includes("+strconv.Quote(text)+")", chromedp.WithPollingTimeout(15*time.Second)))
	if err != nil {
		seen, _ := chromedp.Run(ctx, chromedp.Evaluate[string](screen))
		t.Fatalf("%q does not come: %v; the terminal shows %q", text, err, seen)
	}
}
