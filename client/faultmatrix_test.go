// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
	"github.com/envd-go/envd/internal/faultproxy"

	filesystempb "github.com/envd-go/envd/gen/filesystem"
)

// The kinds of calls that meet a fault alike.
const (
	kindCommand  = "command" // Start, and what comes on its stream
	kindInput    = "input"   // what a Cmd's Stdin sends
	kindInputEnd = "input end"
	kindAttach   = "attach"
	kindWatch    = "watch"
	kindRead     = "read" // RPCs that are sent again
	kindAct      = "act"  // RPCs that are not
	kindPlain    = "plain"
	kindHealth   = "health"
	kindLoad     = "download"
	kindStore    = "upload"
	kindParts    = "upload in parts" // which are sent again
	kindPoll     = "poll"            // GetWatcherEvents, which is never sent twice
	kindStream   = "input stream"
	kindProbe    = "probe"
	kindDo       = "Do"
)

// matrixBound only guards against calls that never return.
const matrixBound = time.Minute

// matrixCell is one call on its way through one fault.
type matrixCell struct {
	ctx    context.Context
	id     string
	direct *client.Client // not through the proxy
	client *client.Client
	proxy  *faultproxy.Proxy
	linger string // seconds that a command lives

	process *client.Process // what prepare started
	dir     string          // of the sandbox
	local   string
	content []byte // of the file that prepare made
	cleanup []func()
}

type matrixCall struct {
	name, kind string
	// path is the request that meets the fault.
	path    string
	files   bool // needs the file half
	empty   bool // the answer has no body
	prepare func(*matrixCell) error
	// run returns what came, and what success would have brought.
	run func(*matrixCell) (got, want string, err error)
	// effect checks what success should have done.
	effect func(*matrixCell) error
	skip   []string // faults that mean nothing here
}

func (m *matrixCell) script() string {
	return fmt.Sprintf("printf '%s one\\n'; sleep %s; printf '%s two\\n'", m.id, m.linger, m.id)
}

func (m *matrixCell) output() string { return m.id + " one\n" + m.id + " two\n" }

// command is one that says two lines.
func (m *matrixCell) command() *client.Cmd {
	return m.mark(m.client.Command(m.ctx, "sh", "-c", m.script()))
}

func (m *matrixCell) mark(cmd *client.Cmd) *client.Cmd {
	if cmd.Env == nil {
		cmd.Env = map[string]string{}
	}
	cmd.Env["MATRIX_CELL"] = m.id
	return cmd
}

// background starts a command that the call is about.
func (m *matrixCell) background(script string, setup func(*client.Cmd)) error {
	cmd := m.mark(m.direct.Command(m.ctx, "sh", "-c", script))
	if setup != nil {
		setup(cmd)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	m.process = m.client.Process(client.PID(cmd.Process.PID()))
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_ = cmd.Wait()
	}()
	m.cleanup = append(m.cleanup, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), 10*time.Second)
		defer cancel()
		_ = cmd.Process.Kill(ctx)
		<-waited
	})
	return nil
}

