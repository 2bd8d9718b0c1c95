// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/gen/filesystem"
	"github.com/envd-go/envd/gen/process"
)

// A Trait is one point on which servers differ, and what this one does.
type Trait struct {
	// Name is the point ("kill scope"), and Value what was found.
	Name  string `json:"name"`
	Value string `json:"value"`
}

// traits are the points on which servers are known to differ. Each function
// says in a few words what it found; what makes it fail is "unknown".
var traits = []struct {
	name string
	find func(t *T) string
}{
	{"routing", (*T).traitRouting},
	{"HTTP", (*T).traitHTTP},
	{"user", (*T).traitUser},
	{"not implemented", (*T).traitNotImplemented},
	{"unknown path", (*T).traitUnknownPath},
	{"error code", (*T).traitErrorCode},
	{"health", func(t *T) string { return fmt.Sprint(t.do(http.MethodGet, "/health", nil).status) }},
	{"JSON enums and sizes", (*T).traitNumbers},
	{"gzip", (*T).traitGzip},
	{"pid", (*T).traitPID},
	{"tags", (*T).traitTags},
	{"stdin by default", (*T).traitStdin},
	{"kill scope", (*T).traitKillScope},
	{"death by signal", (*T).traitSignal},
	{"deadline", (*T).traitDeadline},
	{"replay on attach", (*T).traitReplay},
	{"attach after the end", (*T).traitLateAttach},
	{"depth 0", (*T).traitDepth},
	{"upload answer", (*T).traitUpload},
}

const traitTimeout = 5 * time.Second

// lookAtTraits fills the profile's traits.
func (r *run) lookAtTraits(ctx context.Context) {
	for _, trait := range traits {
		value := "unknown"
		c := Case{Run: func(t *T) { value = trait.find(t) }}
		if failure, _, _ := r.attemptFor(ctx, job{c, r.profile.Protocols[0]}, traitTimeout); failure != "" {
			value = "unknown: " + clip(printable(strings.TrimPrefix(failure, preparation)), 120)
		}
		r.profile.Traits = append(r.profile.Traits, Trait{trait.name, value})
	}
}

func (t *T) traitRouting() string {
	how := "by host"
	if u, err := url.Parse(t.run.target.URL); err == nil && strings.Trim(u.Path, "/") != "" {
		how = "by path prefix"
	}
	if names := slices.Sorted(maps.Keys(t.run.target.Header)); len(names) > 0 {
		how += ", headers " + strings.Join(names, ", ")
	}
	return how
}

func (t *T) traitHTTP() string {
	req, err := http.NewRequestWithContext(t.ctx, http.MethodGet, t.run.target.URL+"/health", nil)
	t.ok(err, "GET /health")
	res, err := doer{t, false}.Do(req)
	t.ok(err, "GET /health")
	defer res.Body.Close()
	return cmp.Or(strings.TrimSpace(res.Proto+" "+res.Header.Get("Server")), "unknown")
}

func (t *T) traitUser() string {
	if name := strings.TrimSpace(t.output(script("id -un"))); name != t.run.target.User {
		return fmt.Sprintf("ignored: processes run as %s", printable(name))
	}
	return "honoured"
}

// traitNotImplemented asks for what servers leave out, of things that are not
// there.
func (t *T) traitNotImplemented() string {
	missing := []string{}
	look := func(name string, r *reply) {
		if r.status == http.StatusNotImplemented || r.status == http.StatusNotFound && !isError(r.body) {
			missing = append(missing, name)
		}
	}
	process := fmt.Sprintf(`{"process":{"pid":%d}}`, noPID)
	for _, call := range []string{procInput, procClose, procUpdate} {
		look(call, t.unary(call, process))
	}
	for _, call := range []string{procStream, fsWatch} {
		look(call, t.do(http.MethodPost, "/"+call, nil, "Content-Type", "application/connect+json"))
	}
	for _, call := range []string{fsMove, fsRemove, fsCreateW, fsEvents, fsRemoveW} {
		look(call, t.unary(call, `{"path":"/no/such/path","source":"/no/such/path","destination":"/no/such/path","watcherId":"none"}`))
	}
	look("POST /files/compose", t.do(http.MethodPost, "/files/compose", nil))
	return cmp.Or(strings.Join(missing, ", "), "nothing")
}

// isError reports whether a body is an error that envd itself has written.
func isError(body []byte) bool {
	var m map[string]any
	return json.Unmarshal(body, &m) == nil && m["code"] != nil
}

