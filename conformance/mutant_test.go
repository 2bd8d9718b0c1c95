// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envd-go/envd/client/envdtest"
)

type object = map[string]any

// mutants are servers that are broken on purpose, and the case that finds out.
var mutants = []struct {
	name   string
	caught string
	wrap   func(http.Handler) http.Handler
	token  string
}{
	{name: "no end event", caught: "process/start/exit-zero", wrap: eventsOf("end", drop)},
	{name: "no start event", caught: "process/start/order", wrap: eventsOf("start", drop)},
	{name: "two end events", caught: "process/start/order", wrap: eventsOf("end", func(m object) []object { return []object{m, m} })},
	{name: "exit code always 0", caught: "process/start/exit-code", wrap: eventsOf("end", without("exitCode"))},
	{name: "exited missing", caught: "process/start/exit-zero", wrap: eventsOf("end", without("exited"))},
	{name: "exited always", caught: "process/end/own-signal", wrap: eventsOf("end", set("exited", true))},
	{name: "another status", caught: "process/start/exit-zero", wrap: eventsOf("end", set("status", "ok"))},
	{name: "no error text", caught: "process/start/exit-code", wrap: eventsOf("end", without("error"))},
	{name: "error text for success", caught: "process/start/exit-zero", wrap: eventsOf("end", set("error", ""))},
	{name: "signal as 128 and more", caught: "process/signal/kill", wrap: eventsOf("end", set("exitCode", 137))},
	{name: "stdout in stderr", caught: "process/start/stdout", wrap: eventsOf("data", rename("stdout", "stderr"))},
	{name: "stderr in stdout", caught: "process/start/stderr", wrap: eventsOf("data", rename("stderr", "stdout"))},
	{name: "stdout in pty", caught: "process/start/stdout", wrap: eventsOf("data", rename("stdout", "pty"))},
	{name: "pty in stdout", caught: "process/pty/output", wrap: eventsOf("data", rename("pty", "stdout"))},
	{name: "output twice", caught: "process/start/large-output", wrap: eventsOf("data", func(m object) []object { return []object{m, m} })},
	{name: "text mode output", caught: "process/start/binary-output", wrap: eventsOf("data", textOutput)},
	{name: "no end of stream", caught: "wire/envelope/flags", wrap: streams(func(flag byte, m object) []envelopeOf {
		if flag == 2 {
			return nil
		}
		return []envelopeOf{{flag, m}}
	})},
	{name: "end of stream without its flag", caught: "wire/envelope/flags", wrap: streams(func(_ byte, m object) []envelopeOf { return []envelopeOf{{0, m}} })},
	{name: "stream errors without a code", caught: "wire/errors/stream-shape", wrap: streams(func(flag byte, m object) []envelopeOf {
		if flag == 2 {
			m = object{}
		}
		return []envelopeOf{{flag, m}}
	})},
	{name: "exit code as a string", caught: "wire/json/exit-code", wrap: eventsOf("end", func(m object) []object {
		if _, ok := m["exitCode"]; ok {
			m["exitCode"] = "3"
		}
		return []object{m}
	})},
	{name: "zero exit code sent", caught: "wire/json/exit-zero", wrap: eventsOf("end", func(m object) []object {
		if _, ok := m["exitCode"]; !ok {
			m["exitCode"] = 0
		}
		return []object{m}
	})},
	{name: "snake case", caught: "wire/json/exit-code", wrap: eventsOf("end", rename("exitCode", "exit_code"))},
	{name: "pid as a string", caught: "wire/json/start-pid", wrap: eventsOf("start", func(m object) []object { return []object{{"pid": "17"}} })},
	{name: "another pid", caught: "process/start/pid", wrap: eventsOf("start", set("pid", 17))},
	{name: "flat pid", caught: "wire/json/start-pid", wrap: eventsOf("start", func(object) []object { return []object{{}} })},
	{name: "URL base64", caught: "wire/json/bytes", wrap: eventsOf("data", func(m object) []object {
		for k, v := range m {
			m[k] = strings.NewReplacer("+", "-", "/", "_").Replace(v.(string))
		}
		return []object{m}
	})},

	{name: "envs ignored", caught: "process/env/request", wrap: starts(func(m object) { m["process"].(object)["envs"] = keepMarker(m) })},
	{name: "cwd ignored", caught: "process/cwd/absolute", wrap: starts(func(m object) { delete(m["process"].(object), "cwd") })},
	{name: "args through a shell", caught: "process/start/no-shell", wrap: starts(func(m object) {
		p := m["process"].(object)
		args, _ := p["args"].([]any)
		if p["cmd"] == "/bin/echo" {
			line := "echo"
			for _, a := range args {
				line += " " + a.(string)
			}
			p["cmd"], p["args"] = "/bin/sh", []any{"-c", line}
		}
	})},
	{name: "empty args dropped", caught: "process/start/args", wrap: starts(func(m object) {
		p := m["process"].(object)
		args, _ := p["args"].([]any)
		p["args"] = slices.DeleteFunc(args, func(a any) bool { return a == "" })
	})},
	{name: "stdin field ignored", caught: "process/start/stdin-false", wrap: starts(func(m object) { delete(m, "stdin") })},
	{name: "stdin closed unless asked for", caught: "process/start/stdin-default", wrap: starts(func(m object) {
		if m["stdin"] == nil {
			m["stdin"] = false
		}
	})},
	{name: "tag dropped", caught: "process/list/tag", wrap: starts(func(m object) { delete(m, "tag") })},
	{name: "terminal ignored", caught: "process/pty/null", wrap: starts(func(m object) { m["pty"] = object{} })},
	{name: "columns and rows mixed up", caught: "process/pty/size", wrap: starts(func(m object) {
		if size, ok := dig(m, "pty", "size").(object); ok {
			size["cols"], size["rows"] = size["rows"], size["cols"]
		}
	})},

	{name: "every signal is TERM", caught: "process/signal/kill", wrap: requests(procSignal, func(m object) { m["signal"] = 15 })},
	{name: "signals without effect", caught: "process/signal/term", wrap: answers("/"+procSignal, 200, "{}")},
	{name: "input without effect", caught: "process/input/stdin", wrap: answers("/"+procInput, 200, "{}")},
	{name: "resize without effect", caught: "process/pty/resize", wrap: answers("/"+procUpdate, 200, "{}")},
	{name: "CloseStdin without effect", caught: "process/closestdin/eof", wrap: answers("/"+procClose, 200, "{}")},
	{name: "nothing listed", caught: "process/list/running", wrap: answers("/"+procList, 200, "{}")},
	{name: "StreamInput not implemented", caught: "process/streaminput/data", wrap: answers("/"+procStream, 501, `{"code":"unimplemented"}`)},
	{name: "not_found is internal", caught: "process/signal/unknown-pid", wrap: bodies("not_found", "internal")},
	{name: "error code as a number", caught: "wire/errors/unary-shape", wrap: bodies(`"code":"not_found"`, `"code":404`)},
	{name: "errors in text", caught: "wire/errors/unary-shape", wrap: bodies(`{"code":"not_found"`, `not found {`)},
	{name: "keepalives never sent", caught: "process/keepalive/start", wrap: headers(keepalive)},
	{name: "timeout ignored", caught: "process/timeout/kills", wrap: headers(timeoutMs)},
	{name: "user ignored", caught: "process/start/unknown-user", wrap: headers("Authorization")},
	{name: "no gzip", caught: "wire/gzip/unary-answer", wrap: headers("Accept-Encoding")},
	{name: "protocol version ignored", caught: "wire/errors/protocol-version", wrap: headers("Connect-Protocol-Version")},
	{name: "unknown methods succeed", caught: "wire/errors/unknown-method", wrap: answers("/process.Process/NoSuch", 200, "{}")},
	{name: "GET of an RPC is 404", caught: "wire/errors/get", wrap: statuses(405, 404)},
	{name: "415 is 400", caught: "wire/errors/content-type", wrap: statuses(415, 400)},
	{name: "health is 200 with JSON", caught: "http/health/ok", wrap: answers("/health", 200, `{"status":"ok"}`)},
	{name: "envs are not strings", caught: "http/envs/object", wrap: answers("/envs", 200, `{"A":1}`)},
	{name: "metrics are strings", caught: "http/metrics/object", wrap: answers("/metrics", 200, `{"ts":"1","cpu_count":"2","cpu_used_pct":"3"}`)},
	{name: "unknown paths succeed", caught: "http/routes/unknown", wrap: statuses(404, 200)},
	{name: "no CORS", caught: "http/cors/answer", wrap: headers("Origin")},

	{name: "gate answers 403", caught: "auth/token/missing", wrap: statuses(401, 403), token: "secret"},
	{name: "gate answers a Connect error", caught: "auth/token/missing", wrap: bodies(`"code":401`, `"code":"unauthenticated"`), token: "secret"},
	{name: "health behind the gate", caught: "auth/token/health", wrap: answers("/health", 401, "{}"), token: "secret"},
	{name: "any token will do", caught: "auth/token/wrong", wrap: anyToken("secret"), token: "secret"},
}