// gone waits until no command of the cell runs.
func (m *matrixCell) gone() error {
	deadline := time.Now().Add(15 * time.Second)
	for {
		left, err := m.running()
		if err != nil || left == nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("still running: %v", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (m *matrixCell) running() ([]uint32, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), 30*time.Second)
	defer cancel()
	infos, err := m.direct.Processes(ctx)
	var pids []uint32
	for _, p := range infos {
		if p.Env["MATRIX_CELL"] == m.id {
			pids = append(pids, p.PID)
		}
	}
	return pids, err
}

func (m *matrixCell) file(name string) string { return m.dir + "/" + name }

func (m *matrixCell) makeFile() error {
	m.content = []byte(strings.Repeat(m.id+"\n", 200))
	return m.direct.WriteFile(m.ctx, m.file("in"), m.content)
}

// stored checks that a file has the content that was uploaded.
func stored(names ...string) func(*matrixCell) error {
	return func(m *matrixCell) error {
		for _, name := range names {
			got, err := m.direct.ReadFile(m.ctx, m.file(name))
			if err != nil {
				return err
			}
			if !bytes.Equal(got, m.content) {
				return fmt.Errorf("%s holds %d bytes, want %d", name, len(got), len(m.content))
			}
		}
		return nil
	}
}

func withStdin(c *client.Cmd) { _, _ = c.StdinPipe() }

func sleeper(m *matrixCell) error { return m.background("sleep 60", nil) }

func errOnly(run func(*matrixCell) error) func(*matrixCell) (string, string, error) {
	return func(m *matrixCell) (string, string, error) { return "", "", run(m) }
}

func matrixCalls(embedded, compose bool) []matrixCall {
	const process, filesystem = "/process.Process/", "/filesystem.Filesystem/"
	gone := (*matrixCell).gone
	calls := []matrixCall{
		{name: "Cmd.Run", kind: kindCommand, path: process + "Start", effect: gone,
			run: errOnly(func(m *matrixCell) error { return m.command().Run() })},
		{name: "Cmd.Output", kind: kindCommand, path: process + "Start", effect: gone,
			run: func(m *matrixCell) (string, string, error) {
				out, err := m.command().Output()
				return string(out), m.output(), err
			}},
		{name: "Cmd.CombinedOutput", kind: kindCommand, path: process + "Start", effect: gone,
			run: func(m *matrixCell) (string, string, error) {
				out, err := m.command().CombinedOutput()
				return string(out), m.output(), err
			}},
		{name: "Shell", kind: kindCommand, path: process + "Start", effect: gone,
			run: func(m *matrixCell) (string, string, error) {
				out, err := m.mark(m.client.Shell(m.ctx, m.script())).Output()
				return string(out), m.output(), err
			}},
		{name: "pipes", kind: kindCommand, path: process + "Start", effect: gone, skip: []string{"end event only"}, run: runPipes},
		{name: "PTY", kind: kindCommand, path: process + "Start", effect: gone,
			run: func(m *matrixCell) (string, string, error) {
				cmd := m.command()
				cmd.PTY = &client.Size{Cols: 80, Rows: 24}
				out, err := cmd.Output()
				return string(out), strings.ReplaceAll(m.output(), "\n", "\r\n"), err
			}},
		{name: "KillTree command", kind: kindCommand, path: process + "Start", effect: gone,
			run: func(m *matrixCell) (string, string, error) {
				cmd := m.command()
				cmd.KillTree = true
				out, err := cmd.Output()
				return string(out), m.output(), err
			}},
		{name: "Stdin, SendInput", kind: kindInput, empty: true, path: process + "SendInput", prepare: warmStdin, skip: endlessInput, effect: gone, run: runStdin},
		{name: "Stdin, CloseStdin", kind: kindInputEnd, empty: true, path: process + "CloseStdin", prepare: warmStdin, skip: endlessInput, effect: gone, run: runStdin},
		{name: "Attach", kind: kindAttach, path: process + "Connect", run: runAttach,
			prepare: func(m *matrixCell) error {
				return m.background("read go; "+m.script(), withStdin)
			}},
		{name: "Processes", kind: kindRead, path: process + "List", prepare: sleeper,
			run: errOnly(func(m *matrixCell) error {
				infos, err := m.client.Processes(m.ctx)
				if err == nil && !slices.ContainsFunc(infos, func(p client.ProcessInfo) bool { return p.Env["MATRIX_CELL"] == m.id }) {
					return errors.New("wrong: the command is not listed")
				}
				return err
			})},
		{name: "Tag lookup", kind: kindRead, path: process + "List", effect: gone,
			prepare: func(m *matrixCell) error {
				return m.background("sleep 60", func(c *client.Cmd) { c.Tag = m.id })
			},
			run: errOnly(func(m *matrixCell) error { return m.client.Process(client.Tag(m.id)).Kill(m.ctx) })},
		{name: "Process.Resize", empty: true, kind: kindRead, path: process + "Update", effect: gone,
			prepare: func(m *matrixCell) error {
				return m.background(`until [ "$(stty size)" = "33 99" ]; do sleep 0.05; done`, func(c *client.Cmd) { c.PTY = &client.Size{Cols: 80, Rows: 24} })
			},
			run: errOnly(func(m *matrixCell) error { return m.process.Resize(m.ctx, client.Size{Cols: 99, Rows: 33}) })},
		{name: "Process.Kill", empty: true, kind: kindAct, path: process + "SendSignal", prepare: sleeper, effect: gone,
			run: errOnly(func(m *matrixCell) error { return m.process.Kill(m.ctx) })},
		{name: "Process.Terminate", empty: true, kind: kindAct, path: process + "SendSignal", prepare: sleeper, effect: gone,
			run: errOnly(func(m *matrixCell) error { return m.process.Terminate(m.ctx) })},
		{name: "Process.KillTree", kind: kindRead, path: process + "List", effect: gone,
			prepare: func(m *matrixCell) error {
				return m.background("sleep 61 & sleep 60", func(c *client.Cmd) { c.KillTree = true })
			},
			run: errOnly(func(m *matrixCell) error { return m.process.KillTree(m.ctx) })},
		{name: "Process.SendInput", empty: true, kind: kindAct, path: process + "SendInput", effect: gone,
			prepare: func(m *matrixCell) error { return m.background("read line", withStdin) },
			run:     errOnly(func(m *matrixCell) error { return m.process.SendInput(m.ctx, []byte("line\n")) })},
		{name: "Process.CloseStdin", empty: true, kind: kindAct, path: process + "CloseStdin", effect: gone,
			prepare: func(m *matrixCell) error { return m.background("cat", withStdin) },
			run:     errOnly(func(m *matrixCell) error { return m.process.CloseStdin(m.ctx) })},
		{name: "Health", empty: true, kind: kindHealth, path: "/health", run: errOnly(func(m *matrixCell) error { return m.client.Health(m.ctx) })},
		{name: "Metrics", kind: kindPlain, path: "/metrics", run: errOnly(func(m *matrixCell) error {
			got, err := m.client.Metrics(m.ctx)
			if err == nil && got.CPUCount == 0 {
				return errors.New("wrong: no processors")
			}
			return err
		})},
		{name: "Envs", kind: kindPlain, path: "/envs", skip: []string{"newer daemon, binary", "newer daemon, JSON"}, run: errOnly(func(m *matrixCell) error {
			got, err := m.client.Envs(m.ctx)
			if err == nil && got == nil {
				return errors.New("wrong: nil map")
			}
			return err
		})},

		{name: "ReadFile", kind: kindLoad, path: "/files", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				got, err := m.client.ReadFile(m.ctx, m.file("in"), client.WithIdleTimeout(2*time.Second))
				return string(got), string(m.content), err
			}},
		{name: "Download", kind: kindLoad, path: "/files", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				var got bytes.Buffer
				err := m.client.Download(m.ctx, m.file("in"), &got, client.WithIdleTimeout(2*time.Second))
				return got.String(), string(m.content), err
			}},
		{name: "Download, parallel", kind: kindLoad, path: "/files", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				var got bytes.Buffer
				err := m.client.Download(m.ctx, m.file("in"), &got, client.WithParallel(3), client.WithIdleTimeout(2*time.Second))
				return got.String(), string(m.content), err
			}},
		{name: "Open, Read", kind: kindLoad, path: "/files", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				f, err := m.client.Open(m.ctx, m.file("in"), client.WithIdleTimeout(2*time.Second))
				if err != nil {
					return "", string(m.content), err
				}
				defer f.Close()
				got, err := io.ReadAll(f)
				return string(got), string(m.content), err
			}},
		{name: "DownloadDir", kind: kindLoad, path: "/files", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				_, err := m.client.DownloadDir(m.ctx, m.dir, m.local, client.WithIdleTimeout(2*time.Second))
				got, readErr := os.ReadFile(filepath.Join(m.local, "in"))
				if err == nil {
					err = readErr
				}
				return string(got), string(m.content), err
			}},
		{name: "WriteFile", kind: kindStore, path: "/files", files: true, effect: stored("out"),
			run: errOnly(func(m *matrixCell) error {
				m.content = bytes.Repeat([]byte(m.id), 100)
				return m.client.WriteFile(m.ctx, m.file("out"), m.content, client.WithIdleTimeout(2*time.Second))
			})},
		{name: "WriteFile, atomic", kind: kindStore, path: "/files", files: true, effect: stored("out"),
			run: errOnly(func(m *matrixCell) error {
				m.content = bytes.Repeat([]byte(m.id), 100)
				return m.client.WriteFile(m.ctx, m.file("out"), m.content, client.WithAtomic(), client.WithIdleTimeout(2*time.Second))
			})},
		{name: "Upload", kind: kindStore, path: "/files", files: true, effect: stored("out"),
			run: errOnly(func(m *matrixCell) error {
				m.content = bytes.Repeat([]byte(m.id), 1000)
				return m.client.Upload(m.ctx, m.file("out"), io.MultiReader(bytes.NewReader(m.content)), client.WithIdleTimeout(2*time.Second))
			})},
		{name: "UploadFiles", kind: kindStore, path: "/files", files: true, effect: stored("a", "b"),
			run: errOnly(func(m *matrixCell) error {
				m.content = bytes.Repeat([]byte(m.id), 100)
				return m.client.UploadFiles(m.ctx, []client.UploadFile{
					{Path: m.file("a"), Reader: bytes.NewReader(m.content)}, {Path: m.file("b"), Reader: bytes.NewReader(m.content)},
				}, client.WithIdleTimeout(2*time.Second))
			})},
		{name: "UploadDir", kind: kindStore, path: "/files", files: true, effect: stored("one"),
			run: errOnly(func(m *matrixCell) error {
				m.content = bytes.Repeat([]byte(m.id), 100)
				if err := os.WriteFile(filepath.Join(m.local, "one"), m.content, 0o600); err != nil {
					return err
				}
				_, err := m.client.UploadDir(m.ctx, m.local, m.dir, client.WithIdleTimeout(2*time.Second))
				return err
			})},
		{name: "Move of an atomic upload", kind: kindAct, path: filesystem + "Move", files: true, effect: stored("out"),
			run: errOnly(func(m *matrixCell) error {
				m.content = bytes.Repeat([]byte(m.id), 100)
				return m.client.WriteFile(m.ctx, m.file("out"), m.content, client.WithAtomic())
			})},
		{name: "Stat", kind: kindRead, path: filesystem + "Stat", files: true, prepare: (*matrixCell).makeFile,
			run: errOnly(func(m *matrixCell) error {
				e, err := m.client.Stat(m.ctx, m.file("in"))
				if err == nil && e.Name() != "in" {
					return fmt.Errorf("wrong: entry %v", e)
				}
				return err
			})},
		{name: "ReadDir", kind: kindRead, path: filesystem + "ListDir", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				es, err := m.client.ReadDir(m.ctx, m.dir)
				return entryNames(es), "in", err
			}},
		{name: "List", kind: kindRead, path: filesystem + "ListDir", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				es, err := m.client.List(m.ctx, m.dir, client.Depth(2))
				return entryNames(es), "in", err
			}},
		{name: "FS", kind: kindRead, path: filesystem + "ListDir", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				names, err := fs.Glob(m.client.FS(m.ctx, m.dir), "*")
				if err == nil && names == nil {
					_, err = fs.ReadDir(m.client.FS(m.ctx, m.dir), ".") // Glob ignores errors
				}
				return strings.Join(names, " "), "in", err
			}},
		{name: "Mkdir", kind: kindAct, path: filesystem + "MakeDir", files: true, effect: there("new", true),
			run: errOnly(func(m *matrixCell) error { return m.client.Mkdir(m.ctx, m.file("new")) })},
		{name: "MkdirAll", kind: kindAct, path: filesystem + "MakeDir", files: true, effect: there("new/er", true),
			run: errOnly(func(m *matrixCell) error { return m.client.MkdirAll(m.ctx, m.file("new/er")) })},
		{name: "Rename", kind: kindAct, path: filesystem + "Move", files: true, prepare: (*matrixCell).makeFile, effect: there("moved", true),
			run: errOnly(func(m *matrixCell) error { return m.client.Rename(m.ctx, m.file("in"), m.file("moved")) })},
		{name: "RemoveAll", empty: true, kind: kindAct, path: filesystem + "Remove", files: true, prepare: (*matrixCell).makeFile, effect: there("in", false),
			run: errOnly(func(m *matrixCell) error { return m.client.RemoveAll(m.ctx, m.file("in")) })},
		{name: "Watch", kind: kindWatch, path: filesystem + "WatchDir", files: true, run: runWatch},
		{name: "Watch, polling, CreateWatcher", kind: kindAct, path: filesystem + "CreateWatcher", files: true, run: runPoll},
		{name: "Watch, polling, GetWatcherEvents", kind: kindPoll, path: filesystem + "GetWatcherEvents", files: true, run: runPoll},
		{name: "File.ReadAt", kind: kindLoad, path: "/files", files: true, skip: noSize, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				f, err := m.client.Open(m.ctx, m.file("in"), client.WithIdleTimeout(2*time.Second))
				if err != nil {
					return "", string(m.content), err
				}
				defer f.Close()
				got := make([]byte, len(m.content))
				n, err := f.ReadAt(got, 0)
				return string(got[:n]), string(m.content), err
			}},
		{name: "Stdin, StreamInput", kind: kindStream, path: process + "StreamInput", prepare: warmStdin, skip: silence, effect: gone,
			run: func(m *matrixCell) (string, string, error) { return feed(m, true) }},
		{name: "Do", kind: kindDo, path: "/envs", skip: silence, run: errOnly(runDo)},
		{name: "Probe", kind: kindProbe, path: filesystem + "Stat", run: errOnly(runProbe)},
		{name: "ListDir of DownloadDir", kind: kindRead, path: filesystem + "ListDir", files: true, prepare: (*matrixCell).makeFile,
			run: func(m *matrixCell) (string, string, error) {
				_, err := m.client.DownloadDir(m.ctx, m.dir, m.local)
				got, readErr := os.ReadFile(filepath.Join(m.local, "in"))
				if err == nil {
					err = readErr
				}
				return string(got), string(m.content), err
			}},
	}
	if compose {
		calls = append(calls, matrixCall{name: "Upload, parallel", kind: kindParts, path: "/files", files: true, effect: func(m *matrixCell) error {
			entries, err := m.direct.ReadDir(m.ctx, m.dir)
			if got := entryNames(entries); err != nil || got != "out" {
				return fmt.Errorf("directory has %q, %v", got, err)
			}
			return stored("out")(m)
		},
			run: errOnly(func(m *matrixCell) error {
				m.content = bytes.Repeat([]byte(m.id), 200)
				return m.client.Upload(m.ctx, m.file("out"), bytes.NewReader(m.content), client.WithParallel(3), client.WithIdleTimeout(2*time.Second))
			})})
		calls = append(calls, matrixCall{name: "Compose", kind: kindStore, path: "/files/compose", files: true,
			skip:    append([]string{"truncated answer"}, silence...), // what is cut off is white space
			prepare: (*matrixCell).makeFile, effect: stored("out"),
			run: errOnly(func(m *matrixCell) error { return m.client.Compose(m.ctx, m.file("out"), m.file("in")) })})
	}
	if embedded {
		calls = append(calls, matrixCall{name: "Init", empty: true, kind: kindAct, path: "/init", skip: []string{"empty 200"}, run: errOnly(func(m *matrixCell) error {
			_, err := m.client.Init(m.ctx, client.InitRequest{EnvVars: map[string]string{}})
			return err
		})})
	}
	return calls
}

