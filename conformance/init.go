// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/envd-go/envd/internal/envdversion"
)

const initPath = "POST /init"

var (
	allowInit     = []Need{NeedInit}
	initAndShell  = []Need{NeedInit, NeedShell}
	openInit      = []Need{NeedInit, NeedOpen}
	initAndUser   = []Need{NeedInit, NeedShell, NeedRoot}
	initWithToken = []Need{NeedInit, NeedToken}
)

// postInit calls POST /init with fields of a JSON object made by hand
// (`"envVars":{}`), and the token of the target where it has one. It never
// sends a timestamp, which would set the sandbox's clock.
func (t *T) postInit(fields string, header ...string) *reply {
	if token := t.run.target.Token; token != "" {
		fields = strings.TrimSuffix(`"accessToken":`+mustJSON(token)+","+fields, ",")
	}
	return t.do(http.MethodPost, "/init", []byte("{"+fields+"}"), header...)
}

// initialise calls POST /init, which has to succeed.
func (t *T) initialise(fields string) { t.wantStatus(t.postInit(fields), 204) }

// envs is GET /envs.
func (t *T) envs() map[string]any {
	return t.object(t.wantStatus(t.do(http.MethodGet, "/envs", nil), 200).body)
}

// keepEnvs puts the variables of the sandbox back when the case is over. envd
// before 0.5.25 keeps those that came in between.
func (t *T) keepEnvs() {
	before := t.envs()
	delete(before, "E2B_SANDBOX") // the daemon's own
	t.cleanup(func(ctx context.Context) { t.until(ctx).postInit(`"envVars":` + mustJSON(before)) })
}

// keepUser puts the default user back when the case is over.
func (t *T) keepUser() {
	before := strings.TrimSpace(t.anonymous().output(script("id -un")))
	t.cleanup(func(ctx context.Context) { t.until(ctx).postInit(`"defaultUser":` + mustJSON(before)) })
}

// keepWorkdir puts the default directory back when the case is over. There is
// no way to unset it, but "~" is the home of whoever asks, as without one.
func (t *T) keepWorkdir() (home string) {
	before := strings.TrimSpace(t.output(script("pwd")))
	home = strings.TrimSpace(t.output(withCwd(script("pwd"), "~")))
	if before == home {
		before = "~"
	}
	t.cleanup(func(ctx context.Context) { t.until(ctx).postInit(`"defaultWorkdir":` + mustJSON(before)) })
	return home
}

// variable returns a name that no sandbox has.
func variable() string { return "ENVD_CONFORMANCE_" + strings.ToUpper(randomName()) }

func envVars(pairs ...string) string {
	vars := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		vars[pairs[i]] = pairs[i+1]
	}
	return `"envVars":` + mustJSON(vars)
}

// initCases change what the whole daemon has, and therefore run alone.
var initCases = slices.Concat(initAnswerCases, initEnvCases, initDefaultCases, initTokenCases)

