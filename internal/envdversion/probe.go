// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdversion

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"
)

// A Request is one plain HTTP request to a daemon, as probes make them.
type Request struct {
	Method string
	// Path is below the daemon's base URL and may have a query.
	Path   string
	Header http.Header
	Body   []byte
	// Anonymous leaves the user out.
	Anonymous bool
}

// A Reply is the answer to a Request, with the whole body.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// A Caller sends a request with whatever the daemon needs besides: tokens,
// routing headers, the user. It neither follows redirects nor decodes gzip, and
// reads 1 MiB of a body at least.
type Caller func(context.Context, Request) (*Reply, error)

// State is what a probe found out.
type State int

// The states.
const (
	// Unknown: the probe could not tell.
	Unknown State = iota
	// Present: the daemon has the feature.
	Present
	// Absent: it does not.
	Absent
)

// String returns "present", "absent" or "unknown".
func (s State) String() string {
	switch s {
	case Present:
		return "present"
	case Absent:
		return "absent"
	}
	return "unknown"
}

// Finding is what a probe found out about one feature.
type Finding struct {
	Feature Feature
	State   State
	// Evidence is what came, in a few words.
	Evidence string
}

// Survey is what the probes found out about a daemon.
type Survey struct {
	Findings []Finding
	// Since is the oldest version that explains the findings, and Before the
	// first that does not any more; it is zero where the newest known one does.
	// Both are zero where nothing was found out.
	Since, Before Version
	// Conflicts are the findings that do not fit in there, as with a daemon that
	// is no release of envd.
	Conflicts []Finding
}

// Finding returns what the probe of the feature found; Unknown where there is
// none.
func (s *Survey) Finding(f Feature) Finding {
	for _, finding := range s.Findings {
		if finding.Feature == f {
			return finding
		}
	}
	return Finding{Feature: f}
}

// Lacks reports whether the daemon is known not to have the feature: by its own
// probe, or because no version that the daemon may be has it.
func (s *Survey) Lacks(f Feature) bool {
	if state := s.Finding(f).State; state != Unknown {
		return state == Absent
	}
	row := f.Row()
	tooOld := !s.Before.IsZero() && row.Since.Compare(s.Before) >= 0
	tooNew := !row.Until.IsZero() && s.Since.Compare(row.Until) >= 0
	return tooOld || tooNew
}

// Has reports whether the daemon is known to have the feature.
func (s *Survey) Has(f Feature) bool {
	if state := s.Finding(f).State; state != Unknown {
		return state == Present
	}
	row := f.Row()
	return s.Since.Compare(row.Since) >= 0 &&
		(row.Until.IsZero() || !s.Before.IsZero() && s.Before.Compare(row.Until) <= 0)
}

// IsConflict reports whether the finding about f is one of the Conflicts.
func (s *Survey) IsConflict(f Feature) bool {
	return slices.ContainsFunc(s.Conflicts, func(c Finding) bool { return c.Feature == f })
}

// String returns the range of versions for people: "0.6.12 or later",
// "0.3.0 or later, before 0.4.0".
func (s *Survey) String() string {
	switch {
	case s.Since.IsZero():
		return "unknown"
	case s.Before.IsZero():
		return s.Since.String() + " or later"
	}
	return s.Since.String() + " or later, before " + s.Before.String()
}

// ErrNoDaemon says that what answered is no envd that lets us in.
var ErrNoDaemon = errors.New("no envd that can be asked")

// Examine asks a daemon what it can do, by the probes of the table. user is
// the user that call acts as; it may be empty. It runs three short commands and
// writes to a directory of its own below /tmp, which it removes. The error is
// that of the first request, if nothing can be asked.
func Examine(ctx context.Context, call Caller, user string) (*Survey, error) {
	s := &session{call: call, user: user, replies: map[string]*Reply{}}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	defer s.close(ctx)
	survey := &Survey{}
	for _, row := range Features() {
		if row.Probe == nil {
			continue
		}
		survey.Findings = append(survey.Findings, s.run(ctx, row))
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("examine envd: %w", err)
	}
	survey.bound()
	return survey, nil
}

