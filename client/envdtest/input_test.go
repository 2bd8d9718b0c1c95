// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
)

func closeStdin(ctx context.Context, c processconnect.ProcessClient, pid uint32) error {
	_, err := c.CloseStdin(ctx, &processpb.CloseStdinRequest{Process: byPID(pid)})
	return err
}

func TestInputErrors(t *testing.T) {
	tests := []struct {
		name, version string
		stdin         *bool
		closed        bool
		want          string
	}{
		{"disabled", "0.6.13", new(false), false, "error writing to stdin: stdin not enabled or closed"},
		{"closed", "0.6.13", nil, true, "error writing to stdin: stdin not enabled or closed"},
		{"disabled", "0.3.7", new(false), false, "error writing to stdin: stdin not enabled — set stdin to true when starting the command"},
	}
	for _, tt := range tests {
		t.Run(tt.version+" "+tt.name, func(t *testing.T) {
			c := newClient(newFunctions(t, envdtest.WithVersion(tt.version)))
			req := command("wait")
			req.Stdin = tt.stdin
			pid, _ := start(t, t.Context(), c, req)
			if tt.closed {
				if err := errors.Join(closeStdin(t.Context(), c, pid), closeStdin(t.Context(), c, pid)); err != nil {
					t.Fatal(err)
				}
			}
			wantError(t, sendInput(t.Context(), c, pid, "x"), connect.CodeInternal, tt.want)
		})
	}
}

func TestInputBrokenPipe(t *testing.T) {
	c := newClient(newServer(t))
	pid, next := start(t, t.Context(), c, shell("exec <&-; echo ready; exec sleep 60"))
	next.until(t, "ready")
	err := sendInput(t.Context(), c, pid, "x")
	if connect.CodeOf(err) != connect.CodeInternal || !strings.HasSuffix(err.Error(), "write |1: broken pipe") {
		t.Errorf("SendInput: %v", err)
	}
}

// A write that nobody reads holds up CloseStdin, but no signal, and fails when
// the process dies.
func TestInputBlocks(t *testing.T) {
	for _, real := range []bool{true, false} {
		t.Run(map[bool]string{true: "process", false: "function"}[real], func(t *testing.T) {
			srv, cmd := newServer(t), shell("exec sleep 60")
			if !real {
				srv, cmd = newFunctions(t), command("wait")
			}
			c := newClient(srv)
			pid, next := start(t, t.Context(), c, cmd)
			blocked, closed := make(chan error, 1), make(chan error, 1)
			go func() { blocked <- sendInput(t.Context(), c, pid, strings.Repeat("a", 200_000)) }()
			arrived := func(method string) func() bool {
				return func() bool {
					all := srv.Requests()
					return all[len(all)-1].Path == "/process.Process/"+method
				}
			}
			if err := srv.WaitFor(t.Context(), arrived("SendInput")); err != nil {
				t.Fatal(err)
			}
			go func() { closed <- closeStdin(t.Context(), c, pid) }()
			if err := srv.WaitFor(t.Context(), arrived("CloseStdin")); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-blocked:
				// CloseStdin may have come first: then the write has nowhere to go.
				if err == nil || !strings.Contains(err.Error(), "stdin not enabled or closed") {
					t.Errorf("SendInput did not block: %v", err)
				}
				blocked <- err
			case err := <-closed:
				t.Logf("CloseStdin: %v", err)
				closed <- err
			default:
			}
			kill(t, c, pid)
			wantEnd(t, next.collect(), -1, "signal: killed")
			if err := <-blocked; err == nil {
				t.Error("SendInput succeeded")
			}
			<-closed
		})
	}
}

func TestLargeInput(t *testing.T) {
	c := newClient(newServer(t))
	pid, next := start(t, t.Context(), c, command("wc", "-c"))
	if err := sendInput(t.Context(), c, pid, strings.Repeat("a", 8_000_000)); err != nil {
		t.Fatal(err)
	}
	if err := closeStdin(t.Context(), c, pid); err != nil {
		t.Fatal(err)
	}
	o := next.collect()
	wantEnd(t, o, 0, "exit status 0")
	if strings.TrimSpace(o.stdout) != "8000000" {
		t.Errorf("stdout = %q", o.stdout)
	}
}

func streamStart(sel *processpb.ProcessSelector) *processpb.StreamInputRequest {
	return &processpb.StreamInputRequest{Event: &processpb.StreamInputRequest_Start{
		Start: &processpb.StreamInputRequest_StartEvent{Process: sel},
	}}
}

func streamData(text string) *processpb.StreamInputRequest {
	return &processpb.StreamInputRequest{Event: &processpb.StreamInputRequest_Data{
		Data: &processpb.StreamInputRequest_DataEvent{
			Input: &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: []byte(text)}},
		},
	}}
}

func TestStreamInput(t *testing.T) {
	c := newClient(newFunctions(t))
	pid, next := start(t, t.Context(), c, command("cat"))
	stream, err := c.StreamInput(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range []*processpb.StreamInputRequest{streamStart(byPID(pid)), streamData("one")} {
		if err := stream.Send(msg); err != nil {
			t.Fatal(err)
		}
	}
	next.until(t, "one") // while the request is open
	if err := stream.Send(streamData("two")); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	next.until(t, "two")
}

func TestStreamInputDataFirst(t *testing.T) {
	send := func(c processconnect.ProcessClient) error {
		stream, err := c.StreamInput(t.Context())
		if err != nil {
			return err
		}
		_ = stream.Send(streamData("x"))
		_, err = stream.CloseAndReceive()
		return err
	}
	err := send(newClient(newFunctions(t)))
	wantError(t, err, connect.CodeInvalidArgument, "data came before start")
	err = send(newClient(newFunctions(t, envdtest.WithQuirk(envdtest.QuirkDropDataBeforeStart))))
	if e, ok := errors.AsType[*connect.Error](err); !ok || e.IsRemote() {
		t.Errorf("error = %v, want a lost connection", err)
	}
}

func TestMissingRPC(t *testing.T) {
	srv := newFunctions(t, envdtest.WithVersion("0.3.7"))
	res, err := srv.Client().Post(srv.URL+"/process.Process/CloseStdin", "application/json", bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != 404 || string(body) != "404 page not found\n" {
		t.Errorf("CloseStdin on 0.3.7: %d %q", res.StatusCode, body)
	}
}
