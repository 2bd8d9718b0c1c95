// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/envd-go/envd/client"
)

func TestDo(t *testing.T) {
	var got *http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		switch r.URL.Path {
		case "/box/moved":
			http.Redirect(w, r, "http://other.example/", http.StatusFound)
		case "/box/missing":
			http.NotFound(w, r)
		default:
			io.WriteString(w, "body")
		}
	}))
	defer srv.Close()
	c, err := client.New(srv.URL+"/box", client.WithAccessToken("secret"), client.WithUser("user"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tests := []struct {
		url    string
		status int // 0 for an error
		path   string
		query  string
	}{
		{url: "/files?path=%2Fa%20b", status: 200, path: "/box/files", query: "path=%2Fa%20b"},
		{url: "/a%2Fb", status: 200, path: "/box/a/b"},
		{url: "/missing", status: 404, path: "/box/missing"},
		{url: "/moved", status: 302, path: "/box/moved"},
		{url: "files"},
		{url: ".evil.example/x"},
		{url: "http://evil.example/x"},
		{url: "//evil.example/x"},
		{url: "http://user:pass@evil.example/x"},
		{url: "mailto:x"},
	}
	for _, tt := range tests {
		t.Run(tt.url, func(t *testing.T) {
			got = nil
			req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, tt.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(req)
			if tt.status == 0 {
				if err == nil || got != nil {
					t.Fatalf("Do = %v, want an error and no request", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != tt.status || got.URL.Path != tt.path || got.URL.RawQuery != tt.query {
				t.Errorf("status %d for %s?%s", resp.StatusCode, got.URL.Path, got.URL.RawQuery)
			}
			if user, _, _ := got.BasicAuth(); got.Header.Get("X-Access-Token") != "secret" || user != "user" {
				t.Errorf("the headers are %v", got.Header)
			}
		})
	}
}

func TestDoUnreachable(t *testing.T) {
	c, err := client.New("http://127.0.0.1:1", client.WithAccessToken("secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/files?signature=hidden", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Do(req)
	if err == nil || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "secret") {
		t.Errorf("Do = %v, want an error without secrets", err)
	}
}
