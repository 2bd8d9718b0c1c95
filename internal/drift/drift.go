// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package drift finds out where a running daemon and the contract differ: what
// the daemon says that the contract does not know, and what the contract has
// that the daemon does not.
package drift

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

// A Kind says what sort of difference a Finding is.
type Kind string

// The kinds.
const (
	// UnknownField: a binary answer has a field number that the contract lacks.
	UnknownField Kind = "unknown field"
	// UnknownKey: a JSON answer has a key that the contract lacks.
	UnknownKey Kind = "unknown key"
	// UnknownEnum: an answer has an enum value that the contract lacks.
	UnknownEnum Kind = "unknown enum value"
	// MissingRPC: the daemon does not have an RPC of the contract.
	MissingRPC Kind = "missing RPC"
	// MissingEndpoint: the daemon does not have an HTTP endpoint.
	MissingEndpoint Kind = "missing endpoint"
	// Unreadable: an answer does not parse as what the contract says.
	Unreadable Kind = "unreadable answer"
)

// Finding is one difference.
type Finding struct {
	Kind Kind `json:"kind"`
	// Element is the RPC, message field or endpoint: "process.Process/List",
	// "filesystem.EntryInfo.12", "GET /metrics load".
	Element string `json:"element"`
	// Where is the call in whose answer it was seen.
	Where string `json:"where"`
	// Detail says more, such as what was in an unknown key.
	Detail string `json:"detail,omitempty"`
}

// Report is what was found out.
type Report struct {
	// Findings are the differences, in order of their elements.
	Findings []Finding
	// Calls is how many answers were looked at.
	Calls int
	// NoBinary says that the daemon reads JSON only.
	NoBinary bool
}

// Knows reports whether the contract knows all that the daemon said.
func (r *Report) Knows() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Kind != MissingRPC && f.Kind != MissingEndpoint
	})
}

// Contract is the set of .proto files that the daemon is held against.
type Contract struct {
	files []protoreflect.FileDescriptor
}

// Ours is the contract in proto/.
func Ours() Contract {
	return Contract{[]protoreflect.FileDescriptor{process.File_process_process_proto, filesystem.File_filesystem_filesystem_proto}}
}

// NewContract is a contract of other files.
func NewContract(files ...protoreflect.FileDescriptor) Contract { return Contract{files} }

func (c Contract) method(procedure string) (protoreflect.MethodDescriptor, error) {
	service, name, _ := strings.Cut(procedure, "/")
	for _, file := range c.files {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			if string(s.FullName()) != service {
				continue
			}
			if m := s.Methods().ByName(protoreflect.Name(name)); m != nil {
				return m, nil
			}
		}
	}
	return nil, fmt.Errorf("the contract has no %s", procedure)
}

func (c Contract) procedures() []string {
	var all []string
	for _, file := range c.files {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				all = append(all, string(s.FullName())+"/"+string(s.Methods().Get(j).Name()))
			}
		}
	}
	return all
}

// callTimeout bounds one call.
const callTimeout = 10 * time.Second

// Examine calls what only reads, and a few harmless things in a directory of
// its own below /tmp, which it removes, and compares the answers with the
// contract. user is the user that call acts as. The error is that of the first
// request, if nothing can be asked.
func Examine(ctx context.Context, call envdversion.Caller, user string, contract Contract) (*Report, error) {
	e := &examination{
		call:     call,
		contract: contract,
		user:     user,
		dir:      "/tmp/envd-drift-" + rand.Text(),
		seen:     map[Finding]bool{},
		report:   &Report{},
		codecs:   []codec{jsonCodec, binaryCodec},
	}
	if err := e.open(ctx); err != nil {
		return nil, fmt.Errorf("compare with envd: %w", err)
	}
	defer e.close(ctx)
	e.files(ctx)
	e.watchers(ctx)
	e.processes(ctx)
	e.endpoints(ctx)
	e.rest(ctx)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("compare with envd: %w", err)
	}
	slices.SortFunc(e.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Element, b.Element), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Where, b.Where))
	})
	return e.report, nil
}

type examination struct {
	call     envdversion.Caller
	contract Contract
	user     string
	dir      string
	codecs   []codec
	asked    map[string]bool // the procedures that were called
	seen     map[Finding]bool
	report   *Report
}

// add keeps a finding, once for each element: the first call that shows it.
func (e *examination) add(f Finding) {
	key := Finding{Kind: f.Kind, Element: f.Element}
	if e.seen[key] {
		return
	}
	e.seen[key] = true
	e.report.Findings = append(e.report.Findings, f)
}