var initAnswerCases = []Case{
	{ID: "init/answer/success", Procedure: initPath, Protocols: justHTTP, Needs: allowInit,
		Requirement: "A success is answered with 204 and no body.",
		Run:         func(t *T) { t.equal("body", string(t.wantStatus(t.postInit(""), 204).body), "") }},
	{ID: "init/answer/no-body", Procedure: initPath, Protocols: justHTTP, Needs: openInit,
		Requirement: "The body may be absent.",
		Run:         func(t *T) { t.wantStatus(t.do(http.MethodPost, "/init", nil), 204) }},
	{ID: "init/answer/unknown-field", Procedure: initPath, Protocols: justHTTP, Needs: allowInit,
		Requirement: "Unknown fields are ignored, and null is as good as absent.",
		Run:         func(t *T) { t.initialise(`"noSuchField":{"a":[1]},"envVars":null`) }},
	{ID: "init/answer/any-type", Procedure: initPath, Protocols: justHTTP, Needs: allowInit, Level: May,
		Requirement: "The body is read as JSON whatever its content type.",
		Run:         func(t *T) { t.wantStatus(t.postInit("", "Content-Type", "text/plain"), 204) }},
	{ID: "init/answer/malformed", Procedure: initPath, Protocols: justHTTP, Needs: openInit,
		Requirement: "A body that is not JSON is answered with 400.",
		Run:         func(t *T) { t.wantStatus(t.do(http.MethodPost, "/init", []byte(`{"envVars":`)), 400) }},
	{ID: "init/answer/wrong-type", Procedure: initPath, Protocols: justHTTP, Needs: allowInit,
		Requirement: "A field of the wrong type is answered with 400.",
		Run: func(t *T) {
			t.wantStatus(t.postInit(`"envVars":{"A":1}`), 400)
			t.wantStatus(t.postInit(`"envVars":["A"]`), 400)
		}},
	{ID: "init/answer/no-store", Procedure: initPath, Protocols: justHTTP, Needs: allowInit, Level: May,
		Requirement: "The answer must not be cached.",
		Run:         func(t *T) { t.contains("Cache-Control", t.postInit("").header.Get("Cache-Control"), "no-store") }},
	{ID: "init/answer/version", Procedure: initPath, Protocols: justHTTP, Needs: allowInit, Level: Should, Since: since(envdversion.InitVersionHeader),
		Requirement: "X-Envd-Version carries the daemon's version, in errors too.",
		Run: func(t *T) {
			for _, r := range []*reply{t.postInit(""), t.postInit(`"envVars":7`)} {
				if _, err := envdversion.Parse(r.header.Get("X-Envd-Version")); err != nil {
					t.Fatalf("want a version in X-Envd-Version, got %q: %v", r.header.Get("X-Envd-Version"), err)
				}
			}
		}},
	{ID: "init/answer/methods", Procedure: initPath, Protocols: justHTTP, Needs: openInit, Level: May,
		Requirement: "Methods other than POST are answered with 405.",
		Run:         func(t *T) { t.wantStatus(t.do(http.MethodGet, "/init", nil), 405) }},
}

var initEnvCases = []Case{
	{ID: "init/envs/listed", Procedure: initPath, Protocols: justHTTP, Needs: allowInit,
		Requirement: "GET /envs has the variables of envVars.",
		Run: func(t *T) {
			t.keepEnvs()
			name := variable()
			t.initialise(envVars(name, "a b=c"))
			t.equal(name, t.envs()[name], "a b=c")
		}},
	{ID: "init/envs/process", Procedure: initPath, Protocols: justHTTP, Needs: initAndShell,
		Requirement: "Processes have the variables of envVars.",
		Run: func(t *T) {
			t.keepEnvs()
			name := variable()
			t.initialise(envVars(name, "a b=c"))
			t.equal("the process's "+name, t.output(script(`printf %s "$`+name+`"`)), "a b=c")
		}},
	{ID: "init/envs/request-wins", Procedure: initPath, Protocols: justHTTP, Needs: initAndShell,
		Requirement: "The envs of a request win over envVars.",
		Run: func(t *T) {
			t.keepEnvs()
			name := variable()
			t.initialise(envVars(name, "init"))
			t.equal("the process's "+name, t.output(withEnv(script(`printf %s "$`+name+`"`), name, "request")), "request")
		}},
	{ID: "init/envs/over-user", Procedure: initPath, Protocols: justHTTP, Needs: initAndShell, Level: Should, Since: since(envdversion.InitEnvsReplace),
		Requirement: "envVars win over the user's own variables, such as LOGNAME.",
		Run: func(t *T) {
			t.keepEnvs()
			t.initialise(envVars("LOGNAME", "somebody"))
			t.equal("LOGNAME", t.output(script(`printf %s "$LOGNAME"`)), "somebody")
		}},
	{ID: "init/envs/absent", Procedure: initPath, Protocols: justHTTP, Needs: allowInit,
		Requirement: "Without envVars the variables stay.",
		Run: func(t *T) {
			t.keepEnvs()
			name := variable()
			t.initialise(envVars(name, "kept"))
			t.initialise("")
			t.equal(name, t.envs()[name], "kept")
		}},
	{ID: "init/envs/replace", Procedure: initPath, Protocols: justHTTP, Needs: allowInit, Since: since(envdversion.InitEnvsReplace),
		Requirement: "envVars replace all that came before.",
		Run:         func(t *T) { t.equal("variables of the first call", len(t.twice()), 0) }},
	{ID: "init/envs/merge", Procedure: initPath, Protocols: justHTTP, Needs: allowInit, Until: since(envdversion.InitEnvsReplace),
		Requirement: "envVars are added to what came before.",
		Run:         func(t *T) { t.equal("variables of the first call", len(t.twice()), 1) }},
}

