// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package protocoldiff says what differs between two versions of envd's
// contract, and what that means on the wire and in JSON.
package protocoldiff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Verdict says whether both sides of a change understand each other.
type Verdict string

// The verdicts.
const (
	Safe     Verdict = "safe"
	Breaking Verdict = "breaking"
)

// Change is one difference.
type Change struct {
	// Service is the service whose calls it shows in, or "" for none.
	Service string `json:"service"`
	// Kind is "added", "removed" or "changed".
	Kind string `json:"kind"`
	// What is "rpc", "message", "field", "enum" or "enum value".
	What string `json:"what"`
	// Name is the full name of the element.
	Name string `json:"name"`
	// Detail says what changed, for a "changed" one.
	Detail string `json:"detail,omitempty"`
	// Wire is the verdict for binary messages, JSON that for JSON.
	Wire Verdict `json:"wire"`
	JSON Verdict `json:"json"`
	// Buf is what "buf breaking" says about it.
	Buf []string `json:"buf,omitempty"`
	// number is that of a field or enum value, by which buf sometimes names it.
	number int32
	// Look lists files of this repository that may have to change too.
	Look []string `json:"look,omitempty"`
}

// Report is what differs, in the order of services and names.
type Report struct {
	Changes []Change `json:"changes"`
}

// Breaks reports whether a change is breaking.
func (r *Report) Breaks() bool {
	return slices.ContainsFunc(r.Changes, func(c Change) bool { return c.Wire == Breaking || c.JSON == Breaking })
}

// Contract is one version: its elements by their full names.
type Contract struct {
	methods  map[string]protoreflect.MethodDescriptor
	messages map[string]protoreflect.MessageDescriptor
	enums    map[string]protoreflect.EnumDescriptor
	// services has for each message and enum the services that reach it.
	services map[string][]string
}

// NewContract collects the elements of the files.
func NewContract(files []protoreflect.FileDescriptor) *Contract {
	c := &Contract{
		methods:  map[string]protoreflect.MethodDescriptor{},
		messages: map[string]protoreflect.MessageDescriptor{},
		enums:    map[string]protoreflect.EnumDescriptor{},
		services: map[string][]string{},
	}
	for _, file := range files {
		c.addMessages(file.Messages())
		c.addEnums(file.Enums())
		for i := range file.Services().Len() {
			c.addService(file.Services().Get(i))
		}
	}
	return c
}

func (c *Contract) addMessages(messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		message := messages.Get(i)
		if message.IsMapEntry() {
			continue
		}
		c.messages[string(message.FullName())] = message
		c.addMessages(message.Messages())
		c.addEnums(message.Enums())
	}
}

func (c *Contract) addEnums(enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		c.enums[string(enums.Get(i).FullName())] = enums.Get(i)
	}
}

func (c *Contract) addService(service protoreflect.ServiceDescriptor) {
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		c.methods[string(service.FullName())+"/"+string(method.Name())] = method
		for _, message := range []protoreflect.MessageDescriptor{method.Input(), method.Output()} {
			c.reach(message, string(service.FullName()))
		}
	}
}

// reach notes that the service reaches the message and all in it.
func (c *Contract) reach(message protoreflect.MessageDescriptor, service string) {
	name := string(message.FullName())
	if slices.Contains(c.services[name], service) {
		return
	}
	c.services[name] = append(c.services[name], service)
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if field.Message() != nil {
			c.reach(field.Message(), service)
		}
		if field.Enum() != nil {
			enum := string(field.Enum().FullName())
			if !slices.Contains(c.services[enum], service) {
				c.services[enum] = append(c.services[enum], service)
			}
		}
	}
}

// Compare says what changes from one contract to another.
func Compare(from, to *Contract) *Report {
	d := &differ{from: from, to: to}
	d.compareMethods()
	d.compareMessages()
	d.compareEnums()
	slices.SortFunc(d.changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Detail, b.Detail))
	})
	return &Report{Changes: d.changes}
}

type differ struct {
	from, to *Contract
	changes  []Change
}

