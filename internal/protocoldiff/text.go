// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package protocoldiff

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// WriteText prints the report, grouped by service.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	if len(r.Changes) == 0 {
		b.WriteString("no differences\n")
	}
	service, first := "", true
	for _, c := range r.Changes {
		if first || c.Service != service {
			service, first = c.Service, false
			fmt.Fprintf(&b, "%s\n", cmp.Or(service, "no service"))
		}
		fmt.Fprintf(&b, "  %-8s %-10s %s", c.Kind, c.What, c.Name)
		if c.Detail != "" {
			fmt.Fprintf(&b, ": %s", c.Detail)
		}
		fmt.Fprintf(&b, "  [%s]\n", verdict(c))
		for _, line := range c.Buf {
			fmt.Fprintf(&b, "           buf: %s\n", line)
		}
		for _, file := range c.Look {
			fmt.Fprintf(&b, "           look at %s\n", file)
		}
	}
	breaking := 0
	for _, c := range r.Changes {
		if c.Wire == Breaking || c.JSON == Breaking {
			breaking++
		}
	}
	fmt.Fprintf(&b, "%d changes, %d of them breaking\n", len(r.Changes), breaking)
	_, err := io.WriteString(w, b.String())
	return err
}

func verdict(c Change) string {
	switch {
	case c.Wire == Breaking && c.JSON == Breaking:
		return "breaking"
	case c.Wire == Breaking:
		return "breaking on the wire, safe in JSON"
	case c.JSON == Breaking:
		return "safe on the wire, breaking in JSON"
	}
	return "safe"
}
