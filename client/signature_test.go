// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envd-go/envd/client"
)

// What real daemons accepted.
func TestSignatureKnown(t *testing.T) {
	c, err := client.New("http://host.example/prefix", client.WithUser("user"), client.WithAccessToken(strings.Repeat("a1", 32)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.SignedDownloadURL("/w/file.txt", 0)
	want := "http://host.example/prefix/files?path=%2Fw%2Ffile.txt&signature=v1_8XuIZ9hzWT5FLaDNgixQAGOIPwEVGjaYAAEzHP0L1JI&username=user"
	if err != nil || got != want {
		t.Errorf("SignedDownloadURL = %s, %v\nwant %s", got, err, want)
	}
	synctest.Test(t, func(t *testing.T) {
		const expires = 4102444800
		time.Sleep(time.Until(time.Unix(expires-3600, 1)))
		got, err := c.SignedDownloadURL("/w/file.txt", time.Hour-time.Second)
		if err != nil {
			t.Fatal(err)
		}
		query := mustQuery(t, got)
		if e := query.Get("signature_expiration"); e != strconv.Itoa(expires) {
			t.Errorf("signature_expiration = %s, want %d", e, expires)
		}
		if s := query.Get("signature"); s != "v1_ZUl0TP9vwxVYl0xqixt/O5k7uutaHK/fCweRuuk4wkI" {
			t.Errorf("signature = %s", s)
		}
	})
}

func mustQuery(t *testing.T, text string) url.Values {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query()
}

func TestSignatureRefused(t *testing.T) {
	open, err := client.New("http://host.example")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New("http://host.example", client.WithAccessToken("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := open.SignedUploadURL("/a", 0); err == nil {
		t.Errorf("without a token: %s", got)
	}
	if _, err := c.SignedUploadURL("", 0); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("empty path: %v, want fs.ErrInvalid", err)
	}
	if _, err := c.SignedDownloadURL("/a", -time.Second); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("negative lifetime: %v, want fs.ErrInvalid", err)
	}
	got, err := c.SignedDownloadURL("/a b+c", 0)
	if err != nil || strings.Contains(got, "secret") || strings.Contains(got, "username") || !strings.Contains(got, "path=%2Fa%20b%2Bc") {
		t.Errorf("SignedDownloadURL = %s, %v", got, err)
	}
}

// Signed addresses work without the client, and only as long as they say.
func TestSignedURLs(t *testing.T) {
	eachLockedTarget(t, func(t *testing.T, c *client.Client, dir string) {
		hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		do := func(req *http.Request) (int, string) {
			t.Helper()
			resp, err := hc.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(body)
		}
		get := func(u string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
			if err != nil {
				t.Fatal(err)
			}
			return do(req)
		}
		post := func(u, content string) (int, string) {
			var b bytes.Buffer
			mw := multipart.NewWriter(&b)
			part, err := mw.CreateFormFile("file", "local name")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = part.Write([]byte(content))
			mw.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u, &b)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", mw.FormDataContentType())
			return do(req)
		}
		path := dir + "/with space+plus %41 ü"
		for _, lifetime := range []time.Duration{0, time.Minute} {
			up, err := c.SignedUploadURL(path, lifetime)
			if err != nil {
				t.Fatal(err)
			}
			if status, body := post(up, lifetime.String()); status != http.StatusOK {
				t.Errorf("upload for %v = %d %s", lifetime, status, body)
			}
			down, err := c.SignedDownloadURL(path, lifetime)
			if err != nil {
				t.Fatal(err)
			}
			if status, body := get(down); status != http.StatusOK || body != lifetime.String() {
				t.Errorf("download for %v = %d %s", lifetime, status, body)
			}
			if status, _ := get(up); status != http.StatusUnauthorized {
				t.Errorf("download with the signature of an upload = %d, want 401", status)
			}
			if status, _ := get(strings.Replace(down, "path=", "path=x", 1)); status != http.StatusUnauthorized {
				t.Errorf("download of another path = %d, want 401", status)
			}
		}
	})
}
