// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	processpb "github.com/envd-go/envd/gen/process"
)

func dataEvent(set func(*processpb.ProcessEvent_DataEvent)) *processpb.StartResponse {
	data := &processpb.ProcessEvent_DataEvent{}
	set(data)
	return &processpb.StartResponse{Event: &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{Data: data}}}
}

func stdoutEvent(text string) *processpb.StartResponse {
	return dataEvent(func(d *processpb.ProcessEvent_DataEvent) {
		d.Output = &processpb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(text)}
	})
}

func stderrEvent(text string) *processpb.StartResponse {
	return dataEvent(func(d *processpb.ProcessEvent_DataEvent) {
		d.Output = &processpb.ProcessEvent_DataEvent_Stderr{Stderr: []byte(text)}
	})
}

func ptyEvent(text string) *processpb.StartResponse {
	return dataEvent(func(d *processpb.ProcessEvent_DataEvent) {
		d.Output = &processpb.ProcessEvent_DataEvent_Pty{Pty: []byte(text)}
	})
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func TestReuseEvent(t *testing.T) {
	tests := []struct {
		name         string
		before, next *processpb.StartResponse
		reused       bool
	}{
		{"stdout", stdoutEvent("one"), stdoutEvent("two and more"), true},
		{"shorter", stdoutEvent("one and more"), stdoutEvent("2"), true},
		{"empty", stdoutEvent("one"), stdoutEvent(""), true},
		{"stderr", stderrEvent("one"), stderrEvent("two"), true},
		{"terminal", ptyEvent("one"), ptyEvent("two"), true},
		{"longer than one byte of length", stdoutEvent("one"), stdoutEvent(string(make([]byte, 40_000))), true},
		{"another output", stdoutEvent("one"), stderrEvent("two"), false},
		{"first event", &processpb.StartResponse{}, stdoutEvent("one"), false},
		{"end event", stdoutEvent("one"), &processpb.StartResponse{Event: &processpb.ProcessEvent{
			Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{Exited: true}}}}, false},
		{"no output", stdoutEvent("one"), dataEvent(func(*processpb.ProcessEvent_DataEvent) {}), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wire := mustMarshal(t, tt.next)
			message := proto.Clone(tt.before)
			if got := reuseEvent(message, wire); got != tt.reused {
				t.Fatalf("reuseEvent = %v, want %v", got, tt.reused)
			}
			if !tt.reused {
				if !proto.Equal(message, tt.before) {
					t.Errorf("the message was changed to %v", message)
				}
				return
			}
			if !proto.Equal(message, tt.next) {
				t.Errorf("got %v, want %v", message, tt.next)
			}
		})
	}
}

func TestReuseEventAllocatesNothing(t *testing.T) {
	wire := mustMarshal(t, stdoutEvent(string(make([]byte, 32<<10))))
	message := stdoutEvent(string(make([]byte, 32<<10)))
	if n := testing.AllocsPerRun(100, func() { reuseEvent(message, wire) }); n != 0 {
		t.Errorf("%v allocations for an event, want none", n)
	}
}

// FuzzEventCodec holds the short cut against protobuf's own decoder: whatever
// the message held before and whatever comes, the result is the same.
func FuzzEventCodec(f *testing.F) {
	for _, m := range []*processpb.StartResponse{stdoutEvent("out"), stderrEvent("err"), ptyEvent("pty"), stdoutEvent(""), {}} {
		wire := mustMarshal(f, m)
		f.Add(wire, wire)
		f.Add(wire, append(bytes.Clone(wire), 0x10, 1)) // an unknown field behind
		f.Add(wire, append(bytes.Clone(wire), wire...)) // twice
		f.Add(wire, bytes.TrimRight(wire, "\x00trpy"))  // cut
	}
	f.Add(append(mustMarshal(f, stdoutEvent("out")), 0x78, 1), mustMarshal(f, stdoutEvent("out")))
	codec := newEventCodec()
	f.Fuzz(func(t *testing.T, before, next []byte) {
		got, want := &processpb.StartResponse{}, &processpb.StartResponse{}
		if proto.Unmarshal(before, got) != nil {
			return
		}
		err := codec.UnmarshalRead(context.Background(), bytes.NewBuffer(bytes.Clone(next)), got)
		wantErr := proto.Unmarshal(next, want)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("error is %v, protobuf's is %v", err, wantErr)
		}
		if err == nil && !proto.Equal(got, want) {
			t.Fatalf("got %v, protobuf has %v", got, want)
		}
	})
}
