// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
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
		{"*b*", "a/b/c", true}, {"*x*", "a/b/c", false}, {"*", "", true}, {"a*", "", false}, {"a/*/c", "a/b/c", true},
	} {
		if got := Match(c.pattern, c.s); got != c.want {
			t.Errorf("Match(%q, %q) = %t, want %t", c.pattern, c.s, got, c.want)
		}
	}
}

func TestDeviations(t *testing.T) {
	known, err := ParseDeviations("# why\n\na/b/c  never worked\n?a/b/d at times\na/x/*@grpc-web no gRPC-Web\n")
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
		{"listed and failed", "a/b/c", JSON, Fail, ExpectedFail},
		{"listed and passed", "a/b/c", JSON, Pass, UnexpectedPass},
		{"at times and passed", "a/b/d", JSON, Pass, Pass},
		{"at times and failed", "a/b/d", JSON, Fail, ExpectedFail},
		{"pattern and failed", "a/x/y", GRPCWeb, Fail, ExpectedFail},
		{"pattern, another protocol", "a/x/y", JSON, Fail, Fail},
		{"not listed", "a/b/e", JSON, Fail, Fail},
		{"listed and not run", "a/b/c", JSON, NotRun, NotRun},
	} {
		r := Result{ID: c.id, Protocol: c.protocol, Status: c.status}
		known.apply(&r)
		if r.Status != c.want {
			t.Errorf("%s: got %s, want %s", c.name, r.Status, c.want)
		}
	}
	if _, err := ParseDeviations("a/b/c\n"); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a line without a reason: got error %v, want one that names the line", err)
	}
}

// TestShippedDeviations checks that every line names cases that there are.
func TestShippedDeviations(t *testing.T) {
	if len(ShippedDeviations()) == 0 {
		t.Fatal("there are none")
	}
	for _, name := range ShippedDeviations() {
		known, err := LoadDeviations(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range known {
			found := false
			for _, c := range Cases() {
				found = found || Match(d.Pattern, c.ID)
			}
			if !found {
				t.Errorf("%s: no case matches %s", name, d.Pattern)
			}
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