// open makes the directory, and finds out whether binary is read.
func (e *examination) open(ctx context.Context) error {
	e.asked = map[string]bool{}
	reply, err := e.send(ctx, jsonCodec, "filesystem.Filesystem/MakeDir", fields{"path": e.dir + "/sub"})
	if err != nil {
		return err
	}
	if reply.Status != http.StatusOK {
		return fmt.Errorf("%w: making a directory was answered with status %d", envdversion.ErrNoDaemon, reply.Status)
	}
	e.look(jsonCodec, "filesystem.Filesystem/MakeDir", reply)
	reply, err = e.send(ctx, binaryCodec, "process.Process/List", nil)
	if err != nil {
		return err
	}
	if reply.Status == http.StatusBadRequest || reply.Status == http.StatusUnsupportedMediaType {
		e.report.NoBinary, e.codecs = true, []codec{jsonCodec}
	}
	return nil
}

func (e *examination) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_, _ = e.send(ctx, jsonCodec, "filesystem.Filesystem/Remove", fields{"path": e.dir})
}

// fields are those of a request, by their JSON names.
type fields map[string]any

// rpc calls a unary RPC in each codec and looks at the answers. It returns the
// last one.
func (e *examination) rpc(ctx context.Context, procedure string, request fields) *envdversion.Reply {
	var last *envdversion.Reply
	for _, c := range e.codecs {
		reply, err := e.send(ctx, c, procedure, request)
		if err != nil {
			e.add(Finding{Unreadable, procedure, c.name + " call", err.Error()})
			continue
		}
		e.look(c, procedure, reply)
		last = reply
	}
	return last
}

