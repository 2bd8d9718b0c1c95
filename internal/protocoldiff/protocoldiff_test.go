// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package protocoldiff

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

const root = "../.."

var update = flag.Bool("update", false, "write the golden files")

// contract is ours after change was applied to both files.
func contract(t *testing.T, change func(*descriptorpb.FileDescriptorProto)) *Contract {
	t.Helper()
	var files []protoreflect.FileDescriptor
	for _, file := range []protoreflect.FileDescriptor{process.File_process_process_proto, filesystem.File_filesystem_filesystem_proto} {
		raw := proto.CloneOf(protodesc.ToFileDescriptorProto(file))
		change(raw)
		changed, err := protodesc.NewFile(raw, protoregistry.GlobalFiles)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, changed)
	}
	return NewContract(files)
}

func message(file *descriptorpb.FileDescriptorProto, name string) *descriptorpb.DescriptorProto {
	for _, m := range file.MessageType {
		if m.GetName() == name {
			return m
		}
	}
	return &descriptorpb.DescriptorProto{} // of the other file
}

func field(file *descriptorpb.FileDescriptorProto, msg, name string) *descriptorpb.FieldDescriptorProto {
	for _, f := range message(file, msg).Field {
		if f.GetName() == name {
			return f
		}
	}
	return &descriptorpb.FieldDescriptorProto{}
}

func TestCompare(t *testing.T) {
	tests := []struct {
		name   string
		change func(*descriptorpb.FileDescriptorProto)
		want   []string
	}{
		{"nothing", func(*descriptorpb.FileDescriptorProto) {}, nil},
		{"comments and go_package", func(f *descriptorpb.FileDescriptorProto) {
			f.Options = &descriptorpb.FileOptions{GoPackage: proto.String("example.com/other")}
		}, nil},
		{"new field", func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "EntryInfo")
			m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{Name: proto.String("inode"), JsonName: proto.String("inode"),
				Number: proto.Int32(99), Type: descriptorpb.FieldDescriptorProto_TYPE_UINT64.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()})
		}, []string{"added field filesystem.EntryInfo.inode: safe"}},
		{"new RPC", func(f *descriptorpb.FileDescriptorProto) {
			for _, s := range f.Service {
				if s.GetName() == "Process" {
					s.Method = append(s.Method, &descriptorpb.MethodDescriptorProto{Name: proto.String("Pause"),
						InputType: proto.String(".process.ListRequest"), OutputType: proto.String(".process.ListResponse")})
				}
			}
		}, []string{"added rpc process.Process/Pause: safe"}},
		{"removed RPC", func(f *descriptorpb.FileDescriptorProto) {
			for _, s := range f.Service {
				s.Method = slices.DeleteFunc(s.Method, func(m *descriptorpb.MethodDescriptorProto) bool { return m.GetName() == "CloseStdin" })
			}
		}, []string{"removed rpc process.Process/CloseStdin: breaking"}},
		{"stream that is none any more", func(f *descriptorpb.FileDescriptorProto) {
			for _, s := range f.Service {
				for _, m := range s.Method {
					if m.GetName() == "Start" {
						m.ServerStreaming = proto.Bool(false)
					}
				}
			}
		}, []string{"changed rpc process.Process/Start (process.StartRequest) returns (stream process.StartResponse) becomes (process.StartRequest) returns (process.StartResponse): breaking"}},
		{"removed field", func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "EntryInfo")
			m.Field = slices.DeleteFunc(m.Field, func(f *descriptorpb.FieldDescriptorProto) bool { return f.GetName() == "size" })
		}, []string{"removed field filesystem.EntryInfo.size: breaking"}},
		{"field under another name", func(f *descriptorpb.FileDescriptorProto) {
			if size := field(f, "EntryInfo", "size"); size.Number != nil {
				size.Name, size.JsonName = proto.String("length"), proto.String("length")
			}
		}, []string{"changed field filesystem.EntryInfo.size is called length: safe on the wire, breaking in JSON"}},
		{"JSON name", func(f *descriptorpb.FileDescriptorProto) {
			if at := field(f, "EntryInfo", "modified_time"); at.Number != nil {
				at.JsonName = proto.String("mtime")
			}
		}, []string{"changed field filesystem.EntryInfo.modified_time JSON name modifiedTime becomes mtime: safe on the wire, breaking in JSON"}},
		{"field under another number", func(f *descriptorpb.FileDescriptorProto) {
			if size := field(f, "EntryInfo", "size"); size.Number != nil {
				size.Number = proto.Int32(77)
			}
		}, []string{"changed field filesystem.EntryInfo.size number 4 becomes 77: breaking on the wire, safe in JSON"}},
		{"type of the same bytes", func(f *descriptorpb.FileDescriptorProto) {
			if mode := field(f, "EntryInfo", "mode"); mode.Number != nil {
				mode.Type = descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum()
			}
		}, []string{"changed field filesystem.EntryInfo.mode uint32 becomes int64: safe on the wire, breaking in JSON"}},
		{"type of other bytes", func(f *descriptorpb.FileDescriptorProto) {
			if mode := field(f, "EntryInfo", "mode"); mode.Number != nil {
				mode.Type = descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum()
			}
		}, []string{"changed field filesystem.EntryInfo.mode uint32 becomes string: breaking"}},
		{"list", func(f *descriptorpb.FileDescriptorProto) {
			if owner := field(f, "EntryInfo", "owner"); owner.Number != nil {
				owner.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			}
		}, []string{"changed field filesystem.EntryInfo.owner optional becomes repeated: breaking"}},
		{"enum value under another name", func(f *descriptorpb.FileDescriptorProto) {
			renameValue(f, "FILE_TYPE_FILE", "FILE_TYPE_REGULAR")
		}, []string{"changed enum value filesystem.FileType.FILE_TYPE_FILE is called FILE_TYPE_REGULAR: safe on the wire, breaking in JSON"}},
	}
	ours := contract(t, func(*descriptorpb.FileDescriptorProto) {})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report := Compare(ours, contract(t, tt.change))
			var got []string
			for _, c := range report.Changes {
				text := c.Kind + " " + c.What + " " + c.Name
				if c.Detail != "" {
					text += " " + c.Detail
				}
				got = append(got, text+": "+verdict(c))
			}
			// A removed RPC takes its messages along; they are not the point here.
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			breaks := slices.ContainsFunc(tt.want, func(w string) bool { return strings.Contains(w, "breaking") })
			if report.Breaks() != breaks {
				t.Errorf("Breaks is %v", report.Breaks())
			}
		})
	}
}