// endlessInput are the faults that look like a command that does not read its
// input: only a timeout of the caller's ends the wait for it.
var endlessInput = []string{"silent before the request", "silent before the header"}

// silence ends only by the caller's context where the time that a call takes is
// not known: Do and Compose, and an input that the command reads when it likes.
var silence = append([]string{"silent after the header", "silent in a frame or body", "paused for 45 keepalives"}, endlessInput...)

// noSize are the faults that hide the size of a file, so that it can only be
// read from its start.
var noSize = []string{"newer daemon, binary", "newer daemon, JSON"}

// warmStdin lets the client find out whether the daemon can end an input.
func warmStdin(m *matrixCell) error {
	cmd := m.client.Command(m.ctx, "cat")
	cmd.Stdin = strings.NewReader("")
	return cmd.Run()
}

// runStdin feeds a command that ends with its input.
func runStdin(m *matrixCell) (got, want string, err error) { return feed(m, false) }

func feed(m *matrixCell, stream bool) (got, want string, err error) {
	cmd := m.mark(m.client.Command(m.ctx, "cat"))
	cmd.Stdin, cmd.StreamInput = strings.NewReader(m.id), stream
	out, err := cmd.Output()
	return string(out), m.id, err
}

func runDo(m *matrixCell) error {
	req, err := http.NewRequestWithContext(m.ctx, http.MethodGet, "/envs", nil)
	if err != nil {
		return err
	}
	res, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.ReadAll(res.Body)
	return err
}

