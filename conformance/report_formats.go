// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"strings"
)

// Formats are the names that Write knows.
func Formats() []string { return []string{"text", "json", "junit", "markdown", "html"} }

// Write writes the report in one of the Formats.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		return r.WriteText(w)
	case "json":
		return r.WriteJSON(w)
	case "junit":
		return r.WriteJUnit(w)
	case "markdown":
		return r.WriteMarkdown(w)
	case "html":
		return r.WriteHTML(w)
	}
	return fmt.Errorf("report format %q is none of %s", format, strings.Join(Formats(), ", "))
}

// WriteJSON writes the report as JSON, as Schema names it.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

type junitSuites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Time     string   `xml:"time,attr"`
	Suites   []junitSuite
}

type junitSuite struct {
	XMLName  xml.Name `xml:"testsuite"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Cases    []junitCase
}

type junitCase struct {
	XMLName   xml.Name `xml:"testcase"`
	Class     string   `xml:"classname,attr"`
	Name      string   `xml:"name,attr"`
	Time      string   `xml:"time,attr"`
	Failure   *junitFailure
	Skipped   *junitSkipped
	SystemOut string `xml:"system-out,omitempty"`
}

type junitFailure struct {
	XMLName xml.Name `xml:"failure"`
	Message string   `xml:"message,attr"`
	Text    string   `xml:",chardata"`
}

type junitSkipped struct {
	XMLName xml.Name `xml:"skipped"`
	Message string   `xml:"message,attr"`
}

// WriteJUnit writes the report as JUnit XML. A known failure is skipped there,
// with its reason.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := junitSuites{Name: "envd conformance", Tests: r.Counts.Total(), Failures: r.Counts.Fail + r.Counts.UnexpectedPass,
		Skipped: r.Counts.NotRun + r.Counts.ExpectedFail, Time: fmt.Sprintf("%.3f", r.Seconds)}
	for i := range r.Results {
		res := &r.Results[i]
		if len(all.Suites) == 0 || all.Suites[len(all.Suites)-1].Name != res.Area {
			all.Suites = append(all.Suites, junitSuite{Name: res.Area})
		}
		s := &all.Suites[len(all.Suites)-1]
		c := junitCase{Class: res.ID, Name: string(res.Protocol), Time: fmt.Sprintf("%.3f", res.Seconds)}
		switch {
		case !res.Status.OK():
			c.Failure = &junitFailure{Message: printable(res.Requirement), Text: printable(res.Message + "\n" + res.Exchange)}
			s.Failures++
		case res.Status != Pass:
			c.Skipped = &junitSkipped{Message: printable(string(res.Status) + ": " + res.Reason)}
			s.Skipped++
		}
		s.Tests++
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// WriteMarkdown writes a summary for a README or a comment.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# envd conformance\n\n%s, version %s, speaking %s: **%s** in %.1f s.\n\n", inline(r.URL), inline(r.Profile.Version), protocols(r.Profile.Protocols), r.Counts, r.Seconds)
	b.WriteString("| area | passed | failed | known | not run |\n|---|--:|--:|--:|--:|\n")
	for _, g := range r.areas() {
		c := g.counts
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", g.name, c.Pass, c.Fail+c.UnexpectedPass, c.ExpectedFail, c.NotRun)
	}
	if len(r.Profile.Traits) > 0 {
		b.WriteString("\n## What servers differ in\n\n")
	}
	for _, trait := range r.Profile.Traits {
		fmt.Fprintf(&b, "- %s: %s\n", trait.Name, inline(trait.Value))
	}
	for _, section := range []struct {
		title string
		want  func(Status) bool
	}{
		{"Failures", func(s Status) bool { return !s.OK() }},
		{"Known deviations", func(s Status) bool { return s == ExpectedFail }},
	} {
		first := true
		for i := range r.Results {
			res := &r.Results[i]
			if !section.want(res.Status) {
				continue
			}
			if first {
				fmt.Fprintf(&b, "\n## %s\n\n", section.title)
				first = false
			}
			text := res.Reason
			if text == "" || !res.Status.OK() {
				text = clip(res.Message, 300)
			}
			fmt.Fprintf(&b, "- %s over %s (%s): %s Found: %s\n", inline(res.ID), res.Protocol, res.Level, res.Requirement, inline(text))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// inline is text as code within a line of Markdown, so that nothing in it is
// markup.
func inline(s string) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	return "`" + strings.ReplaceAll(s, "`", "'") + "`"
}

