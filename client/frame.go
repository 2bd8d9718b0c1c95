// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/binary"
	"fmt"
	"io"

	"connectrpc.com/connect/v2"
)

// frameGuard reads a stream of frames and ends it at the head of one that is
// over the limit. connect refuses such a frame too, but only after it has read
// and thrown away as many bytes as the head announces, 4 GiB if need be.
type frameGuard struct {
	io.ReadCloser
	limit int64

	head  [5]byte
	have  int   // bytes of head
	left  int64 // bytes of the frame that are still to come
	large error
}

// Read reads a part of one frame at most.
func (g *frameGuard) Read(p []byte) (int, error) {
	if g.large != nil {
		return 0, g.large
	}
	if g.left > 0 {
		n, err := g.ReadCloser.Read(p[:min(int64(len(p)), g.left)])
		g.left -= int64(n)
		return n, err
	}
	n, err := g.ReadCloser.Read(p[:min(len(p), len(g.head)-g.have)])
	copy(g.head[g.have:], p[:n])
	if g.have += n; g.have < len(g.head) {
		return n, err
	}
	g.have, g.left = 0, int64(binary.BigEndian.Uint32(g.head[1:]))
	if g.left <= g.limit {
		return n, err
	}
	g.large = connect.NewError(connect.CodeResourceExhausted,
		fmt.Sprintf("message of %d bytes is larger than the limit of %d", g.left, g.limit))
	return n - 1, g.large // not the whole head, so that the error is seen
}
