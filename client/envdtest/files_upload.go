// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/envd-go/envd/internal/envdversion"
)

// storedFile is what an upload says of a file that it stored.
type storedFile struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload is one POST /files on its way.
type upload struct {
	srv      *Server
	request  *fileRequest
	user     *identity
	metadata map[string]string
	body     io.Reader
	length   int64 // of the body, -1 where it is not known
	stored   []storedFile
}

// serveUpload answers POST /files.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request) {
	u, fail := s.newUpload(r)
	var second bool // the answer has two documents
	if fail == nil {
		fail, second = u.store(r)
	}
	if fail != nil {
		fail.write(w)
		if second {
			_, _ = io.WriteString(w, "[]")
		}
		return
	}
	if u.stored == nil {
		u.stored = []storedFile{}
	}
	answer, err := json.Marshal(u.stored)
	if err != nil {
		restErrorf(http.StatusInternalServerError, "%v", err).write(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(answer)
}

func (s *Server) newUpload(r *http.Request) (*upload, *restError) {
	f, fail := s.parseFileRequest(r)
	if fail == nil {
		fail = s.checkSignature(r, f, "write")
	}
	if fail != nil {
		return nil, fail
	}
	u := &upload{srv: s, request: f, body: r.Body, length: r.ContentLength}
	if s.cfg.version.Has(envdversion.FilesGzip) {
		if fail := u.decompress(r.Header.Get("Content-Encoding")); fail != nil {
			return nil, fail
		}
	}
	if u.user, fail = s.fileUser(f); fail != nil {
		return nil, fail
	}
	if s.cfg.version.Has(envdversion.Metadata) {
		if u.metadata, fail = metadataHeaders(r.Header); fail != nil {
			return nil, fail
		}
	}
	return u, nil
}

func (u *upload) decompress(encoding string) *restError {
	switch strings.ToLower(encoding) {
	case "", "identity":
		return nil
	case encodingGzip:
		zr, err := gzip.NewReader(u.body)
		if err != nil {
			return restErrorf(http.StatusBadRequest, "error decompressing request body: failed to create gzip reader: %v", err)
		}
		u.body, u.length = zr, -1
		return nil
	}
	return restErrorf(http.StatusBadRequest, "error decompressing request body: unsupported Content-Encoding: %s, supported: [gzip]", encoding)
}

// Limits of metadata.
const (
	maxMetadataKey   = 246
	maxMetadataTotal = 4096
)

// metadataHeaders reads the metadata from the headers that carry it.
func metadataHeaders(header http.Header) (map[string]string, *restError) {
	metadata := map[string]string{}
	total := 0
	for name, values := range header {
		key, ok := strings.CutPrefix(strings.ToLower(name), "x-metadata-")
		if !ok || key == "" {
			continue
		}
		value := values[0]
		switch {
		case len(key) > maxMetadataKey:
			return nil, restErrorf(http.StatusBadRequest, "invalid metadata: key %q exceeds %d bytes", key, maxMetadataKey)
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }):
			return nil, restErrorf(http.StatusBadRequest, "invalid metadata: value of %q is not printable ASCII", key)
		}
		metadata[key] = value
		total += len(attributePrefix) + len(key) + len(value)
	}
	if total > maxMetadataTotal {
		return nil, restErrorf(http.StatusBadRequest, "invalid metadata: total metadata size %d exceeds %d bytes", total, maxMetadataTotal)
	}
	return metadata, nil
}

// store stores what the body holds. second says that the error is followed by
// an empty list.
func (u *upload) store(r *http.Request) (fail *restError, second bool) {
	v := u.srv.cfg.version
	contentType := r.Header.Get("Content-Type")
	media, params, _ := mime.ParseMediaType(contentType)
	switch {
	case strings.HasPrefix(media, "multipart/"):
		if params["boundary"] == "" {
			return restErrorf(http.StatusInternalServerError, "error parsing multipart form: no multipart boundary param in Content-Type"), false
		}
		return u.storeParts(multipart.NewReader(u.body, params["boundary"]))
	case !v.Has(envdversion.RawUpload):
		return restErrorf(http.StatusInternalServerError, "error parsing multipart form: request Content-Type isn't multipart/form-data"), false
	case media != "application/octet-stream":
		return restErrorf(http.StatusBadRequest, "unsupported content type: %s, expected multipart/form-data or application/octet-stream", contentType), false
	case !u.request.hasPath:
		return restErrorf(http.StatusBadRequest, "path query parameter is required for raw body upload"), false
	}
	return u.storeFile(u.request.path, u.body, u.length), false
}

func (u *upload) storeParts(form *multipart.Reader) (fail *restError, second bool) {
	for {
		part, err := form.NextRawPart()
		if err == io.EOF {
			return nil, false
		}
		if err != nil {
			return restErrorf(http.StatusInternalServerError, "error reading form: %v", err), !u.srv.cfg.version.Has(envdversion.FilesGzip)
		}
		if part.FormName() != "file" {
			continue
		}
		path, fail := u.partPath(part)
		if fail == nil {
			fail = u.storeFile(path, part, -1)
		}
		if fail != nil {
			return fail, false
		}
	}
}

