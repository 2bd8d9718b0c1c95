// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	processpb "github.com/envd-go/envd/gen/process"
)

func TestNew(t *testing.T) {
	good := map[string]string{
		"http://h":                "http://h",
		"https://h:1/":            "https://h:1",
		"https://gw.example/sb/1": "https://gw.example/sb/1",
		"http://[::1]:80":         "http://[::1]:80",
	}
	for raw, want := range good {
		c, err := New(raw)
		if err != nil || c.URL() != want {
			t.Errorf("New(%q) = %v, %v", raw, c, err)
		}
	}
	for _, raw := range []string{"", "h", "h:80", "ftp://h", "http://", "http://u:secret@h", "http://h?q=secret", "http://h?", "http://h#secret", "http://h\x7f/secret", "http:h"} {
		_, err := New(raw)
		if err == nil {
			t.Errorf("New(%q) succeeds", raw)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q) repeats a secret: %v", raw, err)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	tests := map[string]Option{
		"nil":             nil,
		"token":           WithAccessToken("a\nb"),
		"user":            WithUser("a:b"),
		"empty user":      WithUser(""),
		"client's header": WithHeader("x-access-token", "t"),
		"protocol header": WithHeader("Connect-Timeout-Ms", "0"),
		"header name":     WithHeader("a b", "c"),
		"header value":    WithHeader("A", "b\r\nc"),
		"sandbox id":      WithSandboxID(""),
		"http client":     WithHTTPClient(nil),
		"transport":       WithTransport(nil),
		"timeout":         WithRequestTimeout(-1),
		"keepalive":       WithKeepalive(0),
		"message size":    WithMaxMessageBytes(0),
		"version":         WithVersion("new"),
		"logger":          WithLogger(nil),
		"reattach":        WithReattach(-1),
	}
	for name, opt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := New("http://h", opt); err == nil {
				t.Error("New succeeds")
			}
		})
	}
}

func TestFromEnv(t *testing.T) {
	t.Setenv(EnvURL, "")
	if _, err := FromEnv(); err == nil {
		t.Error("FromEnv without a URL succeeds")
	}
	t.Setenv(EnvURL, "http://h/p")
	t.Setenv(EnvUser, "ann")
	t.Setenv(EnvAccessToken, "tok")
	c, err := FromEnv(WithUser("bob"))
	if err != nil || c.URL() != "http://h/p" || c.User() != "bob" || c.config.token != "tok" {
		t.Errorf("FromEnv = %+v, %v", c, err)
	}
	if got, want := SandboxURL("e2b.app", "id"), "https://49983-id.e2b.app"; got != want {
		t.Errorf("SandboxURL = %q, want %q", got, want)
	}
}

func TestHTTPClientTimeout(t *testing.T) {
	own := &http.Client{Timeout: 3 * time.Second}
	for want, opts := range map[time.Duration][]Option{
		3 * time.Second: {WithHTTPClient(own)},
		time.Second:     {WithRequestTimeout(time.Second), WithHTTPClient(own)},
	} {
		c, err := New("http://h", opts...)
		if err != nil {
			t.Fatal(err)
		}
		if c.config.requestTimeout != want || c.http.Timeout != 0 || own.Timeout != 3*time.Second || own.CheckRedirect != nil {
			t.Errorf("request timeout %v, want %v; client's own %v", c.config.requestTimeout, want, c.http.Timeout)
		}
	}
}

func TestProcessState(t *testing.T) {
	tests := []struct {
		name    string
		end     *processpb.ProcessEvent_EndEvent
		code    int
		signal  Signal
		success bool
	}{
		{"success", &processpb.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}, 0, 0, true},
		{"failure", &processpb.ProcessEvent_EndEvent{Exited: true, ExitCode: 3, Status: "exit status 3"}, 3, 0, false},
		{"killed", &processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed"}, -1, SIGKILL, false},
		{"dumped", &processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: segmentation fault (core dumped)"}, -1, SIGSEGV, false},
		{"no name", &processpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: signal 42"}, -1, 42, false},
		{"nonsense", &processpb.ProcessEvent_EndEvent{Exited: true, ExitCode: -1, Status: "?"}, -1, 0, false},
		{"empty", &processpb.ProcessEvent_EndEvent{}, -1, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newProcessState(7, tt.end)
			if s.ExitCode() != tt.code || s.Signal() != tt.signal || s.Success() != tt.success || s.PID() != 7 || s.String() == "" {
				t.Errorf("code %d, signal %v, success %v, text %q", s.ExitCode(), s.Signal(), s.Success(), s)
			}
		})
	}
}

// oneAnswer is a transport that gives every request the same answer.
type oneAnswer struct {
	mu     sync.Mutex
	status int
	header http.Header
	body   []byte
	seen   []http.Header
}

func (a *oneAnswer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		go func() { // as a server would, while it answers
			io.Copy(io.Discard, req.Body) //nolint:errcheck // whatever comes
			req.Body.Close()
		}()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, req.Header.Clone())
	return &http.Response{StatusCode: a.status, Header: a.header.Clone(), Body: io.NopCloser(bytes.NewReader(a.body)), Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1}, nil
}