// last is the change that was added last.
func (d *differ) last() *Change { return &d.changes[len(d.changes)-1] }

func (d *differ) add(kind, what, name, detail string, wire, json Verdict) {
	d.changes = append(d.changes, Change{Service: d.serviceOf(what, name), Kind: kind, What: what, Name: name, Detail: detail, Wire: wire, JSON: json})
}

// serviceOf names the services that the element shows in.
func (d *differ) serviceOf(what, name string) string {
	switch what {
	case "rpc":
		service, _, _ := strings.Cut(name, "/")
		return service
	case "field", "enum value":
		name = name[:strings.LastIndex(name, ".")]
	}
	services := d.to.services[name]
	if len(services) == 0 {
		services = d.from.services[name]
	}
	return strings.Join(slices.Sorted(slices.Values(services)), ", ")
}

// union returns the keys of both maps, sorted.
func union[V any](a, b map[string]V) []string {
	all := map[string]bool{}
	for key := range a {
		all[key] = true
	}
	for key := range b {
		all[key] = true
	}
	keys := make([]string, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (d *differ) compareMethods() {
	for _, name := range union(d.from.methods, d.to.methods) {
		before, after := d.from.methods[name], d.to.methods[name]
		switch {
		case before == nil:
			d.add("added", "rpc", name, "", Safe, Safe)
		case after == nil:
			d.add("removed", "rpc", name, "", Breaking, Breaking)
		case signature(before) != signature(after):
			d.add("changed", "rpc", name, signature(before)+" becomes "+signature(after), Breaking, Breaking)
		}
	}
}

func signature(m protoreflect.MethodDescriptor) string {
	stream := func(on bool) string {
		if on {
			return "stream "
		}
		return ""
	}
	return fmt.Sprintf("(%s%s) returns (%s%s)", stream(m.IsStreamingClient()), m.Input().FullName(), stream(m.IsStreamingServer()), m.Output().FullName())
}

func (d *differ) compareMessages() {
	for _, name := range union(d.from.messages, d.to.messages) {
		before, after := d.from.messages[name], d.to.messages[name]
		switch {
		case before == nil:
			d.add("added", "message", name, "", Safe, Safe)
		case after == nil:
			verdict := Safe // what reached it shows as a change of its own
			if len(d.from.services[name]) > 0 {
				verdict = Breaking
			}
			d.add("removed", "message", name, "", verdict, verdict)
		default:
			d.compareFields(before, after)
		}
	}
}

// compareFields pairs fields by number, and what is left by name.
func (d *differ) compareFields(before, after protoreflect.MessageDescriptor) {
	fullName := func(f protoreflect.FieldDescriptor) string { return string(f.FullName()) }
	moved := map[protoreflect.FieldNumber]bool{}
	for i := range before.Fields().Len() {
		old := before.Fields().Get(i)
		now := after.Fields().ByNumber(old.Number())
		if now != nil {
			d.compareField(old, now)
			continue
		}
		if now = after.Fields().ByName(old.Name()); now != nil && before.Fields().ByNumber(now.Number()) == nil {
			moved[now.Number()] = true
			json := Safe
			if kindOf(old) != kindOf(now) {
				_, json = kindVerdict(old, now)
			}
			d.add("changed", "field", fullName(old), fmt.Sprintf("number %d becomes %d", old.Number(), now.Number()), Breaking, json)
			continue
		}
		verdict := Breaking
		if after.ReservedRanges().Has(old.Number()) && after.ReservedNames().Has(old.Name()) {
			verdict = Safe
		}
		d.add("removed", "field", fullName(old), "", verdict, verdict)
		d.last().number = int32(old.Number())
	}
	for i := range after.Fields().Len() {
		now := after.Fields().Get(i)
		if before.Fields().ByNumber(now.Number()) == nil && !moved[now.Number()] {
			d.add("added", "field", fullName(now), "", Safe, Safe)
		}
	}
}

func (d *differ) compareField(old, now protoreflect.FieldDescriptor) {
	name := string(old.FullName())
	if old.Name() != now.Name() {
		d.add("changed", "field", name, fmt.Sprintf("is called %s", now.Name()), Safe, Breaking)
	} else if old.JSONName() != now.JSONName() {
		d.add("changed", "field", name, fmt.Sprintf("JSON name %s becomes %s", old.JSONName(), now.JSONName()), Safe, Breaking)
	}
	if kindOf(old) != kindOf(now) {
		wire, json := kindVerdict(old, now)
		d.add("changed", "field", name, kindOf(old)+" becomes "+kindOf(now), wire, json)
	}
	if old.Cardinality() != now.Cardinality() {
		d.add("changed", "field", name, fmt.Sprintf("%v becomes %v", old.Cardinality(), now.Cardinality()), Breaking, Breaking)
	}
	if old.HasPresence() != now.HasPresence() && old.Message() == nil {
		d.add("changed", "field", name, presence(old)+" becomes "+presence(now), Safe, Safe)
	}
	if oneof(old) != oneof(now) {
		d.add("changed", "field", name, "oneof "+oneof(old)+" becomes "+oneof(now), Breaking, Safe)
	}
}

func presence(f protoreflect.FieldDescriptor) string {
	if f.HasPresence() {
		return "optional"
	}
	return "always there"
}

func oneof(f protoreflect.FieldDescriptor) string {
	if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
		return string(o.Name())
	}
	return "none"
}

// kindOf is the type of a field as the language writes it.
func kindOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map<" + kindOf(f.MapKey()) + ", " + kindOf(f.MapValue()) + ">"
	case f.Message() != nil:
		return string(f.Message().FullName())
	case f.Enum() != nil:
		return string(f.Enum().FullName())
	}
	return f.Kind().String()
}