// partPath is where a part goes: to the path of the query, or to the whole file
// name of the part.
func (u *upload) partPath(part *multipart.Part) (string, *restError) {
	if u.request.hasPath {
		return u.request.path, nil
	}
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	name, ok := params["filename"]
	if err != nil || !ok {
		return "", restErrorf(http.StatusBadRequest, "error getting filename: filename not found in Content-Disposition header")
	}
	return name, nil
}

func (u *upload) storeFile(name string, body io.Reader, length int64) *restError {
	path, fail := u.srv.filePath(name, u.user)
	if fail != nil {
		return fail
	}
	if fail := u.checkTwice(path); fail != nil {
		return fail
	}
	if fail := u.prepare(path); fail != nil {
		return fail
	}
	if fail := u.write(path, body, length); fail != nil {
		return fail
	}
	file := storedFile{Name: filepath.Base(path), Path: path, Type: "file"}
	if u.srv.cfg.version.Has(envdversion.Metadata) {
		host := u.srv.host(path)
		u.srv.setMetadata(host, u.metadata)
		file.Metadata = u.srv.metadataOf(host)
	}
	u.stored = append(u.stored, file)
	return nil
}

// checkTwice refuses a second file for the same path.
func (u *upload) checkTwice(path string) *restError {
	for i, file := range u.stored {
		if file.Path != path {
			continue
		}
		text := fmt.Sprintf("you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", path)
		var others []string
		for j, other := range u.stored {
			if j != i {
				others = append(others, other.Path)
			}
		}
		if len(others) > 0 {
			text += ", also the following files were uploaded: " + strings.Join(others, ", ")
		}
		return &restError{status: http.StatusBadRequest, text: text}
	}
	return nil
}

// prepare makes the directories above the file.
func (u *upload) prepare(path string) *restError {
	host := u.srv.host(path)
	dir := filepath.Dir(host)
	if strings.HasSuffix(path, "/") {
		dir = filepath.Clean(host) // and then it is a directory
	}
	if err := u.srv.makeDirs(dir, u.user); err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			return restErrorf(http.StatusInternalServerError, "error ensuring directories: path is a file: %s", u.srv.guest(dir))
		}
		return restErrorf(http.StatusInternalServerError, "error ensuring directories: failed to create directory: %s", u.srv.errText(err))
	}
	info, err := os.Stat(host)
	switch {
	case err == nil && info.IsDir():
		return restErrorf(http.StatusBadRequest, "path is a directory: %s", path)
	case err != nil && !os.IsNotExist(err):
		return restErrorf(http.StatusInternalServerError, "error getting file info: %s", u.srv.errText(err))
	}
	return nil
}

// write writes the file in place: the old contents are gone at once, and what
// came stays there if the rest does not.
func (u *upload) write(path string, body io.Reader, length int64) *restError {
	s := u.srv
	v := s.cfg.version
	if length >= 0 && !v.Has(envdversion.LateNoSpace) && !s.space.fits(length) {
		return restErrorf(http.StatusInsufficientStorage, "not enough disk space on '%s': %d bytes required, %d bytes free", filepath.Dir(path), length, s.space.free())
	}
	host := s.host(path)
	file, err := os.OpenFile(host, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return restErrorf(http.StatusInternalServerError, "error opening file: %s", s.errText(err))
	}
	defer file.Close()
	if err := s.giveTo(host, u.user); err != nil {
		return restErrorf(http.StatusInternalServerError, "error changing file ownership: %s", s.errText(err))
	}
	_, err = io.Copy(&spaceWriter{w: file, space: &s.space}, body)
	switch {
	case errors.Is(err, errNoSpace) && length >= 0:
		return restErrorf(http.StatusInsufficientStorage, "attempted to write %d bytes: not enough disk space available", length)
	case errors.Is(err, errNoSpace):
		return restErrorf(http.StatusInsufficientStorage, "attempted to write bytes: not enough disk space available")
	case err != nil && !v.Has(envdversion.DefaultUser):
		return restErrorf(http.StatusInternalServerError, "error reading file: %s", s.errText(err))
	case err != nil:
		return restErrorf(http.StatusInternalServerError, "error writing file: %s", s.errText(err))
	}
	if err := file.Close(); err != nil {
		return restErrorf(http.StatusInternalServerError, "error writing file: %s", s.errText(err))
	}
	return nil
}

// diskSpace is the free space of the pretended disk.
type diskSpace struct {
	mu      sync.Mutex
	limited bool
	left    int64
}

func (d *diskSpace) fits(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.limited || n <= d.left
}

func (d *diskSpace) free() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left
}

// take takes n bytes, or as many as there are.
func (d *diskSpace) take(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.limited {
		return n
	}
	n = int(min(int64(n), d.left))
	d.left -= int64(n)
	return n
}

// spaceWriter writes as much as fits.
type spaceWriter struct {
	w     io.Writer
	space *diskSpace
}

func (s *spaceWriter) Write(p []byte) (int, error) {
	n := s.space.take(len(p))
	written, err := s.w.Write(p[:n])
	if err == nil && n < len(p) {
		err = errNoSpace
	}
	return written, err
}
