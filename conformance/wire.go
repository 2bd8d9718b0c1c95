// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/envd-go/envd/gen/process"
)

func wireCases() []Case {
	return slices.Concat(wireJSONCases, wireErrorCases, wireEnvelopeCases, wireGzipCases, wireCodecCases)
}

// startJSON is a Start request in JSON, marked as ours.
func (t *T) startJSON(cmd string, args ...string) string {
	return mustJSON(map[string]any{"process": map[string]any{"cmd": cmd, "args": args, "envs": map[string]string{markerEnv: t.run.id}}})
}

// run starts a shell script by JSON made by hand and returns the envelopes.
func (t *T) runJSON(script string, header ...string) []frame {
	return t.stream(procStart, t.startJSON("/bin/sh", "-c", script), header...)
}

// event returns the value below "event" of the first envelope that has it.
func (t *T) event(frames []frame, kind string) any {
	for _, f := range frames {
		if f.flag == 0 {
			if v := dig(t.object(f.data), "event", kind); v != nil {
				return v
			}
		}
	}
	t.Fatalf("want an event %q, got %v", kind, frames)
	return nil
}

// keys returns the sorted keys of an object.
func (t *T) keys(v any) []string {
	m, ok := v.(map[string]any)
	if !ok {
		t.Fatalf("want a JSON object, got %v", v)
	}
	var names []string
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

var wireJSONCases = []Case{
	{ID: "wire/json/exit-zero", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "The end event of exit 0 has exited and status only: the zero exit code is left out.",
		Run: func(t *T) {
			t.equal("keys of the end event", t.keys(t.event(t.runJSON("exit 0"), "end")), []string{"exited", "status"})
		}},
	{ID: "wire/json/exit-code", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "The end event's exitCode is a JSON number, and the key is in camel case.",
		Run: func(t *T) {
			end := t.event(t.runJSON("exit 3"), "end")
			t.equal("keys of the end event", t.keys(end), []string{"error", "exitCode", "exited", "status"})
			if n, ok := dig(end, "exitCode").(float64); !ok || n != 3 {
				t.Fatalf("want exitCode to be the number 3, got %v", end)
			}
		}},
	{ID: "wire/json/signal-end", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "The end event of a death by signal leaves exited out and has exitCode -1.",
		Run: func(t *T) {
			end := t.event(t.runJSON("kill -KILL $$"), "end")
			t.equal("keys of the end event", t.keys(end), []string{"error", "exitCode", "status"})
			t.equal("exitCode", dig(end, "exitCode"), -1)
		}},
	{ID: "wire/json/start-pid", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "The pid of the start event is a JSON number.",
		Run: func(t *T) {
			if v, ok := dig(t.event(t.runJSON("exit 0"), "start"), "pid").(float64); !ok || v <= 0 {
				t.Fatalf("want event.start.pid to be a number above 0, got %v", v)
			}
		}},
	{ID: "wire/json/bytes", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "Bytes are standard base64 with padding.",
		Run: func(t *T) {
			t.equal("stdout", dig(t.event(t.runJSON(`printf '\377\376\373\377'`), "data"), "stdout"), "//77/w==")
		}},
	{ID: "wire/json/one-output", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "A data event has exactly one of stdout, stderr and pty.",
		Run: func(t *T) {
			for _, f := range t.runJSON("echo a; echo b >&2") {
				if f.flag != 0 {
					continue
				}
				if data := dig(t.object(f.data), "event", "data"); data != nil && len(t.keys(data)) != 1 {
					t.Fatalf("want one field in a data event, got %s", f)
				}
			}
		}},
	{ID: "wire/json/pid-as-string", Procedure: procConnect, Protocols: justJSON, Needs: shell,
		Requirement: "A pid in a selector may be a number or a decimal string.",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			t.wantStatus(t.unary(procSignal, fmt.Sprintf(`{"process":{"pid":"%d"},"signal":15}`, s.pid)), 200)
			t.killed(s.wait(), "signal: terminated")
		}},
	{ID: "wire/json/enum-as-name", Procedure: procSignal, Protocols: justJSON, Needs: shell,
		Requirement: "A signal may be given by its full name.",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			t.wantStatus(t.unary(procSignal, fmt.Sprintf(`{"process":{"pid":%d},"signal":"SIGNAL_SIGKILL"}`, s.pid)), 200)
			t.killed(s.wait(), "signal: killed")
		}},
	{ID: "wire/json/unknown-enum", Procedure: procSignal, Protocols: justJSON, Needs: shell, Level: Should,
		Requirement: "A signal name that is not known is refused with unimplemented.",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			for _, name := range []string{"SIGTERM", "SIGNAL_SIGINT"} {
				t.wantCode(t.unary(procSignal, fmt.Sprintf(`{"process":{"pid":%d},"signal":%q}`, s.pid, name)), 501, "unimplemented")
			}
		}},
	{ID: "wire/json/fraction-for-enum", Procedure: procSignal, Protocols: justJSON,
		Requirement: "A fraction for a signal is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantCode(t.unary(procSignal, `{"process":{"pid":1},"signal":9.5}`), 400, "invalid_argument")
		}},
	{ID: "wire/json/base64-variants", Procedure: procInput, Protocols: justJSON, Needs: shell,
		Requirement: "Bytes may be base64 of the standard or the URL alphabet, with or without padding.",
		Run: func(t *T) {
			s := t.open(withStdin(script("head -c 12 | od -An -tx1 | tr -d ' \\n'"), true))
			for _, text := range []string{"//77/w==", "__77_w==", "__77_w"} {
				t.wantStatus(t.unary(procInput, fmt.Sprintf(`{"process":{"pid":%d},"input":{"stdin":%q}}`, s.pid, text)), 200)
			}
			t.equal("stdout", string(s.wait().stdout), strings.Repeat("fffefbff", 3))
		}},
	{ID: "wire/json/bad-base64", Procedure: procInput, Protocols: justJSON,
		Requirement: "Bytes that are not base64 are refused with invalid_argument.",
		Run: func(t *T) {
			t.wantCode(t.unary(procInput, `{"process":{"pid":1},"input":{"stdin":"not base64!"}}`), 400, "invalid_argument")
		}},
	{ID: "wire/json/unknown-field", Procedure: procList, Protocols: justJSON,
		Requirement: "Unknown fields of a request are ignored.",
		Run: func(t *T) {
			t.wantStatus(t.unary(procList, `{"noSuchField":{"a":[1,2,{"b":null}]}}`), 200)
			t.wantCode(t.unary(procSignal, fmt.Sprintf(`{"process":{"pid":%d,"new":1},"signal":15,"other":[]}`, uint32(noPID))), 404, "not_found")
		}},
	{ID: "wire/json/both-of-oneof", Procedure: procSignal, Protocols: justJSON,
		Requirement: "A selector with a pid and a tag is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantCode(t.unary(procSignal, `{"process":{"pid":1,"tag":"x"},"signal":15}`), 400, "invalid_argument")
		}},
	{ID: "wire/json/null-fields", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "A field that is null counts as absent.",
		Run: func(t *T) {
			frames := t.stream(procStart, `{"process":{"cmd":"/bin/true","args":null,"envs":null,"cwd":null},"tag":null,"stdin":null,"pty":null}`)
			t.equal("status", t.endEvent(frames)["status"], "exit status 0")
		}},
	{ID: "wire/json/malformed", Procedure: procList, Protocols: justJSON,
		Requirement: "A body that is not JSON is refused with HTTP 400 and invalid_argument.",
		Run: func(t *T) {
			for _, body := range []string{`{"process":`, `nonsense`, `[]`, `{} {}`, `{"process" 1}`} {
				t.wantCode(t.unary(procSignal, body), 400, "invalid_argument")
			}
		}},
	{ID: "wire/json/wrong-type", Procedure: procSignal, Protocols: justJSON,
		Requirement: "A field of the wrong type is refused with invalid_argument.",
		Run: func(t *T) {
			for _, body := range []string{`{"process":"x"}`, `{"process":{"pid":"x"}}`, `{"process":{"pid":-1}}`, `{"process":{"pid":4294967296}}`, `{"process":{"tag":5}}`} {
				t.wantCode(t.unary(procSignal, body), 400, "invalid_argument")
			}
		}},
	{ID: "wire/json/empty-body", Procedure: procList, Protocols: justJSON,
		Requirement: "An empty body of a JSON call is refused with invalid_argument.",
		Run:         func(t *T) { t.wantCode(t.unary(procList, ""), 400, "invalid_argument") }},
	{ID: "wire/json/not-utf8", Procedure: procSignal, Protocols: justJSON,
		Requirement: "A string that is not UTF-8 is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantCode(t.unary(procSignal, "{\"process\":{\"tag\":\"\xff\"},\"signal\":15}"), 400, "invalid_argument")
		}},
	{ID: "wire/json/negative-size", Procedure: procUpdate, Protocols: justJSON,
		Requirement: "A negative size of a terminal is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantCode(t.unary(procUpdate, `{"process":{"pid":1},"pty":{"size":{"cols":-1,"rows":1}}}`), 400, "invalid_argument")
		}},
	{ID: "wire/json/empty-answer", Procedure: procSignal, Protocols: justJSON, Needs: shell,
		Requirement: "A success without content is HTTP 200 with the JSON object {} and the type application/json.",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			r := t.wantStatus(t.unary(procUpdate, fmt.Sprintf(`{"process":{"pid":%d}}`, s.pid)), 200)
			t.equal("Content-Type", r.header.Get("Content-Type"), "application/json")
			t.equal("keys", len(t.object(r.body)), 0)
		}},
	{ID: "wire/json/list-shape", Procedure: procList, Protocols: justJSON, Needs: shell,
		Requirement: "A listed process has config and pid; config has cmd, args, envs and cwd where they were sent.",
		Run: func(t *T) {
			s := t.open(withCwd(script("sleep 30"), "/"))
			list, _ := dig(t.object(t.wantStatus(t.unary(procList, "{}"), 200).body), "processes").([]any)
			for _, p := range list {
				if n, ok := dig(p, "pid").(float64); ok && uint32(n) == s.pid {
					t.equal("keys of config", t.keys(dig(p, "config")), []string{"args", "cmd", "cwd", "envs"})
					return
				}
			}
			t.Fatalf("want pid %d as a number in the list, got %v", s.pid, list)
		}},
}

