// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// composeRequest is the body of POST /files/compose.
type composeRequest struct {
	SourcePaths []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    *string  `json:"username"`
}

// serveCompose joins files into one and removes them.
func (s *Server) serveCompose(w http.ResponseWriter, r *http.Request) {
	file, fail := s.compose(r)
	if fail != nil {
		fail.write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(file)
}

func (s *Server) compose(r *http.Request) (*storedFile, *restError) {
	var req composeRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return nil, restErrorf(http.StatusBadRequest, "invalid request body: %v", err)
	}
	switch {
	case len(req.SourcePaths) == 0:
		return nil, restErrorf(http.StatusBadRequest, "source_paths must not be empty")
	case req.Destination == "":
		return nil, restErrorf(http.StatusBadRequest, "destination is required")
	}
	f := &fileRequest{}
	if req.Username != nil {
		f.username, f.hasUser = *req.Username, true
	}
	id, fail := s.fileUser(f)
	if fail != nil {
		return nil, fail
	}
	destination, fail := s.filePath(req.Destination, id)
	if fail != nil {
		return nil, fail
	}
	sources, fail := s.composeSources(req.SourcePaths, destination, id)
	if fail != nil {
		return nil, fail
	}
	if fail := s.join(sources, destination, id); fail != nil {
		return nil, fail
	}
	for _, source := range sources {
		_ = os.Remove(s.host(source))
	}
	return &storedFile{Name: filepath.Base(destination), Path: destination, Type: "file"}, nil
}

// composeSources checks the files that are to be joined.
func (s *Server) composeSources(paths []string, destination string, id *identity) ([]string, *restError) {
	sources := make([]string, len(paths))
	for i, path := range paths {
		source, fail := s.filePath(path, id)
		if fail != nil {
			return nil, fail
		}
		if source == destination {
			return nil, restErrorf(http.StatusBadRequest, "source path %q cannot be the same as destination", source)
		}
		info, err := os.Stat(s.host(source))
		if err != nil {
			return nil, restErrorf(http.StatusNotFound, "source file not found: %s", source)
		}
		if !info.Mode().IsRegular() {
			return nil, restErrorf(http.StatusBadRequest, "source path is not a regular file: %s", source)
		}
		sources[i] = source
	}
	return sources, nil
}

// join writes a new file beside the destination and puts it in its place.
func (s *Server) join(sources []string, destination string, id *identity) *restError {
	host := s.host(destination)
	if err := s.makeDirs(filepath.Dir(host), id); err != nil {
		return restErrorf(http.StatusInternalServerError, "error ensuring directories: %s", s.errText(err))
	}
	name := host + ".e2b-compose." + strings.ToLower(rand.Text()) + "-" + strings.ToLower(rand.Text())[:9] + ".tmp" // 53 bytes
	temp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return restErrorf(http.StatusInternalServerError, "error creating temporary file: %s", s.errText(err))
	}
	defer os.Remove(name)
	defer temp.Close()
	for _, source := range sources {
		if err := s.appendFile(temp, source); err != nil {
			if errors.Is(err, errNoSpace) {
				return restErrorf(http.StatusInsufficientStorage, "not enough disk space available")
			}
			return restErrorf(http.StatusInternalServerError, "error composing file: %s", s.errText(err))
		}
	}
	err = errors.Join(temp.Close(), s.giveTo(name, id))
	if err == nil {
		err = os.Rename(name, host)
	}
	if err != nil {
		return restErrorf(http.StatusInternalServerError, "error finalizing compose: %s", s.errText(err))
	}
	return nil
}

func (s *Server) appendFile(dst io.Writer, source string) error {
	file, err := os.Open(s.host(source))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(&spaceWriter{w: dst, space: &s.space}, file)
	return err
}
