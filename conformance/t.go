// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/filesystem/filesystemconnect"
	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
)

// markerEnv marks what the suite has started; its value is the run's id.
const markerEnv = "ENVD_CONFORMANCE_RUN"

// T is what a case works with: stubs, plain HTTP, a directory of its own.
type T struct {
	ctx    context.Context
	run    *run
	proto  Protocol
	user   *string // nil leaves it out
	token  string
	header http.Header
	proc   processconnect.ProcessClient
	fs     filesystemconnect.FilesystemClient
	shared *shared
}

// shared is what all views of one case have in common.
type shared struct {
	log      exchangeLog
	mu       sync.Mutex
	failure  string
	skip     string
	dir      string
	cleanups []func(context.Context)
	streams  []*events
	// preparing counts what goes on that only prepares what the case is about.
	preparing atomic.Int32
}

// preparation begins the message of a case that failed before it came to its
// requirement.
const preparation = "preparing the case: "

// prepare says that what follows is preparation, until the returned function
// is called.
func (t *T) prepare() (done func()) {
	t.shared.preparing.Add(1)
	return func() { t.shared.preparing.Add(-1) }
}

func newT(ctx context.Context, r *run, j job) *T {
	t := &T{ctx: ctx, run: r, proto: j.protocol, user: &r.target.User, token: r.target.Token, shared: &shared{}}
	t.shared.log.secret = r.target.Token
	return t.connect()
}

// connect makes the stubs.
func (t *T) connect() *T {
	opts := []connecthttp.Option{connecthttp.WithCompressors(), connecthttp.WithReadMaxBytes(64 << 20)}
	switch t.proto {
	case GRPCWeb:
		opts = append(opts, connecthttp.WithGRPCWeb())
	case Proto:
	default:
		opts = append(opts, connecthttp.WithProtoJSON())
	}
	rpc := connect.NewClient(connecthttp.NewTransport(doer{t, true}, t.run.target.URL, opts...))
	t.proc = processconnect.NewProcessClient(rpc)
	t.fs = filesystemconnect.NewFilesystemClient(rpc)
	return t
}

// Context ends when the case's time is over.
func (t *T) Context() context.Context { return t.ctx }

func (t *T) fail(message string) {
	t.shared.mu.Lock()
	defer t.shared.mu.Unlock()
	if t.shared.failure == "" {
		t.shared.failure = message
	}
}

// with returns a view whose requests carry a header.
func (t *T) with(key, value string) *T {
	c := *t
	c.header = maps.Clone(t.header)
	if c.header == nil {
		c.header = http.Header{}
	}
	c.header.Set(key, value)
	return c.connect()
}

// as returns a view that acts as another user.
func (t *T) as(user string) *T {
	c := *t
	c.user = &user
	return c.connect()
}

// anonymous returns a view that names no user.
func (t *T) anonymous() *T {
	c := *t
	c.user = nil
	return c.connect()
}

// withToken returns a view with another token; an empty one sends none.
func (t *T) withToken(token string) *T {
	c := *t
	c.token = token
	return c.connect()
}

// until returns a view with another context.
func (t *T) until(ctx context.Context) *T {
	c := *t
	c.ctx = ctx
	return &c
}

// cleanup adds what is done when the case is over, last one first.
func (t *T) cleanup(fn func(context.Context)) {
	t.shared.mu.Lock()
	defer t.shared.mu.Unlock()
	t.shared.cleanups = append(t.shared.cleanups, fn)
}

func (t *T) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), cleanupTimeout)
	defer cancel()
	t.shared.log.stop()
	finish(ctx, t.shared.streams)
	for _, fn := range slices.Backward(t.shared.cleanups) {
		fn(ctx)
	}
}

// dir returns the case's own directory, which it makes at the first call.
func (t *T) dir() string {
	if t.shared.dir != "" {
		return t.shared.dir
	}
	defer t.prepare()()
	dir := t.run.root() + "/" + randomName()
	if _, err := t.fs.MakeDir(t.ctx, &filesystem.MakeDirRequest{Path: dir}); err != nil {
		t.Fatalf("making the directory of the case, %s: %v", dir, err)
	}
	t.shared.dir = dir
	t.cleanup(func(ctx context.Context) {
		_, _ = t.fs.Remove(ctx, &filesystem.RemoveRequest{Path: dir})
	})
	return dir
}

// path returns a path in the case's own directory.
func (t *T) path(name string) string { return t.dir() + "/" + name }

// doer sends the requests of a case, with user, token and headers, and records
// them.
type doer struct {
	t    *T
	stub bool
}

func (d doer) Do(req *http.Request) (*http.Response, error) {
	t := d.t
	for k, v := range t.run.target.Header {
		req.Header[k] = v
	}
	if t.user != nil {
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(*t.user+":")))
	}
	if t.token != "" {
		req.Header.Set("X-Access-Token", t.token)
	}
	// The stubs send what is left of the case's time, which envd would take for
	// the deadline of the process.
	if d.stub {
		req.Header.Del(timeoutMs)
		req.Header.Del("Grpc-Timeout")
	}
	for k, v := range t.header {
		req.Header[k] = v
	}
	return t.shared.log.roundTrip(t.run.transport, req)
}

// reply is the answer to a plain HTTP request, with the whole body.
type reply struct {
	status int
	header http.Header
	body   []byte
	err    error // why the body is not whole
}

func (r *reply) String() string {
	return fmt.Sprintf("%d %s %s", r.status, r.header.Get("Content-Type"), clip(string(r.body), 400))
}

