// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

const (
	procInput  = "process.Process/SendInput"
	procStream = "process.Process/StreamInput"
	procClose  = "process.Process/CloseStdin"
	procUpdate = "process.Process/Update"
)

func fmtUint(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func basic(userinfo string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(userinfo))
}

// count is a process that reads n bytes and prints how many came.
func count(n int) *process.StartRequest {
	return withStdin(script(fmt.Sprintf("head -c %d | wc -c", n)), true)
}

var processInputCases = []Case{
	{ID: "process/input/stdin", Procedure: procInput, Protocols: core, Needs: shell,
		Requirement: "SendInput writes to standard input.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; echo got $line"), true))
			t.ok(t.send(pid(s.pid), "this\n"), "SendInput")
			t.equal("stdout", string(s.wait().stdout), "got this\n")
		}},
	{ID: "process/input/order", Procedure: procInput, Needs: shell,
		Requirement: "Inputs arrive in the order of the calls.",
		Run: func(t *T) {
			s := t.open(withStdin(script("head -c 100"), true))
			var want strings.Builder
			for i := range 50 {
				text := fmt.Sprintf("%02d", i)
				want.WriteString(text)
				t.ok(t.send(pid(s.pid), text), "SendInput %d", i)
			}
			t.equal("stdout", string(s.wait().stdout), want.String())
		}},
	{ID: "process/input/binary", Procedure: procInput, Needs: shell,
		Requirement: "Input is bytes: NUL and invalid UTF-8 arrive as sent.",
		Run: func(t *T) {
			s := t.open(withStdin(script("head -c 6"), true))
			t.ok(t.send(pid(s.pid), "\x00\xff\x80\r\n\xc3"), "SendInput")
			t.equal("stdout", fmt.Sprintf("%q", s.wait().stdout), fmt.Sprintf("%q", "\x00\xff\x80\r\n\xc3"))
		}},
	{ID: "process/input/large", Procedure: procInput, Needs: shell,
		Requirement: "Two megabytes of input arrive whole.",
		Run: func(t *T) {
			s := t.open(count(2_000_000))
			t.ok(t.send(pid(s.pid), strings.Repeat("x", 2_000_000)), "SendInput")
			t.equal("bytes", strings.TrimSpace(string(s.wait().stdout)), "2000000")
		}},
	{ID: "process/input/empty", Procedure: procInput, Needs: shell,
		Requirement: "Empty input is accepted and does nothing.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; echo got $line"), true))
			t.ok(t.send(pid(s.pid), ""), "SendInput of nothing")
			t.ok(t.send(pid(s.pid), "x\n"), "SendInput")
			t.equal("stdout", string(s.wait().stdout), "got x\n")
		}},
	{ID: "process/input/tag", Procedure: procInput, Needs: shell, lock: "tags",
		Requirement: "SendInput finds a process by its tag.",
		Run: func(t *T) {
			tag := t.tag()
			s := t.open(withTag(withStdin(script("read line; echo got $line"), true), tag))
			t.ok(t.send(byTag(tag), "x\n"), "SendInput")
			t.equal("stdout", string(s.wait().stdout), "got x\n")
		}},
	{ID: "process/input/no-user", Procedure: procInput, Needs: shell,
		Requirement: "SendInput needs no user.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line"), true))
			t.ok(t.anonymous().send(pid(s.pid), "\n"), "SendInput without a user")
			t.exited(s.wait(), 0)
		}},
	{ID: "process/input/unset", Procedure: procInput, Needs: shell, Since: envdversion.UnsetInputDrop.Row().Until,
		Requirement: "Input without a kind is refused with unimplemented.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), true))
			_, err := t.proc.SendInput(t.ctx, &process.SendInputRequest{Process: pid(s.pid), Input: &process.ProcessInput{}})
			t.wantErr(err, connect.CodeUnimplemented)
			_, err = t.proc.SendInput(t.ctx, &process.SendInputRequest{Process: pid(s.pid)})
			t.wantErr(err, connect.CodeUnimplemented)
		}},
	{ID: "process/input/pty-to-pipe", Procedure: procInput, Needs: shell,
		Requirement: "Terminal input to a process without a terminal is refused with internal.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), true))
			t.wantErr(t.sendPTY(pid(s.pid), "x"), connect.CodeInternal)
		}},
	{ID: "process/input/disabled", Procedure: procInput, Needs: shell, Since: since(envdversion.StdinField),
		Requirement: "Input to a process that was started with stdin false is refused with internal.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), false))
			t.wantErr(t.send(pid(s.pid), "x"), connect.CodeInternal)
		}},
	{ID: "process/input/closed-by-process", Procedure: procInput, Needs: shell,
		Requirement: "Input to a process that has closed its standard input is refused with internal.",
		Run: func(t *T) {
			s := t.open(withStdin(script("exec </dev/null; echo closed; sleep 30"), true))
			s.untilOutput("closed")
			t.wantErr(t.send(pid(s.pid), "x"), connect.CodeInternal)
		}},
	{ID: "process/input/unknown-pid", Procedure: procInput, Protocols: core,
		Requirement: "Input to a pid that is not there is refused with not_found.",
		Run:         func(t *T) { t.wantErr(t.send(pid(noPID), "x"), connect.CodeNotFound) }},
	{ID: "process/input/unknown-tag", Procedure: procInput,
		Requirement: "Input to a tag that is not there is refused with not_found.",
		Run:         func(t *T) { t.wantErr(t.send(byTag("no-"+t.run.id), "x"), connect.CodeNotFound) }},
	{ID: "process/input/no-selector", Procedure: procInput,
		Requirement: "Input without a selector is refused with unimplemented.",
		Run:         func(t *T) { t.wantErr(t.send(nil, "x"), connect.CodeUnimplemented) }},
	{ID: "process/input/parallel", Procedure: procInput, Needs: shell,
		Requirement: "Parallel inputs to one process all arrive.",
		Run: func(t *T) {
			s := t.open(count(20_000))
			failed := make(chan error, 20)
			for range 20 {
				go func() { failed <- t.send(pid(s.pid), strings.Repeat("y", 1000)) }()
			}
			for range 20 {
				t.ok(<-failed, "SendInput")
			}
			t.equal("bytes", strings.TrimSpace(string(s.wait().stdout)), "20000")
		}},

	{ID: "process/closestdin/eof", Procedure: procClose, Protocols: core, Needs: shell, Since: since(envdversion.CloseStdin),
		Requirement: "After CloseStdin the process reads what was sent, and then the end.",
		Run: func(t *T) {
			s := t.open(withStdin(script("cat; echo end"), true))
			t.ok(t.send(pid(s.pid), "data "), "SendInput")
			t.ok(t.closeStdin(pid(s.pid)), "CloseStdin")
			t.equal("stdout", string(s.wait().stdout), "data end\n")
		}},
	{ID: "process/closestdin/twice", Procedure: procClose, Needs: shell, Since: since(envdversion.CloseStdin),
		Requirement: "CloseStdin may be called twice.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), true))
			t.ok(t.closeStdin(pid(s.pid)), "CloseStdin")
			t.ok(t.closeStdin(pid(s.pid)), "CloseStdin again")
		}},
	{ID: "process/closestdin/disabled", Procedure: procClose, Level: Should, Needs: shell, Since: since(envdversion.CloseStdin),
		Requirement: "CloseStdin of a process that was started with stdin false succeeds.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), false))
			t.ok(t.closeStdin(pid(s.pid)), "CloseStdin")
		}},
	{ID: "process/closestdin/then-input", Procedure: procClose, Needs: shell, Since: since(envdversion.CloseStdin),
		Requirement: "Input after CloseStdin is refused with internal.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), true))
			t.ok(t.closeStdin(pid(s.pid)), "CloseStdin")
			t.wantErr(t.send(pid(s.pid), "x"), connect.CodeInternal)
		}},
	{ID: "process/closestdin/tag", Procedure: procClose, Needs: shell, Since: since(envdversion.CloseStdin), lock: "tags",
		Requirement: "CloseStdin finds a process by its tag.",
		Run: func(t *T) {
			tag := t.tag()
			s := t.open(withTag(withStdin(script("cat"), true), tag))
			t.ok(t.closeStdin(byTag(tag)), "CloseStdin")
			t.exited(s.wait(), 0)
		}},
	{ID: "process/closestdin/unknown-pid", Procedure: procClose, Since: since(envdversion.CloseStdin),
		Requirement: "CloseStdin of a pid that is not there is refused with not_found.",
		Run:         func(t *T) { t.wantErr(t.closeStdin(pid(noPID)), connect.CodeNotFound) }},
	{ID: "process/closestdin/pty", Procedure: procClose, Needs: []Need{NeedPTY}, Since: since(envdversion.CloseStdin),
		Requirement: "CloseStdin of a process with a terminal is refused with unknown.",
		Run: func(t *T) {
			s := t.open(withPTY(script("sleep 30"), 80, 24))
			t.wantErr(t.closeStdin(pid(s.pid)), connect.CodeUnknown)
		}},
	{ID: "process/closestdin/absent", Procedure: procClose, Until: since(envdversion.CloseStdin), Protocols: justHTTP,
		Requirement: "CloseStdin is an unknown path, answered with 404 and text.",
		Run: func(t *T) {
			r := t.wantStatus(t.unary(procClose, `{"process":{"pid":1}}`), 404)
			t.contains("Content-Type", r.header.Get("Content-Type"), "text/plain")
		}},

	{ID: "process/streaminput/data", Procedure: procStream, Needs: shell,
		Requirement: "StreamInput writes its data to standard input in order.",
		Run: func(t *T) {
			s := t.open(withStdin(script("head -c 40"), true))
			want := ""
			in := t.input(pid(s.pid))
			for i := range 20 {
				text := fmt.Sprintf("%02d", i)
				want += text
				in.data(stdin(text))
			}
			in.done()
			t.equal("stdout", string(s.wait().stdout), want)
		}},
	{ID: "process/streaminput/live", Procedure: procStream, Needs: shell, Protocols: both,
		Requirement: "StreamInput writes each piece as it comes, while the request is still open.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read a; echo one $a; read b; echo two $b"), true))
			in := t.input(pid(s.pid))
			in.data(stdin("x\n"))
			s.untilOutput("one x")
			in.data(stdin("y\n"))
			s.untilOutput("two y")
			in.done()
		}},
	{ID: "process/streaminput/keepalive", Procedure: procStream, Needs: shell,
		Requirement: "Keepalives in StreamInput are ignored, also before start.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read a; echo $a"), true))
			in := t.inputStream()
			in.send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}})
			in.start(pid(s.pid))
			in.send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}})
			in.data(stdin("kept\n"))
			in.done()
			t.equal("stdout", string(s.wait().stdout), "kept\n")
		}},
	{ID: "process/streaminput/pty", Procedure: procStream, Needs: []Need{NeedPTY},
		Requirement: "StreamInput writes terminal input to a terminal.",
		Run: func(t *T) {
			s := t.open(withPTY(script("read a; echo got-$a"), 80, 24))
			in := t.input(pid(s.pid))
			in.data(ptyInput("it\n"))
			in.done()
			t.contains("pty", string(s.wait().pty), "got-it")
		}},
	{ID: "process/streaminput/unknown-pid", Procedure: procStream,
		Requirement: "StreamInput to a pid that is not there is refused with not_found.",
		Run: func(t *T) {
			in := t.inputStream()
			in.start(pid(noPID))
			t.wantErr(in.close(), connect.CodeNotFound)
		}},
	{ID: "process/streaminput/only-start", Procedure: procStream, Needs: shell,
		Requirement: "StreamInput with nothing but start succeeds.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), true))
			t.input(pid(s.pid)).done()
		}},
	{ID: "process/streaminput/empty", Procedure: procStream, Protocols: justJSON, Level: Should,
		Requirement: "StreamInput without any message succeeds.",
		Run:         func(t *T) { t.wantEnd(t.streamBytes(procStream, nil), "") }},
	{ID: "process/streaminput/response", Procedure: procStream, Protocols: justJSON, Needs: shell,
		Requirement: "StreamInput answers with one empty message and the end of the stream.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), true))
			frames := t.stream(procStream, `{"start":{"process":{"pid":`+fmtUint(s.pid)+`}}}`)
			t.wantEnd(frames, "")
			t.equal("envelopes, and the flag and data of the first", []any{len(frames), frames[0].flag, string(frames[0].data)}, []any{2, 0, "{}"})
		}},
	{ID: "process/streaminput/no-event", Procedure: procStream, Protocols: justJSON,
		Requirement: "A message without an event is refused with unimplemented.",
		Run:         func(t *T) { t.wantEnd(t.stream(procStream, "{}"), "unimplemented") }},
	{ID: "process/streaminput/no-input", Procedure: procStream, Protocols: justJSON, Needs: shell, Since: envdversion.UnsetInputDrop.Row().Until,
		Requirement: "Data without input is refused with unimplemented.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 30"), true))
			body := append(envelope(0, `{"start":{"process":{"pid":`+fmtUint(s.pid)+`}}}`), envelope(0, `{"data":{}}`)...)
			t.wantEnd(t.streamBytes(procStream, body), "unimplemented")
		}},
	{ID: "process/streaminput/data-before-start", Procedure: procStream, Level: Should, Protocols: justJSON,
		Requirement: "Data before start is answered with an error; the connection is not dropped.",
		Run: func(t *T) {
			code, _ := t.endError(t.stream(procStream, `{"data":{"input":{"stdin":"eA=="}}}`))
			if code == "" {
				t.Fatalf("want an error for data before start, got success")
			}
		}},
	{ID: "process/streaminput/bad-message", Procedure: procStream, Protocols: justJSON,
		Requirement: "A message that is no JSON ends StreamInput with an error.",
		Run: func(t *T) {
			if code, _ := t.endError(t.stream(procStream, `{"start":`)); code != "unknown" && code != "invalid_argument" {
				t.Fatalf("want the code unknown or invalid_argument, got %q", code)
			}
		}},
}

