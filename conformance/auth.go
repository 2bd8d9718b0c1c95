// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/envd-go/envd/gen/process"
)

var withToken = []Need{NeedToken}

// gate checks the answer of the token gate, which is no Connect error.
func (t *T) gate(r *reply) { t.restCode(r, 401) }

// signature signs a path for /files.
func (t *T) signature(path, operation, username, expiration string) string {
	payload := strings.Join([]string{path, operation, username, t.run.target.Token}, ":")
	if expiration != "" {
		payload += ":" + expiration
	}
	h := sha256.Sum256([]byte(payload))
	return "v1_" + base64.RawStdEncoding.EncodeToString(h[:])
}

// signedGet downloads by signature only. pairs change the query: a name and its
// value, which is left out if empty.
func (t *T) signedGet(path string, pairs ...string) *reply {
	user := t.run.target.User
	q := url.Values{"path": {path}, "username": {user}, "signature": {t.signature(path, "read", user, "")}}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		}
	}
	return t.withToken("").do(http.MethodGet, "/files?"+q.Encode(), nil)
}

func inSeconds(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }

var authCases = []Case{
	{ID: "auth/token/unary", Procedure: procList, Protocols: both, Needs: withToken,
		Requirement: "A unary call with the token in X-Access-Token is let in.",
		Run: func(t *T) {
			_, err := t.proc.List(t.ctx, &process.ListRequest{})
			t.ok(err, "List")
		}},
	{ID: "auth/token/missing", Procedure: procList, Protocols: justHTTP, Needs: withToken,
		Requirement: "A call without the token is answered with 401 and a JSON body with the number 401 as its code.",
		Run:         func(t *T) { t.gate(t.withToken("").unary(procList, "{}")) }},
	{ID: "auth/token/wrong", Procedure: procList, Protocols: justHTTP, Needs: withToken,
		Requirement: "A call with another token is answered with 401.",
		Run: func(t *T) {
			t.gate(t.withToken("wrong").unary(procList, "{}"))
			t.gate(t.withToken(t.run.target.Token+"x").unary(procList, "{}"))
		}},
	{ID: "auth/token/stream", Procedure: procStart, Protocols: justHTTP, Needs: withToken,
		Requirement: "A stream without the token is answered with HTTP 401, not within the stream.",
		Run: func(t *T) {
			t.gate(t.withToken("").do(http.MethodPost, "/"+procStart, envelope(0, t.startJSON("/bin/true")), "Content-Type", "application/connect+json"))
		}},
	{ID: "auth/token/filesystem", Procedure: fsStat, Protocols: justHTTP, Needs: withToken,
		Requirement: "The filesystem service asks for the token too.",
		Run:         func(t *T) { t.gate(t.withToken("").unary(fsStat, `{"path":"/"}`)) }},
	{ID: "auth/token/bearer", Procedure: procList, Protocols: justHTTP, Needs: withToken,
		Requirement: "The token is not accepted as a bearer token.",
		Run: func(t *T) {
			t.gate(t.withToken("").with("Authorization", "Bearer "+t.run.target.Token).unary(procList, "{}"))
		}},
	{ID: "auth/token/health", Procedure: "GET /health", Protocols: justHTTP, Needs: withToken,
		Requirement: "GET /health needs no token.",
		Run:         func(t *T) { t.wantStatus(t.withToken("").do(http.MethodGet, "/health", nil), 204) }},
	{ID: "auth/token/plain-endpoints", Procedure: "GET /envs", Protocols: justHTTP, Needs: withToken,
		Requirement: "GET /envs and GET /metrics need the token.",
		Run: func(t *T) {
			t.gate(t.withToken("").do(http.MethodGet, "/envs", nil))
			t.gate(t.withToken("").do(http.MethodGet, "/metrics", nil))
		}},
	{ID: "auth/token/unknown-path", Procedure: "*", Protocols: justHTTP, Needs: withToken, Level: Should,
		Requirement: "Without the token an unknown path is answered with 401, so that nothing is learned about paths.",
		Run:         func(t *T) { t.gate(t.withToken("").unary("process.Process/NoSuch", "{}")) }},
	{ID: "auth/token/files-header", Procedure: getFiles, Protocols: justHTTP, Needs: withToken,
		Requirement: "/files takes the token, refuses another, and refuses a call with neither token nor signature.",
		Run: func(t *T) {
			p := t.file("a", "x")
			t.equal("content", t.read(p), "x")
			t.restCode(t.withToken("wrong").get(p), 401)
			t.restCode(t.withToken("").get(p), 401)
		}},
	{ID: "auth/token/upload", Procedure: postFiles, Protocols: justHTTP, Needs: withToken,
		Requirement: "An upload with neither token nor signature is refused, and nothing is stored.",
		Run: func(t *T) {
			p := t.path("a")
			t.restCode(t.withToken("").post(p, "x"), 401)
			t.restCode(t.get(p), 404)
		}},
	{ID: "auth/token/preflight", Procedure: "*", Protocols: justHTTP, Needs: withToken, Level: Should,
		Requirement: "A CORS preflight needs no token.",
		Run: func(t *T) {
			t.wantStatus(t.withToken("").do(http.MethodOptions, "/"+procList, nil, "Origin", "https://example.com", "Access-Control-Request-Method", "POST"), 200, 204)
		}},

	{ID: "auth/signature/read", Procedure: getFiles, Protocols: justHTTP, Needs: withToken,
		Requirement: "A signature over path, read, username and token lets a download in.",
		Run: func(t *T) {
			t.equal("content", string(t.wantStatus(t.signedGet(t.file("a ü", "signed")), 200).body), "signed")
		}},
	{ID: "auth/signature/range", Procedure: getFiles, Protocols: justHTTP, Needs: withToken,
		Requirement: "A signed download may ask for a range.",
		Run: func(t *T) {
			t.equal("content", string(t.wantStatus(t.with("Range", "bytes=1-2").signedGet(t.plainFile("a", "0123")), 206).body), "12")
		}},
	{ID: "auth/signature/expires", Procedure: getFiles, Protocols: justHTTP, Needs: withToken,
		Requirement: "A signature with an expiration in the future is let in, one in the past is refused with 401.",
		Run: func(t *T) {
			p, user := t.file("a", "signed"), t.run.target.User
			soon, past := inSeconds(time.Hour), inSeconds(-time.Hour)
			t.wantStatus(t.signedGet(p, "signature", t.signature(p, "read", user, soon), "signature_expiration", soon), 200)
			t.restCode(t.signedGet(p, "signature", t.signature(p, "read", user, past), "signature_expiration", past), 401)
		}},
	{ID: "auth/signature/expiration-signed", Procedure: getFiles, Protocols: justHTTP, Needs: withToken,
		Requirement: "An expiration that is not part of the signature is refused, as is leaving out a signed one.",
		Run: func(t *T) {
			p, user := t.file("a", "x"), t.run.target.User
			soon := inSeconds(time.Hour)
			t.restCode(t.signedGet(p, "signature_expiration", soon), 401)
			t.restCode(t.signedGet(p, "signature", t.signature(p, "read", user, soon)), 401)
		}},
	{ID: "auth/signature/wrong", Procedure: getFiles, Protocols: justHTTP, Needs: withToken,
		Requirement: "A signature for another path, user or operation is refused with 401.",
		Run: func(t *T) {
			p, user := t.file("a", "x"), t.run.target.User
			for what, s := range map[string]string{
				"path": t.signature(p+"x", "read", user, ""), "user": t.signature(p, "read", user+"x", ""),
				"operation": t.signature(p, "write", user, ""), "nothing": "v1_", "padding": t.signature(p, "read", user, "") + "=",
			} {
				if r := t.signedGet(p, "signature", s); r.status != 401 {
					t.Fatalf("a signature with another %s: want 401, got %s", what, r)
				}
			}
		}},
	{ID: "auth/signature/write", Procedure: postFiles, Protocols: justHTTP, Needs: withToken,
		Requirement: "A signature for write lets an upload in, one for read does not.",
		Run: func(t *T) {
			p, user := t.path("a"), t.run.target.User
			ct, body := form(part{"file", "x", "signed"})
			upload := func(signature string) *reply {
				q := url.Values{"path": {p}, "username": {user}, "signature": {signature}}
				return t.withToken("").do(http.MethodPost, "/files?"+q.Encode(), body, "Content-Type", ct)
			}
			t.restCode(upload(t.signature(p, "read", user, "")), 401)
			t.wantStatus(upload(t.signature(p, "write", user, "")), 200)
			t.equal("content", t.read(p), "signed")
		}},
	{ID: "auth/signature/rpc", Procedure: procList, Protocols: justHTTP, Needs: withToken,
		Requirement: "A signature is not accepted on an RPC.",
		Run: func(t *T) {
			q := url.Values{"signature": {t.signature("", "read", "", "")}}
			t.gate(t.withToken("").unary(procList+"?"+q.Encode(), "{}"))
		}},
	{ID: "auth/signature/wrong-header", Procedure: getFiles, Protocols: justHTTP, Needs: withToken, Level: May,
		Requirement: "A wrong token is refused also with a valid signature.",
		Run: func(t *T) {
			p, user := t.file("a", "x"), t.run.target.User
			q := url.Values{"path": {p}, "username": {user}, "signature": {t.signature(p, "read", user, "")}}
			t.restCode(t.withToken("wrong").do(http.MethodGet, "/files?"+q.Encode(), nil), 401)
		}},
}

// plainFile is file without the headers of this view.
func (t *T) plainFile(name, content string) string {
	plain := *t
	plain.header = nil
	return plain.connect().file(name, content)
}
