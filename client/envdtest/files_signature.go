// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// checkSignature lets a request to /files through that carries the token or a
// signature made with it. operation is "read" or "write".
func (s *Server) checkSignature(r *http.Request, f *fileRequest, operation string) *restError {
	expiration, expires := int64(0), f.expiration != ""
	if expires {
		n, err := strconv.ParseInt(f.expiration, 10, 64)
		if err != nil {
			return &restError{http.StatusBadRequest, "Invalid format for parameter signature_expiration: error binding string parameter: " + err.Error(), true}
		}
		expiration = n
	}
	token, set := s.settings.accessToken()
	if !set {
		return nil
	}
	switch given := r.Header.Get(tokenHeader); {
	case given == token && given != "":
		return nil
	case given != "":
		return restErrorf(http.StatusUnauthorized, "access token present in header but does not match")
	case f.signature == "":
		return restErrorf(http.StatusUnauthorized, "missing signature query parameter")
	}
	parts := []string{f.path, operation, f.username, token}
	if expires {
		parts = append(parts, strconv.FormatInt(expiration, 10))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	if subtle.ConstantTimeCompare([]byte(want), []byte(f.signature)) == 0 {
		return restErrorf(http.StatusUnauthorized, "invalid signature")
	}
	if expires && expiration < time.Now().Unix() {
		return restErrorf(http.StatusUnauthorized, "signature is already expired")
	}
	return nil
}

// accessToken returns the token, and whether there is one.
func (s *settings) accessToken() (token string, set bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token, s.tokenSet
}
