// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/envd-go/envd/internal/envdversion"
)

const (
	getFiles    = "GET /files"
	postFiles   = "POST /files"
	composePath = "POST /files/compose"
	rawType     = "application/octet-stream"
)

// filesURL is /files with a path and the user.
func (t *T) filesURL(path string, more ...string) string {
	q := url.Values{"path": {path}}
	if t.user != nil {
		q.Set("username", *t.user)
	}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return "/files?" + q.Encode()
}

func (t *T) get(path string, header ...string) *reply {
	return t.do(http.MethodGet, t.filesURL(path), nil, header...)
}

// part is one part of a multipart upload.
type part struct{ field, filename, content string }

func form(parts ...part) (contentType string, body []byte) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		disposition := fmt.Sprintf(`form-data; name="%s"`, p.field)
		if p.filename != "" {
			disposition += fmt.Sprintf(`; filename="%s"`, p.filename)
		}
		pw, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {disposition}, "Content-Type": {rawType}})
		if err != nil {
			panic(err) // a buffer takes everything
		}
		_, _ = pw.Write([]byte(p.content))
	}
	_ = w.Close()
	return w.FormDataContentType(), b.Bytes()
}

// post uploads content as multipart, which every version takes.
func (t *T) post(path, content string, header ...string) *reply {
	ct, body := form(part{"file", "upload", content})
	return t.do(http.MethodPost, t.filesURL(path), body, append([]string{"Content-Type", ct}, header...)...)
}

// put uploads content and fails where that does.
func (t *T) put(path, content string, header ...string) *reply {
	return t.wantStatus(t.post(path, content, header...), 200)
}

// raw uploads content as it is.
func (t *T) raw(path, content string, header ...string) *reply {
	return t.do(http.MethodPost, t.filesURL(path), []byte(content), append([]string{"Content-Type", rawType}, header...)...)
}

// file uploads a new file and returns its path.
func (t *T) file(name, content string) string {
	defer t.prepare()()
	p := t.path(name)
	t.put(p, content)
	return p
}

// read downloads a file.
func (t *T) read(path string) string {
	r := t.wantStatus(t.get(path), 200)
	if r.err != nil {
		t.Fatalf("reading %s: the body broke off: %v", path, r.err)
	}
	return string(r.body)
}

// restCode checks a plain HTTP error: the status, and the same as a number in
// the JSON body.
func (t *T) restCode(r *reply, status int) {
	t.wantStatus(r, status)
	t.equal("code in the body", dig(t.object(r.body), "code"), status)
	if m, ok := dig(t.object(r.body), "message").(string); !ok || m == "" {
		t.Fatalf("want a message, got %s", r)
	}
}

// sh runs a shell script that must succeed, and returns its output.
func (t *T) sh(format string, args ...any) string {
	return t.output(script(fmt.Sprintf("set -e; "+format, args...)))
}

var (
	onFiles      []Need
	onFilesShell = []Need{NeedShell}
)