func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			srv := envdtest.NewUnstartedServer(envdtest.WithAccessToken(m.token))
			defer srv.Close()
			web := httptest.NewServer(m.wrap(srv.Handler()))
			defer web.Close()
			sound := httptest.NewServer(srv.Handler())
			defer sound.Close()
			opts := Options{Run: m.caught, Protocols: []Protocol{JSON, HTTP}, Timeout: 3 * time.Second}
			if status := only(t, Target{URL: web.URL, Version: "0.6.13", Token: m.token}, opts); status != Fail {
				t.Errorf("%s: want it to fail, got %s", m.caught, status)
			}
			opts.Timeout = 0
			if status := only(t, Target{URL: sound.URL, Version: "0.6.13", Token: m.token}, opts); status != Pass {
				t.Errorf("%s on a sound server: want it to pass, got %s", m.caught, status)
			}
		})
	}
}

// only runs one case and returns how it went.
func only(t *testing.T, target Target, opts Options) Status {
	t.Helper()
	target.Transport = &http.Transport{DisableCompression: true}
	defer target.Transport.(*http.Transport).CloseIdleConnections()
	r, err := Run(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 1 {
		t.Fatalf("want one result, got %d", len(r.Results))
	}
	return r.Results[0].Status
}

func drop(object) []object { return nil }

func set(key string, value any) func(object) []object {
	return func(m object) []object { m[key] = value; return []object{m} }
}

func without(key string) func(object) []object {
	return func(m object) []object { delete(m, key); return []object{m} }
}

func rename(from, to string) func(object) []object {
	return func(m object) []object {
		if v, ok := m[from]; ok {
			delete(m, from)
			m[to] = v
		}
		return []object{m}
	}
}

func textOutput(m object) []object {
	for k, v := range m {
		data, _ := base64.StdEncoding.DecodeString(v.(string))
		m[k] = base64.StdEncoding.EncodeToString([]byte(strings.ToValidUTF8(string(data), "?")))
	}
	return []object{m}
}

// keepMarker is what is left of the envs: our own marker only.
func keepMarker(m object) any {
	return object{markerEnv: dig(m, "process", "envs", markerEnv)}
}

// eventsOf changes one kind of event in streams of JSON.
func eventsOf(kind string, change func(object) []object) func(http.Handler) http.Handler {
	return streams(func(flag byte, m object) []envelopeOf {
		inner, ok := dig(m, "event", kind).(object)
		if !ok {
			return []envelopeOf{{flag, m}}
		}
		var all []envelopeOf
		for _, changed := range change(maps.Clone(inner)) {
			all = append(all, envelopeOf{flag, object{"event": object{kind: changed}}})
		}
		return all
	})
}

type envelopeOf struct {
	flag byte
	m    object
}

// streams changes the envelopes of streams of JSON.
func streams(change func(byte, object) []envelopeOf) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Content-Type") == "application/connect+json" {
				w = &changer{ResponseWriter: w, change: change}
			}
			next.ServeHTTP(w, r)
		})
	}
}

