// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
)

// wireErrors makes what the connect library says of a broken request into what
// the library of the daemons says, which is an older major of it.
func wireErrors(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
		return next(ctx, spec, wireStream{stream})
	}
}

type wireStream struct{ connect.ServerStream }

func (s wireStream) Receive(msg any) error {
	err := s.ServerStream.Receive(msg)
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	if rest, ok := strings.CutPrefix(e.Message(), "unmarshal message: proto:"); ok {
		name := msg.(proto.Message).ProtoReflect().Descriptor().FullName()
		return connect.Errorf(e.Code(), "unmarshal message: unmarshal into *%s: proto:%s", name, rest)
	}
	if strings.HasPrefix(e.Message(), "protocol error: promised ") {
		return connect.NewError(connect.CodeInvalidArgument, e.Message())
	}
	return err
}
