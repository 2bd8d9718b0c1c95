// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Gateway reaches a sandbox through a gateway that routes by path and by header
// and wants a token of its own, as private fleets often have it.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// renewed puts a token that does not live long into each request.
type renewed struct {
	token func() string
	next  http.RoundTripper
}

func (r renewed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context()) // a RoundTripper must not change its request
	req.Header.Set("X-Gateway-Token", r.token())
	return r.next.RoundTrip(req)
}

func main() {
	log.SetFlags(0)
	srv := envdtest.NewServer()
	defer srv.Close()
	gateway := newGateway(srv.URL)
	defer gateway.Close()

	c, err := client.New(gateway.URL+"/sandboxes/s1",
		client.WithHeader("X-Region", "north"),
		client.WithTransport(renewed{token: func() string { return time.Now().Format("2006") }, next: http.DefaultTransport}),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	out, err := c.Command(context.Background(), "echo", "through the gateway").Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(out))
}

// newGateway stands for a real one.
func newGateway(envd string) *httptest.Server {
	target, err := url.Parse(envd)
	if err != nil {
		log.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/sandboxes/s1")
		},
		FlushInterval: -1, // events must not wait in the gateway
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Gateway-Token") == "" || r.Header.Get("X-Region") == "" || !strings.HasPrefix(r.URL.Path, "/sandboxes/s1/") {
			http.Error(w, "no way through", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
}
