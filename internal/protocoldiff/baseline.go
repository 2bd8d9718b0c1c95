// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package protocoldiff

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/envd-go/envd/internal/envdversion"
)

// Prune returns the contract as it was in version v: without the RPCs and
// fields that the version table says came later, and without the messages that
// only those used. It takes what was there in the newest version for granted.
func Prune(set *descriptorpb.FileDescriptorSet, v envdversion.Version) *descriptorpb.FileDescriptorSet {
	later := map[string]bool{}
	for _, row := range envdversion.Features() {
		if v.Compare(row.Since) < 0 {
			for _, element := range row.Adds {
				later[element] = true
			}
		}
	}
	pruned := proto.CloneOf(set)
	for _, file := range pruned.File {
		if !slices.Contains(Packages, file.GetPackage()) {
			continue
		}
		for _, service := range file.Service {
			name := file.GetPackage() + "." + service.GetName()
			service.Method = slices.DeleteFunc(service.Method, func(m *descriptorpb.MethodDescriptorProto) bool {
				return later[name+"/"+m.GetName()]
			})
		}
		for _, enum := range file.EnumType {
			name := file.GetPackage() + "." + enum.GetName()
			enum.Value = slices.DeleteFunc(enum.Value, func(v *descriptorpb.EnumValueDescriptorProto) bool {
				return later[name+"."+v.GetName()]
			})
		}
		for _, message := range file.MessageType {
			pruneFields(message, file.GetPackage()+"."+message.GetName(), later)
		}
		dropUnused(file)
	}
	return pruned
}

func pruneFields(message *descriptorpb.DescriptorProto, name string, later map[string]bool) {
	for _, nested := range message.NestedType {
		pruneFields(nested, name+"."+nested.GetName(), later)
	}
	message.Field = slices.DeleteFunc(message.Field, func(f *descriptorpb.FieldDescriptorProto) bool {
		return later[name+"."+f.GetName()]
	})
	pruneOneofs(message)
	message.NestedType = slices.DeleteFunc(message.NestedType, func(nested *descriptorpb.DescriptorProto) bool {
		return nested.GetOptions().GetMapEntry() && !usesType(message, "."+name+"."+nested.GetName())
	})
}

// pruneOneofs takes away the oneofs that have lost all their fields.
func pruneOneofs(message *descriptorpb.DescriptorProto) {
	renumbered := map[int32]int32{}
	var kept []*descriptorpb.OneofDescriptorProto
	for i, oneof := range message.OneofDecl {
		used := slices.ContainsFunc(message.Field, func(f *descriptorpb.FieldDescriptorProto) bool {
			return f.OneofIndex != nil && f.GetOneofIndex() == int32(i)
		})
		if used {
			renumbered[int32(i)] = int32(len(kept))
			kept = append(kept, oneof)
		}
	}
	message.OneofDecl = kept
	for _, field := range message.Field {
		if field.OneofIndex != nil {
			index := renumbered[field.GetOneofIndex()]
			field.OneofIndex = &index
		}
	}
}

func usesType(message *descriptorpb.DescriptorProto, typeName string) bool {
	if slices.ContainsFunc(message.Field, func(f *descriptorpb.FieldDescriptorProto) bool { return f.GetTypeName() == typeName }) {
		return true
	}
	return slices.ContainsFunc(message.NestedType, func(m *descriptorpb.DescriptorProto) bool { return usesType(m, typeName) })
}

// dropUnused takes away the messages at the top of the file that nothing uses
// any more.
func dropUnused(file *descriptorpb.FileDescriptorProto) {
	for {
		before := len(file.MessageType)
		file.MessageType = slices.DeleteFunc(file.MessageType, func(m *descriptorpb.DescriptorProto) bool {
			name := "." + file.GetPackage() + "." + m.GetName()
			return !calls(file, name) && !slices.ContainsFunc(file.MessageType, func(other *descriptorpb.DescriptorProto) bool {
				return other != m && (usesType(other, name) || usesNested(other, name+"."))
			})
		})
		if len(file.MessageType) == before {
			return
		}
	}
}

func usesNested(message *descriptorpb.DescriptorProto, prefix string) bool {
	if slices.ContainsFunc(message.Field, func(f *descriptorpb.FieldDescriptorProto) bool { return strings.HasPrefix(f.GetTypeName(), prefix) }) {
		return true
	}
	return slices.ContainsFunc(message.NestedType, func(m *descriptorpb.DescriptorProto) bool { return usesNested(m, prefix) })
}

func calls(file *descriptorpb.FileDescriptorProto, name string) bool {
	for _, service := range file.Service {
		for _, method := range service.Method {
			if method.GetInputType() == name || method.GetOutputType() == name {
				return true
			}
		}
	}
	return false
}

// Baseline is the image of the contract in version v, as JSON that can be read
// in a review, made from the image at path.
func Baseline(path string, v envdversion.Version) ([]byte, error) {
	set, err := readSet(path)
	if err != nil {
		return nil, err
	}
	for _, file := range set.File {
		file.ProtoReflect().SetUnknown(nil) // buf's own remarks
	}
	text, err := protojson.MarshalOptions{Multiline: true, Indent: " "}.Marshal(Prune(set, v))
	if err != nil {
		return nil, err
	}
	// protojson varies its spaces on purpose.
	return append(stable(text), '\n'), nil
}