var filesGetCases = []Case{
	{ID: "files/get/content", Procedure: getFiles, Protocols: justHTTP, Needs: onFiles,
		Requirement: "A download gives the bytes of the file, with their number in Content-Length.",
		Run: func(t *T) {
			content := "line\r\n\x00\xff\xfe end"
			p := t.file("a.bin", content)
			r := t.wantStatus(t.get(p), 200)
			t.equal("body", fmt.Sprintf("%q", r.body), fmt.Sprintf("%q", content))
			t.equal("Content-Length", r.header.Get("Content-Length"), len(content))
		}},
	{ID: "files/get/empty", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "An empty file is a download of no bytes.",
		Run:         func(t *T) { t.equal("body", t.read(t.file("empty", "")), "") }},
	{ID: "files/get/large", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "Five megabytes arrive whole.",
		Run: func(t *T) {
			content := strings.Repeat("0123456789abcdef", 5<<16)
			t.equal("SHA-256", sum(t.read(t.file("large", content))), sum(content))
		}},
	{ID: "files/get/ranges-announced", Procedure: getFiles, Protocols: justHTTP, Level: Should,
		Requirement: "A download says Accept-Ranges: bytes and has Last-Modified.",
		Run: func(t *T) {
			r := t.get(t.file("a", "x"))
			t.equal("Accept-Ranges", r.header.Get("Accept-Ranges"), "bytes")
			if _, err := http.ParseTime(r.header.Get("Last-Modified")); err != nil {
				t.Fatalf("want a date in Last-Modified, got %q", r.header.Get("Last-Modified"))
			}
		}},
	{ID: "files/get/last-modified", Procedure: getFiles, Protocols: justHTTP, Level: Should, Needs: onFilesShell, Since: since(envdversion.FilesGzip),
		Requirement: "Last-Modified is the file's modification time.",
		Run: func(t *T) {
			p := t.file("old", "x")
			t.sh("TZ=UTC touch -t 202001020304.05 %s", p)
			t.equal("Last-Modified", t.get(p).header.Get("Last-Modified"), "Thu, 02 Jan 2020 03:04:05 GMT")
		}},
	{ID: "files/get/content-type", Procedure: getFiles, Protocols: justHTTP, Level: May,
		Requirement: "The content type follows the extension.",
		Run: func(t *T) {
			t.contains("Content-Type", t.get(t.file("a.json", "{}")).header.Get("Content-Type"), "application/json")
		}},
	{ID: "files/get/disposition", Procedure: getFiles, Protocols: justHTTP, Level: Should, Since: since(envdversion.ContentDisposition),
		Requirement: "Content-Disposition carries the file's name.",
		Run: func(t *T) {
			t.contains("Content-Disposition", t.get(t.file("named.txt", "x")).header.Get("Content-Disposition"), "named.txt")
		}},
	{ID: "files/get/missing", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "A file that does not exist is answered with 404 and the error in JSON, with a number for the code.",
		Run: func(t *T) {
			t.restCode(t.get(t.path("missing")), 404)
			t.restCode(t.get(t.path("no/such/parent")), 404)
		}},
	{ID: "files/get/directory", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "A directory is answered with 400.",
		Run:         func(t *T) { t.restCode(t.get(t.dir()), 400) }},
	{ID: "files/get/below-file", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "A path below a file is answered with 500.",
		Run:         func(t *T) { t.restCode(t.get(t.file("f", "x")+"/below"), 500) }},
	{ID: "files/get/symlink", Procedure: getFiles, Protocols: justHTTP, Needs: onFilesShell,
		Requirement: "A symlink gives the content of its target; a broken one is answered with 404.",
		Run: func(t *T) {
			p := t.file("target", "through")
			t.sh("cd %s; ln -s target link; ln -s nowhere broken", t.dir())
			t.equal("content", t.read(t.path("link")), "through")
			t.restCode(t.get(t.path("broken")), 404)
			_ = p
		}},
	{ID: "files/get/unicode", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "Names may have unicode, spaces, quotes and newlines.",
		Run: func(t *T) {
			for _, name := range []string{"žluťoučký 🐎", "with space", `quo"te'`, "new\nline", "per%cent", "plus+and&"} {
				t.equal("content of "+name, t.read(t.file(name, name)), name)
			}
		}},
	{ID: "files/get/relative", Procedure: getFiles, Protocols: justHTTP, Needs: onFilesShell,
		Requirement: "A relative path and ~ count from the user's home.",
		Run: func(t *T) {
			name := "envd-conformance-" + randomName()
			home := strings.TrimSpace(t.sh("echo $HOME"))
			t.cleanup(func(ctx context.Context) { _, _ = quickOutput(t.until(ctx), ctx, "rm -f "+home+"/"+name, false) })
			t.put(name, "at home")
			t.equal("content by relative path", t.read(name), "at home")
			t.equal("content by ~", t.read("~/"+name), "at home")
			t.equal("content by absolute path", t.read(home+"/"+name), "at home")
		}},
	{ID: "files/get/unknown-user", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "A username that does not exist is answered with 401.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodGet, "/files?path=/etc/passwd&username=nobody-"+t.run.id, nil), 401)
		}},
	{ID: "files/get/no-user", Procedure: getFiles, Protocols: justHTTP, Needs: []Need{NeedOpen}, Since: since(envdversion.DefaultUser),
		Requirement: "The username may be absent.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodGet, "/files?path="+url.QueryEscape(t.file("a", "x")), nil), 200)
		}},
	{ID: "files/get/no-user-refused", Procedure: getFiles, Protocols: justHTTP, Needs: []Need{NeedOpen}, Until: since(envdversion.DefaultUser),
		Requirement: "An absent username is answered with 400.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodGet, "/files?path=/etc/passwd", nil), 400)
		}},
	{ID: "files/get/repeated-parameter", Procedure: getFiles, Protocols: justHTTP, Level: May,
		Requirement: "A repeated parameter is answered with 400.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodGet, t.filesURL("/etc/passwd")+"&path=/etc/group", nil), 400)
		}},
	{ID: "files/get/head", Procedure: getFiles, Protocols: justHTTP, Level: Should, Needs: []Need{NeedOpen},
		Requirement: "Methods other than GET and POST are answered with 405.",
		Run: func(t *T) {
			for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodHead} {
				t.wantStatus(t.do(method, t.filesURL("/etc/passwd"), nil), 405)
			}
		}},
	{ID: "files/get/other-name", Procedure: getFiles, Protocols: justHTTP, Needs: []Need{NeedOpen}, Level: May,
		Requirement: "/files/ with a slash is an unknown path.",
		Run:         func(t *T) { t.wantStatus(t.do(http.MethodGet, "/files/?path=/etc/passwd", nil), 404) }},

	{ID: "files/range/single", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "A range is answered with 206, Content-Range and those bytes.",
		Run: func(t *T) {
			p := t.file("r", "0123456789ab")
			for _, c := range []struct{ ask, body, head string }{
				{"bytes=2-4", "234", "bytes 2-4/12"}, {"bytes=9-", "9ab", "bytes 9-11/12"},
				{"bytes=-2", "ab", "bytes 10-11/12"}, {"bytes=0-0", "0", "bytes 0-0/12"}, {"bytes=8-99", "89ab", "bytes 8-11/12"},
			} {
				r := t.wantStatus(t.get(p, "Range", c.ask), 206)
				t.equal(c.ask, string(r.body)+" "+r.header.Get("Content-Range"), c.body+" "+c.head)
			}
		}},
	{ID: "files/range/several", Procedure: getFiles, Protocols: justHTTP, Level: May,
		Requirement: "Several ranges are answered with multipart/byteranges.",
		Run: func(t *T) {
			r := t.wantStatus(t.get(t.file("r", "0123456789ab"), "Range", "bytes=0-1,4-5"), 206)
			t.contains("Content-Type", r.header.Get("Content-Type"), "multipart/byteranges")
		}},
	{ID: "files/range/beyond", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "A range beyond the end is answered with 416 and the size.",
		Run: func(t *T) {
			r := t.wantStatus(t.get(t.file("r", "0123456789ab"), "Range", "bytes=12-"), 416)
			t.equal("Content-Range", r.header.Get("Content-Range"), "bytes */12")
		}},
	{ID: "files/range/not-compressed", Procedure: getFiles, Protocols: justHTTP, Since: since(envdversion.FilesGzip),
		Requirement: "A range is never compressed.",
		Run: func(t *T) {
			r := t.wantStatus(t.get(t.file("r", "0123456789ab"), "Range", "bytes=1-3", "Accept-Encoding", "gzip"), 206)
			t.equal("Content-Encoding and body", r.header.Get("Content-Encoding")+string(r.body), "123")
		}},
	{ID: "files/range/conditional", Procedure: getFiles, Protocols: justHTTP, Level: Should, Since: since(envdversion.FilesGzip),
		Requirement: "If-Modified-Since of the file's own time is answered with 304.",
		Run: func(t *T) {
			p := t.file("c", "x")
			t.wantStatus(t.get(p, "If-Modified-Since", t.get(p).header.Get("Last-Modified")), 304)
			t.wantStatus(t.get(p, "If-Unmodified-Since", "Thu, 02 Jan 2020 03:04:05 GMT"), 412)
		}},

	{ID: "files/gzip/download", Procedure: getFiles, Protocols: justHTTP, Since: since(envdversion.FilesGzip), Level: Should,
		Requirement: "A download is gzip when the client accepts it.",
		Run: func(t *T) {
			r := t.wantStatus(t.get(t.file("z.txt", "zipped"), "Accept-Encoding", "gzip"), 200)
			t.equal("Content-Encoding", r.header.Get("Content-Encoding"), "gzip")
			t.equal("content", t.unzip(r.body), "zipped")
		}},
	{ID: "files/gzip/identity", Procedure: getFiles, Protocols: justHTTP,
		Requirement: "A download is not compressed when the client asks for identity, or rules gzip out.",
		Run: func(t *T) {
			p := t.file("z.txt", "plain")
			for _, accept := range []string{"identity", "gzip;q=0", "br", "identity, gzip"} {
				r := t.wantStatus(t.get(p, "Accept-Encoding", accept), 200)
				t.equal("content with "+accept, r.header.Get("Content-Encoding")+string(r.body), "plain")
			}
		}},
	{ID: "files/gzip/nothing-acceptable", Procedure: getFiles, Protocols: justHTTP, Since: since(envdversion.FilesGzip), Level: May,
		Requirement: "When no encoding is acceptable the answer is 406.",
		Run: func(t *T) {
			t.wantStatus(t.get(t.file("z.txt", "plain"), "Accept-Encoding", "identity;q=0"), 406)
		}},
	{ID: "files/gzip/upload-raw", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.RawUpload),
		Requirement: "A raw upload may be gzip, and is stored unpacked.",
		Run: func(t *T) {
			p := t.path("z")
			t.wantStatus(t.raw(p, string(zip("unpacked")), "Content-Encoding", "gzip"), 200)
			t.equal("content", t.read(p), "unpacked")
		}},
	{ID: "files/gzip/upload-multipart", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.FilesGzip),
		Requirement: "A multipart upload may be gzip.",
		Run: func(t *T) {
			p := t.path("z")
			ct, body := form(part{"file", "x", "unpacked"})
			t.wantStatus(t.do(http.MethodPost, t.filesURL(p), zip(string(body)), "Content-Type", ct, "Content-Encoding", "gzip"), 200)
			t.equal("content", t.read(p), "unpacked")
		}},
	{ID: "files/gzip/upload-not-gzip", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.RawUpload),
		Requirement: "An upload that says gzip and is not is answered with 400, and nothing is stored.",
		Run: func(t *T) {
			p := t.path("z")
			t.restCode(t.raw(p, "not gzip", "Content-Encoding", "gzip"), 400)
			t.restCode(t.get(p), 404)
		}},
	{ID: "files/gzip/upload-unknown", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.RawUpload),
		Requirement: "An upload with an encoding that is not known is answered with 400.",
		Run:         func(t *T) { t.restCode(t.raw(t.path("z"), "x", "Content-Encoding", "br"), 400) }},
}