// runProbe asks what the daemon can do: what cannot be found out is unknown, but
// nothing is told wrongly.
func runProbe(m *matrixCell) error {
	got, err := m.client.Probe(m.ctx)
	if err != nil {
		return err
	}
	want, err := m.direct.Probe(m.ctx)
	if err != nil {
		return err
	}
	for i, f := range got.Features {
		if unknown := envdversion.Unknown.String(); f.State != unknown && want.Features[i].State != unknown && f.State != want.Features[i].State {
			return fmt.Errorf("wrong: %s is said to be %s, by %s", f.Name, f.State, f.Evidence)
		}
	}
	return nil
}

// runAttach lets the command go on once it is attached to it.
func runAttach(m *matrixCell) (got, want string, err error) {
	var out bytes.Buffer
	pid := client.PID(m.process.PID())
	cmd := m.client.Attach(m.ctx, pid)
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		return "", m.output(), err
	}
	sendErr := m.direct.Process(pid).SendInput(m.ctx, []byte("go\n"))
	err = cmd.Wait()
	if err == nil {
		err = sendErr
	}
	return out.String(), m.output(), err
}

func entryNames(entries []*client.Entry) string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return strings.Join(names, " ")
}

// there checks that a file exists, or does not.
func there(name string, want bool) func(*matrixCell) error {
	return func(m *matrixCell) error {
		_, err := m.direct.Stat(m.ctx, m.file(name))
		if want == (err == nil) {
			return nil
		}
		return fmt.Errorf("%s: %v", name, err)
	}
}

