// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
)

// answer is an HTTP answer as text.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request with headers (names and values in turn).
func do(t *testing.T, srv *envdtest.Server, method, path, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(data)}
}

const gateBody = `{"code":401,"message":"unauthorized access, please provide a valid access token or method signing if supported"}` + "\n"

func TestGate(t *testing.T) {
	tests := []struct {
		method, path, version string
		token                 string
		status                int
	}{
		{"GET", "/health", "0.6.13", "", 204},
		{"GET", "/health", "0.6.13", "wrong", 204},
		{"HEAD", "/health", "0.6.13", "", 401},
		{"GET", "/metrics", "0.6.13", "", 401},
		{"GET", "/envs", "0.6.13", "", 401},
		{"GET", "/envs", "0.6.13", "tok", 200},
		{"GET", "/nowhere", "0.6.13", "", 401},
		{"GET", "/nowhere", "0.6.13", "tok", 404},
		{"GET", "/init", "0.6.13", "", 401},
		{"POST", "/process.Process/List", "0.6.13", "", 401},
		{"POST", "/process.Process/List", "0.6.13", "wrong", 401},
		{"POST", "/process.Process/List", "0.6.13", "tok", 200},
		{"POST", "/init", "0.6.13", "", 400}, // {} is no body for it: see below
		{"POST", "/init", "0.3.7", "", 401},
		{"POST", "/init", "0.3.7", "tok", 204},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %s %s %s", tt.version, tt.method, tt.path, tt.token), func(t *testing.T) {
			srv := newFunctions(t, envdtest.WithAccessToken("tok"), envdtest.WithVersion(tt.version))
			body, want := "{}", tt.status
			if tt.path == "/init" && want == 400 {
				body = "{"
			}
			header := []string{"Content-Type", "application/json"}
			if tt.token != "" {
				header = append(header, "X-Access-Token", tt.token)
			}
			got := do(t, srv, tt.method, tt.path, body, header...)
			if got.status != want {
				t.Errorf("status = %d, want %d", got.status, want)
			}
			if want == 401 && tt.method != "HEAD" && got.body != gateBody {
				t.Errorf("body = %s", got.body)
			}
		})
	}
}

func TestInit(t *testing.T) {
	type step struct {
		body, token string
		status      int
		text        string
	}
	tests := []struct {
		name, version string
		steps         []step
	}{
		{"tokens", "0.6.13", []step{
			{`{"accessToken":"a"}`, "", 204, ""},
			{`{"accessToken":"a"}`, "wrong", 204, ""},
			{`{"accessToken":"b"}`, "a", 401, "access token validation failed"},
			{`{}`, "a", 401, "access token reset not authorized"},
			{``, "a", 401, "access token reset not authorized"},
			{`{"accessToken":""}`, "", 400, ""},
			{`{"accessToken":"\u0061"}`, "", 400, ""},
			{`{"accessToken":7}`, "", 400, ""},
		}},
		{"tokens", "0.3.7", []step{
			{`{"accessToken":"a"}`, "", 204, ""},
			{`{"accessToken":"a"}`, "", 401, gateBody},
			{`{"accessToken":"a"}`, "a", 204, ""},
			{`{}`, "a", 204, ""},
			{`{"accessToken":"b"}`, "a", 409, "access token is already set"},
		}},
		{"tokens", "0.2.0", []step{
			{`{"accessToken":"a"}`, "", 204, ""},
			{`{"accessToken":"b"}`, "a", 409, ""},
		}},
		{"empty token locks", "0.3.7", []step{
			{`{"accessToken":""}`, "", 204, ""},
			{`{}`, "", 204, ""},
			{`{}`, "a", 401, gateBody},
			{`{"accessToken":"a"}`, "", 409, "access token is already set"},
		}},
		{"bodies", "0.6.13", []step{
			{``, "", 204, ""},
			{`{"unknown":1,"accessToken":null}`, "", 204, ""},
			{`{bad`, "", 400, ""},
			{`{"envVars":{"A":1}}`, "", 400, ""},
			{`{"timestamp":"soon"}`, "", 400, ""},
		}},
		{"timestamp unknown", "0.2.0", []step{{`{"timestamp":"soon"}`, "", 204, ""}}},
	}
	for _, tt := range tests {
		t.Run(tt.version+" "+tt.name, func(t *testing.T) {
			srv := newFunctions(t, envdtest.WithVersion(tt.version))
			for _, s := range tt.steps {
				var header []string
				if s.token != "" {
					header = []string{"X-Access-Token", s.token}
				}
				got := do(t, srv, "POST", "/init", s.body, header...)
				if got.status != s.status || got.body != s.text {
					t.Errorf("init %s with token %q = %d %q, want %d %q", s.body, s.token, got.status, got.body, s.status, s.text)
				}
				if v := got.header.Get("X-Envd-Version"); got.body != gateBody && (v == tt.version) != (tt.version == "0.6.13") {
					t.Errorf("X-Envd-Version = %q", v)
				}
			}
		})
	}
}

