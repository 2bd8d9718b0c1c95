// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateAPI = flag.Bool("update-api", false, "write the public surface down in api/")

// TestAPI compares the public surface with what is written down in api/, so that
// a change of it is seen in review. A line that went or changed breaks users.
func TestAPI(t *testing.T) {
	for _, dir := range []string{"client", "client/envdtest", "conformance"} {
		got := strings.Join(surface(t, filepath.Join(root, dir)), "\n")
		file := filepath.Join(root, "api", strings.ReplaceAll(dir, "/", "_")+".txt")
		if *updateAPI {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got == string(want) {
			continue
		}
		before, after := strings.SplitAfter(string(want), "\n"), strings.SplitAfter(got, "\n")
		for _, line := range before {
			if !slices.Contains(after, line) {
				t.Errorf("%s: gone: %s", dir, strings.TrimRight(line, "\n"))
			}
		}
		for _, line := range after {
			if !slices.Contains(before, line) {
				t.Errorf("%s: new: %s", dir, strings.TrimRight(line, "\n"))
			}
		}
		t.Errorf("%s: the public surface has changed; if that is meant: make api", dir)
	}
}

// surface returns the exported declarations of a package, without comments and
// bodies, in the order of their text.
func surface(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			if text := declaration(t, set, decl); text != "" {
				all = append(all, text)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all) // files for one operating system say the same
}

func declaration(t *testing.T, set *token.FileSet, decl ast.Decl) string {
	t.Helper()
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if !exportedReceiver(decl) {
			return ""
		}
		decl.Body = nil
	case *ast.GenDecl:
		if decl.Tok == token.IMPORT || len(decl.Specs) == 0 {
			return ""
		}
	}
	var text bytes.Buffer
	if err := printer.Fprint(&text, set, decl); err != nil {
		t.Fatal(err)
	}
	return text.String() + "\n"
}
