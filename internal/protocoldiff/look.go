// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package protocoldiff

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// stable gives JSON one way to be written.
func stable(text []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, text, "", " ") != nil {
		return text
	}
	return b.Bytes()
}

// Look fills in, for each change, the files below root that use what changed:
// the Go files that name it, by what buf generates for it, and the version
// table.
func (r *Report) Look(root string) error {
	uses, err := scan(root)
	if err != nil {
		return err
	}
	for i := range r.Changes {
		c := &r.Changes[i]
		for _, file := range uses {
			if file.uses(c) {
				c.Look = append(c.Look, file.label+": "+file.path)
			}
		}
		slices.Sort(c.Look)
	}
	return nil
}

// sourceFile is a Go file that imports the stubs, with all names in it.
type sourceFile struct {
	path, label string
	packages    []string // of the contract
	names       map[string]bool
	text        string // of the version table only
}

// labels say to whom a file belongs.
var labels = []struct{ prefix, label string }{
	{"client/envdtest/", "embedded envd"},
	{"client/", "client"},
	{"conformance/", "conformance"},
	{"internal/envdversion/", "version table"},
	{"internal/drift/", "drift"},
	{"cmd/", "command line"},
}

func labelOf(path string) string {
	for _, l := range labels {
		if strings.HasPrefix(path, l.prefix) {
			return l.label
		}
	}
	return ""
}

func scan(root string) ([]sourceFile, error) {
	var files []sourceFile
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && strings.HasPrefix(d.Name(), ".") || path == "gen" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		label := labelOf(path)
		if label == "" || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parse(root, path, label)
		if err == nil && (len(file.packages) > 0 || file.text != "") {
			files = append(files, file)
		}
		return err
	})
	return files, err
}

func parse(root, path, label string) (sourceFile, error) {
	file := sourceFile{path: path, label: label, names: map[string]bool{}}
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return file, err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), path, data, 0)
	if err != nil {
		return file, err
	}
	if label == "version table" {
		file.text = string(data)
	}
	for _, imp := range parsed.Imports {
		for _, pkg := range Packages {
			if strings.Contains(imp.Path.Value, "/gen/"+pkg) {
				file.packages = append(file.packages, pkg)
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			file.names[n.Name] = true
		case *ast.BasicLit:
			if n.Kind == token.STRING { // procedures in tables and paths
				file.names[strings.Trim(n.Value, "`\"")] = true
			}
		}
		return true
	})
	return file, nil
}

// uses reports whether the file uses the element. What is new is not used yet:
// there, files that use what holds it.
func (f *sourceFile) uses(c *Change) bool {
	if f.text != "" {
		return strings.Contains(f.text, `"`+c.Name+`"`) && strings.HasSuffix(f.path, "features.go")
	}
	pkg, rest, _ := strings.Cut(c.Name, ".")
	if !slices.Contains(f.packages, pkg) {
		return false
	}
	parts := strings.FieldsFunc(rest, func(r rune) bool { return r == '.' || r == '/' })
	if len(parts) == 0 {
		return false
	}
	last := parts[len(parts)-1]
	if c.Kind == "added" {
		if len(parts) < 2 {
			return false
		}
		holder := goName(strings.Join(parts[:len(parts)-1], "_"))
		if c.What == "rpc" {
			return f.names["Register"+holder+"Handler"] || f.names["New"+holder+"Client"]
		}
		return f.names[holder]
	}
	switch c.What {
	case "rpc":
		return f.names[last] || f.names["/"+c.Name] || f.names[c.Name]
	case "field":
		holder := goName(strings.Join(parts[:len(parts)-1], "_"))
		return f.names["Get"+goName(last)] || f.names[holder] && f.names[goName(last)] || f.names[holder+"_"+goName(last)]
	case "enum value":
		return f.names[parts[0]+"_"+last]
	}
	return f.names[goName(strings.Join(parts, "_"))]
}

// goName is the name that the generator makes of a name of the contract.
func goName(name string) string {
	var b strings.Builder
	upper := true
	for i, r := range name {
		switch {
		case r == '_' && i+1 < len(name) && unicode.IsLower(rune(name[i+1])):
			upper = true
			continue
		case upper:
			r = unicode.ToUpper(r)
		}
		upper = false
		b.WriteRune(r)
	}
	return b.String()
}
