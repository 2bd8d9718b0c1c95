// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/envd-go/envd/internal/envdversion"
)

const (
	tokenHeader = "X-Access-Token"

	// unauthorized is what the gate answers to everything: JSON with a number
	// for a code, which is not how RPCs fail.
	unauthorized = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}` + "\n"
)

// checkToken lets requests through that carry the access token or need none.
func (s *Server) checkToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.exempt(r) || s.settings.admits(r.Header.Get(tokenHeader)) {
			next.ServeHTTP(w, r)
			return
		}
		writeUnauthorized(w)
	})
}

func writeUnauthorized(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = w.Write([]byte(unauthorized))
}

// exempt reports whether the gate lets the request through in any case. Of
// these, /files and /init look at tokens themselves.
func (s *Server) exempt(r *http.Request) bool {
	switch r.Method + " " + r.URL.Path {
	case "GET /health", "GET /files", "POST /files":
		return true
	case "POST /init":
		return s.cfg.version.Has(envdversion.OpenInit)
	}
	return false
}

// checkUser refuses requests of users that do not exist, on every path, and
// remembers who the others are.
func (s *Server) checkUser(next http.Handler) http.Handler {
	errors := connecthttp.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := basicUser(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		id := s.lookup(name)
		if id == nil {
			err := connect.Errorf(connect.CodeUnauthenticated, "invalid username: '%s'", name)
			_ = errors.Write(w, r, err)
			return
		}
		callOf(r.Context()).user = id
		next.ServeHTTP(w, r)
	})
}

// allowOrigins answers browsers that ask whether they may call the server.
func (s *Server) allowOrigins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		method := r.Header.Get("Access-Control-Request-Method")
		if r.Method == http.MethodOptions && method != "" {
			header.Add("Vary", "Access-Control-Request-Method")
			header.Add("Vary", "Access-Control-Request-Headers")
			if origin != "" {
				header.Set("Access-Control-Allow-Origin", "*")
				header.Set("Access-Control-Allow-Methods", method)
				if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
					header.Set("Access-Control-Allow-Headers", asked)
				}
				header.Set("Access-Control-Max-Age", "7200")
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if origin != "" {
			header.Set("Access-Control-Allow-Origin", "*")
			header.Set("Access-Control-Expose-Headers", exposedHeaders)
		}
		next.ServeHTTP(w, r)
	})
}

const exposedHeaders = "Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, " +
	"Location, Cache-Control, X-Content-Type-Options"