func TestHeadersAndLog(t *testing.T) {
	const token = "tok-secret"
	rt := &oneAnswer{status: http.StatusInternalServerError, body: []byte("echo of " + token + " and of key-secret\x1b[31m")}
	var log bytes.Buffer
	c, err := New("http://h/p", WithTransport(rt), WithAccessToken(token), WithUser("ann"), WithSandboxID("s1"), WithHeader("X-Api-Key", "key-secret"),
		WithLogger(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Processes(context.Background())
	if err == nil || strings.Contains(err.Error(), "secret") || strings.ContainsRune(err.Error(), 0x1b) {
		t.Errorf("error is %q", err)
	}
	if strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), `"path":"/p/process.Process/List"`) {
		t.Errorf("log is %s", log.String())
	}
	for key, want := range map[string]string{"X-Access-Token": token, "Authorization": "Basic YW5uOg==", "E2b-Sandbox-Id": "s1",
		"E2b-Sandbox-Port": Port, "User-Agent": userAgent, "X-Api-Key": "key-secret"} {
		if got := rt.seen[0].Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	short := strings.Repeat("x", 4<<10)
	if cut(short) != short {
		t.Error("4 KiB are cut")
	}
	if got := cut(strings.Repeat("€", 4<<10)); len(got) > 4<<10+40 || !utf8.ValidString(got) || !strings.Contains(got, "more bytes") {
		t.Errorf("cut to %d bytes", len(got))
	}
}

// A daemon takes a timeout of 0 for an error, yet runs the command unlimited.
func TestEncodeTimeout(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "", 0: "", 1: "1", time.Second: "1000", 1500 * time.Microsecond: "2",
		9_999_999_999 * time.Millisecond: "9999999999", 10_000_000_000 * time.Millisecond: "",
	} {
		if got := encodeTimeout(d); got != want {
			t.Errorf("encodeTimeout(%v) = %q, want %q", d, got, want)
		}
	}
}

func FuzzErrorBody(f *testing.F) {
	f.Add(502, "application/json", []byte(`{"code":502,"message":"The sandbox was not found"}`))
	f.Add(404, "text/plain", []byte("404 page not found"))
	f.Add(200, "text/html", []byte("<title>x</title>"))
	f.Add(400, "application/json", []byte(`{"code":"internal","message":"tok-secret"}[]`))
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		if status < 200 || status > 599 || status == http.StatusOK && strings.HasPrefix(strings.ToLower(strings.TrimSpace(contentType)), "application/") {
			t.Skip("an answer of envd, or none at all")
		}
		rt := &oneAnswer{status: status, header: http.Header{"Content-Type": {contentType}}, body: body}
		c, err := New("http://h", WithTransport(rt), WithAccessToken("tok-secret"), WithoutRetries())
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Processes(context.Background())
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("error is %v", err)
		}
		if text := err.Error(); strings.Contains(text, "tok-secret") || len(text) > 5000 || strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("error is %q", text)
		}
	})
}

func FuzzEscape(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b[31m\x00\xff\u0085")
	f.Fuzz(func(t *testing.T, s string) {
		got := escapeControls(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}

func FuzzProcessState(f *testing.F) {
	f.Add(int32(-1), true, "signal: killed", "")
	f.Add(int32(0), false, "signal: signal 99999999999999999999", "")
	f.Fuzz(func(t *testing.T, code int32, exited bool, status, text string) {
		s := newProcessState(1, &processpb.ProcessEvent_EndEvent{ExitCode: code, Exited: exited, Status: status, Error: &text})
		if s.Success() && (code != 0 || !exited) || s.Success() && s.Signal() != 0 {
			t.Errorf("success of %d, %v, %q", code, exited, status)
		}
		if strings.ContainsFunc(s.String(), unicode.IsControl) {
			t.Errorf("text is %q", s)
		}
	})
}

func frame(flags byte, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(payload))), payload...)
}

func event(t testing.TB, e *processpb.ProcessEvent) []byte {
	data, err := proto.Marshal(&processpb.StartResponse{Event: e})
	if err != nil {
		t.Fatal(err)
	}
	return frame(0, data)
}

// No bytes of a server make a command succeed that has no end event.
func FuzzStream(f *testing.F) {
	started := event(f, &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: 7}}})
	ended := event(f, &processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}})
	trailer := frame(2, []byte("{}"))
	f.Add(bytes.Join([][]byte{started, trailer}, nil))
	f.Add(bytes.Join([][]byte{started, ended, trailer}, nil))
	f.Add(bytes.Join([][]byte{started, frame(2, []byte(`{"error":{"code":"internal","message":"x"}}`))}, nil))
	f.Add(started[:4])
	f.Fuzz(func(t *testing.T, body []byte) {
		rt := &oneAnswer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/connect+proto"}}, body: body}
		c, err := New("http://h", WithTransport(rt), WithoutRetries(), WithMaxMessageBytes(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		cmd := c.Command(context.Background(), "true")
		err = cmd.Run()
		if err == nil && (cmd.ProcessState == nil || !cmd.ProcessState.Success()) {
			t.Error("success without an end event")
		}
	})
}