func TestInitEnvs(t *testing.T) {
	tests := []struct{ version, want string }{
		{"0.6.13", `{"B":"2","E2B_SANDBOX":"false"}`},
		{"0.5.2", `{"A":"1","B":"2","E2B_SANDBOX":"false"}`},
		{"0.2.0", `{"A":"1","B":"2","E2B_SANDBOX":"true"}`},
	}
	for _, tt := range tests {
		t.Run(tt.version, func(t *testing.T) {
			srv := newFunctions(t, envdtest.WithVersion(tt.version))
			for _, body := range []string{`{"envVars":{"A":"1"}}`, `{"envVars":{"B":"2"}}`, `{}`} {
				do(t, srv, "POST", "/init", body)
			}
			if got := do(t, srv, "GET", "/envs", ""); got.status != 200 || strings.TrimSpace(got.body) != tt.want {
				t.Errorf("envs = %d %s, want %s", got.status, got.body, tt.want)
			}
		})
	}
}

func TestInitTimestamp(t *testing.T) {
	srv := newFunctions(t)
	do(t, srv, "POST", "/init", `{"envVars":{"A":"new"},"timestamp":"2026-01-02T00:00:00Z"}`)
	do(t, srv, "POST", "/init", `{"envVars":{"A":"old"},"timestamp":"2026-01-01T00:00:00Z"}`)
	if got := do(t, srv, "GET", "/envs", ""); !strings.Contains(got.body, `"A":"new"`) {
		t.Errorf("envs = %s", got.body)
	}
}

func TestInitDefaults(t *testing.T) {
	srv := newFunctions(t)
	srv.HandleCommand("where", func(p *envdtest.Proc) int {
		fmt.Fprint(p.Stdout, p.User, " ", p.Dir)
		return 0
	})
	dir := t.TempDir()
	do(t, srv, "POST", "/init", fmt.Sprintf(`{"defaultUser":"user","defaultWorkdir":%q}`, dir))
	if o := run(t, newClient(srv, "Authorization", ""), "where"); o.stdout != "user "+dir {
		t.Errorf("command ran as %s", o.stdout)
	}
	do(t, srv, "POST", "/init", `{"defaultUser":"no-such-user","defaultWorkdir":"/nope/wd"}`)
	err := startErr(t, newClient(srv, "Authorization", ""), command("where"))
	wantError(t, err, connect.CodeUnauthenticated, "invalid default user: 'no-such-user'")
	wantError(t, startErr(t, newClient(srv), command("where")), connect.CodeInvalidArgument, "cwd '/nope/wd' does not exist")
}

func TestHealth(t *testing.T) {
	srv := newFunctions(t)
	got := do(t, srv, "GET", "/health", "")
	if got.status != 204 || got.header.Get("Cache-Control") != "no-store" || got.header.Get("Vary") != "Origin" {
		t.Errorf("health = %+v", got)
	}
	if got := do(t, srv, "POST", "/health", ""); got.status != 405 || got.header.Get("Allow") != "GET" {
		t.Errorf("POST /health = %+v", got)
	}
	got = do(t, srv, "GET", "/health", "", "Authorization", "Basic bm9zdWNodXNlcjo=")
	if got.status != 401 || got.body != `{"code":"unauthenticated","message":"invalid username: 'nosuchuser'"}` {
		t.Errorf("health for an unknown user = %+v", got)
	}
}

