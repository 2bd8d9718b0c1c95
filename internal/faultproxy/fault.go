// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// Fault is what happens to a request and its answer. An error means that the
// connection is of no more use.
type Fault func(*exchange) error

// Pass forwards the request and the answer as they are.
func Pass(x *exchange) error {
	if err := x.forward(); err != nil {
		return err
	}
	if err := x.head(false); err != nil {
		return err
	}
	if err := x.pieces(func(p piece) error { return x.write(p.data) }); err != nil {
		return err
	}
	return x.end()
}

// Point is a place in an answer.
type Point int

const (
	// BeforeRequest is before the server got the request.
	BeforeRequest Point = iota
	// BeforeHead is after the server began to answer and before the first byte of
	// it is passed on.
	BeforeHead
	// AfterHead is before the first byte of the body.
	AfterHead
	// AfterStart is after the first frame.
	AfterStart
	// MidFrame is in the middle of the first frame after that, or of a body
	// without frames.
	MidFrame
	// BetweenFrames is after that frame.
	BetweenFrames
	// AfterKeepalive is after the first keepalive.
	AfterKeepalive
	// AfterEnd is after the end event, before the end of the stream.
	AfterEnd
)

// Break is what becomes of a connection.
type Break int

const (
	// Cut closes it.
	Cut Break = iota
	// Reset closes it so that the other side gets an error instead of an end.
	Reset
	// HalfClose ends what is sent and still reads.
	HalfClose
	// Silence leaves it open and sends nothing more.
	Silence
)

var errBroken = errors.New("faultproxy: broken on purpose")

