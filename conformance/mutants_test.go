// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"

	"github.com/envd-go/envd/client/envdtest"
)

// A mutant is a server with one fault.
type mutant struct {
	name string
	// wrap changes what goes in and out; options make the server itself faulty.
	wrap    wrapper
	options []envdtest.Option
}

// mutants returns the servers that are broken on purpose.
func mutants() []mutant { return slices.Concat(handmade, generic()) }

var handmade = []mutant{
	{name: "no end event", wrap: eventsOf("end", drop)},
	{name: "no start event", wrap: eventsOf("start", drop)},
	{name: "two end events", wrap: eventsOf("end", func(m object) []object { return []object{m, m} })},
	{name: "exit code always 0", wrap: eventsOf("end", without("exitCode"))},
	{name: "exited missing", wrap: eventsOf("end", without("exited"))},
	{name: "exited always", wrap: eventsOf("end", set("exited", true))},
	{name: "another status", wrap: eventsOf("end", set("status", "ok"))},
	{name: "no error text", wrap: eventsOf("end", without("error"))},
	{name: "error text for success", wrap: eventsOf("end", set("error", ""))},
	{name: "signal as 128 and more", wrap: eventsOf("end", set("exitCode", 137))},
	{name: "stdout in stderr", wrap: eventsOf("data", rename("stdout", "stderr"))},
	{name: "stderr in stdout", wrap: eventsOf("data", rename("stderr", "stdout"))},
	{name: "stdout in pty", wrap: eventsOf("data", rename("stdout", "pty"))},
	{name: "pty in stdout", wrap: eventsOf("data", rename("pty", "stdout"))},
	{name: "output in two fields", wrap: eventsOf("data", set("stderr", "AA=="))},
	{name: "output twice", wrap: eventsOf("data", func(m object) []object { return []object{m, m} })},
	{name: "keepalives after all output", wrap: streams(func(flag byte, m object) []envelopeOf {
		all := []envelopeOf{{flag, m}}
		if dig(m, "event", "data") != nil {
			all = append(all, envelopeOf{0, object{"event": object{"keepalive": object{}}}})
		}
		return all
	})},
	{name: "text mode output", wrap: eventsOf("data", textOutput)},
	{name: "no end of stream", wrap: streams(func(flag byte, m object) []envelopeOf {
		if flag == 2 {
			return nil
		}
		return []envelopeOf{{flag, m}}
	})},
	{name: "end of stream without its flag", wrap: streams(func(_ byte, m object) []envelopeOf { return []envelopeOf{{0, m}} })},
	{name: "stream errors without a code", wrap: streams(func(flag byte, m object) []envelopeOf {
		if flag == 2 {
			m = object{}
		}
		return []envelopeOf{{flag, m}}
	})},
	{name: "exit code as a string", wrap: eventsOf("end", func(m object) []object {
		if _, ok := m["exitCode"]; ok {
			m["exitCode"] = "3"
		}
		return []object{m}
	})},
	{name: "zero exit code sent", wrap: eventsOf("end", func(m object) []object {
		if _, ok := m["exitCode"]; !ok {
			m["exitCode"] = 0
		}
		return []object{m}
	})},
	{name: "snake case", wrap: eventsOf("end", rename("exitCode", "exit_code"))},
	{name: "pid as a string", wrap: eventsOf("start", func(m object) []object { return []object{{"pid": "17"}} })},
	{name: "another pid", wrap: eventsOf("start", set("pid", 17))},
	{name: "flat pid", wrap: eventsOf("start", func(object) []object { return []object{{}} })},
	{name: "URL base64", wrap: eventsOf("data", func(m object) []object {
		for k, v := range m {
			m[k] = strings.NewReplacer("+", "-", "/", "_").Replace(v.(string))
		}
		return []object{m}
	})},

	{name: "envs ignored", wrap: starts(func(m object) {
		if p, ok := m["process"].(object); ok {
			p["envs"] = keepMarker(m)
		}
	})},
	{name: "cwd ignored", wrap: starts(func(m object) {
		if p, ok := m["process"].(object); ok {
			delete(p, "cwd")
		}
	})},
	{name: "args through a shell", wrap: starts(func(m object) {
		p, _ := m["process"].(object)
		args, _ := p["args"].([]any)
		if p["cmd"] == "/bin/echo" {
			line := "echo"
			for _, a := range args {
				line += " " + a.(string)
			}
			p["cmd"], p["args"] = "/bin/sh", []any{"-c", line}
		}
	})},
	{name: "empty args dropped", wrap: starts(func(m object) {
		p, _ := m["process"].(object)
		args, _ := p["args"].([]any)
		if args != nil {
			p["args"] = slices.DeleteFunc(args, func(a any) bool { return a == "" })
		}
	})},
	{name: "stdin field ignored", wrap: starts(func(m object) { delete(m, "stdin") })},
	{name: "stdin closed unless asked for", wrap: starts(func(m object) {
		if m["stdin"] == nil {
			m["stdin"] = false
		}
	})},
	{name: "tag dropped", wrap: starts(func(m object) { delete(m, "tag") })},
	{name: "terminal ignored", wrap: starts(func(m object) { m["pty"] = object{} })},
	{name: "columns and rows mixed up", wrap: starts(func(m object) {
		if size, ok := dig(m, "pty", "size").(object); ok {
			size["cols"], size["rows"] = size["rows"], size["cols"]
		}
	})},

	{name: "every signal is TERM", wrap: requests(procSignal, func(m object) { m["signal"] = 15 })},
	{name: "signals without effect", wrap: answers("/"+procSignal, 200, "{}")},
	{name: "input without effect", wrap: answers("/"+procInput, 200, "{}")},
	{name: "resize without effect", wrap: answers("/"+procUpdate, 200, "{}")},
	{name: "CloseStdin without effect", wrap: answers("/"+procClose, 200, "{}")},
	{name: "nothing listed", wrap: answers("/"+procList, 200, "{}")},
	{name: "StreamInput not implemented", wrap: answers("/"+procStream, 501, `{"code":"unimplemented"}`)},
	{name: "not_found is internal", wrap: bodies("not_found", "internal")},
	{name: "error code as a number", wrap: bodies(`"code":"not_found"`, `"code":404`)},
	{name: "errors in text", wrap: bodies(`{"code":"not_found"`, `not found {`)},
	{name: "keepalives never sent", wrap: headers(keepalive)},
	{name: "timeout ignored", wrap: headers(timeoutMs)},
	{name: "user ignored", wrap: headers("Authorization")},
	{name: "no gzip", wrap: headers("Accept-Encoding")},
	{name: "protocol version ignored", wrap: headers("Connect-Protocol-Version")},
	{name: "unknown methods succeed", wrap: answers("/process.Process/NoSuch", 200, "{}")},
	{name: "GET of an RPC is 404", wrap: statuses(405, 404)},
	{name: "415 is 400", wrap: statuses(415, 400)},
	{name: "health is 200 with JSON", wrap: answers("/health", 200, `{"status":"ok"}`)},
	{name: "envs are not strings", wrap: answers("/envs", 200, `{"A":1}`)},
	{name: "metrics are strings", wrap: answers("/metrics", 200, `{"ts":"1","cpu_count":"2","cpu_used_pct":"3"}`)},
	{name: "unknown paths succeed", wrap: statuses(404, 200)},
	{name: "no CORS", wrap: headers("Origin")},

	{name: "downloads cut short", wrap: contents(func(b []byte) []byte { return b[:len(b)*9/10] })},
	{name: "downloads end in a newline", wrap: contents(func(b []byte) []byte { return append(b, '\n') })},
	{name: "downloads in capitals", wrap: contents(bytes.ToUpper)},
	{name: "downloads have one type", wrap: on("GET /files", whole(func(rec *httptest.ResponseRecorder) { rec.Header().Set("Content-Type", "application/octet-stream") }))},
	{name: "zero sizes spelt out", wrap: whole(func(rec *httptest.ResponseRecorder) {
		var m object
		if json.Unmarshal(rec.Body.Bytes(), &m) == nil {
			if entry, ok := m["entry"].(object); ok && entry["size"] == nil {
				entry["size"] = "0"
				rec.Body = bytes.NewBufferString(mustJSON(m))
			}
		}
	})},
	{name: "uploads cut short", wrap: uploads(func(b []byte) []byte { return bytes.Replace(b, []byte("\r\n--"), nil, 1) })},
	{name: "uploads in capitals", wrap: uploads(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("content"), []byte("CONTENT")) })},
	{name: "file names of parts ignored", wrap: uploads(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("filename="), []byte("alias=")) })},
	{name: "path parameter ignored", wrap: queries("GET /files", "path")},
	{name: "uploads to another path", wrap: before("POST /files", func(r *http.Request) {
		q := r.URL.Query()
		if q.Get("path") != "" {
			q.Set("path", q.Get("path")+"x")
		}
		r.URL.RawQuery = q.Encode()
	})},
	{name: "uploads reset the mode", wrap: after("POST /files", func(r *http.Request) { _ = os.Chmod(r.URL.Query().Get("path"), 0o644) })},
	{name: "changes of mode are writes", wrap: streams(func(flag byte, m object) []envelopeOf {
		if event, ok := m["filesystem"].(object); ok && event["type"] == evChmod.String() {
			event["type"] = evWrite.String()
		}
		return []envelopeOf{{flag, m}}
	})},
	{name: "username of downloads ignored", wrap: queries("GET /files", "username")},
	{name: "username of uploads ignored", wrap: queries("POST /files", "username")},
	{name: "expiration ignored", wrap: queries("GET /files", "signature_expiration")},
	{name: "init ignores envVars", wrap: inits("envVars")},
	{name: "init ignores defaultUser", wrap: inits("defaultUser")},
	{name: "init ignores defaultWorkdir", wrap: inits("defaultWorkdir")},
	{name: "init ignores accessToken", wrap: inits("accessToken")},
	{name: "entries in reverse order", wrap: listings(func(all []any) []any { slices.Reverse(all); return all })},
	{name: "one entry too few", wrap: listings(func(all []any) []any { return all[:max(0, len(all)-1)] })},
	{name: "one entry twice", wrap: listings(func(all []any) []any { return append(all, all[:min(1, len(all))]...) })},

	{name: "gate answers 403", wrap: statuses(401, 403)},
	{name: "gate answers a Connect error", wrap: bodies(`"code":401`, `"code":"unauthenticated"`)},
	{name: "health behind the gate", wrap: answers("/health", 401, "{}")},
	{name: "any token will do", wrap: anyToken(mutantToken)},
}