// probeTimeout bounds one probe: a daemon that leaves one without an answer
// must not hold up the rest.
const probeTimeout = 5 * time.Second

func (s *session) run(ctx context.Context, row Row) Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	state, evidence, err := row.Probe(ctx, s)
	if err != nil {
		return Finding{Feature: row.Feature, Evidence: err.Error()}
	}
	return Finding{Feature: row.Feature, State: state, Evidence: evidence}
}

// bound finds the range of versions that agrees with most findings. Every
// version between two that the table names behaves as the first of them.
func (s *Survey) bound() {
	steps := boundaries()
	best := 0
	for i, v := range steps {
		n := s.agreement(v)
		if n == 0 || n < best {
			continue
		}
		if n > best {
			best, s.Since = n, v
		}
		s.Before = Version{}
		if i+1 < len(steps) {
			s.Before = steps[i+1]
		}
	}
	for _, f := range s.Findings {
		if f.State != Unknown && s.Since.Has(f.Feature) != (f.State == Present) {
			s.Conflicts = append(s.Conflicts, f)
		}
	}
}

// agreement counts the findings that are as in version v.
func (s *Survey) agreement(v Version) int {
	n := 0
	for _, f := range s.Findings {
		if f.State != Unknown && v.Has(f.Feature) == (f.State == Present) {
			n++
		}
	}
	return n
}

// boundaries returns the versions in which a feature with a probe came or went,
// oldest first.
func boundaries() []Version {
	var all []Version
	for _, row := range Features() {
		if row.Probe == nil {
			continue
		}
		all = append(all, row.Since)
		if !row.Until.IsZero() {
			all = append(all, row.Until)
		}
	}
	slices.SortFunc(all, Version.Compare)
	return slices.Compact(all)
}

// session is one examination. Answers that several probes look at are kept.
type session struct {
	call    Caller
	user    string
	dir     string
	made    *Reply
	replies map[string]*Reply
}

func (s *session) open(ctx context.Context) error {
	dir := "/tmp/envd-probe-" + rand.Text()
	reply, err := s.unary(ctx, "filesystem.Filesystem/MakeDir", map[string]any{"path": dir})
	if err != nil {
		return fmt.Errorf("examine envd: %w", err)
	}
	if reply.Status != http.StatusOK {
		return fmt.Errorf("examine envd: %w: making %s was answered with %s", ErrNoDaemon, dir, reply.brief())
	}
	s.dir, s.made = dir, reply
	return nil
}

// close removes the directory, also when ctx is over.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	s.unary(ctx, "filesystem.Filesystem/Remove", map[string]any{"path": s.dir})
}

func (s *session) unary(ctx context.Context, procedure string, request map[string]any) (*Reply, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	return s.call(ctx, Request{Method: http.MethodPost, Path: "/" + procedure, Header: rpcHeader("application/json"), Body: body})
}

func rpcHeader(contentType string) http.Header {
	return http.Header{"Content-Type": {contentType}, "Connect-Protocol-Version": {"1"}}
}

// once is unary, except that the same request is sent only once.
func (s *session) once(ctx context.Context, procedure string, request map[string]any) (*Reply, error) {
	key := fmt.Sprint(procedure, request)
	if reply := s.replies[key]; reply != nil {
		return reply, nil
	}
	reply, err := s.unary(ctx, procedure, request)
	if err == nil {
		s.replies[key] = reply
	}
	return reply, err
}

func (s *session) get(ctx context.Context, path string, header http.Header) (*Reply, error) {
	if reply := s.replies[path]; reply != nil {
		return reply, nil
	}
	reply, err := s.call(ctx, Request{Method: http.MethodGet, Path: path, Header: header})
	if err == nil {
		s.replies[path] = reply
	}
	return reply, err
}

