// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/internal/envdversion"
)

const (
	procList    = "process.Process/List"
	procConnect = "process.Process/Connect"
	procSignal  = "process.Process/SendSignal"
	timeoutMs   = "Connect-Timeout-Ms"
	keepalive   = "Keepalive-Ping-Interval"
)

// poll tries cond until it holds or the case's time is over.
func (t *T) poll(what string, cond func() bool) {
	for !cond() {
		select {
		case <-t.ctx.Done():
			t.Fatalf("waiting until %s: it never was", what)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

var processTimeoutCases = []Case{
	{ID: "process/timeout/kills", Procedure: procStart, Needs: shell,
		Requirement: "Connect-Timeout-Ms on Start ends the stream with deadline_exceeded and kills the process.",
		Run: func(t *T) {
			s := t.with(timeoutMs, "700").open(script("exec sleep 30"))
			t.wantErr(s.rest().err, connect.CodeDeadlineExceeded)
			t.poll("the process is gone", func() bool { return t.listed(s.pid) == nil })
		}},
	{ID: "process/timeout/no-end", Procedure: procStart, Level: May, Needs: shell,
		Requirement: "A stream whose deadline is over has no end event.",
		Run: func(t *T) {
			o := t.with(timeoutMs, "700").open(script("exec sleep 30")).rest()
			if o.end != nil {
				t.Fatalf("want no end event on the stream that timed out, got %s", o)
			}
		}},
	{ID: "process/timeout/others-see-end", Procedure: procStart, Needs: shell,
		Requirement: "Other streams of a process that its deadline kills get an end event with \"signal: killed\".",
		Run: func(t *T) {
			s := t.with(timeoutMs, "1500").open(script("exec sleep 30"))
			other := t.attach(pid(s.pid))
			go s.rest()
			t.killed(other.wait(), "signal: killed")
		}},
	{ID: "process/timeout/enough", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "A process that ends before its deadline ends as any other.",
		Run:         func(t *T) { t.exited(t.with(timeoutMs, "10000").complete(script("exit 4")), 4) }},
	{ID: "process/timeout/after-hangup", Procedure: procStart, Needs: shell, Since: since(envdversion.CleanHangup),
		Requirement: "The deadline kills the process also when the client has hung up.",
		Run: func(t *T) {
			s := t.with(timeoutMs, "1500").open(script("exec sleep 30"))
			other := t.attach(pid(s.pid))
			s.cancel()
			t.killed(other.wait(), "signal: killed")
		}},
	{ID: "process/timeout/zero", Procedure: procStart, Level: Should, Needs: shell, Since: since(envdversion.CleanDeadline),
		Requirement: "A deadline of 0 is answered with deadline_exceeded at once.",
		Run: func(t *T) {
			s, err := t.with(timeoutMs, "0").tryOpen(script("sleep 30; : " + t.run.id))
			if err == nil {
				err = s.rest().err
			}
			t.wantErr(err, connect.CodeDeadlineExceeded)
		}},
	{ID: "process/timeout/one-ms", Procedure: procStart, Level: Should, Needs: shell, Since: since(envdversion.CleanDeadline),
		Requirement: "A deadline about the time of the start event is answered: with deadline_exceeded, or with the end of a process that was killed.",
		Run: func(t *T) {
			s, err := t.with(timeoutMs, "1").tryOpen(script("exec sleep 30"))
			if err != nil {
				t.wantErr(err, connect.CodeDeadlineExceeded)
				return
			}
			o := s.rest()
			if o.err != nil {
				t.wantErr(o.err, connect.CodeDeadlineExceeded)
				return
			}
			t.killed(o, "signal: killed")
		}},
	{ID: "process/timeout/connect", Procedure: procConnect, Needs: shell,
		Requirement: "Connect-Timeout-Ms on Connect ends that stream only; the process goes on.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; exit 6"), true))
			t.wantErr(t.with(timeoutMs, "400").attach(pid(s.pid)).rest().err, connect.CodeDeadlineExceeded)
			t.ok(t.send(pid(s.pid), "\n"), "SendInput")
			t.exited(s.wait(), 6)
		}},
	{ID: "process/timeout/bad", Procedure: procStart, Protocols: justJSON,
		Requirement: "A Connect-Timeout-Ms that is no number is refused with invalid_argument.",
		Run: func(t *T) {
			for _, value := range []string{"abc", "1.5", "12345678901"} {
				frames := t.stream(procStart, `{"process":{"cmd":"/bin/true"}}`, timeoutMs, value)
				t.wantEnd(frames, "invalid_argument")
			}
		}},
}