func renameValue(f *descriptorpb.FileDescriptorProto, from, to string) {
	for _, e := range f.EnumType {
		for _, v := range e.Value {
			if v.GetName() == from {
				v.Name = proto.String(to)
			}
		}
	}
}

// needsBuf skips where buf would take long, or cannot be built.
func needsBuf(t *testing.T) Buf {
	t.Helper()
	if testing.Short() {
		t.Skip("buf takes long to build")
	}
	return Buf{Root: root}
}

// The diff of each pair of neighbouring versions is what it was.
func TestBaselinePairs(t *testing.T) {
	buf := needsBuf(t)
	versions := envdversion.Supported()
	for i := range len(versions) - 1 {
		from, to := versions[i], versions[i+1]
		t.Run(fmt.Sprintf("%v to %v", from, to), func(t *testing.T) {
			report, err := buf.Diff(context.Background(), baseline(from), baseline(to))
			if err != nil {
				t.Fatal(err)
			}
			if report.Breaks() {
				t.Error("a newer envd breaks an older one")
			}
			var got strings.Builder
			if err := report.WriteText(&got); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", fmt.Sprintf("%v-%v.txt", from, to))
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
		})
	}
}

func baseline(v envdversion.Version) string { return "proto-baseline/" + v.String() + ".json" }

// Each baseline is the newest one without what the version table says came
// later.
func TestBaselinesAgreeWithTable(t *testing.T) {
	newest, err := readSet(filepath.Join(root, baseline(envdversion.Latest)))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range envdversion.Supported() {
		got, err := readSet(filepath.Join(root, baseline(v)))
		if err != nil {
			t.Fatal(err)
		}
		if want := Prune(newest, v); !proto.Equal(got, want) {
			t.Errorf("the baseline of %v is not what the version table makes of that of %v", v, envdversion.Latest)
		}
	}
}

// What buf calls breaking is never safe in our report.
func TestNeverSafeWhereBufBreaks(t *testing.T) {
	buf := needsBuf(t)
	for _, v := range envdversion.Supported()[:3] {
		report, err := buf.Diff(context.Background(), baseline(envdversion.Latest), baseline(v))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range report.Changes {
			if len(c.Buf) > 0 && c.Wire == Safe && c.JSON == Safe {
				t.Errorf("%s is called safe, and buf says %q", c.Name, c.Buf)
			}
			if c.What == "contract" {
				t.Errorf("what buf says belongs to no change: %q", c.Detail)
			}
		}
	}
}

