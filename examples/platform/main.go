// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Platform creates a sandbox through the REST API of a platform, runs a command
// in it, and ends it. Creating sandboxes is the platform's part and no concern
// of the client: all that it needs is an address and a token.
//
// Set E2B_API_KEY to use a platform of E2B's kind; without one a small platform
// inside the program stands in.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// platform is its REST API.
type platform struct {
	url, key string
	domain   string
	// address is for platforms with addresses of another form.
	address func(id string) string
}

// sandboxInfo is what the platform says of a new sandbox.
type sandboxInfo struct {
	ID    string `json:"sandboxID"`
	Token string `json:"envdAccessToken"`
}

func (p *platform) call(ctx context.Context, method, path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-API-Key", p.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(answer)
}

func main() {
	log.SetFlags(0)
	p := &platform{url: "https://api.e2b.app", key: os.Getenv("E2B_API_KEY"), domain: "e2b.app"}
	if p.key == "" {
		var done func()
		p, done = standIn()
		defer done()
	}
	if err := run(context.Background(), p); err != nil {
		log.Print(err)
	}
}

func run(ctx context.Context, p *platform) error {
	var info sandboxInfo
	if err := p.call(ctx, http.MethodPost, "/sandboxes", map[string]any{"templateID": "base", "timeout": 60, "secure": true}, &info); err != nil {
		return err
	}
	defer func() {
		if err := p.call(context.WithoutCancel(ctx), http.MethodDelete, "/sandboxes/"+info.ID, nil, nil); err != nil {
			log.Print(err)
		}
	}()
	address := client.SandboxURL(p.domain, info.ID)
	if p.address != nil {
		address = p.address(info.ID)
	}
	c, err := client.New(address, client.WithAccessToken(info.Token))
	if err != nil {
		return err
	}
	defer c.Close()
	out, err := c.Command(ctx, "echo", "hello from sandbox", info.ID).Output()
	fmt.Print(string(out))
	return err
}

// standIn is a platform with one sandbox, inside this program.
func standIn() (*platform, func()) {
	const token = "sandbox-token"
	envd := envdtest.NewServer(envdtest.WithAccessToken(token))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(sandboxInfo{ID: "s1", Token: token})
	})
	mux.HandleFunc("DELETE /sandboxes/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	api := httptest.NewServer(mux)
	return &platform{url: api.URL, key: "none", address: func(string) string { return envd.URL }}, func() {
		api.Close()
		envd.Close()
	}
}