func (t *T) traitUnknownPath() string {
	r := t.do(http.MethodGet, "/no/such/path", nil)
	kind := "text"
	switch body := bytes.TrimSpace(r.body); {
	case len(body) == 0:
		kind = "no body"
	case json.Valid(body):
		kind = "JSON"
	case bytes.HasPrefix(body, []byte("<")):
		kind = "HTML"
	}
	return fmt.Sprintf("%d, %s", r.status, kind)
}

func (t *T) traitErrorCode() string {
	r := t.unary(fsStat, `{"path":"/no/such/path"}`)
	switch code := dig(t.object(r.body), "code").(type) {
	case string:
		return "a word"
	case float64:
		return "a number"
	default:
		return fmt.Sprintf("absent (%v)", code)
	}
}

func (t *T) traitNumbers() string {
	entry := dig(t.object(t.wantStatus(t.unary(fsStat, `{"path":"/"}`), 200).body), "entry")
	kind := func(key string) string {
		switch dig(entry, key).(type) {
		case string:
			return "text"
		case float64:
			return "numbers"
		}
		return "absent"
	}
	return fmt.Sprintf("enums are %s, sizes are %s", kind("type"), kind("size"))
}

func (t *T) traitGzip() string {
	if t.unary(procList, "{}", "Accept-Encoding", "gzip").header.Get("Content-Encoding") == "gzip" {
		return "unary answers, when asked"
	}
	return "no"
}

func (t *T) traitPID() string {
	s := t.open(script("echo $$"))
	own := strings.TrimSpace(string(s.wait().stdout))
	if own == fmt.Sprint(s.pid) {
		return "the process's own"
	}
	return "a number of the server's own"
}

func (t *T) traitTags() string {
	s := t.open(withTag(script("sleep 60"), t.tag()))
	if p := t.listed(s.pid); p == nil {
		return "processes are not listed"
	} else if p.Tag == nil {
		return "ignored"
	}
	return "listed"
}

func (t *T) traitStdin() string {
	s := t.open(script("read line; echo got $line"))
	if err := t.send(pid(s.pid), "input\n"); err != nil {
		return "closed"
	}
	if strings.Contains(string(s.rest().stdout), "got input") {
		return "open"
	}
	return "closed"
}

// traitKillScope kills a shell and looks whether its child is still there.
func (t *T) traitKillScope() string {
	s := t.open(script("sleep 60 & echo child $! end; wait"))
	s.untilOutput("end")
	var child int
	_, err := fmt.Sscanf(string(s.seen.stdout), "child %d end", &child)
	t.ok(err, "reading the child's pid")
	t.ok(t.signal(pid(s.pid), process.Signal_SIGNAL_SIGKILL), "SendSignal")
	s.rest()
	alive := strings.TrimSpace(t.output(script(fmt.Sprintf("if kill -KILL %d 2>/dev/null; then echo alive; else echo gone; fi", child))))
	return map[string]string{"alive": "the process alone", "gone": "its group"}[alive]
}

func (t *T) traitSignal() string {
	s := t.open(script("kill -KILL $$"))
	end := s.wait().end
	return fmt.Sprintf("exit code %d, exited %t, status %q", end.GetExitCode(), end.GetExited(), printable(end.GetStatus()))
}

func (t *T) traitDeadline() string {
	s := t.with(timeoutMs, "200").open(script("exec sleep 60"))
	o := s.rest()
	end := "no end event"
	if o.end != nil {
		end = "an end event"
	}
	if o.err == nil {
		return end + ", and a clean end of the stream"
	}
	return fmt.Sprintf("%s, then %s", end, connect.CodeOf(o.err).String())
}

func (t *T) traitReplay() string {
	s := t.open(script("echo early; read line; echo late"))
	s.untilOutput("early")
	a := t.attach(pid(s.pid))
	t.ok(t.send(pid(s.pid), "\n"), "SendInput")
	s.rest()
	if bytes.Contains(a.rest().stdout, []byte("early")) {
		return "yes"
	}
	return "no"
}

func (t *T) traitLateAttach() string {
	s := t.open(script("exit 3"))
	s.wait()
	a, err := t.tryAttach(pid(s.pid))
	if err != nil {
		return connect.CodeOf(err).String()
	}
	return fmt.Sprintf("its end event, exit code %d", a.rest().end.GetExitCode())
}

func (t *T) traitDepth() string {
	dir := t.newDir("a/b/c")
	dir = strings.TrimSuffix(dir, "/b/c")
	list, err := t.fs.ListDir(t.ctx, &filesystem.ListDirRequest{Path: dir})
	t.ok(err, "ListDir")
	return map[int]string{0: "nothing", 1: "one level", 2: "everything below"}[len(list.GetEntries())]
}

func (t *T) traitUpload() string {
	r := t.put(t.path("f"), "x")
	return cmp.Or(r.header.Get("Content-Type"), "no content type")
}
