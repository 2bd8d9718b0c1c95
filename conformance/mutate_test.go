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
	"strconv"
	"strings"
)

type object = map[string]any

type wrapper = func(http.Handler) http.Handler

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
func eventsOf(kind string, change func(object) []object) wrapper {
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
func streams(change func(byte, object) []envelopeOf) wrapper {
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
func starts(change func(object)) wrapper {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/"+procStart && r.Header.Get("Content-Type") == "application/connect+json" {
				body, _ := io.ReadAll(r.Body)
				var m object
				if len(body) >= 5 && json.Unmarshal(body[5:], &m) == nil {
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
func requests(procedure string, change func(object)) wrapper {
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
func answers(path string, status int, body string) wrapper {
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
func whole(change func(*httptest.ResponseRecorder)) wrapper {
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
			if length, ok := rec.Header()["Content-Length"]; ok && length == nil {
				_ = http.NewResponseController(w).Flush() // or it would be counted
			}
			_, _ = w.Write(rec.Body.Bytes())
		})
	}
}

func bodies(from, to string) wrapper {
	return whole(func(rec *httptest.ResponseRecorder) {
		rec.Body = bytes.NewBuffer(bytes.ReplaceAll(rec.Body.Bytes(), []byte(from), []byte(to)))
	})
}

func statuses(from, to int) wrapper {
	return whole(func(rec *httptest.ResponseRecorder) {
		if rec.Code == from {
			rec.Code = to
		}
	})
}

// headers takes a header off all requests.
func headers(name string) wrapper {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del(name)
			next.ServeHTTP(w, r)
		})
	}
}

func anyToken(token string) wrapper {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Access-Token") != "" {
				r.Header.Set("X-Access-Token", token)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// streamAnswers answers one stream of JSON with its end alone.
func streamAnswers(path, end string) wrapper {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path || r.Header.Get("Content-Type") != "application/connect+json" {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/connect+json")
			_, _ = w.Write(envelope(2, end))
		})
	}
}

// codes changes a code, in answers and at the end of streams.
func codes(from, to string) wrapper {
	unary := bodies(`"code":"`+from+`"`, `"code":"`+to+`"`)
	stream := streams(func(flag byte, m object) []envelopeOf {
		if e, ok := m["error"].(object); ok && e["code"] == from {
			e["code"] = to
		}
		return []envelopeOf{{flag, m}}
	})
	return func(next http.Handler) http.Handler { return unary(stream(next)) }
}

// fields takes a field out of everything that is answered in JSON.
func fields(name string) wrapper { return answered(func(v any) { strip(v, name) }) }

// wrong changes the value of a field in everything that is answered in JSON.
func wrong(name string) wrapper { return answered(func(v any) { falsify(v, name) }) }

// answered changes everything that is answered in JSON.
func answered(change func(any)) wrapper {
	unary := whole(func(rec *httptest.ResponseRecorder) {
		var v any
		if rec.Header().Get("Content-Encoding") == "" && json.Unmarshal(rec.Body.Bytes(), &v) == nil {
			change(v)
			rec.Body = bytes.NewBufferString(mustJSON(v))
		}
	})
	stream := streams(func(flag byte, m object) []envelopeOf {
		change(m)
		return []envelopeOf{{flag, m}}
	})
	return func(next http.Handler) http.Handler { return unary(stream(next)) }
}

// asked takes a field out of what is asked in JSON.
func asked(name string) wrapper {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			kind := r.Header.Get("Content-Type")
			if kind != "application/json" && kind != "application/connect+json" || r.URL.Path == "/"+procStream {
				next.ServeHTTP(w, r)
				return
			}
			head := 0
			if kind == "application/connect+json" {
				head = 5
			}
			body, _ := io.ReadAll(r.Body)
			var m object
			if len(body) >= head && json.Unmarshal(body[head:], &m) == nil {
				strip(m, name)
				body = []byte(mustJSON(m))
				if head > 0 {
					body = envelope(0, string(body))
				}
			}
			replace(r, body)
			next.ServeHTTP(w, r)
		})
	}
}

// strip takes a field out of JSON, wherever it is, except for the run's mark.
func strip(v any, name string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			strip(e, name)
		}
	case object:
		if mark := dig(v, name, markerEnv); mark != nil {
			v[name] = object{markerEnv: mark}
		} else {
			delete(v, name)
		}
		for _, e := range v {
			strip(e, name)
		}
	}
}

// answerHeaders takes a header off all answers that are no streams.
func answerHeaders(name string) wrapper {
	return whole(func(rec *httptest.ResponseRecorder) { rec.Header()[name] = nil })
}

// on applies a wrapper to one endpoint only ("GET /files").
func on(endpoint string, wrap wrapper) wrapper {
	return func(next http.Handler) http.Handler {
		broken := wrap(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method+" "+r.URL.Path == endpoint {
				broken.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// plain answers an endpoint without doing anything.
func plain(endpoint string, status int, body string) wrapper {
	_, path, _ := strings.Cut(endpoint, " ")
	return on(endpoint, answers(path, status, body))
}

// contents changes what is downloaded.
func contents(change func([]byte) []byte) wrapper {
	return on("GET /files", whole(func(rec *httptest.ResponseRecorder) {
		if rec.Code == http.StatusOK && rec.Header().Get("Content-Encoding") == "" {
			rec.Body = bytes.NewBuffer(change(rec.Body.Bytes()))
		}
	}))
}

// before changes the requests of an endpoint.
func before(endpoint string, change func(*http.Request)) wrapper {
	return on(endpoint, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			change(r)
			next.ServeHTTP(w, r)
		})
	})
}

// after does something once an endpoint has answered.
func after(endpoint string, do func(*http.Request)) wrapper {
	return on(endpoint, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			do(r)
		})
	})
}

// uploads changes the bodies of uploads.
func uploads(change func([]byte) []byte) wrapper {
	return before("POST /files", func(r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		replace(r, change(body))
	})
}

// queries takes a parameter off the query of an endpoint.
func queries(endpoint, name string) wrapper {
	return before(endpoint, func(r *http.Request) {
		q := r.URL.Query()
		q.Del(name)
		r.URL.RawQuery = q.Encode()
	})
}

// inits takes a field out of what POST /init is asked.
func inits(field string) wrapper {
	return before("POST /init", func(r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m object
		if json.Unmarshal(body, &m) == nil {
			delete(m, field)
			body = []byte(mustJSON(m))
		}
		replace(r, body)
	})
}

// listings changes the entries of listed directories.
func listings(change func([]any) []any) wrapper {
	return whole(func(rec *httptest.ResponseRecorder) {
		var m object
		if json.Unmarshal(rec.Body.Bytes(), &m) != nil {
			return
		}
		if all, ok := m["entries"].([]any); ok {
			m["entries"] = change(all)
			rec.Body = bytes.NewBufferString(mustJSON(m))
		}
	})
}

// falsify changes the value of a field to another of its kind.
func falsify(v any, name string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			falsify(e, name)
		}
	case object:
		for key, value := range v {
			if key != name {
				falsify(value, name)
				continue
			}
			switch value := value.(type) {
			case float64:
				v[key] = value + 1
			case string:
				v[key] = falseText(name, value)
			}
		}
	}
}

func falseText(name, text string) string {
	switch name {
	case "type":
		return map[string]string{"FILE_TYPE_FILE": "FILE_TYPE_DIRECTORY"}[text] // or none
	case "size":
		return "1" + text
	case "modifiedTime":
		return "2001-01-01T00:00:00Z"
	}
	return text + "x"
}
