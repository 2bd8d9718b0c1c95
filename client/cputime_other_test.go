// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package client_test

import "time"

// processorTime is not known here.
func processorTime() time.Duration { return 0 }
