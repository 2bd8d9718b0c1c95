// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"io"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	processpb "github.com/envd-go/envd/gen/process"
)

// limitedBuffer keeps what is written to it up to a limit, and then fails.
type limitedBuffer struct {
	mu    sync.Mutex
	data  []byte
	limit int64
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := b.limit - int64(len(b.data))
	if int64(len(p)) <= room {
		b.data = append(b.data, p...)
		return len(p), nil
	}
	b.data = append(b.data, p[:room]...)
	return int(room), ErrOutputLimit
}

func (b *limitedBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data
}

// tail keeps the last bytes that were written to it.
type tail struct {
	data []byte
	size int
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.size {
		p = p[len(p)-t.size:]
	}
	if over := len(t.data) + len(p) - t.size; over > 0 {
		t.data = t.data[:copy(t.data, t.data[over:])]
	}
	t.data = append(t.data, p...)
	return n, nil
}

// outputPipe is one output of a command on its way to a reader. A writer waits
// while more than pipeSize bytes are unread. It differs from io.Pipe in that
// what was written can still be read after the end, so that Wait does not
// depend on the reader for short outputs.
type outputPipe struct {
	mu       sync.Mutex
	changed  sync.Cond
	data     []byte
	writeErr error // what readers get at the end
	ended    bool
	closed   bool // by the reader
	released bool // writers need not wait any more
}

// pipeSize is the capacity of a pipe in Linux.
const pipeSize = 64 << 10

func newOutputPipe() *outputPipe {
	p := &outputPipe{}
	p.changed.L = &p.mu
	return p
}

// Write waits for room and adds data. Once the reader has closed the pipe it
// throws the data away, since the command goes on.
func (p *outputPipe) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) >= pipeSize && !p.closed && !p.ended && !p.released {
		p.changed.Wait()
	}
	if len(p.data) < pipeSize && !p.closed && !p.ended {
		p.data = append(p.data, data...)
		p.changed.Broadcast()
	}
	return len(data), nil
}

// Read waits for data and returns it, or the end.
func (p *outputPipe) Read(buf []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(buf) == 0 {
		return 0, nil
	}
	for len(p.data) == 0 && !p.ended && !p.closed {
		p.changed.Wait()
	}
	if p.closed {
		return 0, io.ErrClosedPipe
	}
	if len(p.data) == 0 {
		return 0, p.writeErr
	}
	n := copy(buf, p.data)
	p.data = p.data[n:]
	p.changed.Broadcast()
	return n, nil
}

// Close throws away what is unread and all that comes.
func (p *outputPipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.data = true, nil
	p.changed.Broadcast()
	return nil
}

// release lets writers go on although nobody reads, as the operating system
// does to a command whose pipe is gone: what does not fit any more is lost.
func (p *outputPipe) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	p.changed.Broadcast()
}

// closeWrite ends the output; nil means a clean end.
func (p *outputPipe) closeWrite(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if err == nil {
		err = io.EOF
	}
	p.ended, p.writeErr = true, err
	p.changed.Broadcast()
}

const (
	// stderrTailSize is how much of an uncaptured standard error is kept.
	stderrTailSize = 32 << 10
	// sampleSize is how much of the first output is kept, to see whether it is
	// only a complaint that the command does not exist.
	sampleSize = 4 << 10
)

// output passes on what a command writes. It is used by one goroutine, save for
// the clocks.
type output struct {
	stdout, stderr io.Writer
	tail           *tail // of stderr, where nobody captures it
	pty            bool

	failed bool
	total  int64
	plain  int64 // bytes of standard output that are no terminal's
	sample []byte

	eventCount atomic.Int64
	busy       atomic.Bool // in the caller's writer
	lastOutput clock
	lastSign   clock
}

func (o *output) init(c *Cmd) {
	o.stdout, o.stderr, o.pty = c.Stdout, c.Stderr, c.PTY != nil
	if o.stderr == nil && !o.pty {
		o.tail = &tail{size: stderrTailSize}
		o.stderr = o.tail
	}
	o.touch()
}

// touch says that there was output.
func (o *output) touch() {
	o.lastOutput.set()
	o.sign()
}

// sign says that there was a sign of life.
func (o *output) sign() {
	o.lastSign.set()
	o.eventCount.Add(1)
}

// silence is how long there was no output, not counting a slow writer's time.
func (o *output) silence() time.Duration {
	if o.busy.Load() {
		return 0
	}
	return o.lastOutput.since()
}

// quiet is how long there was no sign of life at all.
func (o *output) quiet() time.Duration {
	if o.busy.Load() {
		return 0
	}
	return o.lastSign.since()
}

func (o *output) events() int64 { return o.eventCount.Load() }

// write passes on one data event. Output of a plain process that arrives as
// pty data, as one vendor's daemon sends it, is standard output.
func (o *output) write(data *processpb.ProcessEvent_DataEvent) error {
	var w io.Writer
	var p []byte
	switch out := data.GetOutput().(type) {
	case *processpb.ProcessEvent_DataEvent_Stdout:
		w, p = o.stdout, out.Stdout
		o.plain += int64(len(p))
	case *processpb.ProcessEvent_DataEvent_Stderr:
		w, p = o.stderr, out.Stderr
	case *processpb.ProcessEvent_DataEvent_Pty:
		w, p = o.stdout, out.Pty
	default:
		return nil
	}
	if o.total += int64(len(p)); o.total <= sampleSize {
		o.sample = append(o.sample, p...)
	}
	o.lastOutput.set()
	if w == nil || o.failed || len(p) == 0 {
		return nil
	}
	o.busy.Store(true)
	n, err := w.Write(p)
	o.touch()
	o.busy.Store(false)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	o.failed = err != nil
	return err
}

func (o *output) stderrTail() []byte {
	if o.tail == nil {
		return nil
	}
	return o.tail.data
}

// onlyNotFound reports whether all that came is one line that says that the
// program does not exist, from whatever the daemon or KillTree put in front of
// it.
func (o *output) onlyNotFound(path string) bool {
	if o.plain > 0 || o.total > sampleSize {
		return false
	}
	text := strings.TrimSpace(string(o.sample))
	if text == "" {
		return true
	}
	if strings.Contains(text, "\n") {
		return false
	}
	missing := strings.HasSuffix(text, "No such file or directory") || strings.HasSuffix(text, "not found")
	return missing && strings.Contains(text, path) && launcherText.MatchString(text)
}

// launcherText matches the complaints of the programs that start a command:
// envd's own wrapper, and setsid for KillTree.
var launcherText = regexp.MustCompile(`^(\S*/)?(nice|ionice|setsid|sh): `)
