// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
)

// kind is what a piece of an answer is.
type kind int

const (
	kindBytes kind = iota // of a body without frames
	kindStart
	kindData
	kindEnd
	kindKeepalive
	kindEndStream
	kindOther
)

// piece is a frame with its head, or bytes of a body without frames.
type piece struct {
	kind kind
	data []byte
}

const (
	frameHead     = 5
	flagGzip      = 1
	flagEndStream = 2
	// maxFrame is far more than any frame of a test.
	maxFrame = 64 << 20
)

func readFrame(r io.Reader) (piece, error) {
	head := make([]byte, frameHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return piece{}, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxFrame {
		return piece{}, io.ErrShortBuffer
	}
	data := append(head, make([]byte, size)...)
	if _, err := io.ReadFull(r, data[frameHead:]); err != nil {
		return piece{}, io.ErrUnexpectedEOF
	}
	return piece{kind: kindOf(data), data: data}, nil
}

func newFrame(flags byte, payload []byte) []byte {
	frame := make([]byte, frameHead, frameHead+len(payload))
	frame[0] = flags
	binary.BigEndian.PutUint32(frame[1:], uint32(len(payload)))
	return append(frame, payload...)
}

// payloadOf returns what a frame carries, unpacked.
func payloadOf(frame []byte) []byte {
	payload := frame[frameHead:]
	if frame[0]&flagGzip == 0 {
		return payload
	}
	zr, err := gzip.NewReader(bytes.NewReader(payload))
	if err != nil {
		return nil
	}
	unpacked, err := io.ReadAll(io.LimitReader(zr, maxFrame))
	if err != nil {
		return nil
	}
	return unpacked
}

// eventKinds are the fields of an event, by number and by name.
var eventKinds = []struct {
	number byte
	name   string
	kind   kind
}{{1, "start", kindStart}, {2, "data", kindData}, {3, "end", kindEnd}, {4, "keepalive", kindKeepalive}}

// kindOf looks which event a frame carries.
func kindOf(frame []byte) kind {
	if frame[0]&flagEndStream != 0 {
		return kindEndStream
	}
	payload := payloadOf(frame)
	if bytes.HasPrefix(payload, []byte("{")) {
		return kindOfJSON(payload)
	}
	// The event is field 1 of the message, and what happened a field of it.
	if len(payload) < 2 || payload[0] != 1<<3|2 {
		return kindOther
	}
	_, n := binary.Uvarint(payload[1:])
	if n <= 0 || len(payload) < 2+n {
		return kindOther
	}
	for _, e := range eventKinds {
		if payload[1+n] == e.number<<3|2 {
			return e.kind
		}
	}
	return kindOther
}

// watchKinds are the fields of a watch's message, which has no event around it.
var watchKinds = []struct {
	number byte
	name   string
	kind   kind
}{{1, "start", kindStart}, {2, "filesystem", kindData}, {3, "keepalive", kindKeepalive}}

// kindOfWatch is kindOf for the frames of WatchDir.
func kindOfWatch(frame []byte) kind {
	if frame[0]&flagEndStream != 0 {
		return kindEndStream
	}
	payload := payloadOf(frame)
	var message map[string]json.RawMessage
	isJSON := json.Unmarshal(payload, &message) == nil
	for _, w := range watchKinds {
		_, named := message[w.name]
		if isJSON && named || !isJSON && len(payload) > 0 && payload[0] == w.number<<3|2 {
			return w.kind
		}
	}
	return kindOther
}

func kindOfJSON(payload []byte) kind {
	var message struct {
		Event map[string]json.RawMessage `json:"event"`
	}
	if json.Unmarshal(payload, &message) != nil {
		return kindOther
	}
	for _, e := range eventKinds {
		if _, ok := message.Event[e.name]; ok {
			return e.kind
		}
	}
	return kindOther
}
