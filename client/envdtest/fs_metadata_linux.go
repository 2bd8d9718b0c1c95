// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"bytes"
	"strings"

	"golang.org/x/sys/unix"
)

// setAttributes replaces the metadata among a file's extended attributes, and
// reports whether the filesystem can hold it.
func setAttributes(host string, metadata map[string]string) bool {
	for key := range attributes(host) {
		_ = unix.Removexattr(host, attributePrefix+key)
	}
	for key, value := range metadata {
		if unix.Setxattr(host, attributePrefix+key, []byte(value), 0) != nil {
			return false
		}
	}
	return true
}

// attributes returns the metadata among a file's extended attributes.
func attributes(host string) map[string]string {
	size, err := unix.Listxattr(host, nil)
	if err != nil || size == 0 {
		return nil
	}
	list := make([]byte, size)
	if size, err = unix.Listxattr(host, list); err != nil {
		return nil
	}
	found := map[string]string{}
	for name := range bytes.SplitSeq(list[:size], []byte{0}) {
		key, ok := strings.CutPrefix(string(name), attributePrefix)
		if !ok {
			continue
		}
		value := make([]byte, 4096)
		n, err := unix.Getxattr(host, string(name), value)
		if err == nil {
			found[key] = string(value[:n])
		}
	}
	return found
}
