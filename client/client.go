// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/gen/filesystem/filesystemconnect"
	"github.com/envd-go/envd/gen/process/processconnect"
	"github.com/envd-go/envd/internal/envdversion"
)

// Port is the port that envd listens on inside a sandbox.
const Port = "49983"

// Environment variables that [FromEnv] reads.
const (
	EnvURL         = "ENVD_URL"
	EnvAccessToken = "ENVD_ACCESS_TOKEN"
	EnvUser        = "ENVD_USER"
)

// Client talks to the envd of one sandbox. It is made by [New], needs no
// network until its first call, and may be used by any number of goroutines.
type Client struct {
	*core
	user        string
	rpc         *connect.Client
	processes   processconnect.ProcessClient
	filesystems filesystemconnect.FilesystemClient
}

// core is what the clients made by As share.
type core struct {
	config *config
	base   *url.URL
	http   *http.Client
	// ownsTransport is true where the connection pool is the client's own.
	ownsTransport bool
	// jsonOnly is set for good once the server turned out not to read binary.
	jsonOnly atomic.Bool
	// keepsAlive is set once a keepalive came: a stream without them is dead.
	keepsAlive atomic.Bool
	// surveyed is what WithVersion("auto") found out; surveyMu lets one ask.
	surveyMu sync.Mutex
	surveyed atomic.Pointer[envdversion.Survey]
	// closeStdin and composes remember whether the server can close standard
	// input and join files.
	closeStdin, composes atomic.Int32
}

// New returns a client for the envd at baseURL: http or https, a host, and a
// path where a gateway routes by path ("https://gateway.example/sandbox/s1").
// User name, query and fragment have no meaning there and are refused. Nothing
// is sent.
func New(baseURL string, opts ...Option) (*Client, error) {
	base, err := parseBaseURL(baseURL)
	if err != nil {
		return nil, err
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	c := &core{
		config:        cfg,
		base:          base,
		ownsTransport: cfg.roundTripper == nil && (cfg.httpClient == nil || cfg.httpClient.Transport == nil),
	}
	c.http = cfg.buildHTTPClient()
	c.jsonOnly.Store(cfg.json)
	return newClient(c, cfg.user), nil
}

// FromEnv returns a client for the envd that the environment names: ENVD_URL,
// and ENVD_ACCESS_TOKEN and ENVD_USER where they are set. Options are applied
// after it and win.
func FromEnv(opts ...Option) (*Client, error) {
	base := os.Getenv(EnvURL)
	if base == "" {
		return nil, fmt.Errorf("envd: %s is not set", EnvURL)
	}
	var fromEnv []Option
	if token := os.Getenv(EnvAccessToken); token != "" {
		fromEnv = append(fromEnv, WithAccessToken(token))
	}
	if user := os.Getenv(EnvUser); user != "" {
		fromEnv = append(fromEnv, WithUser(user))
	}
	return New(base, append(fromEnv, opts...)...)
}

// SandboxURL returns the address at which a platform with the given domain
// exposes the envd of a sandbox: https://49983-<id>.<domain>.
func SandboxURL(domain, sandboxID string) string {
	return "https://" + Port + "-" + sandboxID + "." + domain
}

func newClient(c *core, user string) *Client {
	t := &transport{core: c, user: user}
	rpc := connect.NewClient(newCodecTransport(c, t), c.config.interceptors...)
	return &Client{
		core:        c,
		user:        user,
		rpc:         rpc,
		processes:   processconnect.NewProcessClient(rpc),
		filesystems: filesystemconnect.NewFilesystemClient(rpc),
	}
}

// As returns a client for the same sandbox and with the same connections that
// acts as another user of the sandbox. An empty name means the sandbox's
// default user. A name that no header can carry makes every call fail.
func (c *Client) As(user string) *Client { return newClient(c.core, user) }

// User returns the user that the client acts as, or "" for the default user.
func (c *Client) User() string { return c.user }

// URL returns the base URL that the client was made with.
func (c *Client) URL() string { return c.base.String() }

// ProcessService returns the generated stub of the process service, on the
// client's own transport: tokens, headers and the choice of codec are those of
// the client, errors are connect's. The stub follows connect's major version.
func (c *Client) ProcessService() processconnect.ProcessClient { return c.processes }

// FilesystemService returns the generated stub of the filesystem service; see
// [Client.ProcessService].
func (c *Client) FilesystemService() filesystemconnect.FilesystemClient { return c.filesystems }

// Close drops idle connections. Streams that are open go on. It need not be
// called, and leaves a transport that was passed in alone.
func (c *Client) Close() error {
	if c.ownsTransport {
		c.http.CloseIdleConnections()
	}
	return nil
}

// withRequestTimeout bounds a call that is answered at once.
func (c *core) withRequestTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return withTimeout(ctx, c.config.requestTimeout)
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func parseBaseURL(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("envd: base URL is empty")
	}
	// The text may hold a password or a token, so no error repeats it.
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("envd: base URL does not parse; want something like https://49983-id.example.com")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("envd: base URL has scheme %q; want http or https", u.Scheme)
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("envd: base URL has no host")
	case u.User != nil:
		return nil, errors.New("envd: base URL has a user name; use WithUser and WithAccessToken")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("envd: base URL has a query; use WithHeader where a gateway needs more")
	case u.Fragment != "":
		return nil, errors.New("envd: base URL has a fragment")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	return u, nil
}
