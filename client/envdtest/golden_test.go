// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
)

// recording is a request to a real daemon and its answer.
type recording struct {
	Name    string `json:"name"`
	Setup   string `json:"setup"`
	PID     string `json:"pid"`
	Request struct {
		Method  string            `json:"method"`
		Path    string            `json:"path"`
		Headers map[string]string `json:"headers"`
		Text    string            `json:"text"`
		Hex     string            `json:"hex"`
		Frames  []struct {
			Flags byte            `json:"flags"`
			JSON  json.RawMessage `json:"json"`
		} `json:"frames"`
	} `json:"request"`
	Response struct {
		Status      int               `json:"status"`
		ContentType string            `json:"contentType"`
		Headers     map[string]string `json:"headers"`
		Body        string            `json:"body"`
		Frames      []any             `json:"frames"`
	} `json:"response"`
}

// notReproduced are the recordings in which this server differs on purpose.
var notReproduced = map[string]string{
	"http_ct_charset": "the connect library leaves out the charset of the request",
}

func TestGolden(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("the recordings were made as root on Linux")
	}
	for _, version := range []string{"0.2.0", "0.3.7", "0.5.2", "0.6.13"} {
		data, err := os.ReadFile(filepath.Join("testdata", version+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var recordings []recording
		if err := json.Unmarshal(data, &recordings); err != nil {
			t.Fatal(err)
		}
		for _, r := range recordings {
			t.Run(version+"/"+r.Name, func(t *testing.T) {
				if reason, ok := notReproduced[r.Name]; ok {
					t.Skip(reason)
				}
				t.Parallel()
				srv := newServer(t, envdtest.WithVersion(version), envdtest.WithQuirk(envdtest.QuirkDropDataBeforeStart))
				r.compare(t, srv)
			})
		}
	}
}

// compare sends the request and compares the answer.
func (r recording) compare(t *testing.T, srv *envdtest.Server) {
	pid := r.setUp(t, srv)
	body := r.body(t, pid)
	req, err := http.NewRequestWithContext(t.Context(), r.Request.Method, srv.URL+r.Request.Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range r.Request.Headers {
		req.Header.Set(name, value)
	}
	res, err := srv.Client().Do(req)
	if r.Response.Status == 0 {
		if err == nil {
			_ = res.Body.Close()
			t.Fatalf("status %d, want no answer", res.StatusCode)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if got, want := res.StatusCode, r.Response.Status; got != want {
		t.Errorf("status = %d, want %d", got, want)
	}
	if got, want := res.Header.Get("Content-Type"), r.Response.ContentType; got != want {
		t.Errorf("content type = %q, want %q", got, want)
	}
	for name, want := range r.Response.Headers {
		if got := strings.ToLower(res.Header.Get(name)); got != strings.ToLower(want) {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte("'"+pid+"'"), []byte("'"+r.PID+"'"))
	if r.Response.Frames == nil {
		compareText(t, string(data), r.Response.Body)
		return
	}
	got, want := summary(splitFrames(t, data)), summary(r.Response.Frames)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("frames:\n got %v\nwant %v", got, want)
	}
}

// setUp does what the recording needs, and returns the pid of its process.
func (r recording) setUp(t *testing.T, srv *envdtest.Server) string {
	req := command("sleep", "60")
	switch r.Setup {
	case "process":
	case "pty":
		req.Pty = &processpb.PTY{Size: &processpb.PTY_Size{Cols: 80, Rows: 24}}
	case "nostdin":
		req.Stdin = new(false)
	case "token":
		res, err := srv.Client().Post(srv.URL+"/init", "application/json", strings.NewReader(`{"accessToken":"tok"}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return ""
	default:
		return ""
	}
	pid, _ := start(t, t.Context(), newClient(srv), req)
	return strconv.Itoa(int(pid))
}

// body returns the body of the request, with the pid of the process in it.
func (r recording) body(t *testing.T, pid string) []byte {
	swap := func(data []byte) []byte {
		if r.PID == "" {
			return data
		}
		return bytes.ReplaceAll(data, []byte(r.PID), []byte(pid))
	}
	if r.Request.Hex != "" {
		data, err := hex.DecodeString(r.Request.Hex)
		if err != nil {
			t.Fatal(err)
		}
		if len(pid) > len(r.PID) {
			t.Skip("the pid does not fit into the frame")
		}
		pid = fmt.Sprintf("%*s", len(r.PID), pid)
		return swap(data)
	}
	if r.Request.Frames == nil {
		return swap([]byte(r.Request.Text))
	}
	var data []byte
	for _, f := range r.Request.Frames {
		payload := swap(f.JSON)
		data = append(data, f.Flags)
		data = binary.BigEndian.AppendUint32(data, uint32(len(payload)))
		data = append(data, payload...)
	}
	return data
}

// splitFrames returns the JSON of each frame; others are left out.
func splitFrames(t *testing.T, data []byte) []any {
	var frames []any
	for len(data) >= 5 {
		size := int(binary.BigEndian.Uint32(data[1:5]))
		if len(data) < 5+size {
			t.Fatalf("short frame")
		}
		var value any
		if err := json.Unmarshal(data[5:5+size], &value); err == nil {
			frames = append(frames, value)
		}
		data = data[5+size:]
	}
	return frames
}

// summary makes of frames what must be the same in each run: pids are masked,
// and the data events of each output are joined.
func summary(frames []any) []string {
	var lines []string
	output := map[string]string{}
	for _, frame := range frames {
		event, _ := frame.(map[string]any)["event"].(map[string]any)
		if start, ok := event["start"].(map[string]any); ok {
			start["pid"] = "PID"
		}
		if data, ok := event["data"].(map[string]any); ok {
			for kind, value := range data {
				decoded, _ := base64Std(value.(string))
				output[kind] += decoded
			}
			continue
		}
		text, _ := json.Marshal(frame)
		lines = append(lines, normal(string(text)))
	}
	for _, kind := range []string{"stdout", "stderr", "pty"} {
		if text, ok := output[kind]; ok {
			lines = append(lines, kind+" "+strconv.Quote(pipeInode.ReplaceAllString(text, "pipe")))
		}
	}
	return lines
}

// protoText is what the protobuf library says, which differs from build to
// build.
var protoText = regexp.MustCompile(`proto:(?s:.*)`)

// pipeInode is the name of a pipe in /proc.
var pipeInode = regexp.MustCompile(`pipe:\[\d+\]`)

// lentHome is the home of a user whom this machine does not have.
var lentHome = regexp.MustCompile(regexp.QuoteMeta(filepath.Join(os.TempDir(), "envdtest-")) + `\d+/home/user`)

func normal(text string) string {
	return protoText.ReplaceAllString(lentHome.ReplaceAllString(text, "/home/user"), "proto:")
}

// compareText compares bodies, as JSON if they are JSON.
func compareText(t *testing.T, got, want string) {
	t.Helper()
	got, want = normal(got), normal(want)
	var a, b any
	if json.Unmarshal([]byte(got), &a) == nil && json.Unmarshal([]byte(want), &b) == nil {
		if reflect.DeepEqual(a, b) {
			return
		}
	}
	if got != want {
		t.Errorf("body:\n got %s\nwant %s", got, want)
	}
}
