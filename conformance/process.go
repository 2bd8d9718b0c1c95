// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/envd-go/envd/gen/process"
)

// command is a process to start.
func command(cmd string, args ...string) *process.StartRequest {
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: cmd, Args: args}}
}

// script is a shell script to run.
func script(text string) *process.StartRequest { return command("/bin/sh", "-c", text) }

func withEnv(req *process.StartRequest, pairs ...string) *process.StartRequest {
	env := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	req.Process.Envs = env
	return req
}

func withCwd(req *process.StartRequest, dir string) *process.StartRequest {
	req.Process.Cwd = &dir
	return req
}

func withTag(req *process.StartRequest, tag string) *process.StartRequest {
	req.Tag = &tag
	return req
}

func withStdin(req *process.StartRequest, on bool) *process.StartRequest {
	req.Stdin = &on
	return req
}

// withPTY gives the process a terminal. A script waits a little, since upstream
// may lose what comes in the first moment; one case looks at just that.
func withPTY(req *process.StartRequest, cols, rows uint32) *process.StartRequest {
	if args := req.Process.Args; len(args) > 1 && args[0] == "-c" {
		args[1] = "sleep 0.1; " + args[1]
	}
	return withBarePTY(req, cols, rows)
}

func withBarePTY(req *process.StartRequest, cols, rows uint32) *process.StartRequest {
	req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: cols, Rows: rows}}
	return req
}

// events is what the streams of Start and Connect have in common.
type events struct {
	t       *T
	pid     uint32
	receive func() (*process.ProcessEvent, error)
	cancel  context.CancelFunc
	own     bool // it has started the process
	tagged  bool
	reading sync.Mutex // one reader at a time; holds over
	over    bool
	mu      sync.Mutex // holds seen, while a stream is read in the background
	seen    outcome
}

// outcome is what came over a stream.
type outcome struct {
	order               []string // kinds of events, runs of one kind as one
	stdout, stderr, pty []byte
	keepalives          int
	end                 *process.ProcessEvent_EndEvent
	err                 error // nil for a clean end of the stream
}

// open starts a process and waits for its start event. The process is killed
// when the case is over.
func (t *T) open(req *process.StartRequest) *events {
	s, err := t.tryOpen(req)
	if err != nil {
		t.Fatalf("starting %s: want a start event, got %v", describe(req), err)
	}
	return s
}

func describe(req *process.StartRequest) string {
	return clip(fmt.Sprintf("%q %q", req.GetProcess().GetCmd(), req.GetProcess().GetArgs()), 200)
}

// tryOpen is open, except that it returns the error of a refused start.
func (t *T) tryOpen(req *process.StartRequest) (*events, error) {
	env := maps.Clone(req.GetProcess().GetEnvs())
	if env == nil {
		env = map[string]string{}
	}
	env[markerEnv] = t.run.id
	req.Process.Envs = env
	ctx, cancel := context.WithCancel(t.ctx)
	stream, err := t.proc.Start(ctx, req)
	if err != nil {
		cancel()
		return nil, err
	}
	s, err := t.begin(cancel, func() (*process.ProcessEvent, error) {
		res, err := stream.Receive()
		return res.GetEvent(), err
	})
	if err == nil {
		s.own, s.tagged = true, req.Tag != nil
	}
	return s, err
}

// attach is Connect, and waits for its start event.
func (t *T) attach(selector *process.ProcessSelector) *events {
	s, err := t.tryAttach(selector)
	if err != nil {
		t.Fatalf("Connect to %v: want a start event, got %v", selector, err)
	}
	return s
}

func (t *T) tryAttach(selector *process.ProcessSelector) (*events, error) {
	ctx, cancel := context.WithCancel(t.ctx)
	stream, err := t.proc.Connect(ctx, &process.ConnectRequest{Process: selector})
	if err != nil {
		cancel()
		return nil, err
	}
	return t.begin(cancel, func() (*process.ProcessEvent, error) {
		res, err := stream.Receive()
		return res.GetEvent(), err
	})
}

func (t *T) begin(cancel context.CancelFunc, receive func() (*process.ProcessEvent, error)) (*events, error) {
	first, err := receive()
	if err != nil {
		cancel()
	}
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the stream ended cleanly without any event")
	}
	if err != nil {
		return nil, err
	}
	if first.GetStart() == nil {
		t.Fatalf("the first event must be start, got %v", first)
	}
	s := &events{t: t, pid: first.GetStart().GetPid(), receive: receive, cancel: cancel}
	s.seen.order = []string{"start"}
	t.shared.mu.Lock()
	t.shared.streams = append(t.shared.streams, s)
	t.shared.mu.Unlock()
	return s, nil
}

// plain returns a view without the headers of the stream.
func (s *events) plain(ctx context.Context) *T {
	t := *s.t
	t.header, t.ctx = nil, ctx
	return t.connect()
}

// finish ends what streams have started, reads them to their end, and only then
// closes them: old daemons do not bear the other order.
func finish(ctx context.Context, streams []*events) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for _, s := range streams {
		if s.own {
			s.kill(ctx)
		}
	}
	for _, s := range streams {
		stop := context.AfterFunc(ctx, s.cancel)
		s.rest()
		stop()
		s.cancel()
	}
	for _, s := range streams {
		if s.tagged {
			s.awaitGone(ctx)
		}
	}
}

func (s *events) kill(ctx context.Context) {
	s.mu.Lock()
	ended := s.seen.end != nil
	s.mu.Unlock()
	if !ended {
		_ = s.plain(ctx).signal(pid(s.pid), process.Signal_SIGNAL_SIGKILL)
	}
}