// do sends a plain HTTP request. header holds names and values in turn.
func (t *T) do(method, path string, body []byte, header ...string) *reply {
	r, err := t.try(method, path, bytes.NewReader(body), header...)
	if err != nil {
		t.Fatalf("%s %s: no answer came: %v", method, path, err)
	}
	return r
}

// try is do, except that it returns the error where no answer came.
func (t *T) try(method, path string, body io.Reader, header ...string) (*reply, error) {
	req, err := http.NewRequestWithContext(t.ctx, method, t.run.target.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			delete(req.Header, header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := doer{t, false}.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	r := &reply{status: res.StatusCode, header: res.Header}
	r.body, r.err = io.ReadAll(io.LimitReader(res.Body, 64<<20))
	return r, nil
}

// unary calls an RPC with a JSON body made by hand.
func (t *T) unary(procedure, body string, header ...string) *reply {
	return t.do(http.MethodPost, "/"+procedure, []byte(body), append([]string{"Content-Type", "application/json"}, header...)...)
}

// frame is one envelope.
type frame struct {
	flag byte
	data []byte
}

func (f frame) String() string { return fmt.Sprintf("[flag %d] %s", f.flag, clip(string(f.data), 300)) }

func envelope(flag byte, data string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(data))), data...)
}

// stream calls an RPC with one JSON envelope and reads the answer to its end.
func (t *T) stream(procedure, body string, header ...string) []frame {
	return t.streamBytes(procedure, envelope(0, body), header...)
}

// streamBytes is stream with a body made by hand.
func (t *T) streamBytes(procedure string, body []byte, header ...string) []frame {
	r := t.do(http.MethodPost, "/"+procedure, body, append([]string{"Content-Type", "application/connect+json"}, header...)...)
	if r.status != http.StatusOK {
		t.Fatalf("%s: want HTTP 200 and envelopes, got %s", procedure, r)
	}
	if r.err != nil {
		t.Fatalf("%s: the stream broke off: %v", procedure, r.err)
	}
	frames, err := parseFrames(r.body)
	if err != nil {
		t.Fatalf("%s: %v", procedure, err)
	}
	return frames
}

func parseFrames(body []byte) ([]frame, error) {
	var frames []frame
	for len(body) > 0 {
		if len(body) < 5 {
			return nil, fmt.Errorf("the stream ends within the head of an envelope")
		}
		n := binary.BigEndian.Uint32(body[1:])
		if uint64(len(body)-5) < uint64(n) {
			return nil, fmt.Errorf("the stream ends within an envelope of %d bytes", n)
		}
		frames = append(frames, frame{body[0], body[5 : 5+n]})
		body = body[5+n:]
	}
	return frames, nil
}

// endError returns the code and the message of the last envelope, which must
// be the end of the stream.
func (t *T) endError(frames []frame) (code, message string) {
	if len(frames) == 0 {
		t.Fatalf("want an end-of-stream envelope, got an empty body")
	}
	last := frames[len(frames)-1]
	if last.flag&2 == 0 {
		t.Fatalf("want an end-of-stream envelope (flag 2) at the end, got %s", last)
	}
	var end struct {
		Error *struct{ Code, Message string }
	}
	if err := json.Unmarshal(last.data, &end); err != nil {
		t.Fatalf("the end-of-stream envelope is not JSON: %v: %s", err, last)
	}
	if end.Error == nil {
		return "", ""
	}
	return end.Error.Code, end.Error.Message
}

// object reads a JSON object.
func (t *T) object(data []byte) map[string]any {
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("want a JSON object, got %s: %v", clip(string(data), 300), err)
	}
	return m
}

// dig returns the value below keys, nil where there is none.
func dig(v any, keys ...string) any {
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// wantStatus checks an HTTP status.
func (t *T) wantStatus(r *reply, status ...int) *reply {
	if !slices.Contains(status, r.status) {
		t.Fatalf("want HTTP status %s, got %s", strings.Trim(fmt.Sprint(status), "[]"), r)
	}
	return r
}

// wantCode checks the code of a Connect error in a unary answer.
func (t *T) wantCode(r *reply, status int, code string) {
	t.wantStatus(r, status)
	if got := dig(t.object(r.body), "code"); got != code {
		t.Fatalf("want a Connect error with code %q, got %s", code, r)
	}
}

// wantEnd checks the code of the error at the end of a stream.
func (t *T) wantEnd(frames []frame, code string) {
	if got, message := t.endError(frames); got != code {
		t.Fatalf("want the stream to end with code %q, got %q %q", code, got, message)
	}
}

// wantErr checks the code of an error that a stub returned.
func (t *T) wantErr(err error, codes ...connect.Code) {
	if err == nil {
		t.Fatalf("want an error with code %v, got none", codes)
	}
	if got := connect.CodeOf(err); !slices.Contains(codes, got) {
		t.Fatalf("want an error with code %v, got %v: %v", codes, got, err)
	}
}

// ok fails for an error.
func (t *T) ok(err error, doing string, args ...any) {
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(doing, args...), err)
	}
}

// equal fails unless both are the same when printed.
func (t *T) equal(what string, got, want any) {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s: want %s, got %s", what, quoted(w), quoted(g))
	}
}

func (t *T) contains(what, got, want string) {
	if !strings.Contains(got, want) {
		t.Fatalf("%s: want something with %q, got %s", what, want, quoted(got))
	}
}

func pid(n uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: n}}
}

func byTag(tag string) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
}

func quoted(s string) string { return fmt.Sprintf("%q", clip(s, 500)) }

// clip cuts s in the middle when it is longer than n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s … (%d bytes) … %s", s[:n*2/3], len(s), s[len(s)-n/3:])
}
