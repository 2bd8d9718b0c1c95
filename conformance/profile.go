// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

const rootPrefix = "/tmp/envd-conformance-"

// Profile is what a server turned out to be.
type Profile struct {
	// Version is the version that the cases were chosen by, and VersionFrom how
	// it was found: "given" or "probed".
	Version     string `json:"version"`
	VersionFrom string `json:"versionFrom"`
	// Protocols are those that it speaks.
	Protocols []Protocol `json:"protocols"`
	// Has are the needs of cases that it meets.
	Has []Need `json:"has"`
	// Traits are what the server does where servers differ. They are looked at
	// in runs of all cases only.
	Traits []Trait `json:"traits,omitempty"`

	version envdversion.Version
}

func (p *Profile) has(n Need) bool { return slices.Contains(p.Has, n) }

func randomName() string { return strings.ToLower(rand.Text()[:12]) }

func newRun(ctx context.Context, target Target, opts Options) (*run, error) {
	if target.User == "" {
		target.User = "user"
	}
	target.URL = strings.TrimRight(target.URL, "/")
	if u, err := url.Parse(target.URL); err != nil || u.Host == "" {
		return nil, fmt.Errorf("target %q is no http or https URL", target.URL)
	}
	r := &run{id: randomName(), target: target, opts: opts, transport: target.Transport, locks: map[string]*sync.Mutex{}, started: time.Now()}
	if r.transport == nil {
		r.owned = &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true}
		r.transport = r.owned
	}
	if err := r.look(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// look finds out what the server is.
func (r *run) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := r.call(ctx, envdversion.Request{Method: http.MethodGet, Path: "/health"}); err != nil {
		return fmt.Errorf("reach the server: %w", err)
	}
	if err := r.lookAtVersion(ctx); err != nil {
		return err
	}
	for _, p := range []Protocol{JSON, Proto, GRPCWeb} {
		if _, err := r.probeT(ctx, p).proc.List(ctx, &process.ListRequest{}); err == nil {
			r.profile.Protocols = append(r.profile.Protocols, p)
		}
	}
	if len(r.profile.Protocols) == 0 {
		r.profile.Protocols = []Protocol{JSON} // whose cases then say what is wrong
	}
	r.lookAtNeeds(ctx)
	if r.opts.Run == "" && !r.opts.everything {
		r.lookAtTraits(ctx)
	}
	return nil
}

func (r *run) probeT(ctx context.Context, p Protocol) *T {
	return newT(ctx, r, job{protocol: p})
}

func (r *run) lookAtVersion(ctx context.Context) error {
	if v := r.target.Version; v != "" && v != "auto" {
		parsed, err := envdversion.Parse(v)
		if err != nil {
			return err
		}
		r.profile.version, r.profile.VersionFrom = parsed, "given"
		r.profile.Version = parsed.String()
		return nil
	}
	r.profile.VersionFrom = "probed"
	survey, err := envdversion.Examine(ctx, r.call, r.target.User)
	if err != nil {
		r.profile.version = envdversion.Latest
		r.profile.Version = fmt.Sprintf("%s (could not be found out: %s)", envdversion.Latest, printable(err.Error()))
		return nil
	}
	r.profile.version = survey.Since
	r.profile.Version = survey.String()
	return nil
}

// call is the envdversion.Caller of the run.
func (r *run) call(ctx context.Context, q envdversion.Request) (*envdversion.Reply, error) {
	req, err := http.NewRequestWithContext(ctx, q.Method, r.target.URL+q.Path, bytes.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	if q.Header != nil {
		req.Header = q.Header.Clone()
	}
	if !q.Anonymous && r.target.User != "" {
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(r.target.User+":")))
	}
	if r.target.Token != "" {
		req.Header.Set("X-Access-Token", r.target.Token)
	}
	for k, v := range r.target.Header {
		req.Header[k] = v
	}
	res, err := r.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return nil, err
	}
	return &envdversion.Reply{Status: res.StatusCode, Header: res.Header, Body: body}, nil
}

