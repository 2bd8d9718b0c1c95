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
	"strings"
)

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
	frames, err := SplitStream(body)
	if err != nil {
		return nil, err
	}
	messages := make([]streamMessage, len(frames))
	for i, frame := range frames {
		if err := json.Unmarshal(frame, &messages[i]); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// SplitStream returns the messages of a Connect stream; the last one is the end
// of the stream. Where that is missing, it returns those that came and
// [io.ErrUnexpectedEOF].
func SplitStream(body []byte) ([][]byte, error) {
	var frames [][]byte
	for len(body) >= 5 {
		size := uint64(binary.BigEndian.Uint32(body[1:5]))
		if uint64(len(body)) < 5+size {
			break
		}
		frames = append(frames, body[5:5+size])
		if body[0]&2 != 0 {
			return frames, nil
		}
		body = body[5+size:]
	}
	return frames, io.ErrUnexpectedEOF
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

// Routed reports whether the daemon has what was called: it answers for the
// rest with a text, or says that it is not implemented.
func (r *Reply) Routed() bool {
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
