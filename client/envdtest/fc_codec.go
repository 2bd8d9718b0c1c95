// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"

	"connectrpc.com/connect/v2/connectproto"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

// numberCodec writes JSON as the FC dialect does: enums and sizes are numbers,
// and an empty listing has an empty list.
type numberCodec struct{ *connectproto.JSONCodec }

func newNumberCodec() numberCodec {
	codec := connectproto.NewJSONCodec()
	codec.MarshalOptions.UseEnumNumbers = true
	return numberCodec{codec}
}

var sizeText = regexp.MustCompile(`("size":\s*)"(\d+)"`)

// MarshalWrite encodes one message.
func (c numberCodec) MarshalWrite(ctx context.Context, dst io.Writer, msg any) error {
	if list, ok := msg.(*filesystempb.ListDirResponse); ok && len(list.GetEntries()) == 0 {
		_, err := io.WriteString(dst, `{"entries":[]}`)
		return err
	}
	var text bytes.Buffer
	if err := c.JSONCodec.MarshalWrite(ctx, &text, msg); err != nil {
		return err
	}
	data := text.Bytes()
	switch msg.(type) {
	case *filesystempb.ListDirResponse, *filesystempb.StatResponse, *filesystempb.MoveResponse, *filesystempb.MakeDirResponse:
		data = sizeText.ReplaceAll(data, []byte("$1$2"))
	}
	_, err := dst.Write(data)
	return err
}

// writer makes the answer to Stat of a missing path an empty 404, as the FC
// dialect has it.
func (d Dialect) writer(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if d != FC || !strings.HasSuffix(r.URL.Path, "/filesystem.Filesystem/Stat") {
		return w
	}
	return &emptyNotFound{ResponseWriter: w}
}

type emptyNotFound struct {
	http.ResponseWriter
	missing bool
}

func (e *emptyNotFound) WriteHeader(status int) {
	if e.missing = status == http.StatusNotFound; e.missing {
		e.Header().Del("Content-Type")
		e.Header().Del("Content-Length")
	}
	e.ResponseWriter.WriteHeader(status)
}

func (e *emptyNotFound) Write(p []byte) (int, error) {
	if e.missing {
		return len(p), nil
	}
	return e.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] reach the writer below.
func (e *emptyNotFound) Unwrap() http.ResponseWriter { return e.ResponseWriter }
