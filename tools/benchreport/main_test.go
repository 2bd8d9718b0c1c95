// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const raw = `goos: linux
cpu: fast
daemon: 9.9.9
BenchmarkStat/impl=client-2	1	1000000 ns/op	300 B/op	3 allocs/op
BenchmarkStat/impl=tuned-stub-2	1	2000000 ns/op	100 B/op	3 allocs/op
BenchmarkStat/impl=client-2	1	1000000 ns/op	300 B/op	3 allocs/op
BenchmarkStat/impl=tuned-stub-2	1	2000000 ns/op	100 B/op	3 allocs/op
BenchmarkList/n=10/impl=client-2	1	1000000 ns/op
BenchmarkList/n=100/impl=client-2	1	10000000 ns/op
BenchmarkLoad/size=1KiB/impl=client-2	1	1000 ns/op
BenchmarkLoad/size=1MiB/impl=client-2	1	1024000 ns/op
BenchmarkWatch-2	1	10 ns/op	5000 files/s
`

func TestReport(t *testing.T) {
	dir := t.TempDir()
	data, page := filepath.Join(dir, "a machine.txt"), filepath.Join(dir, "page.md")
	if err := os.WriteFile(data, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte("before\n"+beginMark+"\nold\n"+endMark+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(page, []string{data}, nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "\nafter\n", "### a machine\n", "daemon: 9.9.9", "| **0.50** |", "| **3.00** |",
		"| List, for each | 10: 100.0µs · 100: 100.0µs |", "| Load, for KiB | 1KiB: 1.000µs · 1MiB: 1.000µs |", "| Watch | 5.000k files/s ±0% |"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old\n") {
		t.Error("the old tables are still there")
	}
}

func TestReportRefuses(t *testing.T) {
	dir := t.TempDir()
	empty, page := filepath.Join(dir, "empty.txt"), filepath.Join(dir, "page.md")
	for _, name := range []string{empty, page} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data.txt")
	if err := os.WriteFile(data, []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"no files":        run("", nil, nil),
		"no results":      run("", []string{empty}, nil),
		"a missing file":  run("", []string{filepath.Join(dir, "none")}, nil),
		"a page unmarked": run(page, []string{data}, nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