// stored checks the answer of an upload: the paths that were written, in order.
func (t *T) stored(r *reply, paths ...string) {
	t.wantStatus(r, 200)
	var entries []struct{ Name, Path, Type string }
	if err := json.Unmarshal(r.body, &entries); err != nil {
		t.Fatalf("want a JSON array, got %s: %v", r, err)
	}
	var got []string
	for _, e := range entries {
		if e.Type != "file" || e.Name != e.Path[strings.LastIndex(e.Path, "/")+1:] {
			t.Fatalf("want type file and the path's last name, got %+v", e)
		}
		got = append(got, e.Path)
	}
	t.equal("paths", got, paths)
}

var filesUploadCases = []Case{
	{ID: "files/upload/multipart", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "A multipart upload to a path is stored, and answered with an array of name, path and type.",
		Run: func(t *T) {
			p := t.path("a.txt")
			t.stored(t.post(p, "content"), p)
			t.equal("content", t.read(p), "content")
		}},
	{ID: "files/upload/raw", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.RawUpload),
		Requirement: "An application/octet-stream body is stored as it is.",
		Run: func(t *T) {
			p := t.path("raw")
			t.stored(t.raw(p, "--x\r\nraw\x00"), p)
			t.equal("content", t.read(p), "--x\r\nraw\x00")
		}},
	{ID: "files/upload/raw-refused", Procedure: postFiles, Protocols: justHTTP, Until: since(envdversion.RawUpload),
		Requirement: "An application/octet-stream body is answered with 500.",
		Run:         func(t *T) { t.restCode(t.raw(t.path("raw"), "x"), 500) }},
	{ID: "files/upload/raw-no-path", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.RawUpload),
		Requirement: "A raw upload without a path is answered with 400.",
		Run: func(t *T) {
			t.restCode(t.do(http.MethodPost, "/files?username="+url.QueryEscape(t.run.target.User), []byte("x"), "Content-Type", rawType), 400)
		}},
	{ID: "files/upload/empty", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "An upload of nothing makes an empty file.",
		Run: func(t *T) {
			p := t.path("empty")
			t.stored(t.post(p, ""), p)
			t.equal("content", t.read(p), "")
		}},
	{ID: "files/upload/large", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "An upload of twenty megabytes is stored whole.",
		Run: func(t *T) {
			content := strings.Repeat("0123456789abcdef", 20<<16)
			t.equal("SHA-256", sum(t.read(t.file("large", content))), sum(content))
		}},
	{ID: "files/upload/overwrite", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "An upload replaces an existing file, also a longer one.",
		Run: func(t *T) {
			p := t.file("a", "a long first content")
			t.put(p, "short")
			t.equal("content", t.read(p), "short")
		}},
	{ID: "files/upload/parents", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "Missing parent directories are made.",
		Run:         func(t *T) { t.equal("content", t.read(t.file("x/y/z/deep", "down")), "down") }},
	{ID: "files/upload/filename", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "Without a path the filename of each part is its path, and several files are stored.",
		Run: func(t *T) {
			one, two := t.path("one"), t.path("sub/two ü")
			ct, body := form(part{"file", one, "1"}, part{"file", two, "2"})
			t.stored(t.do(http.MethodPost, "/files?username="+url.QueryEscape(t.run.target.User), body, "Content-Type", ct), one, two)
			t.equal("contents", t.read(one)+t.read(two), "12")
		}},
	{ID: "files/upload/other-fields", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "Parts that are not named file are skipped.",
		Run: func(t *T) {
			p := t.path("a")
			ct, body := form(part{"note", "", "ignored"}, part{"file", "x", "kept"}, part{"other", "y", "ignored"})
			t.stored(t.do(http.MethodPost, t.filesURL(p), body, "Content-Type", ct), p)
			t.equal("content", t.read(p), "kept")
		}},
	{ID: "files/upload/no-file-part", Procedure: postFiles, Protocols: justHTTP, Level: Should,
		Requirement: "A form without a part named file stores nothing and is answered with an empty array.",
		Run: func(t *T) {
			ct, body := form(part{"note", "x", "ignored"})
			t.stored(t.do(http.MethodPost, t.filesURL(t.path("a")), body, "Content-Type", ct))
			t.restCode(t.get(t.path("a")), 404)
		}},
	{ID: "files/upload/same-path-twice", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "Two files for one path are answered with 400, and the first one is stored.",
		Run: func(t *T) {
			p := t.path("a")
			ct, body := form(part{"file", "x", "first"}, part{"file", "y", "second"})
			t.wantStatus(t.do(http.MethodPost, t.filesURL(p), body, "Content-Type", ct), 400)
			t.equal("content", t.read(p), "first")
		}},
	{ID: "files/upload/no-boundary", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "A multipart body without a boundary is answered with 500.",
		Run: func(t *T) {
			t.restCode(t.do(http.MethodPost, t.filesURL(t.path("a")), []byte("x"), "Content-Type", "multipart/form-data"), 500)
		}},
	{ID: "files/upload/content-type", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.RawUpload),
		Requirement: "Another content type is answered with 400.",
		Run: func(t *T) {
			t.restCode(t.do(http.MethodPost, t.filesURL(t.path("a")), []byte("x"), "Content-Type", "text/plain"), 400)
			t.restCode(t.do(http.MethodPost, t.filesURL(t.path("a")), []byte("x")), 400)
		}},
	{ID: "files/upload/truncated", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "A multipart body that breaks off is answered with an error, not as a success.",
		Run: func(t *T) {
			ct, body := form(part{"file", "x", strings.Repeat("content", 100)})
			r := t.do(http.MethodPost, t.filesURL(t.path("a")), body[:len(body)/2], "Content-Type", ct)
			if r.status < 400 {
				t.Fatalf("want an error status for half an upload, got %s", r)
			}
		}},
	{ID: "files/upload/directory", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "An upload to a directory is answered with 400.",
		Run:         func(t *T) { t.restCode(t.post(t.dir(), "x"), 400) }},
	{ID: "files/upload/below-file", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "An upload below a file is answered with 500.",
		Run:         func(t *T) { t.restCode(t.post(t.file("f", "x")+"/below", "y"), 500) }},
	{ID: "files/upload/unknown-user", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "A username that does not exist is answered with 401, and nothing is stored.",
		Run: func(t *T) {
			p := t.path("a")
			ct, body := form(part{"file", "x", "y"})
			q := url.Values{"path": {p}, "username": {"nobody-" + t.run.id}}
			t.wantStatus(t.do(http.MethodPost, "/files?"+q.Encode(), body, "Content-Type", ct), 401)
			t.restCode(t.get(p), 404)
		}},
	{ID: "files/upload/owner", Procedure: postFiles, Protocols: justHTTP, Needs: []Need{NeedShell, NeedRoot},
		Requirement: "New files and directories belong to the user and have modes 644 and 755.",
		Run: func(t *T) {
			t.file("sub/f", "x")
			t.equal("owner and mode", t.sh("cd %s; stat -c '%%U %%a' sub sub/f", t.dir()), fmt.Sprintf("%s 755\n%s 644\n", t.run.target.User, t.run.target.User))
		}},
	{ID: "files/upload/mode-kept", Procedure: postFiles, Protocols: justHTTP, Needs: onFilesShell,
		Requirement: "Overwriting keeps the mode of the file.",
		Run: func(t *T) {
			p := t.file("f", "x")
			t.sh("chmod 700 %s", p)
			t.put(p, "y")
			t.equal("mode", t.sh("stat -c %%a %s", p), "700\n")
		}},
	{ID: "files/upload/symlink", Procedure: postFiles, Protocols: justHTTP, Needs: onFilesShell,
		Requirement: "An upload to a symlink writes its target.",
		Run: func(t *T) {
			p := t.file("target", "x")
			t.sh("cd %s; ln -s target link", t.dir())
			t.put(t.path("link"), "through")
			t.equal("content of the target", t.read(p), "through")
		}},
	{ID: "files/upload/parallel-tree", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.ParentRaceFixed),
		Requirement: "Parallel uploads into one new tree all succeed.",
		Run: func(t *T) {
			base := t.path("new/tree/of")
			t.parallel(16, func(i int) error {
				name := fmt.Sprintf("%s/directories/%d", base, i)
				if r := t.post(name, fmt.Sprint(i)); r.status != 200 {
					return fmt.Errorf("upload %d: %s", i, r)
				}
				return nil
			})
			for i := range 16 {
				t.equal("content", t.read(fmt.Sprintf("%s/directories/%d", base, i)), i)
			}
		}},
	{ID: "files/upload/parallel-files", Procedure: postFiles, Protocols: justHTTP,
		Requirement: "Parallel uploads to different files do not mix.",
		Run: func(t *T) {
			t.dir()
			t.parallel(16, func(i int) error {
				if r := t.post(t.path(fmt.Sprint(i)), strings.Repeat(fmt.Sprintf("%02d", i), 50_000)); r.status != 200 {
					return fmt.Errorf("upload %d: %s", i, r)
				}
				return nil
			})
			for i := range 16 {
				t.equal("SHA-256", sum(t.read(t.path(fmt.Sprint(i)))), sum(strings.Repeat(fmt.Sprintf("%02d", i), 50_000)))
			}
		}},

	{ID: "files/metadata/set", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.Metadata),
		Requirement: "X-Metadata headers of an upload are stored and returned, with keys in lower case.",
		Run: func(t *T) {
			r := t.put(t.path("m"), "x", "X-Metadata-Colour", "Blue", "X-Metadata-Empty", " ")
			var entries []struct{ Metadata map[string]string }
			if err := json.Unmarshal(r.body, &entries); err != nil || len(entries) != 1 {
				t.Fatalf("want an array of one entry, got %s", r)
			}
			t.equal("colour in the answer", entries[0].Metadata["colour"], "Blue")
			t.equal("colour in Stat", t.stat(t.path("m")).GetMetadata()["colour"], "Blue")
		}},
	{ID: "files/metadata/replace", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.Metadata),
		Requirement: "Each upload replaces the whole metadata.",
		Run: func(t *T) {
			p := t.path("m")
			t.put(p, "x", "X-Metadata-A", "1", "X-Metadata-B", "2")
			t.put(p, "x", "X-Metadata-C", "3")
			t.equal("metadata", t.stat(p).GetMetadata(), map[string]string{"c": "3"})
			t.put(p, "x")
			t.equal("metadata", len(t.stat(p).GetMetadata()), 0)
		}},
	{ID: "files/metadata/too-large", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.Metadata),
		Requirement: "Metadata of more than 4096 bytes is answered with 400.",
		Run: func(t *T) {
			t.restCode(t.post(t.path("m"), "x", "X-Metadata-Big", strings.Repeat("v", 5000)), 400)
		}},
	{ID: "files/metadata/raw", Procedure: postFiles, Protocols: justHTTP, Since: since(envdversion.Metadata),
		Requirement: "Metadata works with raw uploads too.",
		Run: func(t *T) {
			t.wantStatus(t.raw(t.path("m"), "x", "X-Metadata-Kind", "raw"), 200)
			t.equal("kind", t.stat(t.path("m")).GetMetadata()["kind"], "raw")
		}},
}

