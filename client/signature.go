// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"time"
)

// SignedDownloadURL returns an address from which anybody can download the file
// for so long, with a plain GET and without the access token; 0 means until the
// token changes. The lifetime is rounded up to whole seconds and counts by the
// clock of this machine until it is looked at by the sandbox's.
//
// Nothing is sent. The client must have an access token to sign with, and the
// address is for the client's user: the path is resolved as theirs. Where a
// gateway wants headers of its own, the address alone will not do.
func (c *Client) SignedDownloadURL(path string, lifetime time.Duration) (string, error) {
	return c.signedURL("sign download of", "read", path, lifetime)
}

// SignedUploadURL returns an address to which anybody can upload the file for
// so long, with a POST of a multipart form whose field "file" has the content;
// from envd 0.5.7 on a bare body of type application/octet-stream will do as
// well. It is as [Client.SignedDownloadURL] otherwise.
//
//	curl -F file=@report.pdf "$url"
func (c *Client) SignedUploadURL(path string, lifetime time.Duration) (string, error) {
	return c.signedURL("sign upload of", "write", path, lifetime)
}

func (c *Client) signedURL(op, operation, path string, lifetime time.Duration) (string, error) {
	fail := func(err error) (string, error) { return "", &fs.PathError{Op: op, Path: path, Err: err} }
	// A signature for uploads to the empty path would be one for every path.
	if err := checkFilePath(path); err != nil {
		return fail(err)
	}
	if lifetime < 0 {
		return fail(fmt.Errorf("lifetime %v is negative: %w", lifetime, fs.ErrInvalid))
	}
	if c.config.token == "" {
		return fail(errors.New("client has no access token to sign with"))
	}
	query := url.Values{"path": {path}}
	expires := ""
	if lifetime > 0 {
		expires = strconv.FormatInt(expiry(time.Now(), lifetime), 10)
		query.Set("signature_expiration", expires)
	}
	query.Set("signature", sign(path, operation, c.user, c.config.token, expires))
	return c.filesURL(query), nil
}

// expiry returns the second in which a lifetime is over, rounded up.
func expiry(now time.Time, lifetime time.Duration) int64 {
	return now.Add(lifetime + time.Second - 1).Unix()
}

// sign returns the signature that lets its bearer do the operation. The parts
// are joined as they are sent; expires is "" where there is no limit.
func sign(path, operation, user, token, expires string) string {
	payload := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		payload += ":" + expires
	}
	sum := sha256.Sum256([]byte(payload))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