var wireErrorCases = []Case{
	{ID: "wire/errors/unary-shape", Procedure: procSignal, Protocols: justJSON,
		Requirement: "A failed unary call has an HTTP error status and a JSON object with a string code and a message.",
		Run: func(t *T) {
			r := t.unary(procSignal, fmt.Sprintf(`{"process":{"pid":%d},"signal":15}`, uint32(noPID)))
			t.wantCode(r, 404, "not_found")
			t.contains("Content-Type", r.header.Get("Content-Type"), "application/json")
			if m, ok := t.object(r.body)["message"].(string); !ok || m == "" {
				t.Fatalf("want a message, got %s", r)
			}
		}},
	{ID: "wire/errors/message-names-pid", Procedure: procSignal, Protocols: justJSON, Level: May,
		Requirement: "The message of not_found names the pid.",
		Run: func(t *T) {
			r := t.unary(procSignal, `{"process":{"pid":4294967293},"signal":15}`)
			t.contains("message", string(r.body), "4294967293")
		}},
	{ID: "wire/errors/stream-shape", Procedure: procConnect, Protocols: justJSON,
		Requirement: "A failed stream is HTTP 200 with one end-of-stream envelope that has the error.",
		Run: func(t *T) {
			frames := t.stream(procConnect, fmt.Sprintf(`{"process":{"pid":%d}}`, uint32(noPID)))
			t.equal("envelopes", len(frames), 1)
			t.wantEnd(frames, "not_found")
		}},
	{ID: "wire/errors/unimplemented-status", Procedure: procSignal, Protocols: justJSON,
		Requirement: "The code unimplemented has the HTTP status 501.",
		Run:         func(t *T) { t.wantCode(t.unary(procSignal, `{}`), 501, "unimplemented") }},
	{ID: "wire/errors/internal-status", Procedure: procUpdate, Protocols: justJSON, Needs: shell,
		Requirement: "The code internal has the HTTP status 500.",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			t.wantCode(t.unary(procUpdate, fmt.Sprintf(`{"process":{"pid":%d},"pty":{"size":{"cols":1,"rows":1}}}`, s.pid)), 500, "internal")
		}},
	{ID: "wire/errors/unauthenticated-status", Procedure: procList, Protocols: justJSON,
		Requirement: "The code unauthenticated has the HTTP status 401.",
		Run: func(t *T) {
			t.wantCode(t.as("nobody-"+t.run.id).unary(procList, `{}`), 401, "unauthenticated")
		}},
	{ID: "wire/errors/unknown-method", Procedure: "process.Process/*", Protocols: justHTTP,
		Requirement: "An unknown method, service or path is answered with 404.",
		Run: func(t *T) {
			for _, p := range []string{"process.Process/NoSuch", "no.Such/List", "process.Process/List/", "process.Process/", "process.Process"} {
				t.wantStatus(t.unary(p, "{}"), 404)
			}
		}},
	{ID: "wire/errors/unknown-method-text", Procedure: "process.Process/*", Protocols: justHTTP, Level: May,
		Requirement: "The answer to an unknown method is text, which tells it from a not_found of the RPC.",
		Run: func(t *T) {
			t.contains("Content-Type", t.unary("process.Process/NoSuch", "{}").header.Get("Content-Type"), "text/plain")
		}},
	{ID: "wire/errors/get", Procedure: procList, Protocols: justHTTP,
		Requirement: "An RPC answers a method other than POST with 405 and Allow: POST.",
		Run: func(t *T) {
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
				r := t.wantStatus(t.do(method, "/"+procList, nil), 405)
				t.equal("Allow", r.header.Get("Allow"), "POST")
			}
		}},
	{ID: "wire/errors/content-type", Procedure: procList, Protocols: justHTTP,
		Requirement: "A content type that is not known is answered with 415.",
		Run: func(t *T) {
			for _, ct := range []string{"text/plain", "application/xml", "application/grpc-web-text", "multipart/form-data; boundary=x"} {
				t.wantStatus(t.do(http.MethodPost, "/"+procList, []byte("{}"), "Content-Type", ct), 415)
			}
		}},
	{ID: "wire/errors/accept-post", Procedure: procList, Protocols: justHTTP, Level: May,
		Requirement: "An answer of 415 lists the types that would do in Accept-Post.",
		Run: func(t *T) {
			r := t.do(http.MethodPost, "/"+procList, []byte("{}"), "Content-Type", "text/plain")
			t.contains("Accept-Post", r.header.Get("Accept-Post"), "application/json")
		}},
	{ID: "wire/errors/no-content-type", Procedure: procList, Protocols: justHTTP,
		Requirement: "A missing content type is answered with 415.",
		Run:         func(t *T) { t.wantStatus(t.do(http.MethodPost, "/"+procList, []byte("{}")), 415) }},
	{ID: "wire/errors/unary-type-on-stream", Procedure: procStart, Protocols: justHTTP,
		Requirement: "The unary content type on a stream is answered with 415.",
		Run: func(t *T) {
			t.wantStatus(t.unary(procStart, "{}"), 415)
			t.wantStatus(t.unary(procConnect, "{}"), 415)
			t.wantStatus(t.unary(procStream, "{}"), 415)
		}},
	{ID: "wire/errors/stream-type-on-unary", Procedure: procList, Protocols: justHTTP,
		Requirement: "The content type of streams on a unary call is answered with 415.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodPost, "/"+procList, envelope(0, "{}"), "Content-Type", "application/connect+json"), 415)
		}},
	{ID: "wire/errors/charset", Procedure: procList, Protocols: justJSON,
		Requirement: "A charset of UTF-8 in the content type is accepted.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodPost, "/"+procList, []byte("{}"), "Content-Type", "application/json; charset=utf-8"), 200)
		}},
	{ID: "wire/errors/protocol-version", Procedure: procList, Protocols: justJSON,
		Requirement: "Connect-Protocol-Version may be 1 or absent; another is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantStatus(t.unary(procList, "{}"), 200)
			t.wantStatus(t.unary(procList, "{}", "Connect-Protocol-Version", "1"), 200)
			t.wantCode(t.unary(procList, "{}", "Connect-Protocol-Version", "2"), 400, "invalid_argument")
		}},
	{ID: "wire/errors/unary-timeout", Procedure: procList, Protocols: justJSON,
		Requirement: "A Connect-Timeout-Ms that is no number is refused on unary calls with invalid_argument.",
		Run: func(t *T) {
			t.wantCode(t.unary(procList, "{}", timeoutMs, "abc"), 400, "invalid_argument")
			t.wantStatus(t.unary(procList, "{}", timeoutMs, "5000"), 200)
		}},
	{ID: "wire/errors/unary-timeout-over", Procedure: procInput, Protocols: justJSON, Needs: shell, Level: May,
		Requirement: "A deadline of a blocked SendInput does not harm the process.",
		Run: func(t *T) {
			s := t.open(withStdin(script("echo up; read line; exit 17"), true))
			t.wantStatus(t.unary(procInput, fmt.Sprintf(`{"process":{"pid":%d},"input":{"stdin":"Cg=="}}`, s.pid), timeoutMs, "5000"), 200)
			t.exited(s.wait(), 17)
		}},
}

