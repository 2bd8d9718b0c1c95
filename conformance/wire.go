// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

func wireCases() []Case { return nil }
