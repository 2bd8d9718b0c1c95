// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
)

// Health asks whether envd is there. It needs no token. A nil error means yes;
// an error that matches [ErrSandboxNotFound] means that the platform knows no
// such sandbox.
func (c *Client) Health(ctx context.Context) error {
	_, _, err := c.rest(ctx, "health", http.MethodGet, "/health", nil)
	return err
}

// Metrics is the load of a sandbox.
type Metrics struct {
	// Time is when it was measured, by the sandbox's clock, in whole seconds.
	Time time.Time
	// CPUCount is the number of processors, CPUUsedPercent their use since the
	// last time anybody asked.
	CPUCount       int
	CPUUsedPercent float64
	// Memory in bytes, in whole MiB before envd 0.2.4. MemCache is the page
	// cache, 0 before 0.5.9.
	MemTotal, MemUsed, MemCache uint64
	// The root disk in bytes, 0 before envd 0.2.4.
	DiskTotal, DiskUsed uint64
}

// Metrics measures the sandbox's load.
func (c *Client) Metrics(ctx context.Context) (*Metrics, error) {
	const op = "metrics"
	body, _, err := c.rest(ctx, op, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	var wire struct {
		TS        int64   `json:"ts"`
		CPUCount  int     `json:"cpu_count"`
		CPUUsed   float64 `json:"cpu_used_pct"`
		MemTotalM uint64  `json:"mem_total_mib"`
		MemUsedM  uint64  `json:"mem_used_mib"`
		MemTotal  uint64  `json:"mem_total"`
		MemUsed   uint64  `json:"mem_used"`
		MemCache  uint64  `json:"mem_cache"`
		DiskUsed  uint64  `json:"disk_used"`
		DiskTotal uint64  `json:"disk_total"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return nil, c.badAnswer(op, err)
	}
	m := &Metrics{
		Time:           time.Unix(wire.TS, 0),
		CPUCount:       wire.CPUCount,
		CPUUsedPercent: wire.CPUUsed,
		MemTotal:       wire.MemTotal,
		MemUsed:        wire.MemUsed,
		MemCache:       wire.MemCache,
		DiskTotal:      wire.DiskTotal,
		DiskUsed:       wire.DiskUsed,
	}
	if m.MemTotal == 0 {
		m.MemTotal, m.MemUsed = wire.MemTotalM<<20, wire.MemUsedM<<20
	}
	return m, nil
}

// Envs returns the variables that envd adds to the environment of every
// command: E2B_SANDBOX and what [Client.Init] set.
func (c *Client) Envs(ctx context.Context) (map[string]string, error) {
	const op = "envs"
	body, _, err := c.rest(ctx, op, http.MethodGet, "/envs", nil)
	if err != nil {
		return nil, err
	}
	envs := map[string]string{}
	if err := json.Unmarshal(body, &envs); err != nil {
		return nil, c.badAnswer(op, err)
	}
	return envs, nil
}

// InitRequest sets up a daemon. Zero fields are not sent and change nothing.
type InitRequest struct {
	// EnvVars are added to the environment of every command. They replace the
	// ones set before; up to envd 0.5.24 they are added to them.
	EnvVars map[string]string
	// AccessToken locks the daemon: from then on it wants this token. Empty
	// means the client's own token, which envd 0.5.0 and later want to see
	// repeated in every Init. A token cannot be taken back.
	AccessToken string
	// DefaultUser and DefaultWorkdir are for requests that name none.
	// Since envd 0.4.0.
	DefaultUser, DefaultWorkdir string

	// The rest is for whoever runs the sandbox, and does harm elsewhere.

	// Timestamp sets the sandbox's clock, and makes the daemon ignore the
	// whole request if it has seen a later one. Since envd 0.3.4.
	Timestamp time.Time
	// HyperloopIP is the address of the host's event service. Since envd 0.3.1.
	HyperloopIP string
	// CABundle has certificates, as PEM, for the trust store. Since envd 0.5.13.
	CABundle string
	// VolumeMounts are NFS mounts to make. Since envd 0.5.3.
	VolumeMounts []VolumeMount
	// LifecycleID names this run of the sandbox. Since envd 0.5.14.
	LifecycleID string
}

// VolumeMount is an NFS mount.
type VolumeMount struct {
	// Target is the server's address and export, Path where it goes.
	Target string `json:"nfs_target"`
	Path   string `json:"path"`
}

// InitResult is the answer of [Client.Init].
type InitResult struct {
	// Version is the daemon's version, or "" where it does not tell: it does
	// since 0.6.12.
	Version string
}

// Init sets up the daemon, as a platform does when it starts a sandbox. In a
// sandbox that a platform runs, leave it alone. A client with a token goes on
// using that one; make a new client after setting a first token. A daemon that
// has another token already answers with [ErrUnauthenticated], or before envd
// 0.5.0 with [fs.ErrExist].
func (c *Client) Init(ctx context.Context, req InitRequest) (*InitResult, error) {
	const op = "init"
	body, err := c.initBody(req)
	if err != nil {
		return nil, &Error{Op: op, Code: CodeInvalidArgument, Err: err}
	}
	_, header, err := c.rest(ctx, op, http.MethodPost, "/init", body)
	if err != nil {
		return nil, err
	}
	return &InitResult{Version: c.clean(header.Get("X-Envd-Version"))}, nil
}

func (c *Client) initBody(req InitRequest) ([]byte, error) {
	token := req.AccessToken
	if token == "" {
		token = c.config.token
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		return nil, errors.New("access token has characters that envd refuses: printable ASCII without quotes and backslashes is safe")
	}
	wire := struct {
		EnvVars        map[string]string `json:"envVars,omitempty"`
		AccessToken    string            `json:"accessToken,omitempty"`
		DefaultUser    string            `json:"defaultUser,omitempty"`
		DefaultWorkdir string            `json:"defaultWorkdir,omitempty"`
		Timestamp      *time.Time        `json:"timestamp,omitempty"`
		HyperloopIP    string            `json:"hyperloopIP,omitempty"`
		CABundle       string            `json:"caBundle,omitempty"`
		VolumeMounts   []VolumeMount     `json:"volumeMounts,omitempty"`
		LifecycleID    string            `json:"lifecycleID,omitempty"`
	}{
		EnvVars:        req.EnvVars,
		AccessToken:    token,
		DefaultUser:    req.DefaultUser,
		DefaultWorkdir: req.DefaultWorkdir,
		HyperloopIP:    req.HyperloopIP,
		CABundle:       req.CABundle,
		VolumeMounts:   req.VolumeMounts,
		LifecycleID:    req.LifecycleID,
	}
	if !req.Timestamp.IsZero() {
		wire.Timestamp = &req.Timestamp
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // envd refuses a token with escapes
	err := enc.Encode(wire)
	return b.Bytes(), err
}

// rest makes one call of the plain HTTP half of envd and returns a success's
// body and header.
func (c *Client) rest(ctx context.Context, op, method, path string, body []byte) ([]byte, http.Header, error) {
	ctx, cancel := c.withRequestTimeout(ctx)
	defer cancel()
	data, header, err := c.exchange(ctx, method, path, body)
	return data, header, toError(ctx, domainOther, op, "", err)
}

func (c *Client) exchange(ctx context.Context, method, path string, body []byte) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.plain(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if isPage(resp) {
		body, _ := readErrorBody(resp)
		he := c.httpError(req, resp, body)
		return nil, nil, connect.NewError(connect.CodeUnknown, he.Error()).WithCause(he)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.config.maxMessage)+1))
	if err == nil && len(data) > c.config.maxMessage {
		err = fmt.Errorf("answer is larger than %d bytes", c.config.maxMessage)
	}
	return data, resp.Header, err
}

// isPage reports whether the answer is a web page: one that says 200 is the word
// of something in front of envd all the same.
func isPage(resp *http.Response) bool {
	return strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/html")
}

func (c *Client) badAnswer(op string, err error) error {
	return &Error{Op: op, Code: CodeInternal, Err: fmt.Errorf("answer is not what envd sends: %w", err)}
}