// WriteHTML writes a page that needs nothing besides itself.
func (r *Report) WriteHTML(w io.Writer) error {
	return page.Execute(w, struct {
		*Report
		Areas []*group
		Over  []Protocol
	}{r, r.areas(), []Protocol{HTTP, JSON, Proto, GRPCWeb}})
}

// Name and Cell are for the page.
func (g *group) Name() string { return g.name }

// Cell counts the results of one protocol; nil where there are none.
func (g *group) Cell(p Protocol) *Counts { return g.by[p] }

// Class is how a cell looks.
func (c *Counts) Class() string {
	switch {
	case c.Fail+c.UnexpectedPass > 0:
		return "fail"
	case c.ExpectedFail > 0:
		return "expected-fail"
	case c.Pass > 0:
		return "pass"
	}
	return "not-run"
}

// Tried is the number of results with a verdict.
func (c *Counts) Tried() int { return c.Total() - c.NotRun }

var page = template.Must(template.New("report").Funcs(template.FuncMap{"printable": printable}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>envd conformance</title>
<style>
:root{color-scheme:light dark;--ok:#1a7f37;--bad:#cf222e;--known:#9a6700;--off:#6e7781}
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.4rem}table{border-collapse:collapse;display:block;overflow-x:auto}th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #8884}
th,td{white-space:nowrap}th:first-child,td:first-child{text-align:left}td span{display:block;padding:0 .4rem;border-radius:.3rem}
td .pass{background:#1a7f3722}td .expected-fail{background:#9a670033}td .fail{background:#cf222e33}dl{display:grid;grid-template-columns:auto 1fr;gap:.1rem 1rem;font-size:14px}dd{margin:0}
@media(max-width:36rem){th,td{padding:.2rem;font-size:12px}}
.pass{color:var(--ok)}.fail,.unexpected-pass{color:var(--bad);font-weight:600}.expected-fail{color:var(--known)}.not-run{color:var(--off)}
details{border-bottom:1px solid #8884;padding:.25rem 0}summary{cursor:pointer}pre{overflow-x:auto;background:#8882;padding:.5rem;font-size:12px}
fieldset{border:0;padding:0;margin:1rem 0;display:flex;gap:1rem;flex-wrap:wrap}
{{range $s := .Statuses}}body:has(#show-{{$s}}:not(:checked)) details.{{$s}}{display:none}
{{end}}</style></head><body>
<h1>envd conformance</h1>
<p>{{printable .URL}}, version {{.Profile.Version}} ({{.Profile.VersionFrom}}), {{.Started.Format "2006-01-02 15:04 MST"}}</p>
<p><strong class="{{.Counts.Class}}">{{.Counts}}</strong> in {{printf "%.1f" .Seconds}} s. Left behind: {{.LeftBehind}}.</p>
<table><thead><tr><th>area</th>{{range .Over}}<th>{{.}}</th>{{end}}</tr></thead><tbody>
{{range $g := .Areas}}<tr><td>{{$g.Name}}</td>{{range $.Over}}<td>{{with $g.Cell .}}<span class="{{.Class}}">{{if .Tried}}{{.Pass}}/{{.Tried}}{{else}}–{{end}}</span>{{end}}</td>{{end}}</tr>
{{end}}</tbody></table>
{{with .Profile.Traits}}<details open><summary>What servers differ in</summary><dl>{{range .}}<dt>{{.Name}}</dt><dd>{{printable .Value}}</dd>
{{end}}</dl></details>
{{end}}
<fieldset>{{range .Statuses}}<label><input type="checkbox" id="show-{{.}}"{{if ne . "pass"}} checked{{end}}> {{.}}</label>{{end}}</fieldset>
{{range .Results}}<details class="{{.Status}}"><summary><span class="{{.Status}}">{{.Status}}</span> <code>{{.ID}}</code> over {{.Protocol}}</summary>
<p>{{.Level}}: {{.Requirement}} <small>{{.Procedure}}</small></p>{{if .Reason}}<p>{{printable .Reason}}</p>{{end}}
{{if .Message}}<pre>{{printable .Message}}</pre>{{end}}{{if .Exchange}}<pre>{{.Exchange}}</pre>{{end}}</details>
{{end}}</body></html>
`))

// Statuses lists all statuses, for the filters of the page.
func (r *Report) Statuses() []string {
	return []string{string(Fail), string(UnexpectedPass), string(ExpectedFail), string(NotRun), string(Pass)}
}