var processListCases = []Case{
	{ID: "process/list/running", Procedure: procList, Protocols: core, Needs: shell,
		Requirement: "A running process is listed with its pid, command and arguments.",
		Run: func(t *T) {
			p := t.listed(t.open(script("sleep 30")).pid)
			if p == nil {
				t.Fatalf("want the running process in the list, but it is not there")
			}
			t.equal("cmd", p.GetConfig().GetCmd(), "/bin/sh")
			t.equal("args", p.GetConfig().GetArgs(), []string{"-c", "sleep 30"})
		}},
	{ID: "process/list/envs", Procedure: procList, Needs: shell,
		Requirement: "The envs of the request are listed as sent.",
		Run: func(t *T) {
			p := t.listed(t.open(withEnv(script("sleep 30"), "COLOUR", "blue", "EMPTY", "")).pid)
			env := p.GetConfig().GetEnvs()
			_, empty := env["EMPTY"]
			t.equal("COLOUR, and EMPTY is there, and their number", []any{env["COLOUR"], empty, len(env)}, []any{"blue", true, 3})
		}},
	{ID: "process/list/cwd", Procedure: procList, Needs: shell,
		Requirement: "The cwd of the request is listed as sent, and absent where there was none.",
		Run: func(t *T) {
			p := t.listed(t.open(withCwd(script("sleep 30"), "/usr")).pid)
			t.equal("cwd", p.GetConfig().GetCwd(), "/usr")
			if c := t.listed(t.open(script("sleep 30")).pid).GetConfig(); c.Cwd != nil {
				t.Fatalf("want no cwd where none was sent, got %q", c.GetCwd())
			}
		}},
	{ID: "process/list/tag", Procedure: procList, Needs: shell, lock: "tags",
		Requirement: "The tag of the request is listed.",
		Run: func(t *T) {
			tag := "conformance-" + randomName()
			t.equal("tag", t.listed(t.open(withTag(script("sleep 30"), tag)).pid).GetTag(), tag)
		}},
	{ID: "process/list/no-tag", Procedure: procList, Level: Should, Needs: shell,
		Requirement: "A process without a tag is listed without one, not with an empty one.",
		Run: func(t *T) {
			if p := t.listed(t.open(script("sleep 30")).pid); p.Tag != nil {
				t.Fatalf("want no tag, got %q", p.GetTag())
			}
		}},
	{ID: "process/list/gone", Procedure: procList, Needs: shell,
		Requirement: "A process that has ended is not listed any more.",
		Run: func(t *T) {
			s := t.open(script("exit 0"))
			s.wait()
			t.poll("the process is gone from the list", func() bool { return t.listed(s.pid) == nil })
		}},
	{ID: "process/list/waits-for-output", Procedure: procList, Level: May, Needs: shell,
		Requirement: "A process is listed as long as its children hold its output.",
		Run: func(t *T) {
			s := t.open(script("sleep 30 & echo started"))
			s.untilOutput("started")
			if t.listed(s.pid) == nil {
				t.Fatalf("want the process in the list until its end event was sent")
			}
		}},
	{ID: "process/list/no-user", Procedure: procList, Protocols: justJSON,
		Requirement: "List needs no user.",
		Run:         func(t *T) { t.wantStatus(t.anonymous().unary(procList, "{}"), 200) }},
	{ID: "process/list/unknown-user", Procedure: procList,
		Requirement: "List with a user that does not exist is refused with unauthenticated.",
		Run: func(t *T) {
			_, err := t.as("nobody-"+t.run.id).proc.List(t.ctx, &process.ListRequest{})
			t.wantErr(err, connect.CodeUnauthenticated)
		}},
	{ID: "process/list/every-user", Procedure: procList, Needs: []Need{NeedShell, NeedRoot},
		Requirement: "The processes of all users are listed, whoever asks.",
		Run: func(t *T) {
			if s := t.as("root").open(script("sleep 30")); t.listed(s.pid) == nil {
				t.Fatalf("want root's process in the list of another user")
			}
		}},
	{ID: "process/list/pty", Procedure: procList, Needs: []Need{NeedPTY},
		Requirement: "A process with a terminal is listed as any other.",
		Run: func(t *T) {
			if s := t.open(withPTY(script("sleep 30"), 80, 24)); t.listed(s.pid) == nil {
				t.Fatalf("want the process with a terminal in the list")
			}
		}},
}

