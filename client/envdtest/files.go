// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/internal/envdversion"
)

// restError is a failure of the plain HTTP half: JSON with a number for a code.
type restError struct {
	status int
	text   string
	plain  bool // a text, and not JSON
}

func (e *restError) Error() string { return e.text }

func restErrorf(status int, format string, args ...any) *restError {
	return &restError{status: status, text: fmt.Sprintf(format, args...)}
}

func (e *restError) write(w http.ResponseWriter) {
	header := w.Header()
	if e.plain {
		http.Error(w, e.text, e.status)
		return
	}
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(e.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": e.status, "message": e.text})
}

// fileRequest is what the query of a request to /files says.
type fileRequest struct {
	path       string
	hasPath    bool
	username   string
	hasUser    bool
	signature  string
	expiration string
}

// fileParams are the parameters that the query may have, once each.
var fileParams = []string{"path", "username", "signature", "signature_expiration"}

// parseFileRequest reads the query.
func (s *Server) parseFileRequest(r *http.Request) (*fileRequest, *restError) {
	query, _ := url.ParseQuery(r.URL.RawQuery) // what is malformed counts as absent
	for _, name := range fileParams {
		if len(query[name]) > 1 {
			return nil, &restError{http.StatusBadRequest, "Invalid format for parameter " + name + ": multiple values for single value parameter '" + name + "'", true}
		}
	}
	f := &fileRequest{
		path: query.Get("path"), hasPath: query.Has("path"),
		username: query.Get("username"), hasUser: query.Has("username"),
		signature: query.Get("signature"), expiration: query.Get("signature_expiration"),
	}
	if f.username == "" && !s.cfg.version.Has(envdversion.DefaultUser) {
		return nil, &restError{http.StatusBadRequest, "Query argument username is required, but not found", true}
	}
	return f, nil
}

// fileUser returns the user whose home relative paths start at and who owns
// what is made.
func (s *Server) fileUser(f *fileRequest) (*identity, *restError) {
	name := f.username
	if !f.hasUser {
		name = s.settings.user()
	}
	if id := s.lookup(name); id != nil {
		return id, nil
	}
	return nil, restErrorf(http.StatusUnauthorized, "error looking up user '%s': user: unknown user %s", name, name)
}

// filePath returns the path that a path in a request means.
func (s *Server) filePath(path string, id *identity) (string, *restError) {
	resolved, err := s.resolve(path, id)
	if err != nil {
		text := err.Error()
		if e, ok := err.(*connect.Error); ok {
			text = e.Message()
		}
		return "", restErrorf(http.StatusBadRequest, "error expanding and resolving path '%s': %s", path, text)
	}
	return resolved, nil
}

// serveDownload answers GET /files.
func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request) {
	path, fail := s.authorizeDownload(r)
	if fail != nil {
		fail.write(w)
		return
	}
	encoding, fail := s.downloadEncoding(r)
	if fail != nil {
		fail.write(w)
		return
	}
	info, fail := s.checkDownload(path)
	if fail != nil {
		fail.write(w)
		return
	}
	file, err := s.openFile(r.Context(), s.host(path), info)
	if errors.Is(err, context.Canceled) {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		restErrorf(http.StatusInternalServerError, "error opening file '%s': %s", path, s.errText(err)).write(w)
		return
	}
	defer file.Close()
	s.sendFile(w, r, path, file, info, encoding)
}

func (s *Server) authorizeDownload(r *http.Request) (string, *restError) {
	f, fail := s.parseFileRequest(r)
	if fail != nil {
		return "", fail
	}
	if fail := s.checkSignature(r, f, "read"); fail != nil {
		return "", fail
	}
	id, fail := s.fileUser(f)
	if fail != nil {
		return "", fail
	}
	return s.filePath(f.path, id)
}

// checkDownload says what stands against sending the path.
func (s *Server) checkDownload(path string) (fs.FileInfo, *restError) {
	info, err := os.Stat(s.host(path))
	switch {
	case os.IsNotExist(err):
		return nil, restErrorf(http.StatusNotFound, "path '%s' does not exist", path)
	case err != nil:
		return nil, restErrorf(http.StatusInternalServerError, "error checking if path exists '%s': %s", path, s.errText(err))
	case info.IsDir():
		return nil, restErrorf(http.StatusBadRequest, "path '%s' is a directory", path)
	}
	return info, nil
}

// downloadName is the file name for Content-Disposition.
func downloadName(path string) string { return filepath.Base(strings.TrimRight(path, "/")) }

// openFile opens a file. A FIFO opens when somebody writes to it, and goes on
// waiting for that when the client has left, as in real daemons.
func (s *Server) openFile(ctx context.Context, host string, info fs.FileInfo) (*os.File, error) {
	if info.Mode()&fs.ModeNamedPipe == 0 {
		return os.Open(host)
	}
	type opened struct {
		file *os.File
		err  error
	}
	result := make(chan opened, 1)
	s.fifos.add(host)
	// Nothing waits for it: a FIFO that was removed meanwhile cannot be released.
	go func() {
		defer s.fifos.remove(host)
		file, err := os.Open(host)
		select {
		case <-ctx.Done():
			_ = file.Close()
		default:
			result <- opened{file, err}
		}
	}()
	select {
	case r := <-result:
		return r.file, r.err
	case <-ctx.Done():
		select {
		case r := <-result:
			_ = r.file.Close()
		default:
		}
		return nil, context.Canceled
	}
}

// fifos are the FIFOs that are waited for.
type fifos struct {
	mu    sync.Mutex
	paths map[string]int
}

func (f *fifos) add(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paths == nil {
		f.paths = map[string]int{}
	}
	f.paths[path]++
}

func (f *fifos) remove(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paths[path]--; f.paths[path] <= 0 {
		delete(f.paths, path)
	}
}

// release ends the waiting, by being a writer for a moment.
func (f *fifos) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path := range f.paths {
		if file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
			defer file.Close()
		}
	}
}