// runWatch makes two files, the second one after the first was seen.
func runWatch(m *matrixCell) (got, want string, err error) { return watchTwo(m) }

func runPoll(m *matrixCell) (got, want string, err error) {
	return watchTwo(m, client.Polling(20*time.Millisecond))
}

func watchTwo(m *matrixCell, opts ...client.WatchOption) (got, want string, err error) {
	want = "one two"
	w, err := m.client.StartWatch(m.ctx, m.dir, opts...)
	if err != nil {
		return "", want, err
	}
	defer w.Close()
	if err := m.direct.WriteFile(m.ctx, m.file("one"), nil); err != nil {
		return "", want, err
	}
	for event, err := range w.Events() {
		switch {
		case err != nil:
			return got, want, err
		case event.Op == client.OpCreate && event.Name == "one" && got == "":
			got = "one"
			if err := m.direct.WriteFile(m.ctx, m.file("two"), nil); err != nil {
				return got, want, err
			}
		case event.Op == client.OpCreate && event.Name == "two":
			return "one two", want, nil
		}
	}
	return got, want, nil
}

// runPipes talks to a command through all three pipes.
func runPipes(m *matrixCell) (got, want string, err error) {
	want = m.output() + "fed\n"
	cmd := m.mark(m.client.Command(m.ctx, "sh", "-c", m.script()+"; read x; echo $x"))
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		return "", want, err
	}
	_, inErr := io.WriteString(in, "fed\n")
	read, _ := io.ReadAll(out)
	err = cmd.Wait()
	if err == nil && inErr != nil {
		err = fmt.Errorf("wrong: Wait is nil, but the write failed: %w", inErr)
	}
	return string(read), want, err
}

// matrixFault is a fault. Which class of error it must have for each kind of
// call stands in docs/reliability.md.
type matrixFault struct {
	name  string
	fault faultproxy.Fault
	needs need
	times int  // 0 means all
	long  bool // commands outlive it
	quick bool // it belongs to the small matrix too
	// notFiles says that it cannot be noticed in a file's content: the protocol
	// has no checksum.
	notFiles bool
	opts     []client.Option
}

// need is what an answer must have for a fault to strike.
type need int

const (
	needNothing need = iota
	needBody
	needFrames
	needEnd // frames with an end event
)

func (n need) met(c matrixCall) bool {
	switch n {
	case needBody:
		return !c.empty
	case needFrames:
		return c.kind == kindCommand || c.kind == kindAttach || c.kind == kindWatch
	case needEnd:
		return c.kind == kindCommand || c.kind == kindAttach
	}
	return true
}