var processConnectCases = []Case{
	{ID: "process/connect/start-first", Procedure: procConnect, Protocols: core, Needs: shell,
		Requirement: "Connect begins with a start event that carries the pid.",
		Run: func(t *T) {
			s := t.open(script("sleep 30"))
			t.equal("pid", t.attach(pid(s.pid)).pid, s.pid)
		}},
	{ID: "process/connect/output-and-end", Procedure: procConnect, Needs: shell,
		Requirement: "An attached stream gets the output from then on, and the end event.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; echo $line; exit 8"), true))
			again := t.attach(pid(s.pid))
			t.ok(t.send(pid(s.pid), "attached\n"), "SendInput")
			go s.rest()
			o := again.wait()
			t.equal("stdout", string(o.stdout), "attached\n")
			t.exited(o, 8)
		}},
	{ID: "process/connect/no-replay", Procedure: procConnect, Level: Should, Needs: shell,
		Requirement: "Output from before the attachment is not repeated.",
		Run: func(t *T) {
			s := t.open(withStdin(script("echo before; read line; echo after"), true))
			s.untilOutput("before")
			again := t.attach(pid(s.pid))
			t.ok(t.send(pid(s.pid), "\n"), "SendInput")
			go s.rest()
			t.equal("stdout", string(again.wait().stdout), "after\n")
		}},
	{ID: "process/connect/several", Procedure: procConnect, Needs: shell,
		Requirement: "Every attached stream gets all the output and the end event.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; echo $line; exit 2"), true))
			all := []*events{s, t.attach(pid(s.pid)), t.attach(pid(s.pid)), t.attach(pid(s.pid))}
			t.ok(t.send(pid(s.pid), "all\n"), "SendInput")
			for _, one := range all {
				o := one.wait()
				t.equal("stdout", string(o.stdout), "all\n")
				t.exited(o, 2)
			}
		}},
	{ID: "process/connect/detach", Procedure: procConnect, Needs: shell,
		Requirement: "A process and its other streams go on when one stream hangs up.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; echo $line"), true))
			t.attach(pid(s.pid)).cancel()
			t.ok(t.send(pid(s.pid), "still here\n"), "SendInput")
			t.equal("stdout", string(s.wait().stdout), "still here\n")
		}},
	{ID: "process/connect/tag", Procedure: procConnect, Needs: shell, lock: "tags",
		Requirement: "Connect finds a process by its tag.",
		Run: func(t *T) {
			tag := t.tag()
			s := t.open(withTag(script("sleep 30"), tag))
			t.equal("pid", t.attach(byTag(tag)).pid, s.pid)
		}},
	{ID: "process/connect/unknown-pid", Procedure: procConnect, Protocols: core,
		Requirement: "Connect to a pid that is not there is refused with not_found.",
		Run: func(t *T) {
			_, err := t.tryAttach(pid(noPID))
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "process/connect/unknown-tag", Procedure: procConnect,
		Requirement: "Connect to a tag that is not there is refused with not_found.",
		Run: func(t *T) {
			_, err := t.tryAttach(byTag("no-such-tag-" + t.run.id))
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "process/connect/no-selector", Procedure: procConnect,
		Requirement: "Connect without a selector is refused with unimplemented.",
		Run: func(t *T) {
			_, err := t.tryAttach(nil)
			t.wantErr(err, connect.CodeUnimplemented)
			_, err = t.tryAttach(&process.ProcessSelector{})
			t.wantErr(err, connect.CodeUnimplemented)
		}},
	{ID: "process/connect/other-user", Procedure: procConnect, Needs: shell,
		Requirement: "Connect needs no user.",
		Run: func(t *T) {
			s := t.open(script("sleep 30"))
			t.equal("pid", t.anonymous().attach(pid(s.pid)).pid, s.pid)
		}},
	{ID: "process/connect/retained-end", Procedure: procConnect, Needs: shell, Since: since(envdversion.ExitRetention),
		Requirement: "Connect to a process that has just ended gives its end event.",
		Run: func(t *T) {
			s := t.open(script("exit 11"))
			s.wait()
			t.poll("the process is gone from the list", func() bool { return t.listed(s.pid) == nil })
			t.exited(t.attach(pid(s.pid)).wait(), 11)
		}},
	{ID: "process/connect/ended", Procedure: procConnect, Needs: shell, Until: since(envdversion.ExitRetention),
		Requirement: "Connect to a process that has ended is refused with not_found.",
		Run: func(t *T) {
			s := t.open(script("exit 11"))
			s.wait()
			t.poll("the process is gone from the list", func() bool { return t.listed(s.pid) == nil })
			_, err := t.tryAttach(pid(s.pid))
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "process/connect/pty", Procedure: procConnect, Needs: []Need{NeedPTY},
		Requirement: "Connect to a process with a terminal gets its output in the pty field.",
		Run: func(t *T) {
			s := t.open(withPTY(script("read line; echo got-$line"), 80, 24))
			again := t.attach(pid(s.pid))
			go s.rest()
			t.ok(t.sendPTY(pid(s.pid), "it\n"), "SendInput")
			t.contains("pty", string(again.wait().pty), "got-it")
		}},
}

var processSignalCases = []Case{
	{ID: "process/signal/term", Procedure: procSignal, Protocols: core, Needs: shell,
		Requirement: "TERM ends a process; its end event says \"signal: terminated\".",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			t.ok(t.signal(pid(s.pid), sigTerm), "SendSignal")
			t.killed(s.wait(), "signal: terminated")
		}},
	{ID: "process/signal/kill", Procedure: procSignal, Protocols: core, Needs: shell,
		Requirement: "KILL ends a process; its end event says \"signal: killed\".",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			t.ok(t.signal(pid(s.pid), sigKill), "SendSignal")
			t.killed(s.wait(), "signal: killed")
		}},
	{ID: "process/signal/tag", Procedure: procSignal, Needs: shell, lock: "tags",
		Requirement: "SendSignal finds a process by its tag.",
		Run: func(t *T) {
			tag := t.tag()
			s := t.open(withTag(script("exec sleep 30"), tag))
			t.ok(t.signal(byTag(tag), sigKill), "SendSignal")
			t.killed(s.wait(), "signal: killed")
		}},
	{ID: "process/signal/trap", Procedure: procSignal, Needs: shell,
		Requirement: "A process can handle TERM, and its own exit code is reported.",
		Run: func(t *T) {
			s := t.open(withStdin(script("trap 'exit 21' TERM; echo ready; while :; do read line; done"), true))
			s.untilOutput("ready")
			t.ok(t.signal(pid(s.pid), sigTerm), "SendSignal")
			t.exited(s.wait(), 21)
		}},
	{ID: "process/signal/ignored", Procedure: procSignal, Needs: shell,
		Requirement: "A process that ignores TERM runs on, and its later output is delivered.",
		Run: func(t *T) {
			s := t.open(withStdin(script("trap '' TERM; echo ready; read line; echo $line; sleep 0.3; exit 0"), true))
			s.untilOutput("ready")
			t.ok(t.signal(pid(s.pid), sigTerm), "SendSignal")
			t.ok(t.send(pid(s.pid), "alive\n"), "SendInput")
			o := s.wait()
			t.exited(o, 0)
			t.equal("stdout", string(o.stdout), "ready\nalive\n")
		}},
	{ID: "process/signal/last-words", Procedure: procSignal, Level: Should, Needs: shell,
		Requirement: "What a process writes when TERM ends it is not lost.",
		Run: func(t *T) {
			for range 5 {
				s := t.open(withStdin(script("trap 'head -c 300000 /dev/zero; exit 0' TERM; echo ready; while :; do read line; done"), true))
				s.untilOutput("ready")
				t.ok(t.signal(pid(s.pid), sigTerm), "SendSignal")
				t.equal("bytes", len(s.wait().stdout), len("ready\n")+300_000)
			}
		}},
	{ID: "process/signal/leader-only", Procedure: procSignal, Level: Should, Needs: shell,
		Requirement: "A signal reaches the process only, not its children.",
		Run: func(t *T) {
			s := t.open(script("sleep 300 >/dev/null 2>&1 & echo child $!; wait"))
			s.untilOutput("\n")
			child := strings.Fields(string(s.seen.stdout))[1]
			t.ok(t.signal(pid(s.pid), sigKill), "SendSignal")
			s.wait()
			t.equal("the child lives", t.output(script("kill "+child+" && echo yes || echo no")), "yes\n")
		}},
	{ID: "process/signal/cuts-children", Procedure: procSignal, Level: Should, Needs: shell,
		Requirement: "After KILL the end event does not wait for children that hold the output.",
		Run: func(t *T) {
			s := t.open(script("sleep 8 & echo up; wait"))
			s.untilOutput("up")
			t.ok(t.signal(pid(s.pid), sigKill), "SendSignal")
			start := time.Now()
			t.killed(s.wait(), "signal: killed")
			if d := time.Since(start); d > 6*time.Second {
				t.Fatalf("want the end event soon after KILL, got it after %s, when the child had ended", d)
			}
		}},
	{ID: "process/signal/unknown-pid", Procedure: procSignal, Protocols: core,
		Requirement: "A signal to a pid that is not there is refused with not_found.",
		Run:         func(t *T) { t.wantErr(t.signal(pid(noPID), sigTerm), connect.CodeNotFound) }},
	{ID: "process/signal/unknown-tag", Procedure: procSignal,
		Requirement: "A signal to a tag that is not there is refused with not_found.",
		Run: func(t *T) {
			t.wantErr(t.signal(byTag("no-such-tag-"+t.run.id), sigTerm), connect.CodeNotFound)
		}},
	{ID: "process/signal/foreign-process", Procedure: procSignal, Needs: shell,
		Requirement: "A process that the server has not started cannot be signalled: it is not_found.",
		Run: func(t *T) {
			s := t.open(withStdin(script("sleep 300 >/dev/null 2>&1 & echo $!; read line; kill $!"), true))
			s.untilOutput("\n")
			var child uint32
			for _, c := range strings.TrimSpace(string(s.seen.stdout)) {
				child = child*10 + uint32(c-'0')
			}
			err := t.signal(pid(child), sigTerm)
			t.ok(t.send(pid(s.pid), "\n"), "SendInput")
			t.wantErr(err, connect.CodeNotFound)
		}},
	{ID: "process/signal/ended", Procedure: procSignal, Needs: shell,
		Requirement: "A signal to a process that has ended is refused with not_found.",
		Run: func(t *T) {
			s := t.open(script("exit 0"))
			s.wait()
			t.poll("the process is gone from the list", func() bool { return t.listed(s.pid) == nil })
			t.wantErr(t.signal(pid(s.pid), sigTerm), connect.CodeNotFound)
		}},
	{ID: "process/signal/no-selector", Procedure: procSignal,
		Requirement: "A signal without a selector is refused with unimplemented.",
		Run:         func(t *T) { t.wantErr(t.signal(nil, sigTerm), connect.CodeUnimplemented) }},
	{ID: "process/signal/unspecified", Procedure: procSignal, Needs: shell,
		Requirement: "No signal is refused with unimplemented, and harms nothing.",
		Run: func(t *T) {
			s := t.open(withStdin(script("read line; exit 1"), true))
			t.wantErr(t.signal(pid(s.pid), 0), connect.CodeUnimplemented)
			t.ok(t.send(pid(s.pid), "\n"), "SendInput")
			t.exited(s.wait(), 1)
		}},
	{ID: "process/signal/other-numbers", Procedure: procSignal, Level: Should, Needs: shell,
		Requirement: "A signal other than TERM and KILL is refused with unimplemented.",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			for _, n := range []process.Signal{1, 2, 3, 10, 99} {
				t.wantErr(t.signal(pid(s.pid), n), connect.CodeUnimplemented)
			}
		}},
	{ID: "process/signal/other-user", Procedure: procSignal, Needs: shell,
		Requirement: "SendSignal needs no user.",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			t.ok(t.anonymous().signal(pid(s.pid), sigKill), "SendSignal without a user")
			t.killed(s.wait(), "signal: killed")
		}},
	{ID: "process/signal/pty", Procedure: procSignal, Needs: []Need{NeedPTY},
		Requirement: "A process with a terminal can be killed as any other.",
		Run: func(t *T) {
			s := t.open(withPTY(command("sleep", "30"), 80, 24))
			t.ok(t.signal(pid(s.pid), sigKill), "SendSignal")
			t.killed(s.wait(), "signal: killed")
		}},
}

