// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// compareBinary reports fields and enum numbers that the message does not know.
func (e *examination) compareBinary(desc protoreflect.MessageDescriptor, data []byte, where string) error {
	message := dynamicpb.NewMessage(desc)
	if err := proto.Unmarshal(data, message); err != nil {
		return err
	}
	e.walkBinary(message, where)
	return nil
}

func (e *examination) walkBinary(m protoreflect.Message, where string) {
	for unknown := m.GetUnknown(); len(unknown) > 0; {
		number, wireType, n := protowire.ConsumeField(unknown)
		if n < 0 {
			break
		}
		e.add(Finding{UnknownField, fmt.Sprintf("%s.%d", m.Descriptor().FullName(), number), where,
			fmt.Sprintf("wire type %d, %d bytes", wireType, n)})
		unknown = unknown[n:]
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		for _, v := range values(field, value) {
			switch {
			case field.IsMap():
				if field.MapValue().Message() != nil {
					e.walkBinary(v.Message(), where)
				}
			case field.Message() != nil:
				e.walkBinary(v.Message(), where)
			case field.Enum() != nil && field.Enum().Values().ByNumber(v.Enum()) == nil:
				e.add(Finding{UnknownEnum, fmt.Sprintf("%s %d", field.Enum().FullName(), v.Enum()), where, "in " + string(field.FullName())})
			}
		}
		return true
	})
}

// values returns the values of a field: one, or those of a list or map.
func values(field protoreflect.FieldDescriptor, value protoreflect.Value) []protoreflect.Value {
	var all []protoreflect.Value
	switch {
	case field.IsMap():
		value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
			all = append(all, v)
			return true
		})
	case field.IsList():
		for i := range value.List().Len() {
			all = append(all, value.List().Get(i))
		}
	default:
		all = append(all, value)
	}
	return all
}

// compareJSON reports keys and enum names that the message does not know.
func (e *examination) compareJSON(desc protoreflect.MessageDescriptor, data []byte, where string) error {
	if len(data) == 0 {
		return nil
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	e.walkJSON(desc, object, where)
	return nil
}

func (e *examination) walkJSON(desc protoreflect.MessageDescriptor, object map[string]any, where string) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := object[key]
		field := desc.Fields().ByJSONName(key)
		if field == nil {
			field = desc.Fields().ByName(protoreflect.Name(key))
		}
		if field == nil {
			e.add(Finding{UnknownKey, string(desc.FullName()) + "." + key, where, sample(value)})
			continue
		}
		e.walkValue(field, value, where)
	}
}

func (e *examination) walkValue(field protoreflect.FieldDescriptor, value any, where string) {
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			e.walkValue(field, v, where)
		}
	case map[string]any:
		switch {
		case field.IsMap():
			for _, v := range value {
				e.walkValue(field.MapValue(), v, where)
			}
		case field.Message() != nil:
			e.walkJSON(field.Message(), value, where)
		}
	case float64: // one vendor's daemon writes enums as numbers
		if number := protoreflect.EnumNumber(value); field.Enum() != nil && field.Enum().Values().ByNumber(number) == nil {
			e.add(Finding{UnknownEnum, fmt.Sprintf("%s %d", field.Enum().FullName(), number), where, "in " + string(field.FullName())})
		}
	case string:
		if field.Enum() != nil && field.Enum().Values().ByName(protoreflect.Name(value)) == nil {
			e.add(Finding{UnknownEnum, string(field.Enum().FullName()) + " " + value, where, "in " + string(field.FullName())})
		}
	}
}
