// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/envd-go/envd/client"
)

// recordedAnswer is what a real daemon answered on /files; there is one for
// each line of testdata/files.jsonl.
type recordedAnswer struct {
	Version, Case string
	Status        int
	Header        http.Header
	Body, Hex     string
}

func recordedAnswers(t *testing.T) map[string]map[string]recordedAnswer {
	t.Helper()
	data, err := os.ReadFile("testdata/files.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]recordedAnswer{}
	for line := range bytes.Lines(data) {
		var a recordedAnswer
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		if a.Hex != "" {
			raw, err := hex.DecodeString(a.Hex)
			if err != nil {
				t.Fatal(err)
			}
			a.Body = string(raw)
		}
		if all[a.Case] == nil {
			all[a.Case] = map[string]recordedAnswer{}
		}
		all[a.Case][a.Version] = a
	}
	return all
}

func (a recordedAnswer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	maps.Copy(w.Header(), a.Header)
	w.Header().Del("Content-Length")
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body)
}

// errAny is any error.
var errAny = errors.New("any error")

// What real daemons answered means what it meant.
func TestGoldenFiles(t *testing.T) {
	read := func(want string, opts ...client.TransferOption) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			got, err := c.ReadFile(ctx, "/w/file", opts...)
			if err == nil && string(got) != want {
				err = fmt.Errorf("ReadFile = %q, want %q", got, want)
			}
			return err
		}
	}
	write := func(opts ...client.TransferOption) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			return c.WriteFile(ctx, "/w/file", []byte("content"), opts...)
		}
	}
	hello := read("hello world\n")
	uploadTwo := func(ctx context.Context, c *client.Client) error {
		return c.UploadFiles(ctx, []client.UploadFile{{Path: "/w/up/m1", Reader: strings.NewReader("1")}, {Path: "/w/up/m2", Reader: strings.NewReader("2")}})
	}
	old := []string{"0.2.0", "0.3.7", "0.5.2"}
	oldest := []string{"0.2.0", "0.3.7"}
	tests := []struct {
		name string
		call func(context.Context, *client.Client) error
		want error
		// except are versions that give another error.
		except []string
		other  error
	}{
		{"files_get", hello, nil, nil, nil},
		{"files_get_no_user", hello, nil, oldest, fs.ErrInvalid},
		{"files_get_unicode", read("u"), nil, nil, nil},
		{"files_get_gzip", read("hello world\n", client.WithGzip()), nil, nil, nil},
		{"files_get_identity_q0", hello, errAny, old, nil},
		{"files_get_bad_user", hello, client.ErrUnauthenticated, nil, nil},
		{"files_get_dir", hello, syscall.EISDIR, nil, nil},
		{"files_get_missing", hello, fs.ErrNotExist, nil, nil},
		{"files_get_proc", hello, errors.ErrUnsupported, nil, nil},
		{"files_get_range", hello, errAny, nil, nil},
		{"files_head", hello, errAny, nil, nil},
		{"auth_files_bad_signature", hello, client.ErrUnauthenticated, nil, nil},
		{"auth_files_expired", hello, client.ErrUnauthenticated, nil, nil},
		{"auth_files_no_signature", hello, client.ErrUnauthenticated, nil, nil},
		{"auth_files_signed", hello, nil, nil, nil},
		{"auth_files_signed_exp", hello, nil, nil, nil},
		{"files_post_multipart", write(), nil, nil, nil},
		{"files_post_octet", write(), nil, old, errAny},
		{"files_post_octet_metadata", write(client.WithMetadata(map[string]string{"owner-name": "Alice"})), nil, old, errAny},
		{"files_post_gzip_multipart", write(client.WithGzip()), nil, old, errors.ErrUnsupported},
		{"files_post_bad_user", write(), client.ErrUnauthenticated, nil, nil},
		{"files_post_dir", write(), syscall.EISDIR, nil, nil},
		{"files_post_enospc", write(), client.ErrNoSpace, nil, nil},
		{"files_post_text_plain", write(), errAny, nil, nil},
		{"files_post_truncated_multipart", write(), errAny, nil, nil},
		{"files_post_wrong_field", write(), errAny, nil, nil},
		{"files_post_two_parts", uploadTwo, nil, nil, nil},
		{"files_post_two_parts_same_path", uploadTwo, fs.ErrInvalid, nil, nil},
		{"files_compose", func(ctx context.Context, c *client.Client) error { return c.Compose(ctx, "/w/up/out", "/w/part") }, nil, old, errAny},
	}
	recorded := recordedAnswers(t)
	for _, tt := range tests {
		for version, answer := range recorded[tt.name] {
			t.Run(tt.name+"/"+version, func(t *testing.T) {
				err := tt.call(t.Context(), serve(t, answer.ServeHTTP))
				want := tt.want
				if slices.Contains(tt.except, version) {
					want = tt.other
				}
				if (err == nil) != (want == nil) || want != nil && want != errAny && !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
				te, ok := errors.AsType[*client.TransferError](err)
				if err != nil && !ok {
					t.Errorf("got %v, want a *TransferError", err)
				}
				lost := tt.name == "files_post_truncated_multipart" || tt.name == "files_post_enospc" && !slices.Contains(oldest, version)
				if ok && te.Incomplete != lost {
					t.Errorf("got %v, Incomplete should be %v", err, lost)
				}
			})
		}
		delete(recorded, tt.name)
	}
	if len(recorded) > 0 {
		t.Errorf("no test for %q", slices.Collect(maps.Keys(recorded)))
	}
}
