// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"maps"
	"sync"
	"unicode/utf8"
)

// attributePrefix is before the names of the extended attributes that hold
// metadata.
const attributePrefix = "user.e2b."

// metadataTable keeps the metadata of files on filesystems that have no
// extended attributes, by their path on this machine.
type metadataTable struct {
	mu   sync.Mutex
	sets map[string]map[string]string
}

func (m *metadataTable) set(host string, metadata map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets == nil {
		m.sets = map[string]map[string]string{}
	}
	if len(metadata) == 0 {
		delete(m.sets, host)
		return
	}
	m.sets[host] = maps.Clone(metadata)
}

func (m *metadataTable) get(host string) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.sets[host])
}

// setMetadata replaces the metadata of a file.
func (s *Server) setMetadata(host string, metadata map[string]string) {
	if setAttributes(host, metadata) {
		s.metadata.set(host, nil)
		return
	}
	s.metadata.set(host, metadata)
}

// metadataOf returns the metadata of a file; nil if there is none.
func (s *Server) metadataOf(host string) map[string]string {
	all := s.metadata.get(host)
	for key, value := range attributes(host) {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
	}
	return all
}
