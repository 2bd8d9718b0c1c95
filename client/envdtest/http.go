// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/envd-go/envd/internal/envdversion"
)

// registerPlain adds the endpoints that are not RPCs.
func (s *Server) registerPlain(r *routes) {
	r.handle(http.MethodGet, "/health", s.serveHealth)
	r.handle(http.MethodGet, "/envs", s.serveEnvs)
	r.handle(http.MethodGet, "/metrics", s.serveMetrics)
	r.handle(http.MethodPost, "/init", s.serveInit)
	r.handle(http.MethodGet, "/files", s.serveDownload)
	r.handle(http.MethodPost, "/files", s.serveUpload)
	if s.cfg.version.Has(envdversion.Compose) {
		r.handle(http.MethodPost, "/files/compose", s.serveCompose)
	}
}

// serveHealth says that the server is there.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "")
	w.WriteHeader(http.StatusNoContent)
}

// serveEnvs shows the variables that every command gets.
func (s *Server) serveEnvs(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, s.settings.vars())
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// initRequest is the body of POST /init, as far as a client may send it.
type initRequest struct {
	AccessToken    *initToken        `json:"accessToken"`
	EnvVars        map[string]string `json:"envVars"`
	DefaultUser    *string           `json:"defaultUser"`
	DefaultWorkdir *string           `json:"defaultWorkdir"`
	Timestamp      json.RawMessage   `json:"timestamp"`

	when time.Time
}

// initToken is a token as /init reads it: without any escapes.
type initToken struct {
	text    string
	escaped bool
}

// UnmarshalJSON takes a string only.
func (t *initToken) UnmarshalJSON(data []byte) error {
	t.escaped = strings.Contains(string(data), `\`)
	return json.Unmarshal(data, &t.text)
}

// serveInit changes the settings.
func (s *Server) serveInit(w http.ResponseWriter, r *http.Request) {
	v := s.cfg.version
	if v.Has(envdversion.InitVersionHeader) {
		w.Header().Set("X-Envd-Version", v.String())
	}
	w.Header().Set("Cache-Control", "no-store")
	req, err := s.readInit(r)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if status, text := s.settings.update(v, req); status != http.StatusNoContent {
		if text == "" {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		return
	}
	if !v.Has(envdversion.InitVersionHeader) {
		w.Header().Set("Content-Type", "")
	}
	w.WriteHeader(http.StatusNoContent)
}

// readInit reads the body, which may be empty, and checks its fields.
func (s *Server) readInit(r *http.Request) (*initRequest, error) {
	req := &initRequest{}
	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		return req, err
	}
	if err := json.Unmarshal(body, req); err != nil {
		return nil, err
	}
	v := s.cfg.version
	if !v.Has(envdversion.InitTimestamp) {
		req.Timestamp = nil
	}
	if len(req.Timestamp) > 0 && string(req.Timestamp) != "null" {
		if err := json.Unmarshal(req.Timestamp, &req.when); err != nil {
			return nil, err
		}
	}
	if !v.Has(envdversion.DefaultUser) {
		req.DefaultUser, req.DefaultWorkdir = nil, nil
	}
	if t := req.AccessToken; t != nil && v.Has(envdversion.OpenInit) && (t.text == "" || t.escaped) {
		return nil, errBadToken
	}
	return req, nil
}

// update applies the request and returns the status of the answer, and its
// text if it has one.
func (s *settings) update(v envdversion.Version, req *initRequest) (status int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status, text := s.checkToken(v, req.AccessToken); status != 0 {
		return status, text
	}
	if !req.when.IsZero() {
		if !req.when.After(s.lastUpdate) {
			return http.StatusNoContent, ""
		}
		s.lastUpdate = req.when
	}
	if req.AccessToken != nil {
		s.token, s.tokenSet = req.AccessToken.text, true
	}
	if req.EnvVars != nil {
		if v.Has(envdversion.InitEnvsReplace) {
			s.env = map[string]string{}
		}
		maps.Copy(s.env, req.EnvVars)
	}
	if req.DefaultUser != nil && *req.DefaultUser != "" {
		s.userName = *req.DefaultUser
	}
	if req.DefaultWorkdir != nil && *req.DefaultWorkdir != "" {
		s.dir = *req.DefaultWorkdir
	}
	return http.StatusNoContent, ""
}

// checkToken says whether the token may be set, or the settings be changed
// without one; a status of 0 means yes. The caller holds the lock.
func (s *settings) checkToken(v envdversion.Version, token *initToken) (status int, text string) {
	if !s.tokenSet || (token != nil && token.text == s.token) {
		return 0, ""
	}
	if !v.Has(envdversion.OpenInit) {
		if token == nil {
			return 0, ""
		}
		return http.StatusConflict, conflictText(v)
	}
	if token == nil {
		return http.StatusUnauthorized, "access token reset not authorized"
	}
	return http.StatusUnauthorized, "access token validation failed"
}

func conflictText(v envdversion.Version) string {
	if v.Has(envdversion.StdinField) {
		return "access token is already set"
	}
	return ""
}