// twice sets one variable and then another, and returns what is left of the
// first.
func (t *T) twice() map[string]any {
	t.keepEnvs()
	first, second := variable(), variable()
	t.initialise(envVars(first, "1"))
	t.initialise(envVars(second, "2"))
	left := t.envs()
	t.equal(second, left[second], "2")
	maps.DeleteFunc(left, func(name string, _ any) bool { return name != first })
	return left
}

var initDefaultCases = []Case{
	{ID: "init/default/user", Procedure: initPath, Protocols: justHTTP, Needs: initAndUser, Since: since(envdversion.DefaultUser),
		Requirement: "A request without a user acts as defaultUser.",
		Run: func(t *T) {
			t.keepUser()
			t.initialise(`"defaultUser":` + mustJSON(t.run.target.User))
			t.equal("user", strings.TrimSpace(t.anonymous().output(script("id -un"))), t.run.target.User)
		}},
	{ID: "init/default/user-empty", Procedure: initPath, Protocols: justHTTP, Needs: initAndShell, Since: since(envdversion.DefaultUser),
		Requirement: "An empty defaultUser changes nothing.",
		Run: func(t *T) {
			before := t.anonymous().output(script("id -un"))
			t.initialise(`"defaultUser":""`)
			t.equal("user", t.anonymous().output(script("id -un")), before)
		}},
	{ID: "init/default/user-unknown", Procedure: initPath, Protocols: justHTTP, Needs: initAndShell, Since: since(envdversion.DefaultUser), Level: Should,
		Requirement: "A defaultUser that does not exist is accepted; requests without a user are then refused with unauthenticated.",
		Run: func(t *T) {
			t.keepUser()
			t.initialise(`"defaultUser":"nobody-` + t.run.id + `"`)
			t.wantCode(t.anonymous().unary(fsStat, `{"path":"/"}`), 401, "unauthenticated")
		}},
	{ID: "init/default/workdir", Procedure: initPath, Protocols: justHTTP, Needs: initAndShell, Since: since(envdversion.DefaultUser),
		Requirement: "A process without cwd runs in defaultWorkdir; a relative cwd counts from the home all the same.",
		Run: func(t *T) {
			home := t.keepWorkdir()
			dir := t.dir()
			t.initialise(`"defaultWorkdir":` + mustJSON(dir))
			t.equal("working directory", strings.TrimSpace(t.output(script("pwd"))), dir)
			t.equal("working directory for .", strings.TrimSpace(t.output(withCwd(script("pwd"), "."))), home)
		}},
	{ID: "init/default/workdir-home", Procedure: initPath, Protocols: justHTTP, Needs: initAndShell, Since: since(envdversion.DefaultUser), Level: Should,
		Requirement: "A defaultWorkdir of ~ is the home of the user who asks.",
		Run: func(t *T) {
			home := t.keepWorkdir()
			t.initialise(`"defaultWorkdir":` + mustJSON(t.dir()))
			t.initialise(`"defaultWorkdir":"~"`)
			t.equal("working directory", strings.TrimSpace(t.output(script("pwd"))), home)
		}},
	{ID: "init/default/workdir-path", Procedure: initPath, Protocols: justHTTP, Needs: initAndShell, Since: since(envdversion.DefaultUser), Level: Should,
		Requirement: "The empty path of a filesystem call is defaultWorkdir.",
		Run: func(t *T) {
			t.keepWorkdir()
			dir := t.dir()
			t.initialise(`"defaultWorkdir":` + mustJSON(dir))
			r := t.wantStatus(t.unary(fsStat, `{"path":""}`), 200)
			t.equal("path", dig(t.object(r.body), "entry", "path"), dir)
		}},
}

