// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"
	"time"
)

func TestPrintable(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "größer: 100%", "größer: 100%"},
		{"several errors", "one\ntwo", "one; two"},
		{"escape sequence", "a\x1b[31mb", `a\u001b[31mb`},
		{"C1 control", "a\u009b31mb", `a\u009b31mb`},
		{"turned around", "a\u202eb", `a\u202eb`},
		{"not UTF-8", "a\xffb", "a\ufffdb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := printable(tc.in); got != tc.want {
				t.Errorf("printable(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func TestDuration(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"90", 90 * time.Second, true},
		{"0.5", 500 * time.Millisecond, true},
		{"2m30s", 150 * time.Second, true},
		{"0", 0, true},
		{"-1", 0, false},
		{"-1s", 0, false},
		{"", 0, false},
		{"NaN", 0, false},
		{"inf", 0, false},
		{"1e400", 0, false},
		{"soon", 0, false},
	} {
		t.Run(tc.in, func(t *testing.T) {
			var d duration
			if err := d.Set(tc.in); (err == nil) != tc.ok || time.Duration(d) != tc.want {
				t.Errorf("Set(%q) = %v, %v; want %v, ok %v", tc.in, time.Duration(d), err, tc.want, tc.ok)
			}
		})
	}
}

func TestReport(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want int
	}{
		{"success", nil, 0},
		{"code", &exitError{code: 3}, 3},
		{"code and text", &exitError{exitNotFound, errors.New("no such program")}, exitNotFound},
		{"anything else", errors.New("broken"), exitFailure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &app{messages: &messages{w: t.Output()}}
			if got := a.report(tc.err); got != tc.want {
				t.Errorf("report(%v) = %d, want %d", tc.err, got, tc.want)
			}
		})
	}
}
