// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"testing"
)

func TestContentRange(t *testing.T) {
	tests := []struct {
		value string
		want  contentRange
		ok    bool
	}{
		{"bytes 0-9/100", contentRange{0, 9, 100}, true},
		{"Bytes 5-5/6", contentRange{5, 5, 6}, true},
		{"bytes 0-9/*", contentRange{0, 9, -1}, true},
		{"bytes 0-1234567890123456789/*", contentRange{}, false},
		{"", contentRange{}, false},
		{"bytes */100", contentRange{}, false},
		{"bytes 9-0/100", contentRange{}, false},
		{"bytes 0-100/100", contentRange{}, false},
		{"bytes -1-5/100", contentRange{}, false},
		{"bytes +0-5/100", contentRange{}, false},
		{"bytes 0-5", contentRange{}, false},
		{"items 0-5/100", contentRange{}, false},
		{"bytes 0-5/100,200", contentRange{}, false},
	}
	for _, tt := range tests {
		got, ok := parseContentRange(tt.value)
		if got != tt.want || ok != tt.ok {
			t.Errorf("parseContentRange(%q) = %v, %v, want %v, %v", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	for _, seed := range []string{"bytes 0-9/100", "bytes 0-9/*", "bytes */1", "bytes 9-0/3", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		r, ok := parseContentRange(value)
		if ok && (r.start < 0 || r.end < r.start || r.size >= 0 && r.end >= r.size) {
			t.Errorf("parseContentRange(%q) = %+v", value, r)
		}
	})
}

func TestParseStored(t *testing.T) {
	tests := []struct {
		name, data string
		want       int // files, or -1 for an error
	}{
		{"one", `[{"name":"a","path":"/a","type":"file"}]`, 1},
		{"none", `[]`, 0},
		{"metadata", `[{"name":"a","path":"/a","type":"file","metadata":{"k":"v"}}]`, 1},
		{"unknown fields", `[{"name":"a","path":"/a","type":1,"extra":[{}]}]`, 1},
		{"two documents", "{\"code\":500,\"message\":\"x\"}\n[]", -1},
		{"a second document", "[{\"name\":\"a\"}]\n[]", 1},
		{"text", "ok", -1},
		{"nothing", "", -1},
		{"a number", "7", -1},
		{"wrong type", `[{"name":7}]`, -1},
		{"cut", `[{"name":"a"`, -1},
	}
	for _, tt := range tests {
		got, err := parseStored([]byte(tt.data))
		if tt.want < 0 && err == nil || tt.want >= 0 && (err != nil || len(got) != tt.want) {
			t.Errorf("%s: parseStored = %v, %v, want %d files", tt.name, got, err, tt.want)
		}
	}
}

func FuzzParseStored(f *testing.F) {
	f.Add([]byte(`[{"name":"a","path":"/a","type":"file"}]`))
	f.Add([]byte("{\"code\":500,\"message\":\"x\"}\n[]"))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		stored, err := parseStored(data)
		if err == nil && len(stored) > len(data) {
			t.Errorf("%d files in %d bytes", len(stored), len(data))
		}
		if _, failed := errorFields(data); failed && err == nil {
			t.Errorf("%q is both an error and a success", data)
		}
	})
}