var wireEnvelopeCases = []Case{
	{ID: "wire/envelope/flags", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "Messages have flag 0; the last envelope has flag 2 and is an empty object.",
		Run: func(t *T) {
			frames := t.runJSON("echo hi")
			for _, f := range frames[:len(frames)-1] {
				if f.flag != 0 {
					t.Fatalf("want messages with flag 0, got %s", f)
				}
			}
			last := frames[len(frames)-1]
			t.equal("flag of the last envelope", last.flag, 2)
			t.equal("its keys", len(t.object(last.data)), 0)
		}},
	{ID: "wire/envelope/headers", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "A stream answers with the content type of the request and no Content-Length.",
		Run: func(t *T) {
			r := t.do(http.MethodPost, "/"+procStart, envelope(0, t.startJSON("/bin/sh", "-c", ":")), "Content-Type", "application/connect+json")
			t.equal("Content-Type", r.header.Get("Content-Type"), "application/connect+json")
			t.equal("Content-Length", r.header.Get("Content-Length"), "")
		}},
	{ID: "wire/envelope/none", Procedure: procStart, Protocols: justJSON,
		Requirement: "JSON without an envelope is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantEnd(t.streamBytes(procStart, []byte(`{"process":{"cmd":"/bin/true"}}`)), "invalid_argument")
		}},
	{ID: "wire/envelope/empty-body", Procedure: procStart, Protocols: justJSON,
		Requirement: "An empty body of a stream is refused with unimplemented.",
		Run:         func(t *T) { t.wantEnd(t.streamBytes(procStart, nil), "unimplemented") }},
	{ID: "wire/envelope/two-messages", Procedure: procConnect, Protocols: justJSON,
		Requirement: "Two messages where one belongs are refused with unimplemented.",
		Run: func(t *T) {
			one := envelope(0, `{"process":{"pid":1}}`)
			t.wantEnd(t.streamBytes(procConnect, append(one, one...)), "unimplemented")
		}},
	{ID: "wire/envelope/client-end", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "An end-of-stream envelope after the message is accepted.",
		Run: func(t *T) {
			body := append(envelope(0, t.startJSON("/bin/true")), envelope(2, "{}")...)
			t.equal("status", t.endEvent(t.streamBytes(procStart, body))["status"], "exit status 0")
		}},
	{ID: "wire/envelope/short", Procedure: procStart, Protocols: justJSON,
		Requirement: "An envelope that promises more than there is is refused with invalid_argument.",
		Run: func(t *T) {
			full := envelope(0, `{"process":{"cmd":"/bin/true"}}`)
			t.wantEnd(t.streamBytes(procStart, full[:len(full)-4]), "invalid_argument")
		}},
	{ID: "wire/envelope/huge-length", Procedure: procStart, Protocols: justJSON,
		Requirement: "An envelope that promises 4 GB and ends is refused with invalid_argument.",
		Run: func(t *T) {
			body := append(binary.BigEndian.AppendUint32([]byte{0}, 1<<32-1), "{}"...)
			t.wantEnd(t.streamBytes(procStart, body), "invalid_argument")
		}},
	{ID: "wire/envelope/malformed-json", Procedure: procStart, Protocols: justJSON,
		Requirement: "An envelope that is not JSON ends the stream with invalid_argument.",
		Run:         func(t *T) { t.wantEnd(t.stream(procStart, `{"process":`), "invalid_argument") }},
	{ID: "wire/envelope/unknown-fields", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "Unknown fields of a stream's request are ignored.",
		Run: func(t *T) {
			frames := t.stream(procStart, `{"process":{"cmd":"/bin/true","shell":true},"priority":7}`)
			t.equal("status", t.endEvent(frames)["status"], "exit status 0")
		}},
	{ID: "wire/envelope/compressed-unasked", Procedure: procStart, Protocols: justJSON,
		Requirement: "A compressed envelope without Connect-Content-Encoding is refused with internal.",
		Run: func(t *T) {
			t.wantEnd(t.streamBytes(procStart, envelope(1, string(zip(`{"process":{"cmd":"/bin/true"}}`)))), "internal")
		}},
	{ID: "wire/envelope/large-message", Procedure: procStart, Protocols: justJSON, Needs: shell, Level: Should,
		Requirement: "A request of 5 MB is accepted.",
		Run: func(t *T) {
			frames := t.stream(procStart, `{"process":{"cmd":"/bin/true"},"ignored":"`+strings.Repeat("x", 5_000_000)+`"}`)
			t.equal("status", t.endEvent(frames)["status"], "exit status 0")
		}},
	{ID: "wire/envelope/headers-with-start", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "The start event is sent at once, before there is any output.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; exit 0"), true))
			t.ok(t.send(pid(s.pid), "\n"), "SendInput after nothing but the start event")
			t.exited(s.wait(), 0)
		}},
}

