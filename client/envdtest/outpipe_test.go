// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"runtime"
	"sync"
	"testing"
)

// Once a write has come back the buffer is the writer's again, also when a
// close in the moment of the read is what ended it. The race detector judges.
func TestOutputPipeClosedWhileRead(t *testing.T) {
	for i := range 2000 {
		p := newOutputPipe(1 << 10)
		data, buf := make([]byte, 1<<10), make([]byte, 1<<10)
		var all sync.WaitGroup
		all.Go(func() {
			_, _ = p.Write(data)
			data[0]++
		})
		all.Go(func() { _, _ = p.Read(buf) })
		all.Go(func() {
			for range i % 50 { // before, in and after the read
				runtime.Gosched()
			}
			p.close()
		})
		all.Wait()
	}
}