func TestMetrics(t *testing.T) {
	tests := []struct {
		version string
		fields  int
	}{{"0.6.13", 10}, {"0.5.2", 9}, {"0.2.0", 5}}
	for _, tt := range tests {
		t.Run(tt.version, func(t *testing.T) {
			got := do(t, newFunctions(t, envdtest.WithVersion(tt.version)), "GET", "/metrics", "")
			var fields map[string]float64
			if err := json.Unmarshal([]byte(got.body), &fields); err != nil || len(fields) != tt.fields {
				t.Fatalf("metrics = %s, %v", got.body, err)
			}
			if fields["ts"] == 0 || fields["cpu_count"] == 0 || fields["mem_total_mib"] == 0 {
				t.Errorf("metrics = %s", got.body)
			}
		})
	}
}

// A server can be mounted in another, with and without a prefix.
func TestHandler(t *testing.T) {
	srv := envdtest.NewUnstartedServer(envdtest.WithoutRealProcesses())
	srv.HandleCommand("wait", func(p *envdtest.Proc) int { <-p.Context.Done(); return 0 })
	outer := httptest.NewServer(http.StripPrefix("/sandbox", srv.Handler()))
	defer outer.Close()
	defer srv.Close()
	transport := connecthttp.NewTransport(outer.Client(), outer.URL+"/sandbox")
	c := processClient(transport)
	_, next := start(t, t.Context(), c, command("wait"))
	srv.Close()
	if o := next.collect(); o.err == nil || o.end != nil {
		t.Errorf("stream ended with %v and end event %v, want a cut", o.err, o.end)
	}
	res, err := outer.Client().Get(outer.URL + "/sandbox/health")
	if err == nil {
		_ = res.Body.Close()
		t.Errorf("a closed server answers %d", res.StatusCode)
	}
}

// The same calls over each protocol, codec and compression.
func TestProtocols(t *testing.T) {
	tests := []struct {
		name string
		opts []connecthttp.Option
	}{
		{"connect binary", nil},
		{"connect JSON", []connecthttp.Option{connecthttp.WithProtoJSON()}},
		{"connect gzip", []connecthttp.Option{connecthttp.WithSendGzip()}},
		{"gRPC-Web", []connecthttp.Option{connecthttp.WithGRPCWeb()}},
		{"gRPC-Web JSON", []connecthttp.Option{connecthttp.WithGRPCWeb(), connecthttp.WithProtoJSON()}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := newFunctions(t)
			srv.HandleCommand("say", func(p *envdtest.Proc) int {
				fmt.Fprintln(p.Stdout, p.Args)
				return 4
			})
			c := newClientWith(srv, tt.opts)
			o := run(t, c, "say", "hi")
			wantEnd(t, o, 4, "exit status 4")
			if o.stdout != "[hi]\n" {
				t.Errorf("stdout = %q", o.stdout)
			}
			_, err := c.SendSignal(t.Context(), &processpb.SendSignalRequest{Process: byPID(7), Signal: 9})
			wantError(t, err, connect.CodeNotFound, "process with pid 7 not found")
		})
	}
}

func TestDialectFC(t *testing.T) {
	srv := newFunctions(t, envdtest.WithDialect(envdtest.FC))
	for _, path := range []string{startPath, "/process.Process/List"} {
		got := do(t, srv, "POST", path, "\x00\x00\x00\x00\x00", "Content-Type", "application/connect+proto")
		if got.status != 400 || !strings.Contains(got.body, "invalid character") {
			t.Errorf("binary %s = %+v", path, got)
		}
	}
	c := newClientWith(srv, []connecthttp.Option{connecthttp.WithProtoJSON()})
	for want := range uint32(2) {
		if pid, _ := start(t, t.Context(), c, command("wait")); pid != want+1 {
			t.Errorf("pid = %d, want %d", pid, want+1)
		}
	}
	got := do(t, srv, "POST", "/process.Process/List", "{}", "Content-Type", "application/json")
	if !strings.Contains(got.body, `"tag":""`) {
		t.Errorf("List = %s", got.body)
	}
	_, err := c.SendSignal(t.Context(), &processpb.SendSignalRequest{Process: byPID(7), Signal: 9})
	wantError(t, err, connect.CodeNotFound, "process with pid 7 not found")
}

func TestNoUserOldVersion(t *testing.T) {
	c := newClient(newFunctions(t, envdtest.WithVersion("0.3.7")), "Authorization", "")
	wantError(t, startErr(t, c, command("wait")), connect.CodeUnauthenticated, "no user specified")
	if _, err := c.List(t.Context(), &processpb.ListRequest{}); err != nil {
		t.Errorf("List: %v", err)
	}
}