// wireGroups are types that read each other's bytes, jsonGroups those that read
// each other's JSON.
var (
	wireGroups = [][]string{{"int32", "uint32", "int64", "uint64", "bool"}, {"sint32", "sint64"}, {"fixed32", "sfixed32"}, {"fixed64", "sfixed64"}}
	jsonGroups = [][]string{{"int32", "uint32", "sint32", "fixed32", "sfixed32"}, {"int64", "uint64", "sint64", "fixed64", "sfixed64"}}
)

func kindVerdict(old, now protoreflect.FieldDescriptor) (wire, json Verdict) {
	together := func(groups [][]string) Verdict {
		for _, group := range groups {
			if slices.Contains(group, kindOf(old)) && slices.Contains(group, kindOf(now)) {
				return Safe
			}
		}
		return Breaking
	}
	return together(wireGroups), together(jsonGroups)
}

func (d *differ) compareEnums() {
	for _, name := range union(d.from.enums, d.to.enums) {
		before, after := d.from.enums[name], d.to.enums[name]
		switch {
		case before == nil:
			d.add("added", "enum", name, "", Safe, Safe)
		case after == nil:
			d.add("removed", "enum", name, "", Breaking, Breaking)
		default:
			d.compareValues(name, before, after)
		}
	}
}

func (d *differ) compareValues(enum string, before, after protoreflect.EnumDescriptor) {
	moved := map[protoreflect.EnumNumber]bool{}
	for i := range before.Values().Len() {
		old := before.Values().Get(i)
		name := enum + "." + string(old.Name())
		now := after.Values().ByNumber(old.Number())
		switch byName := after.Values().ByName(old.Name()); {
		case now != nil && now.Name() != old.Name():
			d.add("changed", "enum value", name, fmt.Sprintf("is called %s", now.Name()), Safe, Breaking)
		case now == nil && byName != nil:
			moved[byName.Number()] = true
			d.add("changed", "enum value", name, fmt.Sprintf("number %d becomes %d", old.Number(), byName.Number()), Breaking, Safe)
		case now == nil:
			d.add("removed", "enum value", name, "", Breaking, Breaking)
			d.last().number = int32(old.Number())
		}
	}
	for i := range after.Values().Len() {
		now := after.Values().Get(i)
		if before.Values().ByNumber(now.Number()) == nil && !moved[now.Number()] {
			d.add("added", "enum value", enum+"."+string(now.Name()), "", Safe, Safe)
		}
	}
}
