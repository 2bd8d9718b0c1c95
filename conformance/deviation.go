// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bufio"
	"embed"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

//go:embed deviations/*.txt
var shipped embed.FS

// A Deviation is a failure that is known.
type Deviation struct {
	// Pattern is the id of a case; "*" stands for any characters.
	Pattern string
	// Protocol limits it to one protocol; empty is any.
	Protocol Protocol
	// Sometimes says that the case passes at times, as with a race.
	Sometimes bool
	// Reason says why.
	Reason string
}

// Deviations are the known failures of one server.
type Deviations []Deviation

// ShippedDeviations lists the names that LoadDeviations knows.
func ShippedDeviations() []string {
	entries, err := shipped.ReadDir("deviations")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return names
}

// LoadDeviations reads a list: one that is shipped, such as "upstream-0.6.13",
// or a file.
func LoadDeviations(name string) (Deviations, error) {
	if slices.Contains(ShippedDeviations(), name) {
		data, err := shipped.ReadFile("deviations/" + name + ".txt")
		if err != nil {
			return nil, fmt.Errorf("read deviations %s: %w", name, err)
		}
		return ParseDeviations(string(data))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read deviations: %w (the shipped ones are %s)", err, strings.Join(ShippedDeviations(), ", "))
	}
	return ParseDeviations(string(data))
}

// ParseDeviations reads a list of deviations. Each line is a pattern of ids,
// then spaces and the reason. A pattern may end with "@" and a protocol, and
// begin with "?" for a case that fails only at times. Empty lines and lines
// that begin with "#" are ignored.
func ParseDeviations(text string) (Deviations, error) {
	var all Deviations
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, reason, _ := strings.Cut(line, " ")
		d := Deviation{Reason: strings.TrimSpace(reason)}
		if d.Reason == "" {
			return nil, fmt.Errorf("deviations, line %d: %q has no reason", n, pattern)
		}
		pattern, d.Sometimes = strings.CutPrefix(pattern, "?")
		pattern, protocol, _ := strings.Cut(pattern, "@")
		d.Pattern, d.Protocol = pattern, Protocol(protocol)
		all = append(all, d)
	}
	return all, lines.Err()
}

func (all Deviations) apply(r *Result) {
	for _, d := range all {
		if !Match(d.Pattern, r.ID) || d.Protocol != "" && d.Protocol != r.Protocol {
			continue
		}
		r.Reason = d.Reason
		switch {
		case r.Status == Fail:
			r.Status = ExpectedFail
		case r.Status == Pass && !d.Sometimes && !strings.Contains(d.Pattern, "*"):
			r.Status = UnexpectedPass
			r.Message = "the deviation is fixed: remove it from the list"
		}
		return
	}
}

// Match reports whether s matches a pattern in which "*" stands for any
// characters, none among them.
func Match(pattern, s string) bool {
	head, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	for s = s[len(head):]; ; s = s[1:] {
		if Match(rest, s) {
			return true
		}
		if s == "" {
			return false
		}
	}
}
