// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Benchreport makes tables of raw results of "go test -bench": one for each
// file, which compares what stands behind "impl=" in the names, one of the cost
// of a unit as the work grows, and one of everything else. With -w it puts them
// between the two marks of a Markdown file, else it prints them.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchunit"
)

func main() {
	into := flag.String("w", "", "the Markdown `FILE` to put the tables into")
	flag.Parse()
	if err := run(*into, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

const (
	beginMark = "<!-- made by make performance -->"
	endMark   = "<!-- end of what make performance makes -->"
)

func run(into string, files []string, out io.Writer) error {
	if len(files) == 0 {
		return errors.New("no files with results")
	}
	var text strings.Builder
	for _, file := range files {
		results, err := read(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "\n### %s\n\n%s\n\n", strings.TrimSuffix(filepath.Base(file), ".txt"), results.about)
		results.compare(&text)
		results.growth(&text)
		results.rest(&text)
	}
	if into == "" {
		_, err := io.WriteString(out, text.String())
		return err
	}
	page, err := os.ReadFile(into)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(page), beginMark)
	_, tail, ok2 := strings.Cut(rest, endMark)
	if !ok || !ok2 {
		return fmt.Errorf("%s: the marks are missing", into)
	}
	return os.WriteFile(into, []byte(head+beginMark+"\n"+text.String()+"\n"+endMark+tail), 0o644)
}

// series is all that was measured of one thing.
type series struct {
	name, impl, unit string
	values           []float64
}

// results are those of one file, in its order.
type results struct {
	about string // the machine and the daemon
	list  []*series
}

func read(file string) (*results, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &results{}
	index := map[string]*series{}
	about := map[string]string{}
	reader := benchfmt.NewReader(f, file)
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		for _, c := range result.Config {
			about[c.Key] = string(c.Value)
		}
		name, impl := splitName(string(result.Name))
		for _, v := range result.Values {
			key := name + "|" + impl + "|" + v.Unit
			s := index[key]
			if s == nil {
				s = &series{name: name, impl: impl, unit: v.Unit}
				index[key], r.list = s, append(r.list, s)
			}
			s.values = append(s.values, v.Value)
		}
	}
	if len(r.list) == 0 {
		return nil, fmt.Errorf("%s: no results", file)
	}
	var parts []string
	for _, key := range []string{"daemon", "date", "goos", "goarch", "cpu", "cores", "go"} {
		if about[key] != "" {
			parts = append(parts, key+": "+about[key])
		}
	}
	r.about = strings.Join(parts, ", ")
	return r, reader.Err()
}

var procsSuffix = regexp.MustCompile(`-[0-9]+$`)

// splitName takes the implementation out of a name.
func splitName(full string) (name, impl string) {
	var kept []string
	for _, part := range strings.Split(procsSuffix.ReplaceAllString(full, ""), "/") {
		if value, ok := strings.CutPrefix(part, "impl="); ok {
			impl = value
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "/"), impl
}

func (r *results) find(name, impl, unit string) *series {
	for _, s := range r.list {
		if s.name == name && s.impl == impl && s.unit == unit {
			return s
		}
	}
	return nil
}

func (s *series) summary() benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(s.values), &benchmath.DefaultThresholds), 0.95)
}

func (s *series) median() float64 { return s.summary().Center }

// spread is how far the values lie from the median, in per cent.
func (s *series) spread() string {
	low, high, mid := slices.Min(s.values), slices.Max(s.values), s.median()
	if mid == 0 {
		return "0%"
	}
	return fmt.Sprintf("%.0f%%", 100*max(high-mid, mid-low)/mid)
}

func (s *series) String() string {
	mid := s.median()
	text := benchunit.Scale(mid, benchunit.ClassOf(s.unit))
	return fmt.Sprintf("%s%s ±%s", text, strings.TrimSuffix(shortUnit(s.unit), ""), s.spread())
}

func shortUnit(unit string) string {
	switch unit {
	case "sec/op":
		return "s"
	case "B/op":
		return "B"
	case "B/s":
		return "B/s"
	case "allocs/op":
		return ""
	}
	return " " + unit
}

