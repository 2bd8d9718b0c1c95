// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed deviations/*.yaml
var shipped embed.FS

// A Deviation is a failure that is known.
type Deviation struct {
	// ID is the id of a case; "*" stands for any characters.
	ID string `yaml:"id"`
	// Reason says why it fails.
	Reason string `yaml:"reason"`
	// Protocol limits it to one protocol; empty is any.
	Protocol Protocol `yaml:"protocol,omitempty"`
	// Sometimes says that the case passes at times, as with a race.
	Sometimes bool `yaml:"sometimes,omitempty"`
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
		data, err := shipped.ReadFile("deviations/" + name + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("read deviations %s: %w", name, err)
		}
		return ParseDeviations(data)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read deviations: %w (the shipped ones are %s)", err, strings.Join(ShippedDeviations(), ", "))
	}
	return ParseDeviations(data)
}

// ParseDeviations reads a list of deviations, a YAML document:
//
//	implementation: our daemon 1.4
//	deviations:
//	  - id: process/pty/*
//	    reason: no terminals over gRPC-Web yet
//	    protocol: grpc-web # optional: any protocol
//	    sometimes: true    # optional: it passes at times
//
// A field that is not known, a pattern that no case matches, and a deviation
// without a reason are errors.
func ParseDeviations(data []byte) (Deviations, error) {
	var list struct {
		Implementation string     `yaml:"implementation"`
		Deviations     Deviations `yaml:"deviations"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("deviations: %w", err)
	}
	for i, d := range list.Deviations {
		if err := d.check(); err != nil {
			return nil, fmt.Errorf("deviation %d, %q: %w", i+1, d.ID, err)
		}
	}
	return list.Deviations, nil
}

func (d *Deviation) check() error {
	if strings.TrimSpace(d.Reason) == "" {
		return errors.New("it has no reason")
	}
	if d.Protocol != "" && !slices.Contains([]Protocol{HTTP, JSON, Proto, GRPCWeb}, d.Protocol) {
		return fmt.Errorf("protocol %q is none that is tried", d.Protocol)
	}
	if !slices.ContainsFunc(Cases(), func(c Case) bool { return Match(d.ID, c.ID) }) {
		return errors.New("no case has that id")
	}
	return nil
}

func (all Deviations) apply(r *Result) {
	for _, d := range all {
		if !Match(d.ID, r.ID) || d.Protocol != "" && d.Protocol != r.Protocol {
			continue
		}
		r.Reason = d.Reason
		switch {
		case r.Status == Fail:
			r.Status = ExpectedFail
		case r.Status == Pass && !d.Sometimes && !strings.Contains(d.ID, "*"):
			r.Status = UnexpectedPass
			r.Message = "the deviation is fixed: remove it from the list"
		}
		return
	}
}

// Match reports whether s matches a pattern in which "*" stands for any
// characters, none among them. Commas separate patterns of which one must match.
func Match(pattern, s string) bool {
	for p := range strings.SplitSeq(pattern, ",") {
		if matchOne(p, s) {
			return true
		}
	}
	return false
}

func matchOne(pattern, s string) bool {
	head, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	for s = s[len(head):]; ; s = s[1:] {
		if matchOne(rest, s) {
			return true
		}
		if s == "" {
			return false
		}
	}
}
