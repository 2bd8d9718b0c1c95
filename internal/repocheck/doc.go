// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package repocheck holds what must be true of the repository as a whole: who
// imports whom, that texts and code agree. It has tests only.
package repocheck