// inputCall is a StreamInput in progress.
type inputCall struct {
	t      *T
	stream interface {
		Send(*process.StreamInputRequest) error
		CloseAndReceive() (*process.StreamInputResponse, error)
	}
}

func (t *T) inputStream() *inputCall {
	ctx, cancel := context.WithCancel(t.ctx)
	stream, err := t.proc.StreamInput(ctx)
	t.cleanup(func(context.Context) {
		cancel()
		_, _ = stream.CloseAndReceive() // or its request would wait for more for ever
	})
	t.ok(err, "StreamInput")
	return &inputCall{t, stream}
}

func (t *T) input(selector *process.ProcessSelector) *inputCall {
	in := t.inputStream()
	in.start(selector)
	return in
}

func (in *inputCall) send(msg *process.StreamInputRequest) {
	in.t.ok(in.stream.Send(msg), "sending on StreamInput")
}

func (in *inputCall) start(selector *process.ProcessSelector) {
	in.send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: selector}}})
}

func (in *inputCall) data(input *process.ProcessInput) {
	in.send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: input}}})
}

func (in *inputCall) close() error {
	_, err := in.stream.CloseAndReceive()
	return err
}

func (in *inputCall) done() { in.t.ok(in.close(), "the answer of StreamInput") }

func (t *T) resize(selector *process.ProcessSelector, cols, rows uint32) error {
	_, err := t.proc.Update(t.ctx, &process.UpdateRequest{Process: selector, Pty: &process.PTY{Size: &process.PTY_Size{Cols: cols, Rows: rows}}})
	return err
}