// parallel calls fn n times at once and fails with the first error, once all
// have come back. fn may end the case itself.
func (t *T) parallel(n int, fn func(int) error) {
	failed := make(chan error, n)
	for i := range n {
		go func() {
			err := fmt.Errorf("call %d did not end well", i)
			defer func() { failed <- err }()
			err = fn(i)
		}()
	}
	var first error
	for range n {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		t.Fatalf("%v", first)
	}
}

// compose joins files.
func (t *T) compose(sources []string, destination string) *reply {
	body := map[string]any{"source_paths": sources, "destination": destination}
	if t.user != nil {
		body["username"] = *t.user
	}
	return t.do(http.MethodPost, "/files/compose", []byte(mustJSON(body)), "Content-Type", "application/json")
}

var composeCases = []Case{
	{ID: "files/compose/joins", Procedure: composePath, Protocols: justHTTP, Since: since(envdversion.Compose),
		Requirement: "Compose joins the sources in order, answers with the new file, and removes the sources.",
		Run: func(t *T) {
			a, b, dst := t.file("a", "one "), t.file("b", "two"), t.path("sub/joined")
			r := t.wantStatus(t.compose([]string{a, b}, dst), 200)
			o := t.object(r.body)
			t.equal("answer", []any{o["name"], o["path"], o["type"]}, []any{"joined", dst, "file"})
			t.equal("content", t.read(dst), "one two")
			t.restCode(t.get(a), 404)
			t.restCode(t.get(b), 404)
		}},
	{ID: "files/compose/overwrites", Procedure: composePath, Protocols: justHTTP, Since: since(envdversion.Compose),
		Requirement: "Compose replaces an existing destination.",
		Run: func(t *T) {
			a, dst := t.file("a", "new"), t.file("dst", "old content")
			t.wantStatus(t.compose([]string{a}, dst), 200)
			t.equal("content", t.read(dst), "new")
		}},
	{ID: "files/compose/no-sources", Procedure: composePath, Protocols: justHTTP, Since: since(envdversion.Compose),
		Requirement: "Compose without sources, without a destination or without JSON is answered with 400.",
		Run: func(t *T) {
			t.restCode(t.compose([]string{}, t.path("x")), 400)
			t.restCode(t.compose([]string{t.file("a", "x")}, ""), 400)
			t.restCode(t.do(http.MethodPost, "/files/compose", []byte("nonsense"), "Content-Type", "application/json"), 400)
		}},
	{ID: "files/compose/missing-source", Procedure: composePath, Protocols: justHTTP, Since: since(envdversion.Compose),
		Requirement: "A source that does not exist is answered with 404, and the others stay.",
		Run: func(t *T) {
			a := t.file("a", "kept")
			t.restCode(t.compose([]string{a, t.path("missing")}, t.path("dst")), 404)
			t.equal("content", t.read(a), "kept")
		}},
	{ID: "files/compose/onto-source", Procedure: composePath, Protocols: justHTTP, Since: since(envdversion.Compose),
		Requirement: "A destination that is a source is answered with 400.",
		Run: func(t *T) {
			a := t.file("a", "x")
			t.restCode(t.compose([]string{a}, a), 400)
		}},
	{ID: "files/compose/directory-source", Procedure: composePath, Protocols: justHTTP, Since: since(envdversion.Compose),
		Requirement: "A source that is a directory is answered with 400.",
		Run:         func(t *T) { t.restCode(t.compose([]string{t.dir()}, t.path("dst")), 400) }},
	{ID: "files/compose/absent", Procedure: composePath, Protocols: justHTTP, Until: since(envdversion.Compose),
		Requirement: "/files/compose is an unknown path.",
		Run:         func(t *T) { t.wantStatus(t.compose([]string{"/a"}, "/b"), 404) }},
}