func TestInputs(t *testing.T) {
	buf := needsBuf(t)
	empty, twice, moved := t.TempDir(), t.TempDir(), t.TempDir()
	for _, pkg := range Packages {
		data, err := os.ReadFile(filepath.Join(root, "proto", pkg, pkg+".proto"))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), "package "+pkg+";", "package "+pkg+";\noption go_package = \"example.com/"+pkg+"\";", 1)
		for _, path := range []string{
			filepath.Join(moved, "spec", pkg, pkg+".proto"),
			filepath.Join(twice, "a", pkg+".proto"), filepath.Join(twice, "b", pkg+".proto"),
		} {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct{ name, input, want string }{
		{"files in other folders", moved, ""},
		{"no files", empty, "no .proto file of package process"},
		{"files twice", twice, "several files of package process"},
		{"nothing of that name", "no-such-revision", "no-such-revision"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report, err := buf.Diff(context.Background(), "proto", tt.input)
			if tt.want == "" {
				if err != nil || len(report.Changes) != 0 {
					t.Errorf("Diff = %+v, %v, want no change", report, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Diff = %v, want an error about %q", err, tt.want)
			}
		})
	}
}

// A name that was reserved and is used again is safe to us alone.
func TestReservedNameUsedAgain(t *testing.T) {
	buf := needsBuf(t)
	before, after := t.TempDir(), t.TempDir()
	for _, dir := range []string{before, after} {
		copyFile(t, filepath.Join(root, "proto/process/process.proto"), filepath.Join(dir, "process.proto"))
	}
	const line = "  string path = 3;"
	edit(t, filepath.Join(root, "proto/filesystem/filesystem.proto"), filepath.Join(before, "filesystem.proto"), line, line+"\n  reserved \"foo\";")
	edit(t, filepath.Join(root, "proto/filesystem/filesystem.proto"), filepath.Join(after, "filesystem.proto"), line, line+"\n  string foo = 42;")
	report, err := buf.Diff(context.Background(), before, after)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Breaks() {
		t.Errorf("buf says that this breaks, and the report does not: %+v", report.Changes)
	}
}

// TestWalk goes the way of docs/protocol-changes.md with a made-up change, on
// a copy of the tree.
func TestWalk(t *testing.T) {
	needsBuf(t)
	for _, tool := range []string{"make", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s", tool)
		}
	}
	tree := copyTree(t)
	news := t.TempDir()
	edit(t, filepath.Join(root, "proto/process/process.proto"), filepath.Join(news, "process.proto"),
		"  // Since envd 0.5.2.\n  rpc CloseStdin(CloseStdinRequest) returns (CloseStdinResponse);\n",
		"  // Pause stops a command for a while.\n  rpc Pause(ListRequest) returns (ListResponse);\n")
	edit(t, filepath.Join(root, "proto/filesystem/filesystem.proto"), filepath.Join(news, "filesystem.proto"),
		"  FILE_TYPE_FILE = 1;", "  FILE_TYPE_REGULAR = 1;",
		"  string path = 3;", "  string path = 3;\n\n  // A number of the file.\n  uint64 inode = 42;")

	out, code := runMake(t, tree, "protocol-diff", "FROM="+news)
	if code == 0 || !strings.Contains(out, "Error 1") {
		t.Errorf("protocol-diff of a breaking change ended with %d:\n%s", code, out)
	}
	if out, _ := runMake(t, tree, "protocol-diff", "FROM=no-such-thing"); !strings.Contains(out, "Error 2") {
		t.Errorf("protocol-diff of nothing:\n%s", out)
	}
	for _, want := range []string{
		"added    rpc        process.Process/Pause  [safe]",
		"removed  rpc        process.Process/CloseStdin  [breaking]",
		"added    field      filesystem.EntryInfo.inode  [safe]",
		"changed  enum value filesystem.FileType.FILE_TYPE_FILE: is called FILE_TYPE_REGULAR  [safe on the wire, breaking in JSON]",
		"look at client: client/process.go",
		"look at version table: internal/envdversion/features.go",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("protocol-diff does not say %q:\n%s", want, out)
		}
	}

	for _, pkg := range Packages {
		copyFile(t, filepath.Join(news, pkg+".proto"), filepath.Join(tree, "proto", pkg, pkg+".proto"))
	}
	if out, code := runMake(t, tree, "check-generated"); code == 0 {
		t.Errorf("check-generated succeeds with stale stubs:\n%s", out)
	}
	if out, code := runMake(t, tree, "generate"); code != 0 {
		t.Fatalf("generate: %s", out)
	}
	if out, code := runMake(t, tree, "check-generated"); code != 0 {
		t.Errorf("check-generated after generate: %s", out)
	}
	if out, code := runMake(t, tree, "breaking"); code == 0 || !strings.Contains(out, "would not understand us any more") {
		t.Errorf("breaking = %d:\n%s", code, out)
	}
}

// copyTree copies what git tracks, and new files, into a repository of its own.
func copyTree(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	tree := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			copyFile(t, filepath.Join(root, name), filepath.Join(tree, name))
		}
	}
	return tree
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// edit writes a copy of a file with some texts replaced.
func edit(t *testing.T, from, to string, pairs ...string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%s has no %q", from, pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func runMake(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command("make", append([]string{"-s"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}