var initTokenCases = []Case{
	{ID: "init/token/same", Procedure: initPath, Protocols: justHTTP, Needs: initWithToken, Since: since(envdversion.OpenInit),
		Requirement: "A call with the token in its body needs no header, and a wrong one does not matter.",
		Run: func(t *T) {
			t.wantStatus(t.withToken("").postInit(""), 204)
			t.wantStatus(t.withToken("wrong").postInit(""), 204)
		}},
	{ID: "init/token/other", Procedure: initPath, Protocols: justHTTP, Needs: initWithToken, Since: since(envdversion.OpenInit),
		Requirement: "Another token is refused with 401, and the first one stays.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodPost, "/init", []byte(`{"accessToken":"another"}`)), 401)
			t.envs()
		}},
	{ID: "init/token/omitted", Procedure: initPath, Protocols: justHTTP, Needs: initWithToken, Since: since(envdversion.OpenInit),
		Requirement: "A call without the token in its body is refused with 401, and the token stays.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodPost, "/init", []byte(`{}`)), 401)
			t.gate(t.withToken("").do(http.MethodGet, "/envs", nil))
		}},
	{ID: "init/token/refused-text", Procedure: initPath, Protocols: justHTTP, Needs: initWithToken, Since: since(envdversion.OpenInit), Level: May,
		Requirement: "A refusal says why in plain text.",
		Run: func(t *T) {
			r := t.wantStatus(t.do(http.MethodPost, "/init", []byte(`{"accessToken":"another"}`)), 401)
			t.contains("Content-Type", r.header.Get("Content-Type"), "text/plain")
			t.contains("body", string(r.body), "token")
		}},
	{ID: "init/token/bad", Procedure: initPath, Protocols: justHTTP, Needs: initWithToken, Since: since(envdversion.OpenInit), Level: Should,
		Requirement: "A token that is empty or no string is answered with 400.",
		Run: func(t *T) {
			for _, token := range []string{`""`, `7`, `["a"]`} {
				t.wantStatus(t.do(http.MethodPost, "/init", []byte(`{"accessToken":`+token+`}`)), 400)
			}
		}},
	{ID: "init/token/header", Procedure: initPath, Protocols: justHTTP, Needs: initWithToken, Until: since(envdversion.OpenInit),
		Requirement: "A call without the token in X-Access-Token is refused with 401.",
		Run:         func(t *T) { t.gate(t.withToken("").postInit("")) }},
	{ID: "init/token/set-once", Procedure: initPath, Protocols: justHTTP, Needs: initWithToken, Until: since(envdversion.OpenInit),
		Requirement: "Another token is refused with 409, and the first one stays.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodPost, "/init", []byte(`{"accessToken":"another"}`)), 409)
			t.envs()
		}},
	{ID: "init/token/kept", Procedure: initPath, Protocols: justHTTP, Needs: initWithToken, Until: since(envdversion.OpenInit),
		Requirement: "A call without a token in its body keeps the token.",
		Run: func(t *T) {
			t.wantStatus(t.do(http.MethodPost, "/init", []byte(`{}`)), 204)
			t.gate(t.withToken("").do(http.MethodGet, "/envs", nil))
		}},
}
