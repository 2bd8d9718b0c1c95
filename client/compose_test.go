// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"io/fs"
	"net/http"
	"testing"

	"github.com/envd-go/envd/client"
)

func TestCompose(t *testing.T) {
	eachTarget(t, func(t *testing.T, c *client.Client, dir string) {
		ctx := t.Context()
		write := func(name, text string) string {
			t.Helper()
			if err := c.WriteFile(ctx, dir+"/"+name, []byte(text)); err != nil {
				t.Fatal(err)
			}
			return dir + "/" + name
		}
		check := func(path, want string) {
			t.Helper()
			got, err := c.ReadFile(ctx, path)
			if err != nil || string(got) != want {
				t.Errorf("ReadFile(%s) = %q, %v, want %q", path, got, err, want)
			}
		}
		gone := func(paths ...string) {
			t.Helper()
			for _, path := range paths {
				if _, err := c.ReadFile(ctx, path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("ReadFile(%s) of a part = %v, want fs.ErrNotExist", path, err)
				}
			}
		}
		a, b, empty := write("a", "first,"), write("b", "second"), write("empty", "")
		dst := dir + "/new dir/dst"
		if err := c.Compose(ctx, dst, a, empty, b, a); err != nil {
			t.Fatalf("Compose: %v", err)
		}
		check(dst, "first,secondfirst,")
		gone(a, b, empty)

		a = write("a", "over")
		if err := c.Compose(ctx, dst, a); err != nil {
			t.Fatalf("Compose onto a file: %v", err)
		}
		check(dst, "over")
		gone(a)

		a = write("a", "kept")
		failures := []struct {
			name  string
			dst   string
			parts []string
			want  error
		}{
			{"no parts", dst, nil, fs.ErrInvalid},
			{"missing part", dst, []string{a, dir + "/missing"}, fs.ErrNotExist},
			{"part is the destination", a, []string{a}, fs.ErrInvalid},
			{"part is a directory", dst, []string{a, dir}, fs.ErrInvalid},
			{"destination is a directory", dir + "/new dir", []string{a}, fs.ErrExist},
			{"no destination", "", []string{a}, fs.ErrInvalid},
		}
		for _, tt := range failures {
			t.Run(tt.name, func(t *testing.T) {
				checkPathError(t, "Compose", c.Compose(ctx, tt.dst, tt.parts...), tt.dst, tt.want)
				check(a, "kept")
				check(dst, "over")
			})
		}
		leftovers(t, c, dir, t.TempDir())
	})
}

// A server that refuses, or a gateway that does, is not one that lacks the
// endpoint.
func TestComposeRefused(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   error
	}{
		{"token", http.StatusUnauthorized, `{"code":401,"message":"unauthorized access"}`, client.ErrUnauthenticated},
		{"sandbox", http.StatusNotFound, `{"message":"The sandbox was not found","code":404}`, client.ErrSandboxNotFound},
		{"no space", http.StatusInsufficientStorage, `{"code":507,"message":"not enough disk space available"}`, client.ErrNoSpace},
		{"a page", http.StatusOK, "<html><title>Welcome</title></html>", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			})
			err := c.Compose(t.Context(), "/dst", "/part")
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("Compose = %v, want one that matches %v", err, tt.want)
			}
			if calls != 1 {
				t.Errorf("the server was asked %d times", calls)
			}
		})
	}
}