var keepaliveCases = []Case{
	{ID: "process/keepalive/start", Procedure: procStart, Protocols: core, Needs: shell,
		Requirement: "Start sends keepalive events at the interval that Keepalive-Ping-Interval gives in seconds.",
		Run: func(t *T) {
			s := t.with(keepalive, "1").open(script("exec sleep 30"))
			s.until("a keepalive event", func(o *outcome) bool { return o.keepalives > 0 })
		}},
	{ID: "process/keepalive/connect", Procedure: procConnect, Needs: shell,
		Requirement: "Connect sends keepalive events at the interval of its own request.",
		Run: func(t *T) {
			s := t.open(script("exec sleep 30"))
			t.with(keepalive, "1").attach(pid(s.pid)).until("a keepalive event", func(o *outcome) bool { return o.keepalives > 0 })
		}},
	{ID: "process/keepalive/busy", Procedure: procStart, Level: May, Needs: shell,
		Requirement: "No keepalive is sent while output comes more often than the interval.",
		Run: func(t *T) {
			s := t.with(keepalive, "2").open(script("for i in 1 2 3 4 5 6; do echo $i; sleep 0.4; done"))
			t.equal("keepalive events", s.wait().keepalives, 0)
		}},
	{ID: "process/keepalive/bad-value", Procedure: procStart, Level: Should, Needs: shell, Protocols: justJSON,
		Requirement: "An interval that is no whole number is ignored.",
		Run: func(t *T) {
			for _, value := range []string{"abc", "0.5", ""} {
				t.exited(t.with(keepalive, value).complete(script("exit 0")), 0)
			}
		}},
	{ID: "process/keepalive/zero", Procedure: procStart, Level: Should, Needs: []Need{NeedShell, NeedCrash}, Protocols: justJSON, lock: "crash",
		Requirement: "An interval of 0 does no harm to the server.",
		Run: func(t *T) {
			other := t.open(withStdin(script("read line; exit 12"), true))
			ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
			defer cancel()
			if s, err := t.with(keepalive, "0").until(ctx).tryOpen(script("exec sleep 1")); err == nil {
				s.rest()
			}
			t.ok(t.send(pid(other.pid), "\n"), "SendInput to another process")
			t.exited(other.wait(), 12)
		}},
}

