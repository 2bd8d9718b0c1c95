// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
)

// eventCodec is connect's binary codec with a short cut for the one message
// that comes by the thousand: an event of Start or Connect that holds output.
// Received into a message that holds such an event already, the new output
// takes the place of the old one, with no allocation and one copy instead of
// three. Everything else is left to protobuf.
type eventCodec struct {
	*connectproto.BinaryCodec
}

func newEventCodec() eventCodec { return eventCodec{connectproto.NewBinaryCodec()} }

// UnmarshalRead decodes one message.
func (c eventCodec) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	if data, ok := src.(*bytes.Buffer); ok && reuseEvent(msg, data.Bytes()) {
		data.Reset()
		return nil
	}
	return c.BinaryCodec.UnmarshalRead(ctx, src, msg)
}

// reuseEvent decodes an output event into a message that holds one of the same
// kind, and reports whether it did.
func reuseEvent(msg any, wire []byte) bool {
	var event *processpb.ProcessEvent
	switch msg := msg.(type) {
	case *processpb.StartResponse:
		event = msg.GetEvent()
	case *processpb.ConnectResponse:
		event = msg.GetEvent()
	default:
		return false
	}
	data := event.GetData()
	if data == nil || hasUnknown(msg.(proto.Message)) || hasUnknown(event) || hasUnknown(data) {
		return false
	}
	kind, output, ok := outputOf(wire)
	if !ok {
		return false
	}
	switch old := data.GetOutput().(type) {
	case *processpb.ProcessEvent_DataEvent_Stdout:
		if kind != tagStdout {
			return false
		}
		old.Stdout = append(old.Stdout[:0], output...)
	case *processpb.ProcessEvent_DataEvent_Stderr:
		if kind != tagStderr {
			return false
		}
		old.Stderr = append(old.Stderr[:0], output...)
	case *processpb.ProcessEvent_DataEvent_Pty:
		if kind != tagPTY {
			return false
		}
		old.Pty = append(old.Pty[:0], output...)
	default:
		return false
	}
	return true
}

// hasUnknown reports whether m holds fields that the contract does not know;
// they would outlive the event that brought them.
func hasUnknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

// The tags of the fields on the way to the output: number and wire type, as
// the contract has them.
const (
	tagEvent  = 1<<3 | 2
	tagData   = 2<<3 | 2
	tagStdout = 1<<3 | 2
	tagStderr = 2<<3 | 2
	tagPTY    = 3<<3 | 2
)

// outputOf finds the output in an event that has nothing else, and nothing
// twice.
func outputOf(wire []byte) (kind byte, output []byte, ok bool) {
	wire, ok = onlyField(wire, tagEvent)
	if !ok {
		return 0, nil, false
	}
	wire, ok = onlyField(wire, tagData)
	if !ok || len(wire) == 0 {
		return 0, nil, false
	}
	kind = wire[0]
	if kind != tagStdout && kind != tagStderr && kind != tagPTY {
		return 0, nil, false
	}
	output, ok = onlyField(wire, kind)
	return kind, output, ok
}

// onlyField returns the contents of a message that consists of one
// length-delimited field with the given tag.
func onlyField(wire []byte, tag byte) ([]byte, bool) {
	if len(wire) < 2 || wire[0] != tag {
		return nil, false
	}
	size, n := binary.Uvarint(wire[1:])
	if n <= 0 || size != uint64(len(wire)-1-n) {
		return nil, false
	}
	return wire[1+n:], true
}

// eventStream is the stream of Start or of Connect.
type eventStream interface {
	// receive returns the next event, which is valid until the next call.
	receive() (*processpb.ProcessEvent, error)
}

// reusingStream reads the events of a stream into one message. The generated
// stubs allocate one for each.
type reusingStream[M interface {
	GetEvent() *processpb.ProcessEvent
}] struct {
	stream  connect.ClientStream
	message M
}

func (s *reusingStream[M]) receive() (*processpb.ProcessEvent, error) {
	if err := s.stream.Receive(s.message); err != nil {
		return nil, err
	}
	return s.message.GetEvent(), nil
}

func eventSpec(procedure string, method protoreflect.Name) connect.Spec {
	return connect.Spec{
		StreamType: connect.StreamTypeServer,
		Schema:     processpb.File_process_process_proto.Services().ByName("Process").Methods().ByName(method),
		Procedure:  procedure,
	}
}

func (c *Client) openStart(ctx context.Context, req *processpb.StartRequest) (eventStream, error) {
	stream, err := c.rpc.CallServerStream(ctx, eventSpec(processconnect.ProcessStartProcedure, "Start"), req)
	return &reusingStream[*processpb.StartResponse]{stream, &processpb.StartResponse{}}, err
}

func (c *Client) openConnect(ctx context.Context, req *processpb.ConnectRequest) (eventStream, error) {
	stream, err := c.rpc.CallServerStream(ctx, eventSpec(processconnect.ProcessConnectProcedure, "Connect"), req)
	return &reusingStream[*processpb.ConnectResponse]{stream, &processpb.ConnectResponse{}}, err
}
