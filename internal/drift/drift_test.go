// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package drift_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/drift"
	"github.com/envd-go/envd/internal/envdversion"
)

// caller sends requests to the daemon at url as the user.
func caller(hc *http.Client, url, user string) envdversion.Caller {
	return func(ctx context.Context, r envdversion.Request) (*envdversion.Reply, error) {
		req, err := http.NewRequestWithContext(ctx, r.Method, url+r.Path, bytes.NewReader(r.Body))
		if err != nil {
			return nil, err
		}
		for key, values := range r.Header {
			req.Header[key] = values
		}
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
		resp, err := hc.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return &envdversion.Reply{Status: resp.StatusCode, Header: resp.Header, Body: body}, err
	}
}

type daemon struct {
	name    string
	version envdversion.Version
	call    envdversion.Caller
	json    bool // reads JSON only
}

// daemons are the embedded envd in all its versions and dialects and, where
// ENVD_URL is set, a running one.
func daemons(t *testing.T) []daemon {
	t.Helper()
	var all []daemon
	embedded := func(name string, v envdversion.Version, opts ...envdtest.Option) daemon {
		srv := envdtest.NewServer(append(opts, envdtest.WithVersion(v.String()))...)
		t.Cleanup(srv.Close)
		return daemon{name: name, version: v, call: caller(srv.Client(), srv.URL, "user")}
	}
	for _, v := range envdversion.Supported() {
		all = append(all, embedded(v.String(), v))
	}
	fc := embedded("fc", envdversion.V(0, 5, 2), envdtest.WithDialect(envdtest.FC))
	fc.json = true
	all = append(all, fc)
	if url := os.Getenv("ENVD_URL"); url != "" {
		v, err := envdversion.Parse(os.Getenv("ENVD_VERSION"))
		if err != nil {
			t.Fatalf("ENVD_VERSION: %v", err)
		}
		all = append(all, daemon{name: "live", version: v, call: caller(http.DefaultClient, url, os.Getenv("ENVD_USER"))})
	}
	return all
}

func TestExamine(t *testing.T) {
	for _, d := range daemons(t) {
		t.Run(d.name, func(t *testing.T) {
			report, err := drift.Examine(context.Background(), d.call, "user", drift.Ours())
			if err != nil {
				t.Fatal(err)
			}
			if !report.Knows() {
				t.Errorf("the daemon says what the contract does not know: %+v", report.Findings)
			}
			if report.NoBinary != d.json {
				t.Errorf("NoBinary is %v, want %v", report.NoBinary, d.json)
			}
			wantMissing(t, report, "process.Process/CloseStdin", d.version.Lacks(envdversion.CloseStdin))
			wantMissing(t, report, "POST /files/compose", d.version.Lacks(envdversion.Compose))
		})
	}
}

func wantMissing(t *testing.T, report *drift.Report, element string, want bool) {
	t.Helper()
	got := slices.ContainsFunc(report.Findings, func(f drift.Finding) bool {
		return f.Element == element && (f.Kind == drift.MissingRPC || f.Kind == drift.MissingEndpoint)
	})
	if got != want {
		t.Errorf("%s is missing: %v, want %v; findings %+v", element, got, want, report.Findings)
	}
}

// A contract without a field makes the field a finding, and nothing else.
func TestRemovedElements(t *testing.T) {
	tests := []struct {
		name   string
		remove func(*descriptorpb.FileDescriptorProto)
		want   []string // kind and element
	}{
		{"field of an entry", func(f *descriptorpb.FileDescriptorProto) { removeField(f, "EntryInfo", "permissions") },
			[]string{"unknown key filesystem.EntryInfo.permissions", "unknown field filesystem.EntryInfo.6"}},
		{"field of an event", func(f *descriptorpb.FileDescriptorProto) { removeField(f, "ProcessEvent.EndEvent", "status") },
			[]string{"unknown key process.ProcessEvent.EndEvent.status", "unknown field process.ProcessEvent.EndEvent.3"}},
		{"field of the list", func(f *descriptorpb.FileDescriptorProto) { removeField(f, "ProcessInfo", "pid") },
			[]string{"unknown key process.ProcessInfo.pid", "unknown field process.ProcessInfo.2"}},
		{"enum value", func(f *descriptorpb.FileDescriptorProto) { removeValue(f, "FileType", "FILE_TYPE_DIRECTORY") },
			[]string{"unknown enum value filesystem.FileType FILE_TYPE_DIRECTORY", "unknown enum value filesystem.FileType 2"}},
		{"kind of event", func(f *descriptorpb.FileDescriptorProto) { removeValue(f, "EventType", "EVENT_TYPE_CREATE") },
			[]string{"unknown enum value filesystem.EventType EVENT_TYPE_CREATE", "unknown enum value filesystem.EventType 1"}},
	}
	for _, d := range daemons(t) {
		for _, tt := range tests {
			t.Run(d.name+"/"+tt.name, func(t *testing.T) {
				if tt.name == "field of an entry" && d.version.Lacks(envdversion.EntryDetails) {
					t.Skip("entries have no permissions before envd 0.2.5")
				}
				report, err := drift.Examine(context.Background(), d.call, "user", contractWithout(t, tt.remove))
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, f := range report.Findings {
					if f.Kind != drift.MissingRPC && f.Kind != drift.MissingEndpoint {
						got = append(got, string(f.Kind)+" "+f.Element)
					}
				}
				want := tt.want
				if d.json {
					// Its JSON has enums as numbers.
					want = slices.DeleteFunc(slices.Clone(want), func(w string) bool {
						return strings.HasPrefix(w, "unknown field") || strings.HasPrefix(w, "unknown enum") && strings.Contains(w, "_TYPE_")
					})
				}
				slices.Sort(got)
				want = slices.Sorted(slices.Values(want))
				if !slices.Equal(got, want) {
					t.Errorf("findings are %q, want %q", got, want)
				}
			})
		}
	}
}

// contractWithout is our contract after change was applied to both files.
func contractWithout(t *testing.T, change func(*descriptorpb.FileDescriptorProto)) drift.Contract {
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
	return drift.NewContract(files...)
}

func removeField(file *descriptorpb.FileDescriptorProto, message, field string) {
	for _, m := range messages("", file.GetMessageType()) {
		if m.name == message {
			m.desc.Field = slices.DeleteFunc(m.desc.Field, func(f *descriptorpb.FieldDescriptorProto) bool { return f.GetName() == field })
		}
	}
}

type namedMessage struct {
	name string
	desc *descriptorpb.DescriptorProto
}

func messages(prefix string, list []*descriptorpb.DescriptorProto) []namedMessage {
	var all []namedMessage
	for _, m := range list {
		all = append(all, namedMessage{prefix + m.GetName(), m})
		all = append(all, messages(prefix+m.GetName()+".", m.GetNestedType())...)
	}
	return all
}

func removeValue(file *descriptorpb.FileDescriptorProto, enum, value string) {
	for _, e := range file.GetEnumType() {
		if e.GetName() == enum {
			e.Value = slices.DeleteFunc(e.Value, func(v *descriptorpb.EnumValueDescriptorProto) bool { return v.GetName() == value })
		}
	}
}

func TestExamineRefused(t *testing.T) {
	srv := envdtest.NewServer(envdtest.WithAccessToken("secret"))
	defer srv.Close()
	if _, err := drift.Examine(context.Background(), caller(srv.Client(), srv.URL, "user"), "user", drift.Ours()); err == nil {
		t.Error("Examine without the token succeeded")
	}
}
