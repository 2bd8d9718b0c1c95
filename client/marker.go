// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// StartMarker is a variable with a random value that each command gets in its
// environment. By it a command is found again in the list of processes when the
// answer of its start was lost, and by it a command's descendants are found for
// [Cmd.KillTree]. A tag would not do: daemons up to 0.6.13 lose the tags of
// others as soon as two are in use. [WithoutStartMarker] leaves it out.
const StartMarker = "ENVD_START_ID"

// startMarker is the value of StartMarker. Its first letter says how the
// command was started.
type startMarker string

func newStartMarker(tree bool) startMarker {
	var random [12]byte
	rand.Read(random[:]) //nolint:errcheck // it never fails
	kind := "p"
	if tree {
		kind = "t"
	}
	return startMarker(kind + hex.EncodeToString(random[:]))
}

// tree reports whether the command leads a session of its own.
func (m startMarker) tree() bool { return strings.HasPrefix(string(m), "t") }
