// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"maps"
	"sync"
	"time"
)

// settings are what POST /init changes.
type settings struct {
	mu sync.Mutex
	settingsData
}

type settingsData struct {
	token      string
	tokenSet   bool
	baseEnv    map[string]string // E2B_SANDBOX: not to be replaced
	env        map[string]string
	userName   string
	dir        string
	lastUpdate time.Time
}

func newSettings(c config) *settings {
	s := &settings{}
	s.reset(c)
	return s
}

// reset gives every setting the value that the options gave it.
func (s *settings) reset(c config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settingsData = settingsData{
		token:    c.token,
		tokenSet: c.token != "",
		baseEnv:  map[string]string{"E2B_SANDBOX": sandboxEnv(c.version)},
		env:      maps.Clone(c.env),
		userName: "root",
	}
}

func (s *settings) user() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.userName
}

func (s *settings) workdir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

// vars returns a copy of the variables that every command gets.
func (s *settings) vars() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.baseEnv)
	maps.Copy(all, s.env)
	return all
}

// admits reports whether a request with this token passes the gate.
func (s *settings) admits(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.tokenSet || token == s.token
}
