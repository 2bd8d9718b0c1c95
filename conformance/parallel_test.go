// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"testing"
)

// What a case does at the same time has to be over before it is cleaned up.
func TestParallelWaitsForAll(t *testing.T) {
	c := &T{shared: &shared{}}
	failed, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var slow bool // the race detector finds a reader that did not wait
	go func() {
		defer close(ended)
		c.parallel(2, func(i int) error {
			if i == 0 {
				close(failed)
				return errors.New("the first one failed")
			}
			<-release
			slow = true
			c.Fatalf("and so did the second")
			return nil
		})
	}()
	<-failed
	select {
	case <-ended:
		t.Fatal("the case went on while a call was under way")
	default:
	}
	close(release)
	<-ended
	if !slow || c.shared.failure != "and so did the second" {
		t.Errorf("the second call came back: %v; failure %q", slow, c.shared.failure)
	}
}