var tagCases = []Case{
	{ID: "process/tag/among-others", Procedure: procUpdate, Level: Should, Needs: shell, lock: "tags",
		Requirement: "A process is found by its tag also when processes with other tags run.",
		Run: func(t *T) {
			tags := []string{"a-" + t.run.id, "b-" + t.run.id, "c-" + t.run.id, "d-" + t.run.id}
			for _, tag := range tags {
				t.open(withTag(script("exec sleep 30"), tag))
			}
			for i, tag := range tags {
				_, err := t.proc.Update(t.ctx, &process.UpdateRequest{Process: byTag(tag)})
				t.ok(err, "Update of tag %d of %d", i+1, len(tags))
			}
		}},
	{ID: "process/tag/shared", Procedure: procStart, Needs: shell, lock: "tags",
		Requirement: "Two processes may have the same tag, and both are listed.",
		Run: func(t *T) {
			tag := t.tag()
			a, b := t.open(withTag(script("sleep 30"), tag)), t.open(withTag(script("sleep 30"), tag))
			t.equal("tags", []string{t.listed(a.pid).GetTag(), t.listed(b.pid).GetTag()}, []string{tag, tag})
		}},
	{ID: "process/tag/shared-selector", Procedure: procConnect, Level: May, Needs: shell, lock: "tags",
		Requirement: "A tag that two processes share selects one of them.",
		Run: func(t *T) {
			tag := t.tag()
			a, b := t.open(withTag(script("sleep 30"), tag)), t.open(withTag(script("sleep 30"), tag))
			if s := t.attach(byTag(tag)); s.pid != a.pid && s.pid != b.pid {
				t.Fatalf("want pid %d or %d, got %d", a.pid, b.pid, s.pid)
			}
		}},
	{ID: "process/tag/freed", Procedure: procStart, Needs: shell, lock: "tags",
		Requirement: "A tag can be used again after its process has ended, and means the new one.",
		Run: func(t *T) {
			tag := t.tag()
			first := t.open(withTag(script("exit 0"), tag))
			first.wait()
			t.poll("the first process is gone", func() bool { return t.listed(first.pid) == nil })
			second := t.open(withTag(script("sleep 30"), tag))
			t.equal("pid", t.attach(byTag(tag)).pid, second.pid)
		}},
	{ID: "process/tag/unusual", Procedure: procStart, Needs: shell, lock: "tags",
		Requirement: "A tag may be any text, with spaces and unicode.",
		Run: func(t *T) {
			tag := "tag with spaces, ünï and / " + t.tag()
			s := t.open(withTag(script("sleep 30"), tag))
			t.equal("tag", t.listed(s.pid).GetTag(), tag)
			t.ok(t.signal(byTag(tag), sigKill), "SendSignal")
		}},
	{ID: "process/tag/digits", Procedure: procConnect, Needs: shell, lock: "tags",
		Requirement: "A tag of digits is not taken for a pid.",
		Run: func(t *T) {
			other := t.open(script("sleep 30"))
			_, err := t.tryAttach(byTag(strings.TrimSpace(fmtUint(other.pid))))
			t.wantErr(err, connect.CodeNotFound)
		}},
}
