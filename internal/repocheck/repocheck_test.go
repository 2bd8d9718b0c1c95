// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

const (
	root   = "../.."
	module = "github.com/envd-go/envd"
)

// imports is who may import what beside the standard library. A name that ends
// with a slash stands for everything below it.
var imports = []struct {
	dir string
	may []string
}{
	{"client", []string{module + "/gen/", module + "/internal/envdversion", "connectrpc.com/connect/v2/", "google.golang.org/protobuf/"}},
	{"client/envdtest", []string{module + "/gen/", module + "/internal/envdversion", "connectrpc.com/connect/v2/", "google.golang.org/protobuf/",
		"github.com/creack/pty", "github.com/fsnotify/fsnotify", "golang.org/x/sys/"}},
	{"conformance", []string{module + "/gen/", module + "/internal/envdversion", module + "/client/envdtest", "connectrpc.com/connect/v2/", "google.golang.org/protobuf/", "go.yaml.in/yaml/v3"}},
	{"internal/envdversion", nil},
}

func TestImports(t *testing.T) {
	for _, rule := range imports {
		t.Run(rule.dir, func(t *testing.T) {
			for _, imp := range importsOf(t, rule.dir) {
				if strings.Contains(strings.Split(imp, "/")[0], ".") && !allowed(imp, rule.may) {
					t.Errorf("%s imports %s", rule.dir, imp)
				}
			}
		})
	}
}

// importsOf returns what the package in dir imports on any of the systems that
// it is built for, its tests left out.
func importsOf(t *testing.T, dir string) []string {
	t.Helper()
	all := map[string]bool{}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		cmd := exec.Command("go", "list", "-json=Imports", "./"+dir)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOOS="+goos)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list %s for %s: %v", dir, goos, err)
		}
		var pkg struct{ Imports []string }
		if err := json.Unmarshal(out, &pkg); err != nil {
			t.Fatal(err)
		}
		for _, imp := range pkg.Imports {
			all[imp] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func allowed(imp string, may []string) bool {
	return slices.ContainsFunc(may, func(m string) bool {
		return imp == strings.TrimSuffix(m, "/") || strings.HasSuffix(m, "/") && strings.HasPrefix(imp, m)
	})
}

// files calls fn with each file of ours that has one of the extensions.
func files(t *testing.T, fn func(name string, data []byte), exts ...string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || name == "gen" || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains(exts, path.Ext(name)) {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		fn(name, data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLicenceHeaders(t *testing.T) {
	header := []byte("// Copyright 2026 The envd-go Authors\n// SPDX-License-Identifier: Apache-2.0\n\n")
	n := 0
	files(t, func(name string, data []byte) {
		n++
		if !bytes.HasPrefix(data, header) {
			t.Errorf("%s does not begin with the licence header", name)
		}
	}, ".go", ".proto")
	if n < 50 {
		t.Errorf("only %d files were looked at", n)
	}
}

// Every exported name of the packages that users import has a comment.
func TestExportedDocs(t *testing.T) {
	for _, dir := range []string{"client", "client/envdtest", "conformance"} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			name := path.Join(dir, entry.Name())
			if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, pos := range undocumented(file) {
				t.Errorf("%s:%d: an exported name without a comment", name, set.Position(pos).Line)
			}
		}
	}
}

// undocumented returns where exported functions, methods, types, constants,
// variables and fields have no comment. A comment on a group counts for its
// members.
func undocumented(file *ast.File) []token.Pos {
	var missing []token.Pos
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() && exportedReceiver(decl) && decl.Doc == nil {
				missing = append(missing, decl.Pos())
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				missing = append(missing, undocumentedSpec(spec, decl.Doc != nil)...)
			}
		}
	}
	return missing
}

func undocumentedSpec(spec ast.Spec, group bool) []token.Pos {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return nil
		}
		var missing []token.Pos
		if spec.Doc == nil && !group {
			missing = append(missing, spec.Pos())
		}
		if st, ok := spec.Type.(*ast.StructType); ok {
			missing = append(missing, undocumentedFields(st)...)
		}
		return missing
	case *ast.ValueSpec:
		if spec.Doc == nil && spec.Comment == nil && !group && slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
			return []token.Pos{spec.Pos()}
		}
	}
	return nil
}

// undocumentedFields allows several fields in a row to share the comment above
// the first of them.
func undocumentedFields(st *ast.StructType) []token.Pos {
	var missing []token.Pos
	shared := false
	for _, field := range st.Fields.List {
		shared = shared || field.Doc != nil || field.Comment != nil
		if !shared && slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			missing = append(missing, field.Pos())
		}
	}
	return missing
}

func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	name, ok := typ.(*ast.Ident)
	return ok && name.IsExported()
}

var (
	sinceLine = regexp.MustCompile(`^\s*// Since envd (\S+)\.$`)
	blockLine = regexp.MustCompile(`^(message|service|enum) (\w+) \{`)
	rpcLine   = regexp.MustCompile(`^\s+rpc (\w+)\(`)
	fieldLine = regexp.MustCompile(`^\s+(?:optional |repeated )?[\w.<>, ]+ (\w+) = \d+`)
	valueLine = regexp.MustCompile(`^\s+([A-Z]\w+) = \d+;`)
)

