// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"

	"github.com/envd-go/envd/gen/process/processconnect"
)

// codecTransport speaks binary protobuf, and changes to JSON for the life of
// the client when the server turns out not to read binary. Such a server
// answers 400 or 415 before it does anything, so sending the same request again
// in JSON is safe.
type codecTransport struct {
	core   *core
	binary connect.Transport
	json   connect.Transport
}

func newCodecTransport(c *core, t *transport) *codecTransport {
	opts := []connecthttp.Option{
		connecthttp.WithReadMaxBytes(c.config.maxMessage),
		connecthttp.WithCodecs(newEventCodec(), connectproto.NewJSONCodec()),
	}
	if c.config.compression {
		opts = append(opts, connecthttp.WithSendGzip(), connecthttp.WithCompressMinBytes(1<<10))
	} else {
		opts = append(opts, connecthttp.WithCompressors())
	}
	opts = append(opts, c.config.connectOptions...)
	return &codecTransport{
		core:   c,
		binary: connecthttp.NewTransport(t, c.base.String(), opts...),
		json:   connecthttp.NewTransport(t, c.base.String(), append(opts, connecthttp.WithProtoJSON())...),
	}
}

// NewClientStream opens an RPC.
func (t *codecTransport) NewClientStream(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err // without a call
	}
	if t.core.jsonOnly.Load() {
		return t.open(ctx, t.json, spec)
	}
	if spec.StreamType == connect.StreamTypeClient {
		// Its messages are gone once sent, so the codec is settled beforehand.
		if err := t.settle(ctx); err != nil {
			return nil, err
		}
		if t.core.jsonOnly.Load() {
			return t.open(ctx, t.json, spec)
		}
	}
	stream, err := t.open(ctx, t.binary, spec)
	if err != nil || spec.StreamType == connect.StreamTypeClient {
		return stream, err
	}
	return &fallbackStream{ClientStream: stream, transport: t, ctx: ctx, spec: spec}, nil
}

func (t *codecTransport) open(ctx context.Context, via connect.Transport, spec connect.Spec) (connect.ClientStream, error) {
	stream, err := via.NewClientStream(ctx, spec)
	if err != nil {
		return nil, t.core.cleanConnectError(recode(ctx, err))
	}
	return &cleanStream{ClientStream: stream, core: t.core, ctx: ctx}, nil
}

// settle finds out which codec the server reads with a call that changes
// nothing.
func (t *codecTransport) settle(ctx context.Context) error {
	probe := processconnect.NewProcessClient(connect.NewClient(t))
	_, err := probe.List(ctx, nil)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil // the call itself will say what is wrong
}

// fallbackStream is a stream with one request message that is sent again in
// JSON when the server refuses to read it in binary.
type fallbackStream struct {
	connect.ClientStream
	transport *codecTransport
	ctx       context.Context
	spec      connect.Spec
	request   any
	settled   bool
}

func (s *fallbackStream) Send(msg any) error {
	s.request = msg
	return s.ClientStream.Send(msg)
}

func (s *fallbackStream) Receive(msg any) error {
	err := s.ClientStream.Receive(msg)
	request := s.request
	s.request = nil
	if s.settled || err == nil || !refusesBinary(err, s.spec) {
		s.settled = true
		return err
	}
	s.settled = true
	_ = s.ClientStream.Close()
	again, openErr := s.transport.open(s.ctx, s.transport.json, s.spec)
	if openErr != nil {
		return err
	}
	s.ClientStream = again
	if sendErr := errors.Join(again.Send(request), again.CloseSend()); sendErr != nil && !errors.Is(sendErr, io.EOF) {
		return sendErr
	}
	jsonErr := again.Receive(msg)
	if jsonErr != nil && refusesBinary(jsonErr, s.spec) {
		return jsonErr // JSON fares no better: it was not the codec
	}
	if jsonErr == nil || isRemote(jsonErr) {
		s.transport.core.jsonOnly.Store(true)
		s.transport.core.config.logger.InfoContext(s.ctx, "envd server does not read binary protobuf; speaking JSON from now on")
	}
	return jsonErr
}

// refusesBinary reports whether the answer is that of a server that could not
// read the request: 415, or a 400 that is not a verdict of the RPC itself. A
// Connect server never answers a stream with 400.
func refusesBinary(err error, spec connect.Spec) bool {
	if he, ok := errors.AsType[*HTTPError](err); ok {
		return he.StatusCode == http.StatusUnsupportedMediaType || he.StatusCode == http.StatusBadRequest
	}
	unary := spec.StreamType == connect.StreamTypeUnary
	return unary && isRemote(err) && connect.CodeOf(err) == connect.CodeInvalidArgument && hasText(err, "invalid character")
}

func isRemote(err error) bool {
	ce, ok := errors.AsType[*connect.Error](err)
	return ok && ce.IsRemote()
}

// cleanStream gives errors their true code, and keeps secrets, control
// characters and megabytes out of them.
type cleanStream struct {
	connect.ClientStream
	core *core
	ctx  context.Context
}

func (s *cleanStream) Send(msg any) error {
	return s.core.cleanConnectError(recode(s.ctx, s.ClientStream.Send(msg)))
}

func (s *cleanStream) Receive(msg any) error {
	return s.core.cleanConnectError(recode(s.ctx, s.ClientStream.Receive(msg)))
}

// recode gives an error that no server sent the code that it deserves.
// connect calls a reset connection canceled, as HTTP/2 does, though nobody
// canceled anything; a stream that broke in a frame internal; and an answer that
// it cannot read an invalid argument, though the argument was the server's.
func recode(ctx context.Context, err error) error {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok || ce == nil || ce.IsRemote() || ctx.Err() != nil || errors.Is(err, io.EOF) {
		return err
	}
	code := ce.Code()
	switch _, refused := errors.AsType[*requestError](err); {
	case refused:
		return err
	case code == connect.CodeCanceled && !errors.Is(err, context.Canceled):
		code = connect.CodeUnavailable
	case code == connect.CodeInvalidArgument:
		code = connect.CodeInternal
	case code == connect.CodeInternal || code == connect.CodeUnknown:
		if isBroken(err) {
			code = connect.CodeUnavailable
		}
	}
	if code == ce.Code() {
		return err
	}
	return connect.NewError(code, ce.Message()).WithCause(ce.Unwrap())
}

// cleanConnectError returns err, or a copy of it with a cleaned message.
func (c *core) cleanConnectError(err error) error {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok || ce == nil {
		return err
	}
	message := c.clean(ce.Message())
	if message == ce.Message() {
		return err
	}
	cleaned := connect.NewError(ce.Code(), message)
	for _, detail := range ce.Details() {
		cleaned = cleaned.WithDetail(detail)
	}
	if ce.IsRemote() {
		cleaned = cleaned.WithRemote()
	}
	return cleaned.WithCause(ce.Unwrap())
}