func (e *examination) send(ctx context.Context, c codec, procedure string, request fields) (*envdversion.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e.asked[procedure] = true
	method, err := e.contract.method(procedure)
	if err != nil {
		return nil, err
	}
	body, err := c.encode(method, request)
	if err != nil {
		return nil, err
	}
	contentType := "application/" + c.name
	if method.IsStreamingClient() || method.IsStreamingServer() {
		contentType = "application/connect+" + c.name
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	return e.call(ctx, envdversion.Request{Method: http.MethodPost, Path: "/" + procedure, Body: body,
		Header: http.Header{"Content-Type": {contentType}, "Connect-Protocol-Version": {"1"}}})
}

// look compares the answer of a call with the contract.
func (e *examination) look(c codec, procedure string, reply *envdversion.Reply) {
	where := procedure + " in " + c.name
	method, err := e.contract.method(procedure)
	if err != nil {
		return
	}
	if !reply.Routed() {
		e.add(Finding{MissingRPC, procedure, where, rowOf(procedure)})
		return
	}
	if reply.Status != http.StatusOK {
		return // a failure is not drift
	}
	e.report.Calls++
	if !method.IsStreamingServer() && !method.IsStreamingClient() {
		e.message(c, method.Output(), reply.Body, where)
		return
	}
	frames, err := envdversion.SplitStream(reply.Body)
	if err != nil {
		e.add(Finding{Unreadable, procedure, where, "the stream breaks off: " + err.Error()})
	} else {
		frames = frames[:len(frames)-1] // the end of the stream is none of the contract's messages
	}
	for _, frame := range frames {
		e.message(c, method.Output(), frame, where)
	}
}

func (e *examination) message(c codec, desc protoreflect.MessageDescriptor, data []byte, where string) {
	if err := c.compare(e, desc, data, where); err != nil {
		e.add(Finding{Unreadable, string(desc.FullName()), where, err.Error()})
	}
}

// rowOf says what the version table knows of an element.
func rowOf(element string) string {
	for _, row := range envdversion.Features() {
		if row.Element == element || slices.Contains(row.Adds, element) {
			return "since envd " + row.Since.String()
		}
	}
	return ""
}

// files calls the RPCs that describe files.
func (e *examination) files(ctx context.Context) {
	e.upload(ctx)
	for _, path := range []string{e.dir, e.dir + "/file", "/proc/self", "/dev/null"} {
		e.rpc(ctx, "filesystem.Filesystem/Stat", fields{"path": path})
	}
	e.rpc(ctx, "filesystem.Filesystem/ListDir", fields{"path": e.dir, "depth": 2})
	for i, c := range e.codecs {
		from, to := fmt.Sprintf("%s/made%d", e.dir, i), fmt.Sprintf("%s/moved%d", e.dir, i)
		e.one(ctx, c, "filesystem.Filesystem/MakeDir", fields{"path": from})
		e.one(ctx, c, "filesystem.Filesystem/Move", fields{"source": from, "destination": to})
		e.one(ctx, c, "filesystem.Filesystem/Remove", fields{"path": to})
	}
}

// one calls an RPC in one codec.
func (e *examination) one(ctx context.Context, c codec, procedure string, request fields) *envdversion.Reply {
	reply, err := e.send(ctx, c, procedure, request)
	if err != nil {
		e.add(Finding{Unreadable, procedure, c.name + " call", err.Error()})
		return nil
	}
	e.look(c, procedure, reply)
	return reply
}

// watchers creates a watcher, makes it notice something, and removes it.
func (e *examination) watchers(ctx context.Context) {
	reply := e.one(ctx, jsonCodec, "filesystem.Filesystem/CreateWatcher", fields{"path": e.dir, "includeEntry": true})
	if reply == nil || reply.Status != http.StatusOK {
		return
	}
	var watcher struct{ WatcherID string }
	if err := json.Unmarshal(reply.Body, &watcher); err != nil || watcher.WatcherID == "" {
		return
	}
	id := fields{"watcherId": watcher.WatcherID}
	defer e.one(context.WithoutCancel(ctx), jsonCodec, "filesystem.Filesystem/RemoveWatcher", id)
	for i, c := range e.codecs {
		e.one(ctx, jsonCodec, "filesystem.Filesystem/MakeDir", fields{"path": fmt.Sprintf("%s/watched%d", e.dir, i)})
		e.awaitEvents(ctx, c, id)
	}
}

// awaitEvents polls until something came, for two seconds at most.
func (e *examination) awaitEvents(ctx context.Context, c codec, id fields) {
	for range 100 {
		reply := e.one(ctx, c, "filesystem.Filesystem/GetWatcherEvents", id)
		if reply == nil || reply.Status != http.StatusOK || len(bytes.TrimSpace(reply.Body)) > len("{}") {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// processes runs short commands and looks at their events and at the list.
func (e *examination) processes(ctx context.Context) {
	script := []string{"-c", "echo out; echo err >&2; exit 3"}
	for _, c := range e.codecs {
		e.one(ctx, c, "process.Process/Start", fields{"process": fields{"cmd": "/bin/sh", "args": script, "envs": fields{"DRIFT": "1"}, "cwd": e.dir}, "tag": "drift"})
		e.one(ctx, c, "process.Process/Start", fields{"process": fields{"cmd": "/bin/sh", "args": script}, "pty": fields{"size": fields{"cols": 80, "rows": 24}}})
	}
	e.list(ctx)
}

// list looks at the list of processes while there is one.
func (e *examination) list(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = e.call(ctx, startRequest("exec sleep 5"))
	}()
	defer func() { <-ended }()
	defer cancel()
	for range 100 {
		reply, err := e.send(ctx, jsonCodec, "process.Process/List", nil)
		if err != nil || reply.Status != http.StatusOK {
			return
		}
		if pid, ok := listedPID(reply.Body); ok {
			e.rpc(ctx, "process.Process/List", nil)
			e.one(ctx, jsonCodec, "process.Process/SendSignal", fields{"process": fields{"pid": pid}, "signal": "SIGNAL_SIGKILL"})
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

const listTag = "envd-drift"

func startRequest(script string) envdversion.Request {
	body := fmt.Appendf(nil, `{"process":{"cmd":"/bin/sh","args":["-c",%q]},"tag":%q}`, script, listTag)
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	return envdversion.Request{Method: http.MethodPost, Path: "/process.Process/Start", Body: frame,
		Header: http.Header{"Content-Type": {"application/connect+json"}, "Connect-Protocol-Version": {"1"}}}
}

// listedPID finds the process with listTag.
func listedPID(body []byte) (uint32, bool) {
	var list struct {
		Processes []struct {
			PID uint32
			Tag string
		}
	}
	if json.Unmarshal(body, &list) != nil {
		return 0, false
	}
	for _, p := range list.Processes {
		if p.Tag == listTag {
			return p.PID, true
		}
	}
	return 0, false
}

// endpoints asks for each RPC of the contract that was not called yet with a
// request that can do nothing: an unknown pid or path.
func (e *examination) endpoints(ctx context.Context) {
	nobody := fields{"process": fields{"pid": uint32(envdversion.NoSuchPID)}}
	harmless := map[string]fields{
		"process.Process/Connect":        nobody,
		"process.Process/Update":         nobody,
		"process.Process/SendSignal":     nobody,
		"process.Process/SendInput":      {"process": nobody["process"], "input": fields{"stdin": ""}},
		"process.Process/CloseStdin":     nobody,
		"process.Process/StreamInput":    {"start": nobody},
		"filesystem.Filesystem/WatchDir": {"path": e.dir + "/none"},
	}
	for _, procedure := range e.contract.procedures() {
		request, ok := harmless[procedure]
		if e.asked[procedure] || !ok {
			continue
		}
		e.rpc(ctx, procedure, request)
	}
}

// upload stores a file, with metadata where the daemon knows it.
func (e *examination) upload(ctx context.Context) {
	const boundary = "envd-drift"
	body := "--" + boundary + "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\r\ntext\r\n--" + boundary + "--\r\n"
	query := url.Values{"path": {e.dir + "/file"}, "username": {cmp.Or(e.user, "root")}}
	e.keys(ctx, envdversion.Request{Method: http.MethodPost, Path: "/files?" + query.Encode(), Body: []byte(body),
		Header: http.Header{"Content-Type": {"multipart/form-data; boundary=" + boundary}, "X-Metadata-Drift": {"1"}}},
		"POST /files", "name", "path", "type", "metadata")
}

// rest compares the answers of the plain HTTP half.
func (e *examination) rest(ctx context.Context) {
	get := func(path string) envdversion.Request { return envdversion.Request{Method: http.MethodGet, Path: path} }
	e.keys(ctx, get("/health"), "GET /health")
	e.keys(ctx, get("/metrics"), "GET /metrics", "ts", "cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib",
		"mem_total", "mem_used", "mem_cache", "disk_used", "disk_total")
	e.keys(ctx, get("/envs"), "GET /envs", "*")
	query := url.Values{"path": {e.dir + "/file"}, "username": {cmp.Or(e.user, "root")}}
	e.keys(ctx, get("/files?"+query.Encode()), "GET /files", "*")
	e.keys(ctx, envdversion.Request{Method: http.MethodPost, Path: "/files/compose", Body: []byte("{}"),
		Header: http.Header{"Content-Type": {"application/json"}}}, "POST /files/compose", "*")
}

// keys calls an HTTP endpoint and reports keys of its JSON answer that are not
// among the known ones; "*" knows them all.
func (e *examination) keys(ctx context.Context, request envdversion.Request, endpoint string, known ...string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := e.call(ctx, request)
	if err != nil {
		e.add(Finding{Unreadable, endpoint, "the call", err.Error()})
		return
	}
	if !reply.Routed() || reply.Status == http.StatusMethodNotAllowed {
		e.add(Finding{MissingEndpoint, endpoint, "the call", rowOf(endpoint)})
		return
	}
	if reply.Status < 200 || reply.Status > 299 {
		return
	}
	e.report.Calls++
	if len(reply.Body) == 0 || slices.Contains(known, "*") {
		return
	}
	objects := []map[string]any{{}}
	if err := json.Unmarshal(reply.Body, &objects[0]); err != nil {
		if err := json.Unmarshal(reply.Body, &objects); err != nil {
			e.add(Finding{Unreadable, endpoint, "the call", err.Error()})
			return
		}
	}
	for _, object := range objects {
		for key, value := range object {
			if !slices.Contains(known, key) {
				e.add(Finding{UnknownKey, endpoint + " " + key, endpoint, sample(value)})
			}
		}
	}
}

// sample shows a value in a few characters.
func sample(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	if len(text) > 80 {
		return string(text[:80]) + "..."
	}
	return string(text)
}

// codec is one of the two ways to write messages.
type codec struct {
	name    string
	encode  func(protoreflect.MethodDescriptor, fields) ([]byte, error)
	compare func(e *examination, desc protoreflect.MessageDescriptor, data []byte, where string) error
}

var (
	jsonCodec   = codec{"json", encodeJSON, (*examination).compareJSON}
	binaryCodec = codec{"proto", encodeBinary, (*examination).compareBinary}
)

func encodeJSON(_ protoreflect.MethodDescriptor, request fields) ([]byte, error) {
	if request == nil {
		request = fields{}
	}
	return json.Marshal(request)
}

func encodeBinary(method protoreflect.MethodDescriptor, request fields) ([]byte, error) {
	text, err := encodeJSON(method, request)
	if err != nil {
		return nil, err
	}
	message := dynamicpb.NewMessage(method.Input())
	// A contract that lacks a field cannot send it.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, message); err != nil {
		return nil, err
	}
	return proto.Marshal(message)
}
