// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"go.uber.org/goleak"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newServer starts a server that is closed with the test.
func newServer(t *testing.T, opts ...envdtest.Option) *envdtest.Server {
	t.Helper()
	srv := envdtest.NewServer(opts...)
	t.Cleanup(srv.Close)
	return srv
}

// headers adds headers to each request.
type headers struct {
	client *http.Client
	add    http.Header
}

func (h headers) Do(r *http.Request) (*http.Response, error) {
	for name, values := range h.add {
		r.Header[name] = values
	}
	return h.client.Do(r)
}

// newClient returns a client for the stubs that sends the headers (names and
// values in turn) and the user "user".
func newClient(srv *envdtest.Server, add ...string) processconnect.ProcessClient {
	return newClientWith(srv, nil, add...)
}

func newClientWith(srv *envdtest.Server, opts []connecthttp.Option, add ...string) processconnect.ProcessClient {
	header := http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("user:"))}}
	for i := 0; i < len(add); i += 2 {
		header.Del(add[i])
		if add[i+1] != "" {
			header.Set(add[i], add[i+1])
		}
	}
	transport := connecthttp.NewTransport(headers{srv.Client(), header}, srv.URL, opts...)
	return processconnect.NewProcessClient(connect.NewClient(transport))
}

// receiver is a Start or Connect stream as a source of events.
type receiver func() (*processpb.ProcessEvent, error)

// start starts a command and returns its pid and the rest of its events.
func start(t *testing.T, ctx context.Context, c processconnect.ProcessClient, req *processpb.StartRequest) (uint32, receiver) {
	t.Helper()
	stream, err := c.Start(ctx, req)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	next := func() (*processpb.ProcessEvent, error) {
		res, err := stream.Receive()
		return res.GetEvent(), err
	}
	return firstPID(t, next), next
}

// attach joins a process.
func attach(t *testing.T, ctx context.Context, c processconnect.ProcessClient, sel *processpb.ProcessSelector) (uint32, receiver) {
	t.Helper()
	stream, err := c.Connect(ctx, &processpb.ConnectRequest{Process: sel})
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	next := func() (*processpb.ProcessEvent, error) {
		res, err := stream.Receive()
		return res.GetEvent(), err
	}
	return firstPID(t, next), next
}

func firstPID(t *testing.T, next receiver) uint32 {
	t.Helper()
	event, err := next()
	if err != nil {
		t.Fatalf("first event: %v", err)
	}
	if event.GetStart() == nil {
		t.Fatalf("first event = %v, want start", event)
	}
	return event.GetStart().GetPid()
}

// outcome is what a stream gave.
type outcome struct {
	stdout, stderr, pty string
	keepalives          int
	end                 *processpb.ProcessEvent_EndEvent
	err                 error // nil for a clean end
}

// collect reads a stream to its end.
func (next receiver) collect() outcome {
	var o outcome
	for {
		event, err := next()
		if errors.Is(err, io.EOF) {
			return o
		}
		if err != nil {
			o.err = err
			return o
		}
		o.stdout += string(event.GetData().GetStdout())
		o.stderr += string(event.GetData().GetStderr())
		o.pty += string(event.GetData().GetPty())
		if event.GetKeepalive() != nil {
			o.keepalives++
		}
		if event.GetEnd() != nil {
			o.end = event.GetEnd()
		}
	}
}

// until reads data until the text has come.
func (next receiver) until(t *testing.T, text string) {
	t.Helper()
	var got string
	for !strings.Contains(got, text) {
		event, err := next()
		if err != nil {
			t.Fatalf("before %q: %v (got %q)", text, err, got)
		}
		data := event.GetData()
		got += string(data.GetStdout()) + string(data.GetStderr()) + string(data.GetPty())
	}
}

// run starts a command and reads its stream to the end.
func run(t *testing.T, c processconnect.ProcessClient, name string, args ...string) outcome {
	t.Helper()
	_, next := start(t, t.Context(), c, command(name, args...))
	return next.collect()
}

func command(name string, args ...string) *processpb.StartRequest {
	return &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: name, Args: args}}
}

func shell(script string) *processpb.StartRequest { return command("/bin/sh", "-c", script) }

func byPID(pid uint32) *processpb.ProcessSelector {
	return &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: pid}}
}

func byTag(tag string) *processpb.ProcessSelector {
	return &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Tag{Tag: tag}}
}

func kill(t *testing.T, c processconnect.ProcessClient, pid uint32) {
	t.Helper()
	sendSignal(t, c, pid, processpb.Signal_SIGNAL_SIGKILL)
}

func sendSignal(t *testing.T, c processconnect.ProcessClient, pid uint32, sig processpb.Signal) {
	t.Helper()
	req := &processpb.SendSignalRequest{Process: byPID(pid), Signal: sig}
	if _, err := c.SendSignal(t.Context(), req); err != nil {
		t.Fatalf("SendSignal(%v): %v", sig, err)
	}
}

func sendInput(ctx context.Context, c processconnect.ProcessClient, pid uint32, data string) error {
	_, err := c.SendInput(ctx, &processpb.SendInputRequest{
		Process: byPID(pid),
		Input:   &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: []byte(data)}},
	})
	return err
}

func sendPTY(ctx context.Context, c processconnect.ProcessClient, pid uint32, data string) error {
	_, err := c.SendInput(ctx, &processpb.SendInputRequest{
		Process: byPID(pid),
		Input:   &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: []byte(data)}},
	})
	return err
}

// startErr returns the error of a Start that does not start.
func startErr(t *testing.T, c processconnect.ProcessClient, req *processpb.StartRequest) error {
	t.Helper()
	stream, err := c.Start(t.Context(), req)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	res, err := stream.Receive()
	if err == nil {
		t.Fatalf("Start gave %v, want an error", res)
	}
	return err
}

// wantError fails unless the error has the code and the message.
func wantError(t *testing.T, err error, code connect.Code, message string) {
	t.Helper()
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || e.Code() != code || e.Message() != message {
		t.Errorf("error = %v, want %v: %s", err, code, message)
	}
}

// wantEnd fails unless the stream ended cleanly with this end event.
func wantEnd(t *testing.T, o outcome, code int32, status string) {
	t.Helper()
	if o.err != nil || o.end == nil {
		t.Fatalf("stream ended with error %v and end event %v, want an end", o.err, o.end)
	}
	exited := code >= 0
	if o.end.GetExitCode() != code || o.end.GetStatus() != status || o.end.GetExited() != exited {
		t.Errorf("end = %v, want exit code %d, status %q", o.end, code, status)
	}
	if wantError := code != 0; (o.end.Error != nil) != wantError || wantError && o.end.GetError() != status {
		t.Errorf("error of end = %q", o.end.GetError())
	}
}

func base64Std(text string) (string, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	return string(data), err
}

func processClient(transport connect.Transport) processconnect.ProcessClient {
	return processconnect.NewProcessClient(connect.NewClient(transport))
}