func matrixFaults() []matrixFault {
	json := header("Content-Type", "application/json")
	page := header("Content-Type", "text/html")
	at := faultproxy.BreakAt
	return []matrixFault{
		{name: "none", fault: faultproxy.Pass, quick: true},
		{name: "cut before the request", fault: at(faultproxy.BeforeRequest, faultproxy.Cut)},
		{name: "cut before the request, once", fault: at(faultproxy.BeforeRequest, faultproxy.Cut), times: 1, quick: true},
		{name: "cut before the header", fault: at(faultproxy.BeforeHead, faultproxy.Cut), quick: true},
		{name: "cut after the header", fault: at(faultproxy.AfterHead, faultproxy.Cut), needs: needBody, quick: true},
		{name: "cut after the start event", fault: at(faultproxy.AfterStart, faultproxy.Cut), needs: needFrames, long: true, quick: true},
		{name: "cut in a frame or body", fault: at(faultproxy.MidFrame, faultproxy.Cut), needs: needBody, long: true, quick: true},
		{name: "cut between frames", fault: at(faultproxy.BetweenFrames, faultproxy.Cut), needs: needFrames, long: true},
		{name: "cut after the end event", fault: at(faultproxy.AfterEnd, faultproxy.Cut), needs: needEnd, quick: true},
		{name: "reset before the header", fault: at(faultproxy.BeforeHead, faultproxy.Reset)},
		{name: "reset after the header", fault: at(faultproxy.AfterHead, faultproxy.Reset), needs: needBody},
		{name: "reset in a frame or body", fault: at(faultproxy.MidFrame, faultproxy.Reset), needs: needBody, long: true, quick: true},
		{name: "reset after the end event", fault: at(faultproxy.AfterEnd, faultproxy.Reset), needs: needEnd},
		{name: "half-closed before the header", fault: at(faultproxy.BeforeHead, faultproxy.HalfClose)},
		{name: "half-closed in a frame or body", fault: at(faultproxy.MidFrame, faultproxy.HalfClose), needs: needBody, long: true},
		{name: "silent before the request", fault: at(faultproxy.BeforeRequest, faultproxy.Silence)},
		{name: "silent before the header", fault: at(faultproxy.BeforeHead, faultproxy.Silence)},
		{name: "silent after the header", fault: at(faultproxy.AfterHead, faultproxy.Silence), needs: needBody},
		{name: "silent after the start event", fault: at(faultproxy.AfterStart, faultproxy.Silence), needs: needFrames, long: true},
		{name: "silent in a frame or body", fault: at(faultproxy.MidFrame, faultproxy.Silence), needs: needBody},
		{name: "silent after a keepalive", fault: at(faultproxy.AfterKeepalive, faultproxy.Silence), needs: needEnd, long: true},
		{name: "silent after the end event", fault: at(faultproxy.AfterEnd, faultproxy.Silence), needs: needEnd},
		{name: "one byte at a time", fault: faultproxy.SlowDown(0, 1), quick: true},
		{name: "latency of 100 ms", fault: faultproxy.SlowDown(100*time.Millisecond, 0)},
		{name: "bandwidth of 50 kB/s", fault: faultproxy.SlowDown(10*time.Millisecond, 512)},
		{name: "paused for 0.5 s", fault: faultproxy.PauseAt(500 * time.Millisecond), needs: needBody, times: 1},
		{name: "paused for 45 keepalives", fault: faultproxy.PauseAt(45 * time.Second), needs: needBody, times: 1, long: true},
		{name: "truncated answer", fault: faultproxy.Truncate, needs: needBody, long: true, notFiles: true},
		{name: "corrupt answer", fault: faultproxy.Corrupt, needs: needBody, long: true, quick: true, notFiles: true},
		{name: "frame of 4 GiB announced", fault: faultproxy.HugeLength, needs: needFrames, long: true, quick: true},
		{name: "gzip bomb", fault: faultproxy.Bomb(100 << 20), needs: needBody, long: true, quick: true},
		{name: "gzip bomb, compression on", fault: faultproxy.Bomb(100 << 20), needs: needBody, long: true, opts: []client.Option{client.WithCompression()}},
		{name: "end of stream twice", fault: faultproxy.TwoEndStreams, needs: needEnd},
		{name: "end of stream missing", fault: faultproxy.NoEndStream, needs: needEnd, quick: true},
		{name: "end of stream with an error", fault: faultproxy.FailedAfterEnd, needs: needEnd},
		{name: "no start event", fault: faultproxy.NoStart, needs: needEnd},
		{name: "no end event", fault: faultproxy.NoEnd, needs: needEnd, quick: true},
		{name: "end event only", fault: faultproxy.EndOnly, needs: needEnd},
		{name: "start event twice", fault: faultproxy.TwoStarts, needs: needFrames},
		{name: "data after the end event", fault: faultproxy.DataAfterEnd, needs: needEnd, quick: true},
		{name: "newer daemon, binary", fault: faultproxy.Newer},
		{name: "newer daemon, JSON", fault: faultproxy.Newer, opts: []client.Option{client.WithJSON()}, quick: true},
		{name: "502 with a page", fault: faultproxy.Answer(502, page, "<html><title>Bad Gateway</title></html>"), quick: true},
		{name: "502, sandbox not found", fault: faultproxy.Answer(502, json, `{"sandboxId":"s1","message":"The sandbox was not found","code":502}`)},
		{name: "503, Retry-After 1 s", fault: faultproxy.Answer(503, header("Retry-After", "1"), "")},
		{name: "503 once, Retry-After 1 s", fault: faultproxy.Answer(503, header("Retry-After", "1"), ""), times: 1},
		{name: "503, Retry-After 60 s", fault: faultproxy.Answer(503, header("Retry-After", "60"), "")},
		{name: "429, Retry-After 60 s", fault: faultproxy.Answer(429, header("Retry-After", "60"), "slow down"), quick: true},
		{name: "401", fault: faultproxy.Answer(401, json, `{"code":401,"message":"unauthorized access"}`)},
		{name: "empty 200", fault: faultproxy.Answer(200, nil, ""), quick: true},
		{name: "200 with a page", fault: faultproxy.Answer(200, page, "<title>Welcome</title>"), quick: true},
		{name: "redirect to another host", fault: faultproxy.Answer(302, header("Location", "http://evil.example/"), ""), quick: true},
	}
}

func header(key, value string) http.Header { return http.Header{key: {value}} }

// classOf names what an error is, in the words of docs/reliability.md.
func classOf(err error) string {
	if err == nil {
		return "ok"
	}
	if exit, ok := errors.AsType[*client.ExitError](err); ok {
		return "exit " + exit.String()
	}
	for _, s := range []struct {
		is   error
		name string
	}{
		{client.ErrSandboxNotFound, "sandbox not found"},
		{client.ErrStreamLost, "stream lost"},
		{client.ErrIdleTimeout, "idle timeout"},
		{client.ErrRateLimited, "rate limited"},
		{client.ErrUnauthenticated, "unauthenticated"},
		{client.ErrFileChanged, "file changed"},
		{client.ErrFileTooLarge, "too large"},
		{context.DeadlineExceeded, "deadline"},
		{context.Canceled, "canceled"},
		{client.ErrProcessNotFound, "process not found"},
		{errors.ErrUnsupported, "unsupported"},
		{fs.ErrNotExist, "not exist"},
	} {
		if errors.Is(err, s.is) {
			if lost, ok := errors.AsType[*client.StreamLostError](err); ok && s.is == client.ErrStreamLost {
				return s.name + ", " + string(lost.Fate)
			}
			return s.name
		}
	}
	if he, ok := errors.AsType[*client.HTTPError](err); ok {
		return fmt.Sprintf("HTTP %d", he.StatusCode)
	}
	if e, ok := errors.AsType[*client.Error](err); ok {
		return string(e.Code)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "unexpected end"
	}
	if errors.Is(err, syscall.ECONNRESET) {
		return "reset"
	}
	return "other: " + err.Error()
}