var terminal = []Need{NeedPTY}

var processPTYCases = []Case{
	{ID: "process/pty/output", Procedure: procStart, Protocols: core, Needs: terminal,
		Requirement: "The output of a process with a terminal comes in the pty field only, standard error with it.",
		Run: func(t *T) {
			o := t.complete(withPTY(script("echo out; echo err >&2; sleep 0.1"), 80, 24))
			t.contains("pty", string(o.pty), "out\r\n")
			t.contains("pty", string(o.pty), "err\r\n")
			t.equal("stdout and stderr", string(o.stdout)+string(o.stderr), "")
		}},
	{ID: "process/pty/first-output", Procedure: procStart, Level: Should, Needs: terminal,
		Requirement: "What a process writes to its terminal in the first moment is not lost.",
		Run: func(t *T) {
			for range 10 {
				t.contains("pty", string(t.complete(withBarePTY(script("echo first; sleep 0.1"), 80, 24)).pty), "first")
			}
		}},
	{ID: "process/pty/exit", Procedure: procStart, Needs: terminal,
		Requirement: "A process with a terminal ends as any other.",
		Run:         func(t *T) { t.exited(t.complete(withPTY(script("exit 13"), 80, 24)), 13) }},
	{ID: "process/pty/is-terminal", Procedure: procStart, Needs: terminal,
		Requirement: "Standard input, output and error are the terminal.",
		Run: func(t *T) {
			o := t.complete(withPTY(script("test -t 0 && test -t 1 && test -t 2 && echo all; sleep 0.1"), 80, 24))
			t.contains("pty", string(o.pty), "all")
		}},
	{ID: "process/pty/size", Procedure: procStart, Needs: terminal,
		Requirement: "The terminal has the size of the request, columns and rows not mixed up.",
		Run: func(t *T) {
			o := t.complete(withPTY(script("stty size; sleep 0.1"), 91, 33))
			t.contains("stty size", string(o.pty), "33 91")
		}},
	{ID: "process/pty/no-size", Procedure: procStart, Needs: terminal, Since: since(envdversion.PTYWithoutSize),
		Requirement: "A terminal without a size is 0 by 0.",
		Run: func(t *T) {
			req := script("sleep 0.1; stty size; sleep 0.1")
			req.Pty = &process.PTY{}
			t.contains("stty size", string(t.complete(req).pty), "0 0")
		}},
	{ID: "process/pty/huge-size", Procedure: procStart, Level: May, Needs: terminal,
		Requirement: "A size of more than 16 bits is cut to 16 bits.",
		Run: func(t *T) {
			o := t.complete(withPTY(script("stty size; sleep 0.1"), 65536+7, 24))
			t.contains("stty size", string(o.pty), "24 7")
		}},
	{ID: "process/pty/null", Procedure: procStart, Protocols: justJSON, Needs: shell,
		Requirement: "A pty of null is no terminal.",
		Run: func(t *T) {
			frames := t.stream(procStart, mustJSON(map[string]any{"pty": nil, "process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", "test -t 1 || exit 5"}}}))
			t.equal("exit code", t.endEvent(frames)["exitCode"], 5)
		}},
	{ID: "process/pty/resize", Procedure: procUpdate, Protocols: core, Needs: terminal,
		Requirement: "Update changes the size of the terminal.",
		Run: func(t *T) {
			s := t.open(withPTY(script("echo up; read line; stty size; sleep 0.1"), 80, 24))
			s.untilOutput("up")
			t.ok(t.resize(pid(s.pid), 120, 40), "Update")
			t.ok(t.sendPTY(pid(s.pid), "\n"), "SendInput")
			t.contains("stty size", string(s.wait().pty), "40 120")
		}},
	{ID: "process/pty/resize-signal", Procedure: procUpdate, Level: Should, Needs: terminal,
		Requirement: "A resize sends WINCH to the process.",
		Run: func(t *T) {
			s := t.open(withPTY(script("trap 'echo resized; exit 0' WINCH; echo up; while :; do sleep 0.1; done"), 80, 24))
			s.untilOutput("up")
			t.ok(t.resize(pid(s.pid), 120, 40), "Update")
			s.untilOutput("resized")
		}},
	{ID: "process/pty/resize-tag", Procedure: procUpdate, Needs: terminal, lock: "tags",
		Requirement: "Update finds a process by its tag.",
		Run: func(t *T) {
			tag := t.tag()
			t.open(withTag(withPTY(script("sleep 30"), 80, 24), tag))
			t.ok(t.resize(byTag(tag), 120, 40), "Update")
		}},
	{ID: "process/pty/update-nothing", Procedure: procUpdate, Needs: shell,
		Requirement: "Update without pty succeeds and changes nothing.",
		Run: func(t *T) {
			s := t.open(script("sleep 30"))
			_, err := t.proc.Update(t.ctx, &process.UpdateRequest{Process: pid(s.pid)})
			t.ok(err, "Update")
		}},
	{ID: "process/pty/resize-pipe", Procedure: procUpdate, Needs: shell,
		Requirement: "A resize of a process without a terminal is refused with internal.",
		Run: func(t *T) {
			s := t.open(script("sleep 30"))
			t.wantErr(t.resize(pid(s.pid), 80, 24), connect.CodeInternal)
		}},
	{ID: "process/pty/resize-unknown-pid", Procedure: procUpdate,
		Requirement: "Update of a pid that is not there is refused with not_found.",
		Run:         func(t *T) { t.wantErr(t.resize(pid(noPID), 80, 24), connect.CodeNotFound) }},
	{ID: "process/pty/resize-no-selector", Procedure: procUpdate,
		Requirement: "Update without a selector is refused with unimplemented.",
		Run:         func(t *T) { t.wantErr(t.resize(nil, 80, 24), connect.CodeUnimplemented) }},
	{ID: "process/pty/echo", Procedure: procInput, Needs: terminal,
		Requirement: "Terminal input is echoed.",
		Run: func(t *T) {
			s := t.open(withPTY(script("echo up; read line; sleep 0.1"), 80, 24))
			s.untilOutput("up")
			t.ok(t.sendPTY(pid(s.pid), "typed\n"), "SendInput")
			t.contains("pty", string(s.wait().pty), "typed\r\n")
		}},
	{ID: "process/pty/ctrl-d", Procedure: procInput, Needs: terminal,
		Requirement: "Ctrl+D ends the input of a terminal.",
		Run: func(t *T) {
			s := t.open(withPTY(script("echo up; cat; echo after; sleep 0.1"), 80, 24))
			s.untilOutput("up")
			t.ok(t.sendPTY(pid(s.pid), "\x04"), "SendInput")
			o := s.wait()
			t.contains("pty", string(o.pty), "after")
			t.exited(o, 0)
		}},
	{ID: "process/pty/ctrl-c", Procedure: procInput, Needs: []Need{NeedPTY, NeedInterrupt},
		Requirement: "Ctrl+C interrupts the process of a terminal.",
		Run: func(t *T) {
			s := t.open(withPTY(script("echo up; exec sleep 30"), 80, 24))
			s.untilOutput("up")
			t.ok(t.sendPTY(pid(s.pid), "\x03"), "SendInput")
			t.killed(s.wait(), "signal: interrupt")
		}},
	{ID: "process/pty/stdin-refused", Procedure: procInput, Needs: terminal,
		Requirement: "Standard input to a process with a terminal is refused with internal.",
		Run: func(t *T) {
			s := t.open(withPTY(script("sleep 30"), 80, 24))
			t.wantErr(t.send(pid(s.pid), "x"), connect.CodeInternal)
		}},
	{ID: "process/pty/session", Procedure: procStart, Needs: []Need{NeedPTY, NeedProc},
		Requirement: "A process with a terminal leads a session and a process group of its own.",
		Run: func(t *T) {
			o := t.complete(withPTY(script("set -- $(cat /proc/$$/stat); test $1 = $5 && test $1 = $6 && echo leader; sleep 0.1"), 80, 24))
			t.contains("pty", string(o.pty), "leader")
		}},
	{ID: "process/pty/cwd-env", Procedure: procStart, Needs: terminal,
		Requirement: "cwd and envs hold for a process with a terminal too.",
		Run: func(t *T) {
			o := t.complete(withPTY(withCwd(withEnv(script("echo $(pwd) $TERM; sleep 0.1"), "TERM", "xterm"), "/usr"), 80, 24))
			t.contains("pty", string(o.pty), "/usr xterm")
		}},
	{ID: "process/pty/large-output", Procedure: procStart, Needs: terminal,
		Requirement: "Output that is many times larger than a terminal's buffer arrives whole.",
		Run: func(t *T) {
			o := t.complete(withPTY(script("sleep 0.1; i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; sleep 0.2"), 80, 24))
			t.equal("bytes", len(o.pty), 4000*42)
		}},
	{ID: "process/pty/timeout", Procedure: procStart, Needs: terminal,
		Requirement: "Connect-Timeout-Ms kills a process with a terminal too.",
		Run: func(t *T) {
			s := t.with(timeoutMs, "700").open(withPTY(command("sleep", "30"), 80, 24))
			t.wantErr(s.rest().err, connect.CodeDeadlineExceeded)
			t.poll("the process is gone", func() bool { return t.listed(s.pid) == nil })
		}},
	{ID: "process/pty/unknown-command", Procedure: procStart, Needs: terminal, Since: since(envdversion.ShellWrapper),
		Requirement: "A command that cannot be found exits with 127 on a terminal too.",
		Run:         func(t *T) { t.exited(t.complete(withPTY(command("no-such-"+t.run.id), 80, 24)), 127) }},
	{ID: "process/pty/unknown-command-refused", Procedure: procStart, Needs: terminal, Until: since(envdversion.ShellWrapper),
		Requirement: "A command that cannot be found is refused with invalid_argument on a terminal too.",
		Run: func(t *T) {
			t.wantErr(t.refused(withPTY(command("no-such-"+t.run.id), 80, 24)), connect.CodeInvalidArgument)
		}},
}

// endEvent returns the end event of a Start in JSON, as it was sent.
func (t *T) endEvent(frames []frame) map[string]any {
	t.wantEnd(frames, "")
	for _, f := range frames[:len(frames)-1] {
		if end, ok := dig(t.object(f.data), "event", "end").(map[string]any); ok {
			return end
		}
	}
	t.Fatalf("want an end event, got %v", frames)
	return nil
}
