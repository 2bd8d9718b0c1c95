// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
)

// newHandler puts the layers of the server on top of each other: what is
// outermost comes first.
func (s *Server) newHandler() http.Handler {
	routes := s.newRoutes()
	handler := http.Handler(http.HandlerFunc(routes.serve))
	handler = s.checkUser(handler)
	handler = s.checkToken(handler)
	handler = s.injectFaults(handler)
	handler = s.allowOrigins(handler)
	handler = s.record(handler)
	return s.live(handler)
}

// routes are the paths that the server knows. Anything else is a 404.
type routes struct {
	dialect Dialect
	rpc     map[string]http.Handler
	plain   map[string]map[string]http.HandlerFunc // by path and method
}

func (s *Server) newRoutes() *routes {
	r := &routes{
		dialect: s.cfg.dialect,
		rpc:     map[string]http.Handler{},
		plain:   map[string]map[string]http.HandlerFunc{},
	}
	server := connect.NewServer(wireErrors)
	s.registerProcess(server)
	s.registerFilesystem(server)
	opts := []connecthttp.Option{connecthttp.WithReadMaxBytes(0)} // no limit, as envd
	if s.cfg.dialect == FC {
		opts = append(opts, connecthttp.WithCodecs(connectproto.NewBinaryCodec(), newNumberCodec()))
	}
	connecthttp.Mount(r, server, opts...)
	s.dropMissing(r)
	s.registerPlain(r)
	return r
}

// Handle takes the handlers of the procedures. The catch-all of each service
// is left out, since envd answers unknown methods as any unknown path.
func (r *routes) Handle(pattern string, handler http.Handler) {
	if !strings.HasSuffix(pattern, "/") {
		r.rpc[pattern] = handler
	}
}

// handle adds a plain HTTP endpoint.
func (r *routes) handle(method, path string, handler http.HandlerFunc) {
	if r.plain[path] == nil {
		r.plain[path] = map[string]http.HandlerFunc{}
	}
	r.plain[path][method] = handler
}

func (r *routes) serve(w http.ResponseWriter, req *http.Request) {
	if handler, ok := r.rpc[req.URL.Path]; ok {
		if !r.dialect.refuses(w, req) {
			clampTimeout(req.Header)
			handler.ServeHTTP(r.dialect.writer(w, req), req)
		}
		return
	}
	methods, ok := r.plain[req.URL.Path]
	if !ok {
		http.NotFound(w, req)
		return
	}
	handler, ok := methods[req.Method]
	if !ok {
		for method := range methods {
			w.Header().Add("Allow", method)
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	handler(w, req)
}

// clampTimeout makes a negative timeout 0: the connect library of today
// refuses it, that of the daemons took it for a deadline in the past.
func clampTimeout(header http.Header) {
	value := strings.TrimSpace(header.Get(timeoutHeader))
	if len(value) > 10 {
		return
	}
	if ms, err := strconv.ParseInt(value, 10, 64); err == nil && ms < 0 {
		header.Set(timeoutHeader, "0")
	}
}

// unblock ends reads and writes that wait for the client.
func unblock(w http.ResponseWriter) {
	past := time.Unix(1, 0)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(past)
	_ = control.SetWriteDeadline(past)
}

// live ties each request to the life of the server, and counts it.
func (s *Server) live(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.Add(1)
		defer s.handlers.Done()
		life := s.currentLife()
		if life.over() {
			panic(http.ErrAbortHandler)
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(life.ctx, func() {
			cancel()
			unblock(w)
		})()
		ctx = context.WithValue(ctx, callKey{}, &call{header: r.Header, life: life, gone: ctx.Done()})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