func (r *run) lookAtNeeds(ctx context.Context) {
	have := func(n Need, yes bool) {
		if yes {
			r.profile.Has = append(r.profile.Has, n)
		}
	}
	out := r.shell(ctx, `test -r /proc/self/stat && echo proc; id -u`, false)
	have(NeedShell, out != "")
	have(NeedProc, strings.Contains(out, "proc"))
	root := r.probeT(ctx, r.profile.Protocols[0]).as("root")
	rootID, _ := quickOutput(root, ctx, "id -u", false)
	have(NeedRoot, strings.TrimSpace(rootID) == "0" && !strings.Contains(out, "\n0\n") && r.target.User != "root")
	have(NeedPTY, strings.Contains(r.shell(ctx, "test -t 1 && echo tty", true), "tty"))
	have(NeedInterrupt, r.shell(ctx, "kill -INT $$; echo alive", false) == "")
	have(NeedToken, r.target.Token != "")
	have(NeedOpen, r.target.Token == "")
	have(NeedCrash, r.opts.AllowCrash)
	have(NeedInit, r.opts.AllowInit)
	t := r.probeT(ctx, r.profile.Protocols[0])
	_, err := t.fs.MakeDir(ctx, &filesystem.MakeDirRequest{Path: r.root()})
	have(NeedFilesystem, err == nil)
}

func (r *run) root() string { return rootPrefix + r.id }

func (r *run) shell(ctx context.Context, script string, pty bool) string {
	out, _ := quickOutput(r.probeT(ctx, r.profile.Protocols[0]), ctx, script, pty)
	return out
}

// quickOutput runs a script outside any case.
func quickOutput(t *T, ctx context.Context, script string, pty bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script},
		Envs: map[string]string{markerEnv: t.run.id}}}
	if pty {
		req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	}
	stream, err := t.proc.Start(ctx, req)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	var out strings.Builder
	for {
		res, err := stream.Receive()
		if err != nil {
			return out.String(), err
		}
		out.Write(res.GetEvent().GetData().GetStdout())
		out.Write(res.GetEvent().GetData().GetPty())
		out.Write(res.GetEvent().GetData().GetStderr())
	}
}

// LeftBehind is what the server still had after the run.
type LeftBehind struct {
	// Processes, Paths and Watchers are the numbers of what the run has made.
	Processes int `json:"processes"`
	Paths     int `json:"paths"`
	Watchers  int `json:"watchers"`
	// Unknown says why it could not be asked.
	Unknown string `json:"unknown,omitempty"`
}

// String returns "0 processes, 0 paths, 0 watchers".
func (l LeftBehind) String() string {
	if l.Unknown != "" {
		return "unknown: " + l.Unknown
	}
	return fmt.Sprintf("%d processes, %d paths, %d watchers", l.Processes, l.Paths, l.Watchers)
}

// leftBehind removes what the run has left and counts what is there still.
func (r *run) leftBehind(ctx context.Context) LeftBehind {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	t := r.probeT(ctx, r.profile.Protocols[0])
	var left LeftBehind
	if r.profile.has(NeedFilesystem) {
		_, _ = t.fs.Remove(ctx, &filesystem.RemoveRequest{Path: r.root()})
		if _, err := t.fs.Stat(ctx, &filesystem.StatRequest{Path: r.root()}); err == nil {
			left.Paths = 1
		}
	}
	left.Watchers = r.liveWatchers(ctx, t)
	for {
		pids, err := markedPIDs(ctx, t, func(run string) bool { return run == r.id })
		if err != nil {
			left.Unknown = err.Error()
			return left
		}
		if left.Processes = len(pids); len(pids) == 0 {
			return left
		}
		for _, n := range pids {
			_, _ = t.proc.SendSignal(ctx, &process.SendSignalRequest{Process: pid(n), Signal: process.Signal_SIGNAL_SIGKILL})
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// liveWatchers counts the polling watchers that the server still knows.
func (r *run) liveWatchers(ctx context.Context, t *T) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, id := range r.watchers {
		if _, err := t.fs.GetWatcherEvents(ctx, &filesystem.GetWatcherEventsRequest{WatcherId: id}); err == nil {
			n++
		}
	}
	return n
}

func markedPIDs(ctx context.Context, t *T, want func(run string) bool) ([]uint32, error) {
	list, err := t.proc.List(ctx, &process.ListRequest{})
	if err != nil {
		return nil, err
	}
	var pids []uint32
	for _, p := range list.GetProcesses() {
		if run, ok := p.GetConfig().GetEnvs()[markerEnv]; ok && want(run) {
			pids = append(pids, p.GetPid())
		}
	}
	return pids, nil
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only strings, numbers and maps of them are passed
	}
	return string(b)
}