// rivals are what the client is compared with, the nearest first.
var rivals = []string{"tuned-stub", "net-http", "one-by-one", "default-stub"}

// compared are the units that are worth it.
var compared = []string{"sec/op", "B/op", "allocs/op", "KiB/stream"}

// compare prints the client beside its rivals. A ratio below 1 means that the
// client needs less.
func (r *results) compare(w io.Writer) {
	fmt.Fprintf(w, "| what | unit | client | rival | its result | client ÷ rival | p |\n|---|---|--:|---|--:|--:|--:|\n")
	for _, unit := range compared {
		for _, s := range r.list {
			if s.impl != "client" || s.unit != unit {
				continue
			}
			for _, name := range rivals {
				rival := r.find(s.name, name, unit)
				if rival == nil || name == "default-stub" && unit != "sec/op" {
					continue
				}
				label := s
				other := rival
				if per := r.find(s.name, "client", "µs/file"); per != nil && unit == "sec/op" {
					label, other = per, r.find(s.name, name, "µs/file") // they moved different numbers
				}
				fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n",
					s.name, label.unit, label, name, other, ratio(label, other), pValue(label, other))
			}
		}
	}
}

func ratio(a, b *series) string {
	if b.median() == 0 {
		return "–"
	}
	return fmt.Sprintf("**%.2f**", a.median()/b.median())
}

// pValue is how likely such a difference is by chance.
func pValue(a, b *series) string {
	c := benchmath.AssumeNothing.Compare(
		benchmath.NewSample(slices.Clone(a.values), &benchmath.DefaultThresholds),
		benchmath.NewSample(slices.Clone(b.values), &benchmath.DefaultThresholds))
	return fmt.Sprintf("%.2f", c.P)
}

// sized finds the amount of work in a name.
var sized = regexp.MustCompile(`/(n|size|streams)=([0-9]+)(KiB|MiB|GiB)?`)

// growth prints what a unit costs as the work grows.
func (r *results) growth(w io.Writer) {
	type point struct {
		n    float64
		text string
	}
	points := map[string][]point{}
	var names []string
	for _, s := range r.list {
		m := sized.FindStringSubmatch(s.name)
		if m == nil || s.unit != "sec/op" || s.impl != "client" && s.impl != "" || m[1] == "streams" {
			continue
		}
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			continue
		}
		per := "each"
		switch m[3] {
		case "KiB":
			per = "KiB"
		case "MiB":
			n, per = n*1024, "KiB"
		case "GiB":
			n, per = n*1024*1024, "KiB"
		}
		name := sized.ReplaceAllString(s.name, "") + ", for " + per
		if points[name] == nil {
			names = append(names, name)
		}
		cost := benchunit.Scale(s.median()/n, benchunit.ClassOf("sec/op")) + "s"
		points[name] = append(points[name], point{n, m[2] + m[3] + ": " + cost})
	}
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(w, "\nWhat a unit costs as the work grows:\n\n| what | cost |\n|---|---|\n")
	for _, name := range names {
		list := points[name]
		slices.SortStableFunc(list, func(a, b point) int { return cmp.Compare(a.n, b.n) })
		var texts []string
		for _, p := range list {
			texts = append(texts, p.text)
		}
		fmt.Fprintf(w, "| %s | %s |\n", name, strings.Join(texts, " · "))
	}
}

// rest prints what has nothing to be compared with.
func (r *results) rest(w io.Writer) {
	first := true
	for _, s := range r.list {
		if s.impl != "" || s.unit == "B/op" || s.unit == "allocs/op" || s.unit == "sec/op" && r.hasOwn(s.name) || s.median() == 0 {
			continue
		}
		if first {
			fmt.Fprintf(w, "\n| what | result |\n|---|--:|\n")
			first = false
		}
		fmt.Fprintf(w, "| %s | %s |\n", s.name, s)
	}
}

// hasOwn reports whether a benchmark has a unit that says more than its time.
func (r *results) hasOwn(name string) bool {
	return slices.ContainsFunc(r.list, func(s *series) bool {
		return s.name == name && s.unit != "sec/op" && s.unit != "B/op" && s.unit != "allocs/op"
	})
}
