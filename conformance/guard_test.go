// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/envd-go/envd/gen/filesystem"
)

// guard stands between a fault and a server that works on this machine. A
// request that has lost its path means somebody's home: nothing is removed or
// moved but what the suite has made. It also removes what is left behind where
// removing is what does not work.
type guard struct {
	next http.Handler

	mu    sync.Mutex
	roots map[string]bool
	homes []*http.Request // what uploaded to a relative path
}

func newGuard(next http.Handler) *guard { return &guard{next: next, roots: map[string]bool{}} }

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/" + fsRemove, "/" + fsMove:
		body, _ := io.ReadAll(r.Body)
		replace(r, body)
		for _, p := range victims(r, body) {
			if !g.ours(p) {
				http.Error(w, "not in a test: "+p, http.StatusTeapot)
				return
			}
		}
	case "/" + fsMake:
		body, _ := io.ReadAll(r.Body)
		replace(r, body)
		for _, p := range victims(r, body) {
			g.ours(p)
		}
	case "/files":
		if p := r.URL.Query().Get("path"); r.Method == http.MethodPost && !strings.HasPrefix(p, "/") {
			g.mu.Lock()
			g.homes = append(g.homes, r.Clone(r.Context()))
			g.mu.Unlock()
		}
	}
	g.next.ServeHTTP(w, r)
}

// victims returns the paths of a request.
func victims(r *http.Request, body []byte) []string {
	if strings.Contains(r.Header.Get("Content-Type"), "json") {
		var m struct{ Path, Source, Destination string }
		_ = json.Unmarshal(body, &m)
		if r.URL.Path == "/"+fsMove {
			return []string{m.Source, m.Destination}
		}
		return []string{m.Path}
	}
	if strings.Contains(r.Header.Get("Content-Type"), "grpc") && len(body) >= 5 {
		body = body[5:]
	}
	if r.URL.Path == "/"+fsMove {
		var m filesystem.MoveRequest
		_ = proto.Unmarshal(body, &m)
		return []string{m.GetSource(), m.GetDestination()}
	}
	var m filesystem.RemoveRequest // MakeDirRequest has the same field
	_ = proto.Unmarshal(body, &m)
	return []string{m.GetPath()}
}

// ours reports whether a path lies in a run's directory, which it notes.
func (g *guard) ours(path string) bool {
	rest, ok := strings.CutPrefix(path, rootPrefix)
	id, _, _ := strings.Cut(rest, "/")
	if !ok || id == "" || strings.Contains(path, "..") {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roots[rootPrefix+id] = true
	return true
}

// close removes what is left.
func (g *guard) close() {
	for _, r := range g.homes {
		if strings.Trim(r.URL.Query().Get("path"), "~/.") == "" {
			continue // a home itself
		}
		body := mustJSON(object{"path": r.URL.Query().Get("path")})
		remove := httptest.NewRequest(http.MethodPost, "/"+fsRemove, bytes.NewReader([]byte(body)))
		remove.Header = r.Header.Clone()
		remove.Header.Set("Content-Type", "application/json")
		remove.Header.Del("Content-Encoding")
		if user := r.URL.Query().Get("username"); user != "" {
			remove.SetBasicAuth(user, "")
		}
		g.next.ServeHTTP(httptest.NewRecorder(), remove)
	}
	for root := range g.roots {
		_ = os.RemoveAll(root)
	}
}
