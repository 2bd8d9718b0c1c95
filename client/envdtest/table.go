// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect/v2"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

// retention is how long the end of a process is kept for Connect.
const retention = 30 * time.Second

// table knows the processes of a server.
type table struct {
	srv *Server

	mu      sync.Mutex
	running []*process // in the order in which they were started
	orphans []*process // forgotten in a crash, still to be killed
	kept    []*keptExit
	nextPID uint32
	closed  bool

	leftPipes []uint64 // that descendants of ended processes may still hold

	functions sync.WaitGroup // command functions that have not returned
}

// keptExit is the end of a process that is gone.
type keptExit struct {
	pid   uint32
	tag   *string
	end   *processpb.ProcessEvent
	timer *time.Timer
}

func newTable(s *Server) *table {
	return &table{srv: s, nextPID: s.cfg.dialect.firstPID()}
}

// add takes the process in, gives it its pid and looks after it from then on.
// It reports false, and kills the process, if the server is closed.
func (t *table) add(p *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.pid = uint32(p.run.osPID())
	if p.pid == 0 || t.srv.cfg.dialect.countsPIDs() {
		p.pid = t.nextPID
		t.nextPID++
	}
	t.srv.workers.Go(p.supervise)
	if t.closed {
		p.kill()
		return false
	}
	t.running = append(t.running, p)
	t.drop(func(k *keptExit) bool { return k.pid == p.pid || sameTag(k.tag, p.tag) })
	return true
}

// drop forgets kept ends. The caller holds the lock.
func (t *table) drop(old func(*keptExit) bool) {
	t.kept = slices.DeleteFunc(t.kept, func(k *keptExit) bool {
		if !old(k) {
			return false
		}
		k.timer.Stop()
		return true
	})
}

// ended takes the process out, and keeps its end where the version does.
func (t *table) ended(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leftPipes = append(t.leftPipes, p.leftPipes()...)
	same := func(q *process) bool { return q == p }
	t.orphans = slices.DeleteFunc(t.orphans, same)
	if p.stuck.Load() {
		return
	}
	before := len(t.running)
	t.running = slices.DeleteFunc(t.running, same)
	if len(t.running) == before || t.closed || !t.keeps() {
		return
	}
	k := &keptExit{pid: p.pid, tag: p.tag, end: p.end}
	k.timer = time.AfterFunc(retention, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.drop(func(old *keptExit) bool { return old == k })
	})
	t.kept = append(t.kept, k)
}

func (t *table) keeps() bool {
	return t.srv.cfg.version.Has(envdversion.ExitRetention) || t.srv.quirk(QuirkConnectHang)
}

// list returns the running processes, oldest first.
func (t *table) list() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.running)
}

// find returns the process that a selector means.
func (t *table) find(selector *processpb.ProcessSelector) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.search(selector)
	if p == nil && err == nil {
		err = notFound(selector)
	}
	return p, err
}

// attach returns the process that a selector means, or else its kept end.
func (t *table) attach(selector *processpb.ProcessSelector) (*process, *keptExit, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, err := t.search(selector)
	if p != nil || err != nil {
		return p, nil, err
	}
	for _, k := range slices.Backward(t.kept) {
		if matches(selector, k.pid, k.tag) {
			return nil, k, nil
		}
	}
	return nil, nil, notFound(selector)
}

// search looks among the running processes. The caller holds the lock.
func (t *table) search(selector *processpb.ProcessSelector) (*process, error) {
	if selector.GetSelector() == nil {
		return nil, connect.Errorf(connect.CodeUnimplemented, "invalid input type %T", selector)
	}
	_, byTag := selector.GetSelector().(*processpb.ProcessSelector_Tag)
	for _, p := range t.running {
		if matches(selector, p.pid, p.tag) {
			return p, nil
		}
		if byTag && p.tag != nil && t.srv.quirk(QuirkTagLookup) {
			return nil, nil
		}
	}
	return nil, nil
}

func matches(selector *processpb.ProcessSelector, pid uint32, tag *string) bool {
	switch s := selector.GetSelector().(type) {
	case *processpb.ProcessSelector_Pid:
		return s.Pid == pid
	case *processpb.ProcessSelector_Tag:
		return sameTag(&s.Tag, tag)
	}
	return false
}

func sameTag(a, b *string) bool { return a != nil && b != nil && *a == *b }

func notFound(selector *processpb.ProcessSelector) error {
	if tag, ok := selector.GetSelector().(*processpb.ProcessSelector_Tag); ok {
		return connect.Errorf(connect.CodeNotFound, "process with tag %s not found", tag.Tag)
	}
	return connect.Errorf(connect.CodeNotFound, "process with pid %d not found", selector.GetPid())
}

// forget lets go of all processes without ending them.
func (t *table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.orphans = append(t.orphans, t.running...)
	t.running = nil
	t.drop(func(*keptExit) bool { return true })
}

// close kills all processes and takes no more.
func (t *table) close() {
	t.mu.Lock()
	t.closed = true
	all := slices.Concat(t.running, t.orphans)
	t.drop(func(*keptExit) bool { return true })
	pipes := t.leftPipes
	t.mu.Unlock()
	for _, p := range all {
		p.kill()
	}
	if len(pipes) > 0 {
		killAll(descendants(0, pipes))
	}
}

// waitFunctions waits until all command functions have returned, but not for
// ever: one that ignores its context cannot be stopped.
func (t *table) waitFunctions(limit time.Duration) {
	done := make(chan struct{})
	go func() {
		t.functions.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