type changer struct {
	http.ResponseWriter
	buf    []byte
	change func(byte, object) []envelopeOf
}

func (c *changer) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *changer) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }

func (c *changer) Write(p []byte) (int, error) {
	c.buf = append(c.buf, p...)
	for len(c.buf) >= 5 {
		n := int(binary.BigEndian.Uint32(c.buf[1:])) + 5
		if len(c.buf) < n {
			break
		}
		var m object
		if err := json.Unmarshal(c.buf[5:n], &m); err != nil {
			return 0, err
		}
		for _, e := range c.change(c.buf[0], m) {
			if _, err := c.ResponseWriter.Write(envelope(e.flag, mustJSON(e.m))); err != nil {
				return 0, err
			}
		}
		c.buf = c.buf[n:]
	}
	return len(p), nil
}

// starts changes the requests of Start.
func starts(change func(object)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/"+procStart && r.Header.Get("Content-Type") == "application/connect+json" {
				body, _ := io.ReadAll(r.Body)
				var m object
				if err := json.Unmarshal(body[5:], &m); err == nil {
					change(m)
					body = envelope(0, mustJSON(m))
				}
				replace(r, body)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// requests changes the requests of a unary call.
func requests(procedure string, change func(object)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/"+procedure && r.Header.Get("Content-Type") == "application/json" {
				body, _ := io.ReadAll(r.Body)
				var m object
				if err := json.Unmarshal(body, &m); err == nil {
					change(m)
					body = []byte(mustJSON(m))
				}
				replace(r, body)
			}
			next.ServeHTTP(w, r)
		})
	}
}

func replace(r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

// answers answers one path without doing anything.
func answers(path string, status int, body string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path || r.Header.Get("Content-Type") == "application/grpc-web+proto" {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
}

// whole changes answers that are no streams.
func whole(change func(*httptest.ResponseRecorder)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+") {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			change(rec)
			maps.Copy(w.Header(), rec.Header())
			w.Header().Del("Content-Length")
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes())
		})
	}
}

func bodies(from, to string) func(http.Handler) http.Handler {
	return whole(func(rec *httptest.ResponseRecorder) {
		rec.Body = bytes.NewBuffer(bytes.ReplaceAll(rec.Body.Bytes(), []byte(from), []byte(to)))
	})
}

func statuses(from, to int) func(http.Handler) http.Handler {
	return whole(func(rec *httptest.ResponseRecorder) {
		if rec.Code == from {
			rec.Code = to
		}
	})
}

// headers takes a header off all requests.
func headers(name string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del(name)
			next.ServeHTTP(w, r)
		})
	}
}

func anyToken(token string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Access-Token") != "" {
				r.Header.Set("X-Access-Token", token)
			}
			next.ServeHTTP(w, r)
		})
	}
}