// sinceNotes reads from a .proto file which version brought which RPC or field.
func sinceNotes(pkg string, data []byte) map[string]string {
	notes := map[string]string{}
	block, since := "", ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case sinceLine.MatchString(line):
			since = sinceLine.FindStringSubmatch(line)[1]
			continue
		case strings.Contains(line, "//"):
			continue
		case blockLine.MatchString(line):
			block = pkg + "." + blockLine.FindStringSubmatch(line)[2]
		case rpcLine.MatchString(line) && since != "":
			notes[block+"/"+rpcLine.FindStringSubmatch(line)[1]] = since
		case valueLine.MatchString(line) && since != "":
			notes[block+"."+valueLine.FindStringSubmatch(line)[1]] = since
		case fieldLine.MatchString(line) && since != "":
			notes[block+"."+fieldLine.FindStringSubmatch(line)[1]] = since
		}
		since = ""
	}
	return notes
}

// The contract's notes and the version table say the same.
func TestSinceNotes(t *testing.T) {
	got := map[string]string{}
	for _, pkg := range []string{"process", "filesystem"} {
		data, err := os.ReadFile(filepath.Join(root, "proto", pkg, pkg+".proto"))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(got, sinceNotes(pkg, data))
	}
	want := map[string]string{}
	for _, row := range envdversion.Features() {
		for _, element := range row.Adds {
			want[element] = row.Since.String()
		}
	}
	for element, since := range got {
		if want[element] != since {
			t.Errorf("%s: the contract says since %s, the version table %q", element, since, want[element])
		}
	}
	for element, since := range want {
		if _, ok := got[element]; !ok {
			t.Errorf("%s: the version table says since %s, the contract nothing", element, since)
		}
	}
}

// What the version table calls an RPC or a field is one.
func TestTableElements(t *testing.T) {
	known := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{process.File_process_process_proto, filesystem.File_filesystem_filesystem_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				known[string(service.FullName())+"/"+string(service.Methods().Get(j).Name())] = true
			}
		}
		addFields(known, file.Messages())
		for i := range file.Enums().Len() {
			enum := file.Enums().Get(i)
			for j := range enum.Values().Len() {
				known[string(enum.FullName())+"."+string(enum.Values().Get(j).Name())] = true
			}
		}
	}
	for _, row := range envdversion.Features() {
		for _, element := range append(slices.Clone(row.Adds), row.Element) {
			if !strings.Contains(element, " ") && !known[element] {
				t.Errorf("%s: the contract has no %s", row.Name, element)
			}
		}
	}
}

func addFields(known map[string]bool, messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		message := messages.Get(i)
		for j := range message.Fields().Len() {
			known[string(message.Fields().Get(j).FullName())] = true
		}
		addFields(known, message.Messages())
	}
}

// The README's first program is the one in examples/hello.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	program, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("README.md has no program")
	}
	source, err := os.ReadFile(filepath.Join(root, "examples/hello/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, main, _ := strings.Cut(string(source), "package main")
	if program != "package main"+main {
		t.Error("the first program of README.md differs from examples/hello/main.go")
	}
	if n := bytes.Count(readme, []byte("\n")); n > 150 {
		t.Errorf("README.md has %d lines, at most 150 are wanted", n)
	}
}

// Every make target that a text or CI names is there.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile("(?m)(?:`|=\\S+ |^|exec |run )make ([a-z-]+)")
	check := func(name string, data []byte) {
		for _, m := range target.FindAllSubmatch(data, -1) {
			if !regexp.MustCompile(`(?m)^` + string(m[1]) + `:`).Match(makefile) {
				t.Errorf("%s names make %s, which the Makefile does not have", name, m[1])
			}
		}
	}
	files(t, check, ".md")
	ci, err := os.Open(filepath.Join(root, ".ci/run"))
	if err != nil {
		t.Fatal(err)
	}
	defer ci.Close()
	data, err := io.ReadAll(ci)
	if err != nil {
		t.Fatal(err)
	}
	check(".ci/run", data)
}

// docs/versions.md shows the version table.
func TestVersionsDoc(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Which envd can do what\n\nMade from `internal/envdversion/features.go` by `go test ./internal/repocheck -update`.\n\n")
	b.WriteString("| since | until | feature | belongs to | name |\n|---|---|---|---|---|\n")
	for _, row := range envdversion.Features() {
		until := ""
		if !row.Until.IsZero() {
			until = row.Until.String()
		}
		b.WriteString("| " + strings.Join([]string{row.Since.String(), until, row.Summary, "`" + row.Element + "`", row.Name}, " | ") + " |\n")
	}
	name := filepath.Join(root, "docs/versions.md")
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != b.String() {
		t.Errorf("docs/versions.md is not what the version table says (%v); run go test ./internal/repocheck -update", err)
	}
}

var update = flag.Bool("update", false, "write what is made from the code")
