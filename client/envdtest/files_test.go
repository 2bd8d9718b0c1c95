// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envd-go/envd/client/envdtest"
)

// ask sends a request as root and returns the status and the body.
func ask(t *testing.T, srv *envdtest.Server, method, path, contentType, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("root", "")
	req.Header.Set("Content-Type", contentType)
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func rpc(t *testing.T, srv *envdtest.Server, method, body string) (int, string) {
	t.Helper()
	return ask(t, srv, http.MethodPost, "/filesystem.Filesystem/"+method, "application/json", body)
}

func filesPath(path string) string {
	return "/files?" + url.Values{"path": {path}, "username": {"root"}}.Encode()
}

func multipartBody(content string) (contentType, body string) {
	return "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n" + content + "\r\n--b--\r\n"
}

func upload(t *testing.T, srv *envdtest.Server, path, content string) (int, string) {
	t.Helper()
	contentType, body := multipartBody(content)
	return ask(t, srv, http.MethodPost, filesPath(path), contentType, body)
}

// With a root, paths of the sandbox are below it, absolute, relative and home
// alike, and commands run there.
func TestWithRoot(t *testing.T) {
	root := t.TempDir()
	srv := newServer(t, envdtest.WithRoot(root))
	if status, body := upload(t, srv, "/data/file.txt", "hello"); status != http.StatusOK {
		t.Fatalf("upload: %d %s", status, body)
	}
	if got, err := os.ReadFile(filepath.Join(root, "data/file.txt")); err != nil || string(got) != "hello" {
		t.Errorf("the file below the root has %q, %v", got, err)
	}
	if got, err := os.ReadFile(srv.Path("/data/file.txt")); err != nil || string(got) != "hello" {
		t.Errorf("the file at Path has %q, %v", got, err)
	}
	status, body := rpc(t, srv, "Stat", `{"path":"/data/file.txt"}`)
	if status != http.StatusOK || !strings.Contains(body, `"/data/file.txt"`) || strings.Contains(body, root) {
		t.Errorf("Stat: %d %s", status, body)
	}
	status, body = rpc(t, srv, "Stat", `{"path":"/data/none"}`)
	if status != http.StatusNotFound || strings.Contains(body, root) {
		t.Errorf("Stat of nothing: %d %s", status, body)
	}
	if status, body = rpc(t, srv, "Stat", `{"path":"/../../etc/passwd"}`); status != http.StatusNotFound {
		t.Errorf("Stat above the root: %d %s", status, body)
	}
	if status, body := upload(t, srv, "relative.txt", "home"); status != http.StatusOK || !strings.Contains(body, "/root/relative.txt") {
		t.Fatalf("upload to the home directory: %d %s", status, body)
	}
	c := newClient(srv)
	srv.HandleCommand("where", func(p *envdtest.Proc) int {
		fmt.Fprint(p.Stdout, p.Dir)
		if rel, err := filepath.Rel(root, p.Env["HOME"]); err != nil || !filepath.IsLocal(rel) {
			return 1
		}
		return 0
	})
	wantEnd(t, run(t, c, "where"), 0, "exit status 0")
}

// A full disk refuses what does not fit: late with a part of it stored, or
// before 0.4.3 at once.
func TestWithFreeSpace(t *testing.T) {
	tests := []struct {
		version string
		path    string
		content string
		status  int
		stored  int // bytes on disk
	}{
		{"0.6.13", "/small", strings.Repeat("x", 10), http.StatusOK, 10},
		{"0.6.13", "/large", strings.Repeat("x", 200), http.StatusInsufficientStorage, 100},
		{"0.5.2", "/large", strings.Repeat("x", 200), http.StatusInsufficientStorage, 100},
	}
	for _, tt := range tests {
		t.Run(tt.version+tt.path, func(t *testing.T) {
			srv := newServer(t, envdtest.WithVersion(tt.version), envdtest.WithRoot(t.TempDir()), envdtest.WithFreeSpace(100))
			status, body := upload(t, srv, tt.path, tt.content)
			if status != tt.status {
				t.Errorf("status %d %s, want %d", status, body, tt.status)
			}
			if info, err := os.Stat(srv.Path(tt.path)); err != nil || info.Size() != int64(tt.stored) {
				t.Errorf("on disk: %v, %v, want %d bytes", info, err, tt.stored)
			}
		})
	}
}

// The FC dialect writes numbers, an empty 404 for Stat, and an empty listing
// for a directory that is missing.
func TestFCFiles(t *testing.T) {
	srv := newServer(t, envdtest.WithDialect(envdtest.FC), envdtest.WithRoot(t.TempDir()))
	if status, body := upload(t, srv, "/dir/file", "12345"); status != http.StatusOK {
		t.Fatalf("upload: %d %s", status, body)
	}
	_, body := rpc(t, srv, "ListDir", `{"path":"/dir"}`)
	var list struct {
		Entries []struct {
			Type json.Number
			Size json.Number
		}
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Entries) != 1 || list.Entries[0].Type != "1" || list.Entries[0].Size != "5" {
		t.Errorf("ListDir = %s, %v", body, err)
	}
	if strings.Contains(body, `"5"`) {
		t.Errorf("the size is a text: %s", body)
	}
	if status, body := rpc(t, srv, "Stat", `{"path":"/none"}`); status != http.StatusNotFound || body != "" {
		t.Errorf("Stat of nothing: %d %q", status, body)
	}
	if status, body := rpc(t, srv, "ListDir", `{"path":"/none"}`); status != http.StatusOK || body != `{"entries":[]}` {
		t.Errorf("ListDir of nothing: %d %q", status, body)
	}
}

// Up to 0.5.2 a multipart body that breaks off is answered with two documents.
func TestTwoDocuments(t *testing.T) {
	for version, want := range map[string]bool{"0.5.2": true, "0.6.13": false} {
		srv := newServer(t, envdtest.WithVersion(version), envdtest.WithRoot(t.TempDir()))
		status, body := ask(t, srv, http.MethodPost, filesPath("/x"), "multipart/form-data; boundary=b", "--b\r\nnonsense")
		if status != http.StatusInternalServerError || strings.HasSuffix(body, "[]") != want {
			t.Errorf("%s: %d %q, two documents: want %v", version, status, body, want)
		}
	}
}

// A fault cuts a download where it should.
func TestCutDownload(t *testing.T) {
	srv := newServer(t, envdtest.WithRoot(t.TempDir()))
	if status, body := upload(t, srv, "/file", strings.Repeat("x", 100_000)); status != http.StatusOK {
		t.Fatalf("upload: %d %s", status, body)
	}
	srv.Inject(envdtest.Fault{Procedure: "/files", Action: envdtest.Cut, After: envdtest.Amount{Bytes: 1000}})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+filesPath("/file"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil || len(data) > 1000 {
		t.Errorf("read %d bytes, %v; want a break after 1000 at most", len(data), err)
	}
}