var httpCases = []Case{
	{ID: "http/health/ok", Procedure: "GET /health", Protocols: justHTTP,
		Requirement: "GET /health is answered with 204 and no body.",
		Run: func(t *T) {
			t.equal("body", string(t.wantStatus(t.do(http.MethodGet, "/health", nil), 204).body), "")
		}},
	{ID: "http/health/no-store", Procedure: "GET /health", Protocols: justHTTP, Level: May,
		Requirement: "The answer of /health must not be cached.",
		Run: func(t *T) {
			t.contains("Cache-Control", t.do(http.MethodGet, "/health", nil).header.Get("Cache-Control"), "no-store")
		}},
	{ID: "http/health/no-user", Procedure: "GET /health", Protocols: justHTTP,
		Requirement: "GET /health needs no user.",
		Run:         func(t *T) { t.wantStatus(t.anonymous().do(http.MethodGet, "/health", nil), 204) }},
	{ID: "http/health/unknown-user", Procedure: "GET /health", Protocols: justHTTP, Level: May,
		Requirement: "A Basic user that does not exist is refused on every path with 401 and unauthenticated.",
		Run: func(t *T) {
			t.wantCode(t.as("nobody-"+t.run.id).do(http.MethodGet, "/health", nil), 401, "unauthenticated")
		}},
	{ID: "http/health/methods", Procedure: "GET /health", Protocols: justHTTP, Level: May, Needs: []Need{NeedOpen},
		Requirement: "Methods other than GET are answered with 405 and Allow: GET.",
		Run: func(t *T) {
			for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodDelete} {
				t.equal("Allow", t.wantStatus(t.do(method, "/health", nil), 405).header.Get("Allow"), "GET")
			}
		}},
	{ID: "http/health/slash", Procedure: "GET /health", Protocols: justHTTP, Level: May, Needs: []Need{NeedOpen},
		Requirement: "/health/ with a slash is an unknown path.",
		Run:         func(t *T) { t.wantStatus(t.do(http.MethodGet, "/health/", nil), 404) }},
	{ID: "http/envs/object", Procedure: "GET /envs", Protocols: justHTTP,
		Requirement: "GET /envs is answered with an object of strings.",
		Run: func(t *T) {
			r := t.wantStatus(t.do(http.MethodGet, "/envs", nil), 200)
			t.contains("Content-Type", r.header.Get("Content-Type"), "application/json")
			var env map[string]string
			t.ok(json.Unmarshal(r.body, &env), "reading the answer")
		}},
	{ID: "http/envs/sandbox", Procedure: "GET /envs", Protocols: justHTTP, Level: Should,
		Requirement: "GET /envs has E2B_SANDBOX, with the value that processes see.",
		Run: func(t *T) {
			got := fmt.Sprint(t.object(t.do(http.MethodGet, "/envs", nil).body)["E2B_SANDBOX"])
			if got != "true" && got != "false" {
				t.Fatalf("want E2B_SANDBOX to be true or false, got %q", got)
			}
			if t.run.profile.has(NeedShell) {
				t.equal("E2B_SANDBOX of a process", strings.TrimSpace(t.output(script("echo $E2B_SANDBOX"))), got)
			}
		}},
	{ID: "http/metrics/object", Procedure: "GET /metrics", Protocols: justHTTP,
		Requirement: "GET /metrics has the time in Unix seconds, the number of CPUs and their use in per cent.",
		Run: func(t *T) {
			m := t.object(t.wantStatus(t.do(http.MethodGet, "/metrics", nil), 200).body)
			for _, key := range []string{"ts", "cpu_count", "cpu_used_pct"} {
				if _, ok := m[key].(float64); !ok {
					t.Fatalf("want %s to be a number, got %v", key, m)
				}
			}
			if n := m["cpu_count"].(float64); n < 1 {
				t.Fatalf("want at least one CPU, got %v", n)
			}
		}},
	{ID: "http/metrics/clock", Procedure: "GET /metrics", Protocols: justHTTP, Level: Should, Needs: shell,
		Requirement: "The time of the metrics is the sandbox's clock.",
		Run: func(t *T) {
			ts, _ := t.object(t.do(http.MethodGet, "/metrics", nil).body)["ts"].(float64)
			var now float64
			_, err := fmt.Sscan(t.output(script("date +%s")), &now)
			t.ok(err, "reading the sandbox's clock")
			if d := now - ts; d < -60 || d > 60 {
				t.Fatalf("want the time %.0f, got %.0f", now, ts)
			}
		}},
	{ID: "http/metrics/bytes", Procedure: "GET /metrics", Protocols: justHTTP, Since: since(envdversion.MetricsBytes),
		Requirement: "GET /metrics has memory and disk in bytes, and the used part is not larger than the whole.",
		Run: func(t *T) {
			m := t.object(t.do(http.MethodGet, "/metrics", nil).body)
			for _, name := range []string{"mem", "disk"} {
				used, ok1 := m[name+"_used"].(float64)
				total, ok2 := m[name+"_total"].(float64)
				if !ok1 || !ok2 || total <= 0 || used > total {
					t.Fatalf("want %s_used at most %s_total, got %v", name, name, m)
				}
			}
		}},
	{ID: "http/metrics/cache", Procedure: "GET /metrics", Protocols: justHTTP, Since: since(envdversion.MetricsCache),
		Requirement: "GET /metrics has mem_cache.",
		Run: func(t *T) {
			if _, ok := t.object(t.do(http.MethodGet, "/metrics", nil).body)["mem_cache"].(float64); !ok {
				t.Fatalf("want mem_cache to be a number")
			}
		}},
	{ID: "http/routes/unknown", Procedure: "*", Protocols: justHTTP, Needs: []Need{NeedOpen},
		Requirement: "An unknown path is answered with 404.",
		Run: func(t *T) {
			for _, p := range []string{"/", "/no/such/path", "/HEALTH"} {
				t.wantStatus(t.do(http.MethodGet, p, nil), 404)
			}
		}},
	{ID: "http/routes/keep-alive", Procedure: "*", Protocols: justHTTP, Level: Should,
		Requirement: "An error does not end the connection for the requests after it.",
		Run: func(t *T) {
			for range 5 {
				t.do(http.MethodGet, "/no/such/path", nil)
				t.wantStatus(t.do(http.MethodGet, "/health", nil), 204)
			}
		}},
	{ID: "http/cors/preflight", Procedure: "*", Protocols: justHTTP, Level: Should, Since: envdversion.V(0, 2, 7),
		Requirement: "A preflight is answered without a token, and allows any origin, and the method and headers that were asked for.",
		Run: func(t *T) {
			r := t.withToken("").anonymous().do(http.MethodOptions, "/process.Process/Start", nil, "Origin", "https://example.com",
				"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type,x-access-token")
			t.wantStatus(r, 200, 204)
			t.equal("Access-Control-Allow-Origin", r.header.Get("Access-Control-Allow-Origin"), "*")
			t.contains("Access-Control-Allow-Headers", strings.ToLower(r.header.Get("Access-Control-Allow-Headers")), "x-access-token")
		}},
	{ID: "http/cors/answer", Procedure: "*", Protocols: justHTTP, Level: Should,
		Requirement: "Answers allow any origin.",
		Run: func(t *T) {
			r := t.do(http.MethodGet, "/health", nil, "Origin", "https://example.com")
			t.equal("Access-Control-Allow-Origin", r.header.Get("Access-Control-Allow-Origin"), "*")
		}},
}
