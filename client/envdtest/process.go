// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	processpb "github.com/envd-go/envd/gen/process"
)

// running is what carries a process out: an operating system or a Go function.
type running interface {
	// osPID is the pid that the operating system gave, or 0.
	osPID() int
	// outputs are read to their ends, each by one goroutine.
	outputs() []output
	// write feeds the input, and closeInput ends it. The caller sees to it that
	// there is one call at a time, except that closeInput may break a write.
	write([]byte) error
	closeInput() error
	resize(Size) error
	// signal delivers KILL or TERM.
	signal(signal) error
	// wait returns once the process itself is gone, whoever holds its outputs.
	wait() status
	// cutOutputs makes the outputs end with what was written already.
	cutOutputs()
	// killTree kills the process and those of its descendants that it can find.
	killTree()
}

type signal int

const (
	sigKill signal = 9
	sigTerm signal = 15
)

// outputKind says in which field of a data event output is sent.
type outputKind int

const (
	kindStdout outputKind = iota
	kindStderr
	kindPTY
)

// output is one of the streams that a process writes.
type output struct {
	kind outputKind
	read func([]byte) (int, error)
	size int // of the largest read
}

// status is how a process ended.
type status struct {
	code   int
	exited bool
	text   string
}

func (st status) event() *processpb.ProcessEvent {
	end := &processpb.ProcessEvent_EndEvent{
		ExitCode: int32(st.code),
		Exited:   st.exited,
		Status:   st.text,
	}
	if !st.exited || st.code != 0 {
		end.Error = &st.text
	}
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_End{End: end}}
}

// process is one that the server started and that has not ended yet.
type process struct {
	table  *table
	run    running
	pid    uint32
	config *processpb.ProcessConfig
	tag    *string
	pty    bool
	dir    string
	user   string

	input    chan struct{} // holds a token while input is written or closed
	open     bool          // input can be written; guarded by input
	timedOut atomic.Bool   // killed by its deadline
	stuck    atomic.Bool   // listed for ever, by a quirk
	deadline *time.Timer   // guarded by mu
	cutOnce  sync.Once
	cut      chan struct{} // closed when KILL or TERM came
	gone     chan struct{} // closed when the process itself is gone
	finished chan struct{} // closed when end is known

	mu         sync.Mutex
	subs       []*subscriber
	end        *processpb.ProcessEvent
	lastOutput time.Time
}

// subscriber is a stream that a process sends its events to.
type subscriber struct {
	events  chan *processpb.ProcessEvent
	left    chan struct{} // closed when it is gone
	pending atomic.Int32  // events that wait for it
}

// subscribe adds a stream. It returns nil if the process has ended.
func (p *process) subscribe() *subscriber {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return nil
	}
	sub := &subscriber{
		events: make(chan *processpb.ProcessEvent),
		left:   make(chan struct{}),
	}
	p.subs = append(p.subs, sub)
	return sub
}

// unsubscribe removes a stream and lets go of whoever waits for it. With the
// wedge quirk, one that leaves while output flows is left in its place, so
// that the output has nowhere to go.
func (p *process) unsubscribe(sub *subscriber) {
	defer p.table.srv.changes.notify()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wedgedBy(sub) {
		go func() {
			<-p.gone
			close(sub.left)
		}()
		return
	}
	p.subs = slices.DeleteFunc(p.subs, func(s *subscriber) bool { return s == sub })
	close(sub.left)
}

// outputFlows is how long after the last output a hang-up still wedges.
const outputFlows = 200 * time.Millisecond

func (p *process) wedgedBy(sub *subscriber) bool {
	if !p.table.srv.quirk(QuirkWedgeOnHangup) || p.end != nil {
		return false
	}
	return sub.pending.Load() > 0 || time.Since(p.lastOutput) < outputFlows
}

// supervise sees the process to its end. The end comes when nobody can write
// to the outputs any more and the process is gone, except that after a signal
// its being gone is enough.
func (p *process) supervise() {
	var readers sync.WaitGroup
	for _, out := range p.run.outputs() {
		readers.Go(func() { p.copyOutput(out) })
	}
	drained := make(chan struct{})
	go func() {
		readers.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-p.cut:
	}
	st := p.run.wait()
	close(p.gone)
	p.run.cutOutputs()
	<-drained
	p.finish(st)
}

// copyOutput sends what comes from an output to the subscribers of that time.
// Nobody attached means that it is lost.
func (p *process) copyOutput(out output) {
	buf := make([]byte, out.size)
	for {
		n, err := out.read(buf)
		if n > 0 {
			p.publish(p.dataEvent(out.kind, slices.Clone(buf[:n])))
		}
		if err != nil {
			return
		}
	}
}

func (p *process) dataEvent(kind outputKind, data []byte) *processpb.ProcessEvent {
	event := &processpb.ProcessEvent_DataEvent{}
	switch {
	case kind == kindPTY || p.table.srv.quirk(QuirkOutputInPTY):
		event.Output = &processpb.ProcessEvent_DataEvent_Pty{Pty: data}
	case kind == kindStderr:
		event.Output = &processpb.ProcessEvent_DataEvent_Stderr{Stderr: data}
	default:
		event.Output = &processpb.ProcessEvent_DataEvent_Stdout{Stdout: data}
	}
	return &processpb.ProcessEvent{Event: &processpb.ProcessEvent_Data{Data: event}}
}

// publish hands an event to each subscriber in turn and waits until it is
// taken: one that does not read holds up all the others.
func (p *process) publish(event *processpb.ProcessEvent) {
	p.mu.Lock()
	p.lastOutput = time.Now()
	subs := slices.Clone(p.subs)
	for _, sub := range subs {
		sub.pending.Add(1)
	}
	p.mu.Unlock()
	for _, sub := range subs {
		select {
		case sub.events <- event:
		case <-sub.left:
		}
		sub.pending.Add(-1)
	}
}

// finish makes the end known. The process is out of the table before anybody
// hears of its end.
func (p *process) finish(st status) {
	_ = p.run.closeInput()
	p.mu.Lock()
	p.end = st.event()
	if p.deadline != nil {
		p.deadline.Stop()
	}
	p.mu.Unlock()
	p.table.ended(p)
	close(p.finished)
	p.table.srv.changes.notify()
}

// signal delivers KILL or TERM; from then on the end waits for nobody but the
// process itself.
func (p *process) signal(sig signal) error {
	if err := p.run.signal(sig); err != nil {
		return err
	}
	p.cutOnce.Do(func() { close(p.cut) })
	return nil
}

// killAfter kills the process when its time is over.
func (p *process) killAfter(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return
	}
	p.deadline = time.AfterFunc(d, func() {
		p.timedOut.Store(true)
		_ = p.signal(sigKill)
	})
}

// leftPipes returns the pipes that descendants may hold: only after KILL or
// TERM does a process end before they are closed.
func (p *process) leftPipes() []uint64 {
	r, ok := p.run.(*realProcess)
	if !ok {
		return nil
	}
	select {
	case <-p.cut:
		return r.inodes
	default:
		return nil
	}
}

// kill ends the process, whatever it is doing.
func (p *process) kill() {
	select {
	case <-p.gone:
	default:
		p.run.killTree()
	}
	_ = p.run.closeInput()
	p.cutOnce.Do(func() { close(p.cut) })
}
