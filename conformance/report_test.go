// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"a/b/c", "a/b/c", true}, {"a/b/c", "a/b/cd", false}, {"a/*", "a/b/c", true}, {"*c", "a/b/c", true},
		{"*b*", "a/b/c", true}, {"x,a/b/c", "a/b/c", true}, {"x,y*", "a/b/c", false},
		{"*x*", "a/b/c", false}, {"*", "", true}, {"a*", "", false}, {"a/*/c", "a/b/c", true},
	} {
		if got := Match(c.pattern, c.s); got != c.want {
			t.Errorf("Match(%q, %q) = %t, want %t", c.pattern, c.s, got, c.want)
		}
	}
}

func TestDeviations(t *testing.T) {
	known, err := ParseDeviations([]byte(`# why
implementation: a daemon
deviations:
  - id: process/start/exit-zero
    reason: never worked
  - {id: process/start/exit-code, reason: at times, sometimes: true}
  - id: process/pty/*
    reason: no gRPC-Web
    protocol: grpc-web
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		id       string
		protocol Protocol
		status   Status
		want     Status
	}{
		{"listed and failed", "process/start/exit-zero", JSON, Fail, ExpectedFail},
		{"listed and passed", "process/start/exit-zero", JSON, Pass, UnexpectedPass},
		{"at times and passed", "process/start/exit-code", JSON, Pass, Pass},
		{"at times and failed", "process/start/exit-code", JSON, Fail, ExpectedFail},
		{"pattern and failed", "process/pty/size", GRPCWeb, Fail, ExpectedFail},
		{"pattern, another protocol", "process/pty/size", JSON, Fail, Fail},
		{"not listed", "process/start/order", JSON, Fail, Fail},
		{"listed and not run", "process/start/exit-zero", JSON, NotRun, NotRun},
	} {
		r := Result{ID: c.id, Protocol: c.protocol, Status: c.status}
		known.apply(&r)
		if r.Status != c.want {
			t.Errorf("%s: got %s, want %s", c.name, r.Status, c.want)
		}
	}
}

func TestDeviationErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no reason", "deviations: [{id: process/start/order}]", `deviation 1, "process/start/order": it has no reason`},
		{"no such case", "deviations: [{id: process/start/nonsense, reason: x}]", "no case has that id"},
		{"no such pattern", "deviations: [{id: nonsense/*, reason: x}]", "no case has that id"},
		{"no such protocol", "deviations: [{id: process/start/order, reason: x, protocol: http3}]", `protocol "http3"`},
		{"misspelt field", "deviations:\n  - id: process/start/order\n    reasn: x", "line 3"},
		{"no YAML", "process/start/order does not work", "deviations:"},
		{"a list", "- id: process/start/order", "deviations:"},
	} {
		if _, err := ParseDeviations([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %q", c.name, err, c.want)
		}
	}
	if known, err := ParseDeviations(nil); err != nil || len(known) != 0 {
		t.Errorf("an empty file: got %v, %v; want no deviations", known, err)
	}
}

func TestShippedDeviations(t *testing.T) {
	want := []string{"fc-0.5.2", "upstream-0.2.0", "upstream-0.3.7", "upstream-0.5.2", "upstream-0.6.13"}
	if got := ShippedDeviations(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, name := range ShippedDeviations() {
		if known, err := LoadDeviations(name); err != nil || len(known) == 0 {
			t.Errorf("%s: got %d deviations, %v", name, len(known), err)
		}
	}
}

const hostile = "</pre><script>alert(1)</script> \x1b[31m \x00 `| ]]> & \xff"

func hostileReport() *Report {
	r := &Report{Schema: Schema, URL: "http://x/" + hostile, Started: time.Unix(0, 0)}
	r.add([]Result{
		{ID: "a/b/c", Area: "a/b", Requirement: "It works.", Level: "must", Protocol: JSON, Status: Fail, Message: hostile, Exchange: printable(hostile)},
		{ID: "a/b/d", Area: "a/b", Requirement: "It works.", Level: "must", Protocol: JSON, Status: ExpectedFail, Reason: hostile},
		{ID: "a/c/d", Area: "a/c", Requirement: "It works.", Level: "must", Protocol: HTTP, Status: NotRun, Reason: hostile},
		{ID: "a/c/e", Area: "a/c", Requirement: "It works.", Level: "must", Protocol: HTTP, Status: Pass},
	})
	return r
}

func TestReportsOfHostileText(t *testing.T) {
	for _, format := range Formats() {
		t.Run(format, func(t *testing.T) {
			var b strings.Builder
			if err := hostileReport().Write(&b, format); err != nil {
				t.Fatal(err)
			}
			out := b.String()
			if strings.ContainsAny(out, "\x1b\x00") {
				t.Errorf("control characters in the report:\n%q", out)
			}
			if !strings.Contains(out, "a/b/c") {
				t.Errorf("the failure is not there:\n%s", out)
			}
			switch format {
			case "html":
				if strings.Contains(out, "<script>") {
					t.Errorf("the page has a script:\n%s", out)
				}
				if !strings.Contains(out, `<details class="fail">`) || !strings.Contains(out, "0/2") {
					t.Errorf("want the failure and the matrix:\n%s", out)
				}
			case "json":
				var r Report
				if err := json.Unmarshal([]byte(out), &r); err != nil || r.Counts.Fail != 1 || len(r.Results) != 4 {
					t.Errorf("reading it again: %v, %+v", err, r.Counts)
				}
			case "junit":
				d := xml.NewDecoder(strings.NewReader(out))
				for {
					if _, err := d.Token(); err == io.EOF {
						break
					} else if err != nil {
						t.Fatalf("not XML: %v\n%s", err, out)
					}
				}
				if !strings.Contains(out, `tests="4" failures="1" skipped="2"`) {
					t.Errorf("want the counts:\n%s", out)
				}
			}
		})
	}
	if err := hostileReport().Write(io.Discard, "pdf"); err == nil {
		t.Error("want an error for an unknown format")
	}
}

func TestExchangeHidesSecrets(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "s=hunter2")
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("X-Access-Token"))
	}))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	r := &run{target: Target{URL: srv.URL, User: "user", Token: "hunter2"}, transport: http.DefaultTransport}
	c := newT(t.Context(), r, job{protocol: HTTP})
	c.do(http.MethodGet, "/x", nil, "Authorization", "Bearer hunter2")
	text := c.shared.log.String()
	if strings.Contains(text, "hunter2") || !strings.Contains(text, "> GET /x") || !strings.Contains(text, "< you sent …") {
		t.Errorf("want the exchange without secrets, got\n%s", text)
	}
}

func TestRunErrors(t *testing.T) {
	for _, target := range []Target{{URL: "nonsense"}, {URL: "http://127.0.0.1:1"}} {
		if _, err := Run(t.Context(), target, Options{}); err == nil {
			t.Errorf("Run(%q): want an error", target.URL)
		}
	}
}

// TestDumbServers checks that no case is content with a server that answers
// everything in the same way.
func TestDumbServers(t *testing.T) {
	passes := map[string]int{}
	answers := []struct {
		status int
		body   string
	}{{200, "{}"}, {500, "<html>broken</html>"}, {404, "404 page not found\n"}}
	for _, a := range answers {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(a.status)
			_, _ = io.WriteString(w, a.body)
		}))
		report, err := Run(t.Context(), Target{URL: srv.URL, Version: "0.6.13"}, Options{everything: true, Timeout: 2 * time.Second})
		srv.Close()
		if err != nil {
			t.Fatal(err)
		}
		for i := range report.Results {
			if r := &report.Results[i]; r.Status == Pass {
				passes[r.ID+" over "+string(r.Protocol)]++
			}
		}
	}
	for id, n := range passes {
		if n == len(answers) {
			t.Errorf("%s passes on every server", id)
		}
	}
}