var unaryCalls = []string{procList, procSignal, procInput, procUpdate, procClose,
	fsStat, fsList, fsMake, fsMove, fsRemove, fsCreateW, fsEvents, fsRemoveW}

var streamCalls = []string{procStart, procConnect, procStream, fsWatch}

// generic makes the faults that each call, field, code, status and header can
// have in the same way.
func generic() []mutant {
	var all []mutant
	add := func(wrap wrapper, name ...string) {
		all = append(all, mutant{name: strings.Join(name, " "), wrap: wrap})
	}
	for _, quirk := range envdtest.Quirks() {
		all = append(all, mutant{name: "quirk " + quirk.String(), wrap: func(h http.Handler) http.Handler { return h },
			options: []envdtest.Option{envdtest.WithQuirk(quirk)}})
	}
	for _, call := range unaryCalls {
		add(answers("/"+call, 200, "{}"), call, "does nothing")
		add(answers("/"+call, 500, `{"code":"internal","message":"broken"}`), call, "fails")
	}
	for _, call := range streamCalls {
		add(streamAnswers("/"+call, "{}"), call, "does nothing")
		add(streamAnswers("/"+call, `{"error":{"code":"internal","message":"broken"}}`), call, "fails")
	}
	for _, call := range []string{"GET /files", "POST /files", "POST /files/compose", "POST /init"} {
		add(plain(call, 200, "[]"), call, "does nothing")
		add(plain(call, 500, `{"code":500,"message":"broken"}`), call, "fails")
	}
	for _, field := range []string{"name", "path", "type", "size", "mode", "permissions", "owner", "group", "modifiedTime",
		"symlinkTarget", "cmd", "cwd", "tag", "watcherId", "message"} {
		add(wrong(field), "answers with a wrong", field)
	}
	for _, code := range []string{"not_found", "invalid_argument", "already_exists", "unauthenticated", "internal",
		"unimplemented", "deadline_exceeded", "failed_precondition"} {
		add(codes(code, "unknown"), "code", code, "is unknown")
	}
	for _, s := range [][2]int{{200, 201}, {204, 200}, {206, 200}, {304, 200}, {400, 500}, {401, 403}, {404, 500},
		{405, 404}, {406, 200}, {415, 400}, {416, 200}, {500, 400}, {501, 500}} {
		add(statuses(s[0], s[1]), fmt.Sprintf("status %d is %d", s[0], s[1]))
	}
	for _, field := range []string{"name", "path", "type", "size", "mode", "permissions", "owner", "group", "modifiedTime",
		"symlinkTarget", "metadata", "entry", "entries", "events", "watcherId", "processes", "pid", "config", "tag", "cmd",
		"args", "envs", "cwd", "message", "code"} {
		add(fields(field), "answers without", field)
	}
	for _, field := range []string{"path", "depth", "source", "destination", "recursive", "includeEntry", "watcherId", "process",
		"cmd", "args", "envs", "cwd", "stdin", "pty", "tag", "pid", "input", "signal", "size"} {
		add(asked(field), "requests without", field)
	}
	for _, header := range []string{"Authorization", "Range", "If-Modified-Since", "Accept-Encoding", "Content-Encoding",
		"Connect-Accept-Encoding", "Connect-Content-Encoding", "Connect-Timeout-Ms", "Connect-Protocol-Version", "Keepalive-Ping-Interval",
		"X-Access-Token", "Origin", "Grpc-Timeout"} {
		add(headers(header), "requests without", header)
	}
	for _, header := range []string{"Content-Length", "Content-Type", "Content-Range", "Accept-Ranges", "Last-Modified", "Content-Disposition",
		"Content-Encoding", "Cache-Control", "Allow", "Accept-Post", "Access-Control-Allow-Origin", "Vary", "Grpc-Status"} {
		add(answerHeaders(header), "answers without", header)
	}
	return all
}