func TestPattern(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string // a slash at the end marks a directory
	}{
		{"*.go", []string{"a.go", "x/a.go", "x/y/.go"}, []string{"a.gox", "a.go/b"}},
		{"x/", []string{"x/", "a/x/"}, []string{"x", "x/y", "ax/"}},
		{"/x", []string{"x", "x/"}, []string{"a/x"}},
		{"a/b", []string{"a/b", "a/b/"}, []string{"x/a/b", "a/b/c", "a"}},
		{"a/**", []string{"a/b", "a/b/c", "a/b/"}, []string{"a/", "b/a"}},
		{"**/b", []string{"b", "a/b", "a/c/b"}, []string{"b/a", "ab"}},
		{"a/**/b", []string{"a/b", "a/x/b", "a/x/y/b"}, []string{"a/b/c", "x/a/b"}},
		{"a/*/c", []string{"a/b/c"}, []string{"a/c", "a/b/b/c"}},
		{"**/a/**/b", []string{"a/b", "x/a/y/b", "a/a/b/b"}, []string{"a", "b"}},
		{"[a-c]?", []string{"a1", "x/b2"}, []string{"d1", "a"}},
		{`\*`, []string{"*"}, []string{"a"}},
	}
	for _, tt := range tests {
		p, err := parsePattern(tt.pattern)
		if err != nil {
			t.Errorf("parsePattern(%q): %v", tt.pattern, err)
			continue
		}
		for _, list := range []struct {
			names []string
			want  bool
		}{{tt.yes, true}, {tt.no, false}} {
			for _, name := range list.names {
				rel, isDir := strings.CutSuffix(name, "/")
				if got := p.match(rel, isDir); got != list.want {
					t.Errorf("%q matches %q: %v, want %v", tt.pattern, name, got, list.want)
				}
			}
		}
	}
	for _, bad := range []string{"", "/", "a//b", "[", "a/[x", `\`} {
		if _, err := parsePattern(bad); !errors.Is(err, path.ErrBadPattern) {
			t.Errorf("parsePattern(%q) = %v, want path.ErrBadPattern", bad, err)
		}
	}
}

// matchSlowly is matchSegments as one would say it.
func matchSlowly(want, have []string) bool {
	if len(want) == 0 {
		return len(have) == 0
	}
	if want[0] == anySegments {
		return matchSlowly(want[1:], have) || len(have) > 0 && matchSlowly(want, have[1:])
	}
	return len(have) > 0 && matchSegment(want[0], have[0]) && matchSlowly(want[1:], have[1:])
}

func FuzzPattern(f *testing.F) {
	f.Add("a/**/b", "a/x/b")
	f.Add("**/x/**/**/y", "x/x/y/y")
	f.Add("*.go", "a.go")
	f.Add("**/a/*/**", "a/b/a/c")
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := parsePattern(text)
		if err != nil || len(p.segments) > 8 || strings.Count(name, "/") > 8 {
			return
		}
		have := strings.Split(name, "/")
		if got, want := matchSegments(p.segments, have), matchSlowly(p.segments, have); got != want {
			t.Errorf("%q matches %q: %v, want %v", text, name, got, want)
		}
		p.match(name, true)
	})
}

// Whatever a file is called, the name arrives.
func FuzzMultipart(f *testing.F) {
	f.Add("plain", "content")
	f.Add(`a"b\c`, "")
	f.Add("new\nline\r\n", "--envd-\r\n")
	f.Add("\xff\xfe", "x")
	f.Add("ünï", "\x00")
	f.Fuzz(func(t *testing.T, name, content string) {
		if checkFilePath(name) != nil {
			return
		}
		o, err := newTransferOptions(optsUploadFiles, nil)
		if err != nil {
			t.Fatal(err)
		}
		src, err := newSource(t.Context(), name, strings.NewReader(content), o)
		if err != nil {
			t.Fatal(err)
		}
		body := newUploadBody(nil, false, []part{{filename: name, src: src}}, o, newStallGuard(0, nil, nil))
		req := &http.Request{Header: http.Header{}}
		body.describe(req)
		raw, err := io.ReadAll(body)
		if err != nil || int64(len(raw)) != req.ContentLength {
			t.Fatalf("the body has %d bytes, %d were announced: %v", len(raw), req.ContentLength, err)
		}
		_, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
		if err != nil {
			t.Fatal(err)
		}
		part, err := multipart.NewReader(bytes.NewReader(raw), params["boundary"]).NextPart()
		if err != nil {
			t.Fatal(err)
		}
		_, disposition, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil || disposition["filename"] != name {
			t.Errorf("%q arrives as %q: %v", name, disposition["filename"], err)
		}
		if got, err := io.ReadAll(part); err != nil || string(got) != content {
			t.Errorf("content %q arrives as %q: %v", content, got, err)
		}
	})
}

func TestGzipReader(t *testing.T) {
	for _, size := range []int{0, 1, 32 << 10, 1 << 20} {
		data := bytes.Repeat([]byte("abcdefgh"), size/8+1)[:size]
		zr, err := gzip.NewReader(newGzipReader(bytes.NewReader(data)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(zr); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes come back as %d: %v", size, len(got), err)
		}
	}
}

// A sandbox whose names this machine cannot tell apart overwrites nothing.
func TestCaseCollision(t *testing.T) {
	plan := &treePlan{opts: &treeOptions{keepGoing: true}}
	w := &remoteWalk{remote: "/r", plan: plan, foldsCase: true, seen: map[string]string{}}
	for _, rel := range []string{"Makefile", "makefile", "dir/a", "DIR/A", "dir/b"} {
		if err := w.take(treeItem{rel: rel}); err != nil && err != errTaken {
			t.Fatal(err)
		}
	}
	if len(plan.items) != 3 || len(plan.errs) != 2 {
		t.Errorf("%d items and errors %v, want 3 and 2", len(plan.items), plan.errs)
	}
}

func TestRelativeLink(t *testing.T) {
	for _, tt := range []struct{ rel, target, want string }{
		{"l", "f", "f"}, {"l", "d/f", "d/f"}, {"d/l", "f", "../f"}, {"d/l", "d/f", "f"}, {"d/l", "d", "."},
		{"d/l", "", ".."}, {"l", "", "."}, {"l", ".", "."}, {"a/b/c/l", "a/x/y", "../../x/y"}, {"a/b/l", "a", ".."}, {"ab/l", "a/f", "../a/f"},
	} {
		if got := relativeLink(tt.rel, tt.target); got != tt.want {
			t.Errorf("relativeLink(%q, %q) = %q, want %q", tt.rel, tt.target, got, tt.want)
		}
	}
}
