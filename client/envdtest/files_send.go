// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"cmp"
	"compress/gzip"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envd-go/envd/internal/envdversion"
)

const encodingGzip = "gzip"

// sendFile sends a file's contents.
func (s *Server) sendFile(w http.ResponseWriter, r *http.Request, path string, file *os.File, info fs.FileInfo, encoding string) {
	v := s.cfg.version
	header := w.Header()
	if v.Has(envdversion.ContentDisposition) {
		header.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": downloadName(path)}))
	}
	if v.Has(envdversion.FilesGzip) {
		header.Set("Vary", "Accept-Encoding")
	}
	if encoding == encodingGzip {
		sendCompressed(w, path, file)
		return
	}
	modTime := time.Now() // which makes conditional requests of old clients useless
	if v.Has(envdversion.FilesGzip) {
		modTime = info.ModTime()
	}
	http.ServeContent(w, r, path, modTime, file)
}

func sendCompressed(w http.ResponseWriter, path string, file io.Reader) {
	header := w.Header()
	header.Set("Content-Encoding", encodingGzip)
	header.Set("Content-Type", cmp.Or(mime.TypeByExtension(filepath.Ext(path)), "application/octet-stream"))
	zw := gzip.NewWriter(w)
	_, _ = io.Copy(zw, file) // a file that cannot be read looks complete, as in real daemons
	_ = zw.Close()
}

// conditional are the headers of requests that are never compressed.
var conditional = []string{"Range", "If-Modified-Since", "If-None-Match", "If-Range"}

// downloadEncoding chooses between gzip and identity.
func (s *Server) downloadEncoding(r *http.Request) (string, *restError) {
	if !s.cfg.version.Has(envdversion.FilesGzip) {
		return "", nil
	}
	accepted := parseEncodings(r.Header.Values("Accept-Encoding"))
	if slices.ContainsFunc(conditional, func(name string) bool { return r.Header.Get(name) != "" }) {
		if !accepted.identity() {
			return "", restErrorf(http.StatusNotAcceptable, "identity encoding not acceptable for Range or conditional request")
		}
		return "", nil
	}
	switch best := accepted.best(); {
	case best == encodingGzip:
		return encodingGzip, nil
	case best == "" && !accepted.identity():
		return "", restErrorf(http.StatusNotAcceptable, "error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]")
	}
	return "", nil
}

// encodings are the codings of an Accept-Encoding header with their weights,
// in the order in which they are written.
type encodings []struct {
	name   string
	weight float64
}

func parseEncodings(values []string) encodings {
	var all encodings
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			name, params, _ := strings.Cut(part, ";")
			name = strings.ToLower(strings.TrimSpace(name))
			if name == "" {
				continue
			}
			weight := 1.0
			if _, text, ok := strings.Cut(params, "q="); ok {
				if q, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil {
					weight = q
				}
			}
			all = append(all, struct {
				name   string
				weight float64
			}{name, weight})
		}
	}
	return all
}

// best returns gzip or identity, whichever is wanted more; the first of equals.
// It is empty where neither is named with a weight.
func (e encodings) best() string {
	best, weight := "", 0.0
	for _, coding := range e {
		if (coding.name == encodingGzip || coding.name == "identity") && coding.weight > weight {
			best, weight = coding.name, coding.weight
		}
	}
	return best
}

// identity reports whether the contents may come as they are.
func (e encodings) identity() bool {
	for _, name := range []string{"identity", "*"} {
		for _, coding := range e {
			if coding.name == name {
				return coding.weight > 0
			}
		}
	}
	return true
}