// BreakAt breaks the connection at a point of the answer. The server loses its
// side of it when the client gives up.
func BreakAt(at Point, how Break) Fault {
	return func(x *exchange) error {
		if at == BeforeRequest {
			return x.breakOff(how)
		}
		if err := x.forward(); err != nil {
			return err
		}
		if at == BeforeHead {
			return x.breakOff(how)
		}
		if err := x.head(false); err != nil {
			return err
		}
		if at == AfterHead {
			return x.breakOff(how)
		}
		frames := 0
		err := x.pieces(func(p piece) error {
			frames++
			here := frames == 1 && p.kind == kindBytes || frames == 2
			if at == MidFrame && here {
				if err := x.write(p.data[:(len(p.data)+1)/2]); err != nil {
					return err
				}
				return x.breakOff(how)
			}
			if err := x.write(p.data); err != nil {
				return err
			}
			if at == AfterStart && frames == 1 || at == BetweenFrames && here ||
				at == AfterKeepalive && p.kind == kindKeepalive || at == AfterEnd && p.kind == kindEnd {
				return x.breakOff(how)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return x.end()
	}
}

// breakOff breaks the connection to the client.
func (x *exchange) breakOff(how Break) error {
	x.broken = true
	switch how {
	case Reset:
		_ = x.client.SetLinger(0)
		x.client.Close()
	case HalfClose:
		_ = x.client.CloseWrite()
		x.awaitClient()
	case Silence:
		x.awaitClient()
	default:
		// What the client still sends must not turn the end into a reset.
		_ = x.client.CloseWrite()
		_ = x.client.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		x.awaitClient()
		x.client.Close()
	}
	return errBroken
}

// awaitClient waits until the client hangs up.
func (x *exchange) awaitClient() {
	if x.quiet == nil {
		_, _ = io.Copy(io.Discard, x.in)
		return
	}
	<-x.quiet
}

// Answer answers by itself; the server never sees the request.
func Answer(status int, header http.Header, body string) Fault {
	return func(x *exchange) error {
		x.response = &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: int64(len(body))}
		maps.Copy(x.response.Header, header)
		if err := x.head(false); err != nil {
			return err
		}
		if err := x.write([]byte(body)); err != nil {
			return err
		}
		return x.end()
	}
}

// SlowDown passes everything on in pieces of at most step bytes, each after a
// wait; a step of 0 leaves the pieces as they are.
func SlowDown(wait time.Duration, step int) Fault {
	return func(x *exchange) error {
		if x.step = step; wait > 0 {
			x.slow = func() { x.sleep(wait) }
		}
		return Pass(x)
	}
}

// PauseAt pauses the whole proxy for so long, as soon as the answer has come to
// its first frame or to the body.
func PauseAt(d time.Duration) Fault {
	return func(x *exchange) error {
		if err := x.forward(); err != nil {
			return err
		}
		if err := x.head(false); err != nil {
			return err
		}
		frames := 0
		err := x.pieces(func(p piece) error {
			if frames++; frames == 2 || p.kind == kindBytes {
				x.proxy.Pause(d)
			}
			return x.write(p.data)
		})
		if err != nil {
			return err
		}
		return x.end()
	}
}

// rewrite passes each piece of the answer through change. What change returns
// is sent instead; with stop the answer ends there, tidily.
func rewrite(change func(p piece) (out [][]byte, stop bool)) Fault {
	return func(x *exchange) error {
		if err := x.forward(); err != nil {
			return err
		}
		if err := x.head(true); err != nil {
			return err
		}
		errStop := errors.New("stop")
		err := x.pieces(func(p piece) error {
			out, stop := change(p)
			for _, data := range out {
				if err := x.write(data); err != nil {
					return err
				}
			}
			if stop {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			return err
		}
		return x.end()
	}
}

// once makes a fault of a change that strikes at the first piece of the kind. A
// body without frames counts as data.
func once(at kind, change func(p piece) (out [][]byte, stop bool)) Fault {
	return func(x *exchange) error {
		struck := false
		return rewrite(func(p piece) ([][]byte, bool) {
			if struck || p.kind != at && (p.kind != kindBytes || at != kindData) {
				return [][]byte{p.data}, false
			}
			struck = true
			return change(p)
		})(x)
	}
}

// Truncate leaves out the last byte of the first data frame or of the body, and
// ends the answer there as if it were complete.
func Truncate(x *exchange) error {
	return once(kindData, func(p piece) ([][]byte, bool) { return [][]byte{p.data[:len(p.data)-1]}, true })(x)
}

// Corrupt overwrites the content of the first data frame, or the body.
func Corrupt(x *exchange) error {
	return once(kindData, func(p piece) ([][]byte, bool) {
		content := p.data
		if p.kind != kindBytes {
			content = content[frameHead:]
		}
		for i := range content {
			content[i] = 0xff
		}
		return [][]byte{p.data}, false
	})(x)
}

// HugeLength says in the head of the first data frame that 4 GiB follow.
func HugeLength(x *exchange) error {
	return once(kindData, func(p piece) ([][]byte, bool) {
		if p.kind != kindBytes {
			copy(p.data[1:], "\xff\xff\xff\xff")
		}
		return [][]byte{p.data}, false
	})(x)
}

// Bomb puts a compressed frame, or body, of so many zeros in the place of the
// first data.
func Bomb(size int) Fault {
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	_, _ = io.CopyN(zw, zeros{}, int64(size))
	zw.Close()
	return func(x *exchange) error {
		// What the server sends must be readable here.
		x.request.Header.Del("Connect-Accept-Encoding")
		x.request.Header.Set("Accept-Encoding", "identity")
		if err := x.forward(); err != nil {
			return err
		}
		name := "Content-Encoding"
		if x.streaming() {
			name = "Connect-Content-Encoding"
		}
		x.response.Header.Set(name, "gzip")
		if err := x.head(true); err != nil {
			return err
		}
		struck := false
		err := x.pieces(func(p piece) error {
			switch {
			case struck && p.kind == kindBytes:
				return nil
			case struck || p.kind != kindData && p.kind != kindBytes:
				return x.write(p.data)
			}
			struck = true
			if p.kind == kindBytes {
				return x.write(packed.Bytes())
			}
			return x.write(newFrame(flagGzip, packed.Bytes()))
		})
		if err != nil {
			return err
		}
		return x.end()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TwoEndStreams sends the last frame of a stream twice.
func TwoEndStreams(x *exchange) error {
	return once(kindEndStream, func(p piece) ([][]byte, bool) { return [][]byte{p.data, p.data}, false })(x)
}

// NoEndStream leaves the last frame of a stream out.
func NoEndStream(x *exchange) error {
	return once(kindEndStream, func(piece) ([][]byte, bool) { return nil, false })(x)
}

// NoStart leaves the start event out.
func NoStart(x *exchange) error {
	return once(kindStart, func(piece) ([][]byte, bool) { return nil, false })(x)
}

// NoEnd leaves the end event out.
func NoEnd(x *exchange) error {
	return once(kindEnd, func(piece) ([][]byte, bool) { return nil, false })(x)
}

// EndOnly sends no event but the end.
func EndOnly(x *exchange) error {
	return rewrite(func(p piece) ([][]byte, bool) {
		if p.kind == kindStart || p.kind == kindData {
			return nil, false
		}
		return [][]byte{p.data}, false
	})(x)
}

// TwoStarts sends the start event twice.
func TwoStarts(x *exchange) error {
	return once(kindStart, func(p piece) ([][]byte, bool) { return [][]byte{p.data, p.data}, false })(x)
}

// DataAfterEnd sends the first data again after the end event.
func DataAfterEnd(x *exchange) error {
	var data []byte
	return rewrite(func(p piece) ([][]byte, bool) {
		switch {
		case p.kind == kindData && data == nil:
			data = bytes.Clone(p.data)
		case p.kind == kindEnd && data != nil:
			return [][]byte{p.data, data}, false
		}
		return [][]byte{p.data}, false
	})(x)
}

// FailedAfterEnd ends the stream with an error although the end event came.
func FailedAfterEnd(x *exchange) error {
	return once(kindEndStream, func(piece) ([][]byte, bool) {
		return [][]byte{newFrame(flagEndStream, []byte(`{"error":{"code":"internal","message":"late trouble"}}`))}, false
	})(x)
}

// Newer adds fields that no client knows yet, as a newer daemon does, and gives
// enumerations values that have no name yet.
func Newer(x *exchange) error {
	return rewrite(func(p piece) ([][]byte, bool) {
		switch {
		case p.kind == kindBytes && strings.HasPrefix(x.response.Header.Get("Content-Type"), "application/"):
			if x.response.StatusCode != http.StatusOK || x.response.Header.Get("Content-Type") == "application/octet-stream" {
				return [][]byte{p.data}, false
			}
			return [][]byte{newerMessage(p.data)}, false
		case p.kind == kindBytes:
			return [][]byte{p.data}, false
		default:
			return [][]byte{newFrame(p.data[0], newerMessage(p.data[frameHead:]))}, false
		}
	})(x)
}

// newerMessage adds to one message. Binary ones get field 1000, a string.
func newerMessage(message []byte) []byte {
	text, isObject := bytes.CutPrefix(message, []byte("{"))
	if !isObject {
		if bytes.HasPrefix(message, []byte("[")) {
			return message
		}
		return append(bytes.Clone(message), 0xc2, 0x3e, 3, 'n', 'e', 'w')
	}
	added := `{"addedLater":{"list":[1,"two",null]}`
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("}")) {
		added += ","
	}
	return bytes.ReplaceAll(append([]byte(added), text...), []byte(`"FILE_TYPE_FILE"`), []byte(`"FILE_TYPE_ADDED_LATER"`))
}

// String names a point in test output.
func (p Point) String() string {
	names := []string{"before the request", "before the header", "after the header", "after the start event", "in a frame", "between frames", "after a keepalive", "after the end event"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("point %d", int(p))
}

// String names a break in test output.
func (b Break) String() string {
	names := []string{"cut", "reset", "half-closed", "silent"}
	if int(b) < len(names) {
		return names[b]
	}
	return fmt.Sprintf("break %d", int(b))
}

// Mix lets a share of the requests, between 0 and 1, meet one of the faults each
// and passes the others on.
func Mix(share float64, faults ...Fault) Fault {
	return func(x *exchange) error {
		if rand.Float64() < share {
			return faults[rand.IntN(len(faults))](x)
		}
		return Pass(x)
	}
}