// saysItMayRun reports whether an error admits that the command may still run.
func saysItMayRun(err error) bool {
	lost, ok := errors.AsType[*client.StreamLostError](err)
	return ok && (lost.Fate == client.FateUnknown || lost.Fate == client.FateRunning) ||
		err != nil && (strings.Contains(err.Error(), "may have started") || strings.Contains(err.Error(), "could not be confirmed") || strings.Contains(err.Error(), "killing it failed"))
}

// matrixResult is what became of a cell.
type matrixResult struct {
	call, kind, fault string
	class             string
	err               error
	problems          []string
	took              time.Duration
	met               bool
}

func runCell(t *testing.T, tg target, url string, direct *client.Client, call matrixCall, f matrixFault) matrixResult {
	res := matrixResult{call: call.name, kind: call.kind, fault: f.name}
	problem := func(format string, args ...any) { res.problems = append(res.problems, fmt.Sprintf(format, args...)) }
	proxy, err := faultproxy.New(url)
	if err != nil {
		problem("%v", err)
		return res
	}
	defer proxy.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*matrixBound)
	defer cancel()
	m := &matrixCell{ctx: ctx, id: "c" + strings.ToLower(cryptorand.Text()), direct: direct, proxy: proxy, linger: "0.2"}
	if f.long {
		m.linger = "20"
	}
	opts := slices.Concat(tg.client, []client.Option{client.WithKeepalive(time.Second), client.WithRequestTimeout(5 * time.Second), client.WithPieces(1000)}, f.opts)
	m.client, err = client.New(proxy.URL, opts...)
	if err != nil {
		problem("%v", err)
		return res
	}
	if call.files {
		m.local = t.TempDir()
		m.dir = "/tmp/envd-go-matrix-" + m.id
		if _, err := direct.FilesystemService().MakeDir(ctx, &filesystempb.MakeDirRequest{Path: m.dir}); err != nil {
			problem("prepare: %v", err)
			return res
		}
		defer func() {
			_, _ = direct.FilesystemService().Remove(context.WithoutCancel(ctx), &filesystempb.RemoveRequest{Path: m.dir})
		}()
	}
	defer func() {
		for _, clean := range m.cleanup {
			clean()
		}
		left, _ := m.running()
		if (call.prepare == nil || call.kind == kindInput || call.kind == kindInputEnd) && left != nil && !saysItMayRun(res.err) {
			problem("left running: %v", left)
		}
		for _, pid := range left {
			_ = direct.Process(client.PID(pid)).Kill(ctx)
		}
		// Nothing may be left of the connections either.
		m.client.Close()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			open, _ := proxy.Connections()
			if open == 0 {
				break
			}
			if time.Now().After(deadline) {
				problem("%d connections left", open)
				break
			}
		}
	}()
	if call.prepare != nil {
		if err := call.prepare(m); err != nil {
			problem("prepare: %v", err)
			return res
		}
	}
	if f.needs != needNothing && call.kind == kindWatch && strings.HasPrefix(f.name, "silent") || f.name == "silent after the start event" {
		// Silence says something only of a daemon that is known to send keepalives.
		if err := m.client.Command(ctx, "sleep", "1.3").Run(); err != nil {
			problem("prepare: %v", err)
		}
	}
	times := f.times
	switch {
	case times == 0 && call.kind == kindCommand && f.needs != needNothing:
		times = 1 // what cleans up after it gets through
	case times == 0:
		times = -1
	}
	proxy.Inject(call.path, times, f.fault)
	began := time.Now()
	got, want, err := call.run(m)
	res.took, res.met, res.err = time.Since(began), proxy.Met() > 0, err
	res.class = classOf(err)
	proxy.Clear()
	if res.took > matrixBound {
		problem("took %v", res.took)
	}
	if err == nil && got != want {
		problem("success with %q, want %q", got, want)
	}
	if !strings.HasPrefix(want, got) && f.name != "corrupt answer" {
		problem("output %q, want a beginning of %q", got, want)
	}
	if err == nil && call.effect != nil {
		if err := call.effect(m); err != nil {
			problem("success without effect: %v", err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "wrong:") {
		problem("%v", err)
	}
	return res
}

func runMatrix(t *testing.T, tg target, calls []matrixCall, faults []matrixFault) []matrixResult {
	url := tg.url
	if url == "" {
		srv := envdtest.NewServer(tg.server...)
		t.Cleanup(srv.Close)
		url = srv.URL
	}
	direct := dial(t, url, tg.client...)
	_, err := direct.ReadFile(t.Context(), "/no/such/file")
	hasFiles := errors.Is(err, fs.ErrNotExist)
	var mu sync.Mutex
	var results []matrixResult
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	only := os.Getenv("FAULTS_CALL")
	for _, call := range calls {
		if call.files && !hasFiles || only != "" && !strings.Contains(call.name, only) {
			continue
		}
		for _, f := range faults {
			if !f.needs.met(call) || f.notFiles && call.kind == kindLoad || slices.Contains(call.skip, f.name) {
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				res := runCell(t, tg, url, direct, call, f)
				mu.Lock()
				defer mu.Unlock()
				results = append(results, res)
			})
		}
	}
	wg.Wait()
	return results
}

