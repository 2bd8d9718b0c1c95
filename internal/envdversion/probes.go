// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdversion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

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
		return found(reply.Routed(), reply.brief())
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
	stat := Request{Method: http.MethodPost, Path: "/filesystem.Filesystem/Stat",
		Header: rpcHeader("application/json"), Body: []byte(`{"path":"/"}`)}
	anonymous := stat
	anonymous.Anonymous = true
	reply, err := s.call(ctx, anonymous)
	if err != nil {
		return Unknown, "", err
	}
	switch reply.Status {
	case http.StatusOK:
		return Present, "a request without a user is served", nil
	case http.StatusUnauthorized:
	default:
		return Unknown, "", fmt.Errorf("answered with %s", reply.brief())
	}
	// A gate that refuses everybody says nothing about users.
	named, err := s.call(ctx, stat)
	if err != nil {
		return Unknown, "", err
	}
	if named.Status == http.StatusUnauthorized {
		return Unknown, "", fmt.Errorf("answered with %s, with a user too", named.brief())
	}
	return Absent, reply.brief(), nil
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

// NoSuchPID is a pid that no command has: what is asked of it changes nothing.
const NoSuchPID = 1<<32 - 1

var probeCloseStdin = probeRPC("process.Process/CloseStdin", map[string]any{"process": map[string]any{"pid": uint32(NoSuchPID)}})

var probePollingWatcher = probeRPC("filesystem.Filesystem/RemoveWatcher", map[string]any{"watcherId": "none"})
