// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

const procStart = "process.Process/Start"

var shell = []Need{NeedShell}

func since(f envdversion.Feature) envdversion.Version { return f.Row().Since }

var processStartCases = []Case{
	{ID: "process/start/exit-zero", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "A process that exits with 0 ends with exited true, exit code 0 and no error text.",
		Run: func(t *T) {
			o := t.complete(script("exit 0"))
			t.exited(o, 0)
			t.equal("status", o.end.GetStatus(), "exit status 0")
			if o.end.Error != nil {
				t.Fatalf("want no error text for exit 0, got %q", o.end.GetError())
			}
		}},
	{ID: "process/start/exit-code", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "A process that exits with n ends with exited true, exit code n, and status and error that say so.",
		Run: func(t *T) {
			o := t.complete(script("exit 7"))
			t.exited(o, 7)
			t.equal("status", o.end.GetStatus(), "exit status 7")
			t.equal("error", o.end.GetError(), "exit status 7")
		}},
	{ID: "process/start/exit-code-255", Procedure: procStart, Needs: shell,
		Requirement: "The exit code reaches from 0 to 255 and is not taken for a signed byte.",
		Run:         func(t *T) { t.exited(t.complete(script("exit 255")), 255) }},
	{ID: "process/start/order", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "The events are one start, then data, then one end, and the stream ends cleanly after it.",
		Run: func(t *T) {
			o := t.complete(script("echo out; echo err >&2"))
			t.equal("order of events", o.order, []string{"start", "data", "end"})
		}},
	{ID: "process/start/no-output", Procedure: procStart, Needs: shell,
		Requirement: "A process without output has a start and an end event and no data.",
		Run: func(t *T) {
			t.equal("order of events", t.complete(script(":")).order, []string{"start", "end"})
		}},
	{ID: "process/start/stdout", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "Standard output comes in the stdout field and nowhere else.",
		Run: func(t *T) {
			o := t.complete(script("printf hello"))
			t.equal("stdout", string(o.stdout), "hello")
			t.equal("stderr and pty", string(o.stderr)+string(o.pty), "")
		}},
	{ID: "process/start/stderr", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "Standard error comes in the stderr field and nowhere else.",
		Run: func(t *T) {
			o := t.complete(script("printf oops >&2"))
			t.equal("stderr", string(o.stderr), "oops")
			t.equal("stdout and pty", string(o.stdout)+string(o.pty), "")
		}},
	{ID: "process/start/binary-output", Procedure: procStart, Needs: shell,
		Requirement: "Output is bytes: NUL, invalid UTF-8 and carriage returns arrive as written.",
		Run: func(t *T) {
			t.equal("stdout", fmt.Sprintf("%q", t.output(script(`printf '\000\001\377\200\r\n\303'`))), fmt.Sprintf("%q", "\x00\x01\xff\x80\r\n\xc3"))
		}},
	{ID: "process/start/large-output", Procedure: procStart, Needs: shell,
		Requirement: "A megabyte of output arrives whole and in order.",
		Run: func(t *T) {
			got := t.output(script("i=0; while [ $i -lt 16384 ]; do printf '%063d\\n' $i; i=$((i+1)); done"))
			var want strings.Builder
			for i := range 16384 {
				fmt.Fprintf(&want, "%063d\n", i)
			}
			t.equal("bytes", len(got), want.Len())
			t.equal("SHA-256", sum(got), sum(want.String()))
		}},
	{ID: "process/start/live-output", Procedure: procStart, Needs: shell,
		Requirement: "Output is sent as it is written, not when the process ends.",
		Run: func(t *T) {
			s := t.open(withStdin(script("echo first; read line; echo second $line"), true))
			s.untilOutput("first")
			t.ok(t.send(pid(s.pid), "now\n"), "SendInput")
			t.equal("stdout", string(s.wait().stdout), "first\nsecond now\n")
		}},
	{ID: "process/start/args", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "Arguments reach the process as sent: spaces, quotes, newlines, unicode, empty ones.",
		Run: func(t *T) {
			args := []string{"a b", `"q" 'r' $HOME \`, "line\nbreak", "žluťoučký 🐎", "", "*", "-n"}
			req := command("/bin/sh", append([]string{"-c", `for a; do printf '<%s>' "$a"; done`, "sh"}, args...)...)
			t.equal("stdout", t.output(req), "<"+strings.Join(args, "><")+">")
		}},
	{ID: "process/start/no-shell", Procedure: procStart, Needs: shell,
		Requirement: "The command is executed as it is; no shell expands its arguments.",
		Run: func(t *T) {
			t.equal("stdout", t.output(command("/bin/echo", "$HOME", "`id`", ";", "*")), "$HOME `id` ; *\n")
		}},
	{ID: "process/start/many-args", Procedure: procStart, Needs: shell,
		Requirement: "A thousand arguments reach the process.",
		Run: func(t *T) {
			args := append([]string{"-c", "echo $#", "sh"}, slices.Repeat([]string{"x"}, 1000)...)
			t.equal("stdout", t.output(command("/bin/sh", args...)), "1000\n")
		}},
	{ID: "process/start/long-arg", Procedure: procStart, Needs: shell,
		Requirement: "An argument of 100 000 bytes reaches the process.",
		Run: func(t *T) {
			t.equal("stdout", t.output(command("/bin/sh", "-c", "echo ${#1}", "sh", strings.Repeat("x", 100_000))), "100000\n")
		}},
	{ID: "process/start/too-long-arg", Procedure: procStart, Level: Should, Needs: shell,
		Requirement: "An argument that the kernel does not take is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantErr(t.refused(command("/bin/true", strings.Repeat("x", 200_000))), connect.CodeInvalidArgument)
		}},
	{ID: "process/start/nul-in-arg", Procedure: procStart, Needs: shell,
		Requirement: "An argument with a NUL byte is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantErr(t.refused(command("/bin/echo", "a\x00b")), connect.CodeInvalidArgument)
		}},
	{ID: "process/start/path-lookup", Procedure: procStart, Needs: shell,
		Requirement: "A command without a slash is looked up in PATH.",
		Run:         func(t *T) { t.equal("stdout", t.output(command("echo", "found")), "found\n") }},
	{ID: "process/start/unknown-command", Procedure: procStart, Needs: shell, Since: since(envdversion.ShellWrapper),
		Requirement: "A command that cannot be found is a process that exits with 127 and says so on stderr.",
		Run: func(t *T) {
			o := t.complete(command("no-such-command-" + t.run.id))
			t.exited(o, 127)
			if len(o.stderr) == 0 {
				t.Fatalf("want a message on stderr, got %s", o)
			}
		}},
	{ID: "process/start/unknown-command-refused", Procedure: procStart, Needs: shell, Until: since(envdversion.ShellWrapper),
		Requirement: "A command that cannot be found is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantErr(t.refused(command("no-such-command-"+t.run.id)), connect.CodeInvalidArgument)
		}},
	{ID: "process/start/unknown-path", Procedure: procStart, Needs: shell, Since: since(envdversion.ShellWrapper),
		Requirement: "An absolute path that does not exist is a process that exits with 127.",
		Run:         func(t *T) { t.exited(t.complete(command("/no/such/"+t.run.id)), 127) }},
	{ID: "process/start/unknown-path-refused", Procedure: procStart, Needs: shell, Until: since(envdversion.ShellWrapper),
		Requirement: "An absolute path that does not exist is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantErr(t.refused(command("/no/such/"+t.run.id)), connect.CodeInvalidArgument)
		}},
	{ID: "process/start/not-executable", Procedure: procStart, Needs: shell, Since: since(envdversion.ShellWrapper),
		Requirement: "A path that cannot be executed is a process that exits with 126.",
		Run:         func(t *T) { t.exited(t.complete(command("/etc/passwd")), 126) }},
	{ID: "process/start/not-executable-refused", Procedure: procStart, Needs: shell, Until: since(envdversion.ShellWrapper),
		Requirement: "A path that cannot be executed is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantErr(t.refused(command("/etc/passwd")), connect.CodeInvalidArgument)
		}},
	{ID: "process/start/empty-command", Procedure: procStart, Needs: shell, Since: since(envdversion.ShellWrapper),
		Requirement: "An empty command is a process that exits with 127.",
		Run:         func(t *T) { t.exited(t.complete(command("")), 127) }},
	{ID: "process/start/empty-command-refused", Procedure: procStart, Needs: shell, Until: since(envdversion.ShellWrapper),
		Requirement: "An empty command is refused with invalid_argument.",
		Run:         func(t *T) { t.wantErr(t.refused(command("")), connect.CodeInvalidArgument) }},
	{ID: "process/start/pid", Procedure: procStart, Level: Should, Needs: shell,
		Requirement: "The pid of the start event is the process's own pid.",
		Run: func(t *T) {
			o := t.open(script("echo $$"))
			t.equal("the shell's own pid", strings.TrimSpace(string(o.wait().stdout)), o.pid)
		}},
	{ID: "process/start/pids-differ", Procedure: procStart, Needs: shell,
		Requirement: "Processes that run at the same time have different pids, none of them 0.",
		Run: func(t *T) {
			a, b := t.open(script("sleep 30")), t.open(script("sleep 30"))
			if a.pid == b.pid || a.pid == 0 || b.pid == 0 {
				t.Fatalf("want two different pids above 0, got %d and %d", a.pid, b.pid)
			}
		}},
	{ID: "process/start/stdin-default", Procedure: procStart, Needs: shell,
		Requirement: "Without the stdin field, standard input is open and takes input.",
		Run: func(t *T) {
			s := t.open(script("read line; echo got $line"))
			t.ok(t.send(pid(s.pid), "it\n"), "SendInput")
			t.equal("stdout", string(s.wait().stdout), "got it\n")
		}},
	{ID: "process/start/stdin-true", Procedure: procStart, Needs: shell,
		Requirement: "With stdin true, standard input is open and takes input.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; echo got $line"), true))
			t.ok(t.send(pid(s.pid), "it\n"), "SendInput")
			t.equal("stdout", string(s.wait().stdout), "got it\n")
		}},
	{ID: "process/start/stdin-false", Procedure: procStart, Needs: shell, Since: since(envdversion.StdinField),
		Requirement: "With stdin false, standard input is at its end from the beginning.",
		Run: func(t *T) {
			t.equal("stdout", t.output(withStdin(script("cat; echo end"), false)), "end\n")
		}},
	{ID: "process/start/user", Procedure: procStart, Needs: []Need{NeedShell, NeedRoot},
		Requirement: "The process runs as the user that HTTP Basic authentication names.",
		Run: func(t *T) {
			t.equal("id -un", t.output(command("id", "-un")), t.run.target.User+"\n")
			t.equal("id -u of root", t.as("root").output(command("id", "-u")), "0\n")
		}},
	{ID: "process/start/unknown-user", Procedure: procStart,
		Requirement: "A user that does not exist is refused with unauthenticated.",
		Run: func(t *T) {
			t.wantErr(t.as("nobody-"+t.run.id).refused(script("exit 0")), connect.CodeUnauthenticated)
		}},
	{ID: "process/start/no-user", Procedure: procStart, Needs: shell, Since: since(envdversion.DefaultUser),
		Requirement: "Without a user the process runs as the default user.",
		Run:         func(t *T) { t.exited(t.anonymous().complete(script("exit 0")), 0) }},
	{ID: "process/start/no-user-refused", Procedure: procStart, Needs: shell, Until: since(envdversion.DefaultUser),
		Requirement: "Without a user a start is refused with unauthenticated.",
		Run: func(t *T) {
			t.wantErr(t.anonymous().refused(script("exit 0")), connect.CodeUnauthenticated)
		}},
	{ID: "process/start/password-ignored", Procedure: procStart, Needs: shell, Protocols: justJSON,
		Requirement: "The password of HTTP Basic authentication is ignored.",
		Run: func(t *T) {
			t.exited(t.with("Authorization", basic(t.run.target.User+":secret")).complete(script("exit 0")), 0)
		}},
	{ID: "process/start/umask", Procedure: procStart, Level: Should, Needs: shell,
		Requirement: "The process has the umask 022.",
		Run:         func(t *T) { t.equal("umask", t.output(script("umask")), "0022\n") }},
	{ID: "process/start/hangup-lets-run", Procedure: procStart, Needs: shell, Protocols: both,
		Requirement: "A process goes on when the client hangs up.",
		Run: func(t *T) {
			s := t.open(withStdin(script("echo up; read line; exit 3"), true))
			s.untilOutput("up")
			s.cancel()
			again := t.attach(pid(s.pid))
			t.ok(t.send(pid(s.pid), "\n"), "SendInput after the hang-up")
			t.exited(again.wait(), 3)
		}},
	{ID: "process/start/parallel", Procedure: procStart, Needs: shell,
		Requirement: "Twenty processes run at the same time, and each stream carries its own process's output.",
		Run: func(t *T) {
			streams := make([]*events, 20)
			for i := range streams {
				streams[i] = t.open(withStdin(script(fmt.Sprintf("read line; echo %d $line; exit %d", i, i)), true))
			}
			for i, s := range streams {
				t.ok(t.send(pid(s.pid), "go\n"), "SendInput to process %d", i)
			}
			for i, s := range streams {
				o := s.wait()
				t.exited(o, int32(i))
				t.equal("stdout", string(o.stdout), fmt.Sprintf("%d go\n", i))
			}
		}},
}

var processEnvCases = []Case{
	{ID: "process/env/request", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "The request's envs reach the process.",
		Run: func(t *T) {
			t.equal("stdout", t.output(withEnv(script(`printf '%s' "$GREETING"`), "GREETING", "hello = \"wörld\"\n")), "hello = \"wörld\"\n")
		}},
	{ID: "process/env/empty-value", Procedure: procStart, Needs: shell,
		Requirement: "A variable with an empty value is set.",
		Run: func(t *T) {
			t.equal("stdout", t.output(withEnv(script(`echo ${EMPTY-unset}.`), "EMPTY", "")), ".\n")
		}},
	{ID: "process/env/many", Procedure: procStart, Needs: shell,
		Requirement: "Two hundred variables reach the process.",
		Run: func(t *T) {
			var pairs []string
			for i := range 200 {
				pairs = append(pairs, fmt.Sprintf("CONFORMANCE_%d", i), "x")
			}
			t.equal("stdout", strings.TrimSpace(t.output(withEnv(script("env | grep -c '^CONFORMANCE_'"), pairs...))), "200")
		}},
	{ID: "process/env/user-variables", Procedure: procStart, Needs: []Need{NeedShell, NeedRoot},
		Requirement: "HOME, USER and LOGNAME are those of the user.",
		Run: func(t *T) {
			t.equal("stdout", t.as("root").output(script("echo $HOME $USER $LOGNAME")), "/root root root\n")
		}},
	{ID: "process/env/override", Procedure: procStart, Needs: shell,
		Requirement: "The request's envs win over HOME and USER.",
		Run: func(t *T) {
			t.equal("stdout", t.output(withEnv(script("echo $HOME $USER"), "HOME", "/elsewhere", "USER", "somebody")), "/elsewhere somebody\n")
		}},
	{ID: "process/env/path", Procedure: procStart, Needs: shell,
		Requirement: "PATH is set, with the usual system directories.",
		Run:         func(t *T) { t.contains("PATH", t.output(script("echo $PATH")), "/bin") }},
	{ID: "process/env/path-lookup", Procedure: procStart, Needs: []Need{NeedShell, NeedFilesystem}, Since: since(envdversion.ShellWrapper),
		Requirement: "The command is looked up in the PATH of the request.",
		Run: func(t *T) {
			dir := t.path("bin")
			t.output(script(fmt.Sprintf("mkdir %s && printf '#!/bin/sh\\necho mine\\n' > %s/conformance-tool && chmod 755 %s/conformance-tool", dir, dir, dir)))
			t.equal("stdout", t.output(withEnv(command("conformance-tool"), "PATH", dir+":/usr/bin:/bin")), "mine\n")
		}},
	{ID: "process/env/sandbox", Procedure: procStart, Level: Should, Needs: shell,
		Requirement: "E2B_SANDBOX is set to true or false.",
		Run: func(t *T) {
			if got := strings.TrimSpace(t.output(script("echo $E2B_SANDBOX"))); got != "true" && got != "false" {
				t.Fatalf("want E2B_SANDBOX to be true or false, got %q", got)
			}
		}},
	{ID: "process/env/nul", Procedure: procStart, Needs: shell,
		Requirement: "A variable with a NUL byte is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantErr(t.refused(withEnv(script("exit 0"), "A", "x\x00y")), connect.CodeInvalidArgument)
		}},
	{ID: "process/env/separate", Procedure: procStart, Needs: shell,
		Requirement: "The variables of one request are not seen by the next process.",
		Run: func(t *T) {
			t.output(withEnv(script(":"), "LEAK", "yes"))
			t.equal("stdout", t.output(script("echo ${LEAK-no}")), "no\n")
		}},
	{ID: "process/env/no-terminal", Procedure: procStart, Level: May, Needs: shell,
		Requirement: "TERM is not set unless the request sets it.",
		Run:         func(t *T) { t.equal("stdout", t.output(script("env | grep -c '^TERM=' || :")), "0\n") }},
}

var processCwdCases = []Case{
	{ID: "process/cwd/absolute", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "The process runs in the directory that cwd names.",
		Run:         func(t *T) { t.equal("pwd", t.output(withCwd(script("pwd"), "/usr")), "/usr\n") }},
	{ID: "process/cwd/default", Procedure: procStart, Level: Should, Needs: shell,
		Requirement: "Without cwd the process runs in the default directory, which is the user's home unless it was set.",
		Run: func(t *T) {
			t.equal("pwd", t.output(script("pwd -P")), t.output(script(`cd "$HOME" && pwd -P`)))
		}},
	{ID: "process/cwd/empty", Procedure: procStart, Needs: shell,
		Requirement: "An empty cwd is the same as none.",
		Run: func(t *T) {
			t.equal("pwd", t.output(withCwd(script("pwd"), "")), t.output(script("pwd")))
		}},
	{ID: "process/cwd/tilde", Procedure: procStart, Needs: shell,
		Requirement: "A cwd of ~ is the user's home.",
		Run: func(t *T) {
			t.equal("pwd", t.output(withCwd(script("pwd -P"), "~")), t.output(script(`cd "$HOME" && pwd -P`)))
		}},
	{ID: "process/cwd/relative", Procedure: procStart, Needs: shell,
		Requirement: "A relative cwd counts from the user's home.",
		Run: func(t *T) {
			t.equal("pwd", t.output(withCwd(script("pwd -P"), "./.")), t.output(script(`cd "$HOME" && pwd -P`)))
		}},
	{ID: "process/cwd/other-home", Procedure: procStart, Needs: shell,
		Requirement: "A cwd of ~name is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantErr(t.refused(withCwd(script("pwd"), "~root/x")), connect.CodeInvalidArgument)
		}},
	{ID: "process/cwd/missing", Procedure: procStart, Needs: shell,
		Requirement: "A cwd that does not exist is refused with invalid_argument.",
		Run: func(t *T) {
			err := t.refused(withCwd(script("pwd"), "/no/such/"+t.run.id))
			t.wantErr(err, connect.CodeInvalidArgument)
		}},
	{ID: "process/cwd/missing-text", Procedure: procStart, Level: Should, Needs: shell, Since: since(envdversion.CwdCheck),
		Requirement: "The error of a cwd that does not exist names it and says so.",
		Run: func(t *T) {
			err := t.refused(withCwd(script("pwd"), "/no/such/"+t.run.id))
			t.contains("message", err.Error(), "/no/such/"+t.run.id)
			t.contains("message", err.Error(), "does not exist")
		}},
	{ID: "process/cwd/file", Procedure: procStart, Needs: shell,
		Requirement: "A cwd that is a file is refused with invalid_argument.",
		Run: func(t *T) {
			t.wantErr(t.refused(withCwd(script("pwd"), "/etc/passwd")), connect.CodeInvalidArgument)
		}},
	{ID: "process/cwd/relative-command", Procedure: procStart, Needs: shell,
		Requirement: "A relative path of a command counts from cwd.",
		Run: func(t *T) {
			t.equal("stdout", t.output(withCwd(command("./sh", "-c", "echo here"), "/bin")), "here\n")
		}},
}

var processEndCases = []Case{
	{ID: "process/end/own-signal", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "A process that dies by a signal ends with exit code -1, exited false, and status and error \"signal: …\".",
		Run: func(t *T) {
			o := t.complete(script("kill -KILL $$"))
			t.killed(o, "signal: killed")
			t.equal("error", o.end.GetError(), "signal: killed")
		}},
	{ID: "process/end/segmentation-fault", Procedure: procStart, Needs: shell,
		Requirement: "The status names the signal, whichever it was.",
		Run: func(t *T) {
			o := t.complete(script("kill -SEGV $$"))
			t.contains("status", o.end.GetStatus(), "signal: segmentation fault")
			t.equal("exit code", o.end.GetExitCode(), -1)
		}},
	{ID: "process/end/child-holds-output", Procedure: procStart, Needs: shell,
		Requirement: "The end event waits for children that still hold the output, and their output comes before it.",
		Run: func(t *T) {
			o := t.complete(script("(sleep 0.5; echo late) & echo early"))
			t.equal("stdout", string(o.stdout), "early\nlate\n")
			t.exited(o, 0)
		}},
	{ID: "process/end/detached-child", Procedure: procStart, Needs: shell,
		Requirement: "The end event does not wait for a child that has redirected its output.",
		Run: func(t *T) {
			s := t.open(script("sleep 300 >/dev/null 2>&1 & echo $!"))
			o := s.wait()
			t.exited(o, 0)
			child := strings.TrimSpace(string(o.stdout))
			t.output(script("kill " + child))
		}},
	{ID: "process/end/closed-output", Procedure: procStart, Needs: shell,
		Requirement: "A process that closes its output and runs on ends at its exit.",
		Run: func(t *T) {
			s := t.open(withStdin(script("echo closing; exec >/dev/null 2>&1; read line; exit 5"), true))
			s.untilOutput("closing")
			t.ok(t.send(pid(s.pid), "\n"), "SendInput")
			t.exited(s.wait(), 5)
		}},
	{ID: "process/end/failing-last", Procedure: procStart, Needs: shell,
		Requirement: "Output that is written just before a failing exit is not lost.",
		Run: func(t *T) {
			for range 5 {
				o := t.complete(script("printf last; printf words >&2; exit 9"))
				t.exited(o, 9)
				t.equal("output", string(o.stdout)+string(o.stderr), "lastwords")
			}
		}},
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

var sigTerm, sigKill = process.Signal_SIGNAL_SIGTERM, process.Signal_SIGNAL_SIGKILL
