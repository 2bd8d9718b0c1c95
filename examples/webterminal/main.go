// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Webterminal is a terminal in the browser: xterm.js on one side of a
// websocket, a shell in the sandbox on the other.
//
//	npm ci            # xterm.js, once
//	go run .          # then open the address that it prints
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/coder/websocket"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

//go:embed page.html
var page []byte

func main() {
	log.SetFlags(0)
	if os.Getenv(client.EnvURL) == "" {
		srv := envdtest.NewServer()
		defer srv.Close()
		os.Setenv(client.EnvURL, srv.URL)
	}
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	// Whoever reaches it has a shell: no other machine must.
	l, err := net.Listen("tcp", "127.0.0.1:8022")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", l.Addr())
	log.Fatal(http.Serve(l, handler(c)))
}

func handler(c *client.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
	mux.Handle("GET /xterm/", http.StripPrefix("/xterm/", http.FileServer(http.Dir("node_modules/@xterm"))))
	mux.HandleFunc("GET /terminal", func(w http.ResponseWriter, r *http.Request) {
		// Accept refuses pages of other sites, by their Origin.
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		text, err := terminal(r.Context(), c, ws)
		if err != nil {
			log.Print(err)
			text = "the terminal is lost"
		}
		_ = ws.Close(websocket.StatusNormalClosure, text)
	})
	return mux
}

// terminal joins a websocket to a shell until either ends, and says how the
// shell ended.
func terminal(ctx context.Context, c *client.Client, ws *websocket.Conn) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the shell when the page was closed
	shell := c.Command(ctx, "/bin/sh")
	shell.PTY = &client.Size{Cols: 80, Rows: 24}
	shell.KillTree = true
	shell.Stdout = output{ctx, ws}
	if err := shell.Start(); err != nil {
		return "", err
	}
	go func() {
		defer cancel()
		if err := input(ctx, ws, shell.Process); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
	}()
	err := shell.Wait()
	var exit *client.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, context.Canceled) {
		return "", err
	}
	return shell.ProcessState.String(), nil
}

// output writes what the shell says to the page. A rune that is split over two
// messages does no harm: xterm.js takes bytes.
type output struct {
	ctx context.Context
	ws  *websocket.Conn
}

func (o output) Write(p []byte) (int, error) {
	if err := o.ws.Write(o.ctx, websocket.MessageBinary, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// input gives the shell what is typed (binary messages) and the size of the
// page (text messages, JSON).
func input(ctx context.Context, ws *websocket.Conn, shell *client.Process) error {
	for {
		kind, data, err := ws.Read(ctx)
		if status := websocket.CloseStatus(err); status == websocket.StatusNormalClosure || status == websocket.StatusGoingAway || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			if err := shell.SendInput(ctx, data); err != nil {
				return err
			}
			continue
		}
		var size struct{ Cols, Rows uint16 }
		if err := json.Unmarshal(data, &size); err != nil {
			return fmt.Errorf("reading a size: %w", err)
		}
		if err := shell.Resize(ctx, client.Size{Cols: uint32(size.Cols), Rows: uint32(size.Rows)}); err != nil {
			return err
		}
	}
}