// stream calls an RPC whose answer is a stream that ends by itself, and
// returns its messages; the last is the end of the stream.
func (s *session) stream(ctx context.Context, procedure string, request map[string]any) ([]streamMessage, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	reply, err := s.call(ctx, Request{Method: http.MethodPost, Path: "/" + procedure,
		Header: rpcHeader("application/connect+json"), Body: append(frame, body...)})
	if err != nil {
		return nil, err
	}
	if reply.Status != http.StatusOK {
		return nil, fmt.Errorf("answered with %s", reply.brief())
	}
	return readStream(reply.Body)
}

// streamMessage is what the probes look at in the messages of process streams.
type streamMessage struct {
	Event struct {
		Start *struct{ PID uint32 }
		Data  *struct{ Stdout []byte }
		End   *struct{ ExitCode int }
	}
	// Error is in the last message.
	Error *struct{ Code, Message string }
}

func readStream(body []byte) ([]streamMessage, error) {
	var messages []streamMessage
	for len(body) > 0 {
		if len(body) < 5 {
			return nil, io.ErrUnexpectedEOF
		}
		size := binary.BigEndian.Uint32(body[1:5])
		if uint64(len(body)) < 5+uint64(size) {
			return nil, io.ErrUnexpectedEOF
		}
		var message streamMessage
		if err := json.Unmarshal(body[5:5+size], &message); err != nil {
			return nil, err
		}
		messages = append(messages, message)
		if body[0]&2 != 0 {
			return messages, nil
		}
		body = body[5+size:]
	}
	return nil, io.ErrUnexpectedEOF
}

// start runs a command and returns its pid, its standard output, and its exit
// code; ran is false, and the text that of the error, where it was refused.
func (s *session) start(ctx context.Context, process map[string]any, more map[string]any) (pid uint32, stdout string, code int, refusal string, err error) {
	request := map[string]any{"process": process}
	for key, value := range more {
		request[key] = value
	}
	messages, err := s.stream(ctx, "process.Process/Start", request)
	if err != nil {
		return 0, "", 0, "", err
	}
	ended := false
	for _, m := range messages {
		switch {
		case m.Error != nil:
			return pid, stdout, 0, m.Error.Code + ": " + m.Error.Message, nil
		case m.Event.Start != nil:
			pid = m.Event.Start.PID
		case m.Event.Data != nil:
			stdout += string(m.Event.Data.Stdout)
		case m.Event.End != nil:
			code, ended = m.Event.End.ExitCode, true
		}
	}
	if !ended {
		return pid, stdout, 0, "", errors.New("the stream had no end event")
	}
	return pid, stdout, code, "", nil
}

// filePath is the path and query of an HTTP request for a file.
func (s *session) filePath(name string) string {
	query := url.Values{"path": {s.dir + "/" + name}, "username": {s.username()}}
	return "/files?" + query.Encode()
}

// username is for requests that old daemons refuse without a user.
func (s *session) username() string {
	if s.user == "" {
		return "root"
	}
	return s.user
}

