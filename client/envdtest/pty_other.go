// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package envdtest

import (
	"errors"
	"os"
)

func (r *realProcess) startPTY(Size) error { return errors.ErrUnsupported }

func setSize(*os.File, Size) error { return errors.ErrUnsupported }