// awaitGone waits until the process is not listed any more, since a tag that is
// still there would disturb the next case.
func (s *events) awaitGone(ctx context.Context) {
	t := s.plain(ctx)
	for ctx.Err() == nil {
		pids, err := markedPIDs(ctx, t, func(run string) bool { return run == t.run.id })
		if err != nil || !slices.Contains(pids, s.pid) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// next receives one event; false is the end of the stream.
func (s *events) next() bool {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.over {
		return false
	}
	event, err := s.receive()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.over = true
		if !errors.Is(err, io.EOF) {
			s.seen.err = err
		}
		return false
	}
	o, kind := &s.seen, ""
	switch e := event.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		kind = "start again"
	case *process.ProcessEvent_Data:
		kind = "data"
		o.stdout = append(o.stdout, e.Data.GetStdout()...)
		o.stderr = append(o.stderr, e.Data.GetStderr()...)
		o.pty = append(o.pty, e.Data.GetPty()...)
	case *process.ProcessEvent_Keepalive:
		o.keepalives++
		return true
	case *process.ProcessEvent_End:
		kind = "end"
		if o.end != nil {
			kind = "end again"
		}
		o.end = e.End
	default:
		kind = "an event without a kind"
	}
	if o.order[len(o.order)-1] != kind {
		o.order = append(o.order, kind)
	}
	return true
}

// until reads on until cond is true.
func (s *events) until(what string, cond func(*outcome) bool) {
	for !cond(&s.seen) {
		if !s.next() {
			s.t.Fatalf("waiting for %s: the stream ended (%v) after %s", what, s.seen.err, &s.seen)
		}
	}
}

// untilOutput reads on until the output, whatever its kind, contains text.
func (s *events) untilOutput(text string) {
	s.until(fmt.Sprintf("output %q", text), func(o *outcome) bool {
		return bytes.Contains(o.stdout, []byte(text)) || bytes.Contains(o.pty, []byte(text)) || bytes.Contains(o.stderr, []byte(text))
	})
}

// rest reads to the end of the stream.
func (s *events) rest() *outcome {
	for s.next() {
	}
	return &s.seen
}

// wait is rest, for a stream that must end with an end event and cleanly.
func (s *events) wait() *outcome {
	o := s.rest()
	switch {
	case o.err != nil:
		s.t.Fatalf("want an end event and a clean end of the stream, got %v after %s", o.err, o)
	case o.end == nil:
		s.t.Fatalf("the stream ended cleanly without an end event, after %s", o)
	case o.order[len(o.order)-1] != "end":
		s.t.Fatalf("the end event must be the last, got %v", o.order)
	}
	return o
}

func (o *outcome) String() string {
	return fmt.Sprintf("%v, stdout %s, stderr %s, pty %s, end {%v}", o.order, quoted(string(o.stdout)), quoted(string(o.stderr)), quoted(string(o.pty)), o.end)
}

// complete runs a process to its end.
func (t *T) complete(req *process.StartRequest) *outcome { return t.open(req).wait() }

// output runs a process that must exit with 0, and returns its stdout.
func (t *T) output(req *process.StartRequest) string {
	o := t.complete(req)
	t.exited(o, 0)
	return string(o.stdout)
}

// exited checks an end event for a normal exit.
func (t *T) exited(o *outcome, code int32) {
	if o.end.GetExitCode() != code || !o.end.GetExited() {
		t.Fatalf("want the end event of exit code %d (exited true), got %s", code, o)
	}
}

// refused checks that a start fails before its start event, and how.
func (t *T) refused(req *process.StartRequest) error {
	s, err := t.tryOpen(req)
	if err == nil {
		t.Fatalf("starting %s: want an error and no start event, got %s", describe(req), s.rest())
	}
	return err
}

// killed checks an end event for a death by signal.
func (t *T) killed(o *outcome, status string) {
	if o.end.GetExitCode() != -1 || o.end.GetExited() || o.end.GetStatus() != status {
		t.Fatalf("want exit code -1, exited false and status %q, got %s", status, o)
	}
}

func (t *T) signal(selector *process.ProcessSelector, s process.Signal) error {
	_, err := t.proc.SendSignal(t.ctx, &process.SendSignalRequest{Process: selector, Signal: s})
	return err
}

func (t *T) send(selector *process.ProcessSelector, data string) error {
	_, err := t.proc.SendInput(t.ctx, &process.SendInputRequest{Process: selector, Input: stdin(data)})
	return err
}

func (t *T) sendPTY(selector *process.ProcessSelector, data string) error {
	_, err := t.proc.SendInput(t.ctx, &process.SendInputRequest{Process: selector, Input: ptyInput(data)})
	return err
}

func stdin(data string) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(data)}}
}

func ptyInput(data string) *process.ProcessInput {
	return &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(data)}}
}

func (t *T) closeStdin(selector *process.ProcessSelector) error {
	_, err := t.proc.CloseStdin(t.ctx, &process.CloseStdinRequest{Process: selector})
	return err
}

// listed returns the process with that pid, nil where there is none.
func (t *T) listed(n uint32) *process.ProcessInfo {
	list, err := t.proc.List(t.ctx, &process.ListRequest{})
	t.ok(err, "List")
	for _, p := range list.GetProcesses() {
		if p.GetPid() == n {
			return p
		}
	}
	return nil
}

// noPID is a number that no process has.
const noPID = 4_294_967_294

// tag returns a new tag. With tags of others alive, a tag may not be found on
// upstream daemons, whatever else they do right.
func (t *T) tag() string {
	list, err := t.proc.List(t.ctx, &process.ListRequest{})
	t.ok(err, "List")
	for _, p := range list.GetProcesses() {
		if p.GetTag() != "" && p.GetConfig().GetEnvs()[markerEnv] != t.run.id {
			t.skipf("needs a server without tagged processes of others")
		}
	}
	return "conformance-" + randomName()
}
