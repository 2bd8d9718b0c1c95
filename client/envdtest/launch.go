// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"

	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

const (
	pipeRead = 32 << 10 // the largest data event of a pipe
	ptyRead  = 16 << 10 // and of a terminal
)

// launchSpec is a command that is about to be started.
type launchSpec struct {
	name  string
	args  []string
	env   map[string]string
	dir   string
	user  *identity
	pty   *Size // nil for pipes
	input bool  // there is a standard input
}

// newSpec works out what a Start asks for.
func (s *Server) newSpec(ctx context.Context, req *processpb.StartRequest) (*launchSpec, error) {
	id, err := s.userOf(ctx)
	if err != nil {
		return nil, err
	}
	cfg := req.GetProcess()
	cwd, err := s.resolve(cfg.GetCwd(), id)
	if err != nil {
		return nil, err
	}
	dir := s.host(cwd)
	spec := &launchSpec{
		name:  cfg.GetCmd(),
		args:  cfg.GetArgs(),
		env:   s.environ(id, cfg.GetEnvs()),
		dir:   dir,
		user:  id,
		input: req.Stdin == nil || req.GetStdin() || !s.cfg.version.Has(envdversion.StdinField),
	}
	if pty := req.GetPty(); pty != nil {
		spec.pty = sizeOf(pty)
	}
	if _, err := os.Stat(dir); os.IsNotExist(err) && s.cfg.version.Has(envdversion.CwdCheck) {
		return nil, connect.Errorf(connect.CodeInvalidArgument, "cwd '%s' does not exist", cwd)
	}
	return spec, nil
}

// sizeOf reads a size; more than 16 bits are cut off.
func sizeOf(pty *processpb.PTY) *Size {
	return &Size{Cols: uint16(pty.GetSize().GetCols()), Rows: uint16(pty.GetSize().GetRows())}
}

// environ merges the environment of a command; what comes last wins.
func (s *Server) environ(id *identity, request map[string]string) map[string]string {
	env := map[string]string{
		"PATH":    s.cfg.path,
		"HOME":    s.host(id.home),
		"USER":    id.name,
		"LOGNAME": id.name,
	}
	maps.Copy(env, s.settings.vars())
	maps.Copy(env, request)
	return env
}

func sandboxEnv(v envdversion.Version) string {
	if v.Has(envdversion.SandboxEnvHonest) {
		return "false"
	}
	return "true"
}

// launch starts what a Start asks for, with one subscriber from the start.
func (s *Server) launch(spec *launchSpec, req *processpb.StartRequest) (*process, *subscriber, error) {
	run, begin, err := s.newRunning(spec)
	if err != nil {
		return nil, nil, err
	}
	p := &process{
		table:    s.procs,
		run:      run,
		config:   &processpb.ProcessConfig{},
		tag:      s.cfg.dialect.tag(req.Tag),
		pty:      spec.pty != nil,
		dir:      spec.dir,
		user:     spec.user.name,
		input:    make(chan struct{}, 1),
		open:     spec.input && spec.pty == nil,
		cut:      make(chan struct{}),
		gone:     make(chan struct{}),
		finished: make(chan struct{}),
	}
	if req.GetProcess() != nil {
		p.config = proto.CloneOf(req.GetProcess())
	}
	sub := p.subscribe()
	if !s.procs.add(p) {
		return nil, nil, connect.NewError(connect.CodeUnavailable, "server is closed")
	}
	begin(p)
	s.changes.notify()
	return p, sub, nil
}

// newRunning finds out what carries the command out and starts it; begin is
// called once it has a pid.
func (s *Server) newRunning(spec *launchSpec) (run running, begin func(*process), err error) {
	if fn := s.command(spec.name); fn != nil {
		return s.newFunction(spec, fn)
	}
	if !s.cfg.noReal && !s.needsStandIn(spec) {
		run, err := s.startReal(spec)
		return run, func(*process) {}, err
	}
	text, code := lookupFailure(spec)
	if code == 0 {
		text, code = "No such file or directory", 127
	}
	if !s.cfg.version.Has(envdversion.ShellWrapper) {
		return nil, nil, s.refusal(spec, refusalText(spec.name, code))
	}
	return s.newFunction(spec, func(p *Proc) int {
		_, _ = p.Stderr.Write([]byte("/usr/bin/nice: '" + spec.name + "': " + text + "\n"))
		return code
	})
}

// refusalText is how the operating system's lookup says it.
func refusalText(name string, code int) string {
	switch {
	case name == "":
		return "exec: no command"
	case code == 126:
		return "fork/exec " + name + ": permission denied"
	case strings.Contains(name, "/"):
		return "fork/exec " + name + ": no such file or directory"
	default:
		return `exec: "` + name + `": executable file not found in $PATH`
	}
}

// newFunction prepares a command function as a process.
func (s *Server) newFunction(spec *launchSpec, fn func(*Proc) int) (running, func(*process), error) {
	if err := s.checkFunction(spec); err != nil {
		return nil, nil, err
	}
	if _, ok := spec.env["PWD"]; !ok && s.cfg.version.Has(envdversion.ShellWrapper) {
		spec.env["PWD"] = spec.dir // the wrapper's shell sets it
	}
	proc := &Proc{
		Name: spec.name,
		Args: slices.Clone(spec.args),
		Env:  spec.env,
		Dir:  spec.dir,
		User: spec.user.name,
		PTY:  spec.pty != nil,
	}
	var size Size
	if spec.pty != nil {
		size = *spec.pty
	}
	cmd := newGoCommand(proc, size, spec.input || proc.PTY)
	begin := func(p *process) {
		proc.PID = p.pid
		s.procs.functions.Go(func() { cmd.run(fn) })
	}
	return cmd, begin, nil
}

// checkFunction refuses what the operating system would refuse.
func (s *Server) checkFunction(spec *launchSpec) error {
	for name, value := range spec.env {
		if strings.ContainsRune(name+value, 0) {
			return s.refusal(spec, "exec: environment variable contains NUL")
		}
	}
	if strings.ContainsRune(spec.commandLine(), 0) {
		return s.refusal(spec, "fork/exec "+s.executed(spec)+": invalid argument")
	}
	info, err := os.Stat(spec.dir)
	switch {
	case os.IsNotExist(err):
		return s.refusal(spec, "fork/exec "+s.executed(spec)+": no such file or directory")
	case err == nil && !info.IsDir():
		return s.refusal(spec, "fork/exec "+s.executed(spec)+": not a directory")
	}
	return nil
}

// executed is the program that the daemon itself executes.
func (s *Server) executed(spec *launchSpec) string {
	if s.cfg.version.Has(envdversion.ShellWrapper) {
		return "/bin/sh"
	}
	return spec.name
}

func (spec *launchSpec) commandLine() string {
	return strings.Join(append([]string{spec.name}, spec.args...), " ")
}

// refusal is the error of a Start that the operating system refused.
func (s *Server) refusal(spec *launchSpec, text string) error {
	return startError(spec, spec.commandLine(), text)
}

// startError echoes the whole command line, however long it is.
func startError(spec *launchSpec, line, text string) error {
	if spec.pty != nil {
		return connect.Errorf(connect.CodeInvalidArgument,
			"error starting pty with command '%s' in dir '%s' with '%d' cols and '%d' rows: %s",
			line, spec.dir, spec.pty.Cols, spec.pty.Rows, text)
	}
	return connect.Errorf(connect.CodeInvalidArgument, "error starting process '%s': %s", line, text)
}