// file uploads a small file once, so that it can be looked at.
func (s *session) file(ctx context.Context) (name string, err error) {
	const file = "file"
	if s.replies[file] != nil {
		return file, nil
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	header := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="file"`}}
	part, err := form.CreatePart(header)
	if err != nil {
		return "", err
	}
	io.WriteString(part, strings.Repeat("probe ", 50))
	if err := form.Close(); err != nil {
		return "", err
	}
	reply, err := s.call(ctx, Request{Method: http.MethodPost, Path: s.filePath(file),
		Header: http.Header{"Content-Type": {form.FormDataContentType()}}, Body: body.Bytes()})
	if err != nil {
		return "", err
	}
	if reply.Status != http.StatusOK {
		return "", fmt.Errorf("an upload was answered with %s", reply.brief())
	}
	s.replies[file] = reply
	return file, nil
}

// upload sends a raw body.
func (s *session) upload(ctx context.Context, name string, header http.Header) (*Reply, error) {
	header.Set("Content-Type", "application/octet-stream")
	return s.call(ctx, Request{Method: http.MethodPost, Path: s.filePath(name), Header: header, Body: []byte("probe")})
}

// brief describes a reply for people.
func (r *Reply) brief() string {
	text := strings.TrimSpace(string(r.Body))
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	if text == "" {
		return fmt.Sprintf("status %d", r.Status)
	}
	return fmt.Sprintf("status %d, %q", r.Status, text)
}

// routed reports whether the daemon has what was called: it answers for the
// rest with a text, or says that it is not implemented.
func (r *Reply) routed() bool {
	if r.Status == http.StatusNotImplemented {
		return false
	}
	return r.Status != http.StatusNotFound || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain")
}

// entryKeys returns the keys of the entry in an answer.
func (r *Reply) entryKeys() (map[string]json.RawMessage, error) {
	var body struct{ Entry map[string]json.RawMessage }
	if r.Status != http.StatusOK {
		return nil, fmt.Errorf("answered with %s", r.brief())
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return nil, err
	}
	return body.Entry, nil
}

func found(present bool, evidence string) (State, string, error) {
	if present {
		return Present, evidence, nil
	}
	return Absent, evidence, nil
}

// A probe asks whether the daemon has a feature.
type probe func(context.Context, *session) (State, string, error)

func probeRPC(procedure string, request map[string]any) probe {
	return func(ctx context.Context, s *session) (State, string, error) {
		reply, err := s.once(ctx, procedure, request)
		if err != nil {
			return Unknown, "", err
		}
		if reply.Status == http.StatusUnauthorized {
			return Unknown, "", fmt.Errorf("answered with %s", reply.brief())
		}
		return found(reply.routed(), reply.brief())
	}
}

func probeMetric(key string) probe {
	return func(ctx context.Context, s *session) (State, string, error) {
		reply, err := s.get(ctx, "/metrics", nil)
		if err != nil {
			return Unknown, "", err
		}
		var keys map[string]any
		if err := json.Unmarshal(reply.Body, &keys); err != nil || reply.Status != http.StatusOK {
			return Unknown, "", fmt.Errorf("metrics: answered with %s", reply.brief())
		}
		_, ok := keys[key]
		return found(ok, "key "+key+" in the metrics")
	}
}

func probeListDepth(ctx context.Context, s *session) (State, string, error) {
	if _, err := s.unary(ctx, "filesystem.Filesystem/MakeDir", map[string]any{"path": s.dir + "/one/two"}); err != nil {
		return Unknown, "", err
	}
	reply, err := s.unary(ctx, "filesystem.Filesystem/ListDir", map[string]any{"path": s.dir, "depth": 2})
	if err != nil {
		return Unknown, "", err
	}
	var list struct{ Entries []struct{ Name string } }
	if err := json.Unmarshal(reply.Body, &list); err != nil || len(list.Entries) == 0 {
		return Unknown, "", fmt.Errorf("a listing was answered with %s", reply.brief())
	}
	for _, entry := range list.Entries {
		if entry.Name == "two" {
			return Present, "a listing has two levels", nil
		}
	}
	return Absent, "a listing has one level", nil
}

func probeEntryDetails(ctx context.Context, s *session) (State, string, error) {
	reply, err := s.once(ctx, "filesystem.Filesystem/Stat", map[string]any{"path": "/"})
	if err != nil {
		return Unknown, "", err
	}
	keys, err := reply.entryKeys()
	if err != nil {
		return Unknown, "", err
	}
	return found(keys["permissions"] != nil, "key permissions in an entry")
}

func probeLstat(ctx context.Context, s *session) (State, string, error) {
	reply, err := s.once(ctx, "filesystem.Filesystem/Stat", map[string]any{"path": "/proc/self"})
	if err != nil {
		return Unknown, "", err
	}
	keys, err := reply.entryKeys()
	if err != nil {
		return Unknown, "", err // no /proc
	}
	permissions := string(keys["permissions"])
	return found(strings.HasPrefix(permissions, `"L`), "permissions of a link: "+permissions)
}

func probeMakeDirDetails(_ context.Context, s *session) (State, string, error) {
	keys, err := s.made.entryKeys()
	if err != nil {
		return Unknown, "", err
	}
	return found(keys["permissions"] != nil, "key permissions in the entry of MakeDir")
}

func probeStdinField(ctx context.Context, s *session) (State, string, error) {
	_, stdout, code, refusal, err := s.start(ctx, map[string]any{"cmd": "/bin/sh", "args": []string{"-c", "readlink /proc/self/fd/0"}},
		map[string]any{"stdin": false})
	if err != nil {
		return Unknown, "", err
	}
	stdout = strings.TrimSpace(stdout)
	if refusal != "" || code != 0 || stdout == "" {
		return Unknown, "", fmt.Errorf("the command said %q and ended with %d %s", stdout, code, refusal)
	}
	return found(!strings.HasPrefix(stdout, "pipe:"), "standard input is "+stdout)
}

func probeDefaultUser(ctx context.Context, s *session) (State, string, error) {
	reply, err := s.call(ctx, Request{Method: http.MethodPost, Path: "/filesystem.Filesystem/Stat",
		Header: rpcHeader("application/json"), Body: []byte(`{"path":"/"}`), Anonymous: true})
	if err != nil {
		return Unknown, "", err
	}
	switch reply.Status {
	case http.StatusOK:
		return Present, "a request without a user is served", nil
	case http.StatusUnauthorized:
		return Absent, reply.brief(), nil
	}
	return Unknown, "", fmt.Errorf("answered with %s", reply.brief())
}

func probeContentDisposition(ctx context.Context, s *session) (State, string, error) {
	reply, err := s.download(ctx)
	if err != nil {
		return Unknown, "", err
	}
	value := reply.Header.Get("Content-Disposition")
	return found(value != "", "Content-Disposition: "+value)
}

func probeFilesGzip(ctx context.Context, s *session) (State, string, error) {
	reply, err := s.download(ctx)
	if err != nil {
		return Unknown, "", err
	}
	value := reply.Header.Get("Content-Encoding")
	return found(value == "gzip", "Content-Encoding: "+value)
}

func (s *session) download(ctx context.Context) (*Reply, error) {
	name, err := s.file(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := s.get(ctx, s.filePath(name), http.Header{"Accept-Encoding": {"gzip"}})
	if err != nil {
		return nil, err
	}
	if reply.Status != http.StatusOK {
		return nil, fmt.Errorf("a download was answered with %s", reply.brief())
	}
	return reply, nil
}

func probeShellWrapper(ctx context.Context, s *session) (State, string, error) {
	_, _, code, refusal, err := s.start(ctx, map[string]any{"cmd": s.dir + "/no-such-command"}, nil)
	if err != nil {
		return Unknown, "", err
	}
	if refusal != "" {
		return Absent, "a command that does not exist is refused: " + refusal, nil
	}
	return found(code == 127, fmt.Sprintf("a command that does not exist exits with %d", code))
}

func probeCompose(ctx context.Context, s *session) (State, string, error) {
	reply, err := s.call(ctx, Request{Method: http.MethodPost, Path: "/files/compose",
		Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte("{}")})
	if err != nil {
		return Unknown, "", err
	}
	switch reply.Status {
	case http.StatusBadRequest:
		return Present, reply.brief(), nil
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return Absent, reply.brief(), nil
	}
	return Unknown, "", fmt.Errorf("answered with %s", reply.brief())
}

func probeRawUpload(ctx context.Context, s *session) (State, string, error) {
	reply, err := s.upload(ctx, "raw", http.Header{})
	if err != nil {
		return Unknown, "", err
	}
	switch {
	case reply.Status == http.StatusOK:
		return Present, "a raw upload is stored", nil
	case reply.Status == http.StatusInternalServerError || reply.Status == http.StatusBadRequest || reply.Status == http.StatusUnsupportedMediaType:
		return Absent, reply.brief(), nil
	}
	return Unknown, "", fmt.Errorf("answered with %s", reply.brief())
}

// probeMetadata sends metadata that is too long. To store some would tell
// nothing, since not every filesystem can.
func probeMetadata(ctx context.Context, s *session) (State, string, error) {
	name, err := s.file(ctx)
	if err != nil {
		return Unknown, "", err
	}
	header := http.Header{"X-Metadata-Probe": {strings.Repeat("x", 5000)}}
	reply, err := s.upload(ctx, name, header)
	if err != nil {
		return Unknown, "", err
	}
	return found(reply.Status == http.StatusBadRequest && strings.Contains(string(reply.Body), "metadata"), reply.brief())
}

func probeWatchEntry(ctx context.Context, s *session) (State, string, error) {
	reply, err := s.unary(ctx, "filesystem.Filesystem/CreateWatcher", map[string]any{"path": s.dir, "includeEntry": true})
	if err != nil {
		return Unknown, "", err
	}
	var watcher struct{ WatcherID string }
	if err := json.Unmarshal(reply.Body, &watcher); err != nil || watcher.WatcherID == "" {
		return Unknown, "", fmt.Errorf("a watcher was answered with %s", reply.brief())
	}
	id := map[string]any{"watcherId": watcher.WatcherID}
	defer s.unary(context.WithoutCancel(ctx), "filesystem.Filesystem/RemoveWatcher", id)
	if _, err := s.unary(ctx, "filesystem.Filesystem/MakeDir", map[string]any{"path": s.dir + "/watched"}); err != nil {
		return Unknown, "", err
	}
	for {
		reply, err := s.unary(ctx, "filesystem.Filesystem/GetWatcherEvents", id)
		if err != nil {
			return Unknown, "", err
		}
		var events struct {
			Events []struct {
				Type  string
				Entry json.RawMessage
			}
		}
		if err := json.Unmarshal(reply.Body, &events); err != nil || reply.Status != http.StatusOK {
			return Unknown, "", fmt.Errorf("events were answered with %s", reply.brief())
		}
		for _, event := range events.Events {
			if event.Type == "EVENT_TYPE_CREATE" {
				return found(event.Entry != nil, "key entry in an event")
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return Unknown, "", errors.New("a new directory had no event")
		}
	}
}

func probeExitRetention(ctx context.Context, s *session) (State, string, error) {
	pid, _, code, refusal, err := s.start(ctx, map[string]any{"cmd": "/bin/sh", "args": []string{"-c", "exit 7"}}, nil)
	if err != nil {
		return Unknown, "", err
	}
	if refusal != "" || code != 7 {
		return Unknown, "", fmt.Errorf("the command ended with %d %s", code, refusal)
	}
	messages, err := s.stream(ctx, "process.Process/Connect", map[string]any{"process": map[string]any{"pid": pid}})
	if err != nil {
		return Unknown, "", err
	}
	for _, m := range messages {
		if m.Event.End != nil {
			return found(m.Event.End.ExitCode == 7, "a command that ended tells its exit code")
		}
		if m.Error != nil {
			return Absent, m.Error.Code + ": " + m.Error.Message, nil
		}
	}
	return Unknown, "", errors.New("no end event and no error")
}

// noSuchPID is a pid that no command has.
const noSuchPID = 1<<32 - 1

var probeCloseStdin = probeRPC("process.Process/CloseStdin", map[string]any{"process": map[string]any{"pid": uint32(noSuchPID)}})

var probePollingWatcher = probeRPC("filesystem.Filesystem/RemoveWatcher", map[string]any{"watcherId": "none"})