func zip(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

func (t *T) unzip(data []byte) string {
	r, err := gzip.NewReader(bytes.NewReader(data))
	t.ok(err, "reading gzip")
	text, err := io.ReadAll(io.LimitReader(r, 64<<20))
	t.ok(err, "reading gzip")
	return string(text)
}

var wireGzipCases = []Case{
	{ID: "wire/gzip/unary-request", Procedure: procSignal, Protocols: justJSON,
		Requirement: "A unary request may be gzip.",
		Run: func(t *T) {
			r := t.do(http.MethodPost, "/"+procSignal, zip(fmt.Sprintf(`{"process":{"pid":%d},"signal":15}`, uint32(noPID))),
				"Content-Type", "application/json", "Content-Encoding", "gzip")
			if r.header.Get("Content-Encoding") == "gzip" {
				r.body = []byte(t.unzip(r.body))
			}
			t.wantCode(r, 404, "not_found")
		}},
	{ID: "wire/gzip/unary-answer", Procedure: procList, Protocols: justJSON, Level: Should,
		Requirement: "A unary answer is gzip when the client accepts it.",
		Run: func(t *T) {
			r := t.wantStatus(t.unary(procList, "{}", "Accept-Encoding", "gzip"), 200)
			t.equal("Content-Encoding", r.header.Get("Content-Encoding"), "gzip")
			t.object([]byte(t.unzip(r.body)))
		}},
	{ID: "wire/gzip/unary-identity", Procedure: procList, Protocols: justJSON,
		Requirement: "A unary answer is not compressed when the client does not accept that.",
		Run: func(t *T) {
			r := t.wantStatus(t.unary(procList, "{}", "Accept-Encoding", "identity"), 200)
			t.equal("Content-Encoding", r.header.Get("Content-Encoding"), "")
			t.object(r.body)
		}},
	{ID: "wire/gzip/unknown-encoding", Procedure: procList, Protocols: justJSON,
		Requirement: "An encoding that is not known is refused with unimplemented.",
		Run: func(t *T) {
			t.wantCode(t.unary(procList, "{}", "Content-Encoding", "br"), 501, "unimplemented")
		}},
	{ID: "wire/gzip/not-gzip", Procedure: procList, Protocols: justJSON,
		Requirement: "A body that is not gzip, though it says so, is refused with an error.",
		Run: func(t *T) {
			if r := t.unary(procList, "{}", "Content-Encoding", "gzip"); r.status < 400 {
				t.Fatalf("want an error status, got %s", r)
			}
		}},
	{ID: "wire/gzip/stream-request", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "The envelopes of a stream's request may be gzip.",
		Run: func(t *T) {
			frames := t.streamBytes(procStart, envelope(1, string(zip(t.startJSON("/bin/true")))), "Connect-Content-Encoding", "gzip")
			t.wantEnd(t.unzipAll(frames), "")
			t.equal("status", t.endEvent(t.unzipAll(frames))["status"], "exit status 0")
		}},
	{ID: "wire/gzip/stream-answer", Procedure: procStart, Protocols: justJSON, Needs: shell, Level: Should,
		Requirement: "The envelopes of a stream's answer are gzip when Connect-Accept-Encoding asks for it.",
		Run: func(t *T) {
			frames := t.runJSON("echo hi", "Connect-Accept-Encoding", "gzip")
			if frames[0].flag&1 == 0 {
				t.Fatalf("want compressed envelopes (flag 1), got %s", frames[0])
			}
			t.equal("status", t.endEvent(t.unzipAll(frames))["status"], "exit status 0")
		}},
	{ID: "wire/gzip/stream-plain", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "Accept-Encoding alone does not compress a stream.",
		Run: func(t *T) {
			t.equal("status", t.endEvent(t.runJSON("exit 0", "Accept-Encoding", "gzip"))["status"], "exit status 0")
		}},
	{ID: "wire/gzip/stream-unknown", Procedure: procStart, Protocols: justJSON,
		Requirement: "A stream with an encoding that is not known is refused with unimplemented.",
		Run: func(t *T) {
			t.wantEnd(t.stream(procStart, "{}", "Connect-Content-Encoding", "br"), "unimplemented")
		}},
}

// unzipAll returns the envelopes with gzip undone.
func (t *T) unzipAll(frames []frame) []frame {
	plain := slices.Clone(frames)
	for i, f := range plain {
		if f.flag&1 != 0 {
			plain[i] = frame{f.flag &^ 1, []byte(t.unzip(f.data))}
		}
	}
	return plain
}

var wireCodecCases = []Case{
	{ID: "wire/codec/json", Procedure: procList, Protocols: justHTTP,
		Requirement: "The server speaks the Connect protocol with JSON.",
		Run:         func(t *T) { t.object(t.wantStatus(t.unary(procList, "{}"), 200).body) }},
	{ID: "wire/codec/proto", Procedure: procList, Protocols: justHTTP,
		Requirement: "The server speaks the Connect protocol with binary protobuf; an empty body is an empty message.",
		Run: func(t *T) {
			r := t.wantStatus(t.do(http.MethodPost, "/"+procList, nil, "Content-Type", "application/proto"), 200)
			t.equal("Content-Type", r.header.Get("Content-Type"), "application/proto")
			t.ok(proto.Unmarshal(r.body, &process.ListResponse{}), "reading the answer")
		}},
	{ID: "wire/codec/proto-error", Procedure: procSignal, Protocols: []Protocol{Proto},
		Requirement: "The error of a binary call is JSON.",
		Run: func(t *T) {
			r := t.do(http.MethodPost, "/"+procSignal, nil, "Content-Type", "application/proto")
			t.wantCode(r, 501, "unimplemented")
		}},
	{ID: "wire/codec/proto-malformed", Procedure: procSignal, Protocols: []Protocol{Proto},
		Requirement: "Bytes that are no protobuf are refused with invalid_argument.",
		Run: func(t *T) {
			r := t.do(http.MethodPost, "/"+procSignal, []byte{0xff, 0xff, 0xff}, "Content-Type", "application/proto")
			t.wantCode(r, 400, "invalid_argument")
		}},
	{ID: "wire/codec/proto-unknown-field", Procedure: procList, Protocols: []Protocol{Proto},
		Requirement: "Unknown fields of a binary request are ignored.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodPost, "/"+procList, []byte{0xfa, 0x7f, 0x02, 'h', 'i'}, "Content-Type", "application/proto"), 200)
		}},
	{ID: "wire/codec/grpc-web", Procedure: procList, Protocols: justHTTP, Level: Should,
		Requirement: "The server speaks gRPC-Web: a message and then trailers in an envelope with flag 128.",
		Run: func(t *T) {
			r := t.wantStatus(t.do(http.MethodPost, "/"+procList, envelope(0, ""), "Content-Type", "application/grpc-web+proto"), 200)
			frames, err := parseFrames(r.body)
			t.ok(err, "reading the answer")
			if len(frames) != 2 || frames[1].flag != 128 {
				t.Fatalf("want a message and trailers with flag 128, got %v", frames)
			}
			t.contains("trailers", strings.ToLower(string(frames[1].data)), "grpc-status: 0")
		}},
	{ID: "wire/codec/grpc-web-error", Procedure: procSignal, Protocols: []Protocol{GRPCWeb},
		Requirement: "A failed gRPC-Web call is HTTP 200 with the status in grpc-status.",
		Run: func(t *T) {
			r := t.wantStatus(t.do(http.MethodPost, "/"+procSignal, envelope(0, ""), "Content-Type", "application/grpc-web+proto"), 200)
			status := r.header.Get("Grpc-Status")
			if frames, err := parseFrames(r.body); status == "" && err == nil && len(frames) > 0 {
				status = strings.ToLower(string(frames[len(frames)-1].data))
			}
			t.contains("grpc-status", status, "12")
		}},
	{ID: "wire/codec/grpc-web-json", Procedure: procList, Protocols: []Protocol{GRPCWeb}, Level: May,
		Requirement: "The server speaks gRPC-Web with JSON.",
		Run: func(t *T) {
			r := t.wantStatus(t.do(http.MethodPost, "/"+procList, envelope(0, "{}"), "Content-Type", "application/grpc-web+json"), 200)
			frames, err := parseFrames(r.body)
			t.ok(err, "reading the answer")
			if len(frames) != 2 {
				t.Fatalf("want a message and trailers, got %v", frames)
			}
			t.object(frames[0].data)
		}},
	{ID: "wire/codec/grpc-web-timeout", Procedure: procStart, Protocols: []Protocol{GRPCWeb}, Needs: shell, Level: May,
		Requirement: "Grpc-Timeout ends the stream but does not kill the process.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; exit 18"), true))
			o := t.with("Grpc-Timeout", "500m").attach(pid(s.pid)).rest()
			if o.err == nil {
				t.Fatalf("want the attached stream to end with an error, got %s", o)
			}
			t.ok(t.send(pid(s.pid), "\n"), "SendInput")
			t.exited(s.wait(), 18)
		}},
}