// matrixKinds are the columns of the table in docs/reliability.md.
var matrixKinds = []string{kindCommand, kindInput, kindInputEnd, kindAttach, kindWatch, kindRead, kindAct, kindPlain, kindHealth, kindLoad, kindStore, kindParts, kindPoll, kindStream, kindProbe, kindDo}

// documentedClasses reads the table: the class of error by fault and kind.
func documentedClasses(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "<!-- fault matrix -->")
	table, _, end := strings.Cut(table, "<!-- end of fault matrix -->")
	if !ok || !end {
		t.Fatal("docs/reliability.md has no fault matrix")
	}
	classes := map[string]map[string]string{}
	for line := range strings.Lines(table) {
		fields := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(fields) != len(matrixKinds)+1 {
			continue
		}
		row := map[string]string{}
		for i, kind := range matrixKinds {
			row[kind] = strings.TrimSpace(fields[i+1])
		}
		classes[strings.TrimSpace(fields[0])] = row
	}
	return classes
}

// TestFaultMatrix is every public call with every fault that can hit it. The
// default is a part of it on one daemon; with FAULTS=all it is all of it on
// several, with ENVD_URL on that daemon too.
func TestFaultMatrix(t *testing.T) {
	all := os.Getenv("FAULTS") == "all"
	names := []string{"0.6.13/binary"}
	if all {
		names = append(names, "0.6.13/json", "0.5.2/binary", "live/binary")
	}
	faults := slices.DeleteFunc(matrixFaults(), func(f matrixFault) bool { return !all && !f.quick })
	want := documentedClasses(t)
	for _, tg := range targets(t) {
		if !slices.Contains(names, tg.name) {
			continue
		}
		t.Run(tg.name, func(t *testing.T) {
			results := runMatrix(t, tg, matrixCalls(tg.url == "", tg.version.Has(envdversion.Compose)), faults)
			reportMatrix(t, results, want, all)
		})
	}
}

// reportMatrix compares the results with the table and prints what survived.
func reportMatrix(t *testing.T, results []matrixResult, want map[string]map[string]string, table bool) {
	t.Helper()
	survived := map[string]int{}
	cells := map[string]int{}
	failed := 0
	for _, r := range results {
		key := r.fault + "|" + r.kind
		cells[key]++
		ok := r.met && len(r.problems) == 0 && r.class == want[r.fault][r.kind]
		if ok {
			survived[key]++
			continue
		}
		failed++
		t.Errorf("%s × %s: %s, want %s; met %v; %.400v; in %v: %.400v",
			r.call, r.fault, r.class, want[r.fault][r.kind], r.met, r.problems, r.took.Round(time.Millisecond), r.err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-32s", "survived/cells")
	for _, kind := range matrixKinds {
		fmt.Fprintf(&b, " %9s", kind)
	}
	for _, f := range matrixFaults() {
		fmt.Fprintf(&b, "\n%-32s", f.name)
		for _, kind := range matrixKinds {
			key := f.name + "|" + kind
			cell := "-"
			if cells[key] > 0 {
				cell = fmt.Sprintf("%d/%d", survived[key], cells[key])
			}
			fmt.Fprintf(&b, " %9s", cell)
		}
	}
	if table {
		t.Log("\n" + b.String())
	}
	t.Logf("%d cells: %d survived, %d failed", len(results), len(results)-failed, failed)
}

// Input that was lost is never a success, and a lost end of it no endless wait.
func TestStdinLost(t *testing.T) {
	tests := []struct {
		name, procedure string
		action          envdtest.Action
		want            string // in the error; empty for success
	}{
		{"piece refused", "/process.Process/SendInput", envdtest.Respond, "feeding stdin"},
		{"piece cut", "/process.Process/SendInput", envdtest.Refuse, "feeding stdin"},
		{"answer to a piece lost", "/process.Process/SendInput", envdtest.Cut, "feeding stdin"},
		{"end refused", "/process.Process/CloseStdin", envdtest.Respond, "ending stdin"},
		{"end cut", "/process.Process/CloseStdin", envdtest.Refuse, "ending stdin"},
		{"answer to the end lost", "/process.Process/CloseStdin", envdtest.Cut, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onPipe(t, nil, []client.Option{client.WithVersion("0.6.13")}, func(t *testing.T, srv *envdtest.Server, c *client.Client) {
				srv.HandleCommand("cat", func(p *envdtest.Proc) int {
					_, _ = io.Copy(p.Stdout, p.Stdin)
					return 0
				})
				srv.Inject(envdtest.Fault{Procedure: tt.procedure, Action: tt.action})
				cmd := c.Command(context.Background(), "cat")
				cmd.Stdin = strings.NewReader("input")
				out, err := cmd.Output()
				if tt.want == "" && (err != nil || string(out) != "input") {
					t.Errorf("Output = %q, %v", out, err)
				}
				if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("Output = %q, %v, want %q in the error", out, err, tt.want)
				}
				wantIdle(t, srv)
			})
		})
	}
}
