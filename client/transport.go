// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
)

const (
	headerAccessToken = "X-Access-Token"
	headerKeepalive   = "Keepalive-Ping-Interval"
	headerTimeout     = "Connect-Timeout-Ms"
)

// Version is the version of this package, sent in the User-Agent.
const Version = "0.1.0-dev"

// userAgent must never be exactly "connect-python": envd gives that one cut
// answers.
var userAgent = "envd-go/" + Version + " (" + runtime.Version() + ")"

// maxErrorBody is how much of an error's body is read.
const maxErrorBody = 1 << 20

// transport sends the requests of one user. It is the one place that knows
// HTTP: it sets the headers, and turns each answer that is not envd's RPC layer
// speaking into an error. It implements connecthttp.HTTPClient.
type transport struct {
	core *core
	user string
}

type processTimeoutKey struct{}

// withProcessTimeout makes Start ask envd to kill the command after d. A
// context deadline would do the same, but would also cut the stream before the
// command's end is known.
func withProcessTimeout(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, processTimeoutKey{}, d)
}

// requestError says that a request cannot be sent as the caller wants it.
type requestError struct{ error }

func (e *requestError) Unwrap() error { return e.error }

// Do sends an RPC.
func (t *transport) Do(req *http.Request) (*http.Response, error) {
	if err := t.setHeaders(req); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err.Error()).WithCause(&requestError{err})
	}
	resp, err := t.sendRetrying(req)
	if err != nil {
		return nil, err
	}
	streaming := strings.HasPrefix(req.Header.Get("Content-Type"), "application/connect+")
	if isRPCReply(resp, streaming) {
		if streaming {
			resp.Body = &frameGuard{ReadCloser: resp.Body, limit: int64(t.core.config.maxMessage)}
		}
		return resp, nil
	}
	body, readErr := readErrorBody(resp)
	if !streaming && readErr == nil && isConnectError(resp, body) {
		resp.Body = io.NopCloser(bytes.NewReader(body.raw))
		return resp, nil
	}
	he := t.core.httpError(req, resp, body)
	return nil, connect.NewError(codeOfStatus(he, body.text), he.Error()).WithCause(he)
}

// plain sends a request of the plain HTTP half of envd. An answer whose status
// is not 2xx is an error; the body of any other is the caller's to close.
func (c *Client) plain(req *http.Request) (*http.Response, error) {
	t := &transport{core: c.core, user: c.user}
	if err := t.setHeaders(req); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err.Error())
	}
	resp, err := t.sendRetrying(req)
	if err != nil {
		err = plainCause(err)
		return nil, connect.NewError(connect.CodeUnavailable, c.clean(err.Error())).WithCause(err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return resp, nil
	}
	body, _ := readErrorBody(resp)
	he := c.httpError(req, resp, body)
	code := codeOfStatus(he, body.text)
	if word, ok := body.json.code.(string); ok {
		_ = code.UnmarshalText([]byte(word)) // an RPC-shaped error: the user check stands before every route
	}
	return nil, connect.NewError(code, he.Error()).WithCause(he)
}

// plainCause takes the address off an error of net/http, with all that is in
// its query.
func plainCause(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

// send performs one HTTP exchange and logs it.
func (t *transport) send(req *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := t.core.http.Do(req)
	log := t.core.config.logger
	if !log.Enabled(req.Context(), slog.LevelDebug) {
		return resp, err
	}
	attrs := []slog.Attr{
		slog.String("method", req.Method),
		slog.String("path", req.URL.Path),
		slog.Duration("duration", time.Since(start)),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", t.core.clean(err.Error())))
	} else {
		attrs = append(attrs, slog.Int("status", resp.StatusCode))
	}
	log.LogAttrs(req.Context(), slog.LevelDebug, "envd request", attrs...)
	return resp, err
}

func (t *transport) setHeaders(req *http.Request) error {
	cfg := t.core.config
	for key, values := range cfg.header {
		req.Header[key] = values
	}
	req.Header.Set("User-Agent", userAgent)
	if cfg.token != "" {
		req.Header.Set(headerAccessToken, cfg.token)
	}
	if t.user != "" {
		if err := checkUser(t.user); err != nil {
			return err
		}
		// envd reads the name and ignores the password.
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(t.user+":")))
	}
	if req.Header.Get("Accept-Encoding") == "" {
		// Without it net/http asks for gzip, which costs more than it saves.
		req.Header.Set("Accept-Encoding", "identity")
	}
	if isEventStream(req.URL.Path) {
		req.Header.Set(headerKeepalive, strconv.FormatInt(int64(cfg.keepalive/time.Second), 10))
	}
	if d, ok := req.Context().Value(processTimeoutKey{}).(time.Duration); ok {
		if text := encodeTimeout(d); text != "" {
			req.Header.Set(headerTimeout, text)
		}
	}
	return nil
}

func isEventStream(path string) bool {
	return strings.HasSuffix(path, "/process.Process/Start") ||
		strings.HasSuffix(path, "/process.Process/Connect") ||
		strings.HasSuffix(path, "/filesystem.Filesystem/WatchDir")
}

// encodeTimeout writes a timeout as the protocol wants it, at most ten digits
// of milliseconds. It returns "" for what must not be sent: envd takes 0 for an
// error, yet runs the command without a limit.
func encodeTimeout(d time.Duration) string {
	ms := int64((d + time.Millisecond - 1) / time.Millisecond)
	if ms <= 0 || ms > 9_999_999_999 {
		return ""
	}
	return strconv.FormatInt(ms, 10)
}

// isRPCReply reports whether connect can read the answer: a success of the
// right type. Anything else is examined first.
func isRPCReply(resp *http.Response, streaming bool) bool {
	if resp.StatusCode != http.StatusOK {
		return false
	}
	contentType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	contentType = strings.TrimSpace(strings.ToLower(contentType))
	if streaming {
		return strings.HasPrefix(contentType, "application/connect+")
	}
	return contentType == "application/proto" || contentType == "application/json" ||
		strings.HasPrefix(contentType, "application/grpc")
}

// errorBody is the start of an error's body.
type errorBody struct {
	raw  []byte
	text string // decompressed
	// json says what a JSON object told.
	json struct {
		code    any
		message string
	}
}

func readErrorBody(resp *http.Response) (errorBody, error) {
	var body errorBody
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody+1))
	_ = resp.Body.Close()
	if len(raw) > maxErrorBody {
		err = errors.Join(err, errors.New("error body is too large"))
		raw = raw[:maxErrorBody]
	}
	body.raw = raw
	text := raw
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		if zr, zerr := gzip.NewReader(bytes.NewReader(raw)); zerr == nil {
			text, _ = io.ReadAll(io.LimitReader(zr, maxErrorBody))
		}
	}
	body.text = string(text)
	if fields, ok := errorFields(text); ok {
		body.json.code = fields["code"]
		body.json.message, _ = fields["message"].(string)
	}
	return body, err
}

// errorFields reads the JSON object of an error. Up to envd 0.5.2 a failed
// upload is answered with two documents, the error and an empty list.
func errorFields(text []byte) (map[string]any, bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var fields map[string]any
	if dec.Decode(&fields) != nil || fields == nil {
		return nil, false
	}
	var rest []any
	err := dec.Decode(&rest)
	return fields, err == nil || errors.Is(err, io.EOF)
}

// isConnectError reports whether a failed unary call carries an error that the
// Connect protocol defines: JSON with a known word for a code.
func isConnectError(resp *http.Response, body errorBody) bool {
	word, ok := body.json.code.(string)
	if !ok || resp.StatusCode == http.StatusOK {
		return false
	}
	var code connect.Code
	return code.UnmarshalText([]byte(word)) == nil
}

// httpError describes an answer that is not a Connect answer.
func (c *core) httpError(req *http.Request, resp *http.Response, body errorBody) *HTTPError {
	he := &HTTPError{StatusCode: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	if n, ok := body.json.code.(float64); ok && n >= 400 && n <= 599 {
		he.StatusCode = int(n)
	}
	he.Message = c.clean(describe(req, resp, body))
	text := body.json.message
	if text == "" {
		text = body.text
	}
	he.is = httpSentinels(he.StatusCode, text)
	return he
}

// describe says what an answer was, in one line.
func describe(req *http.Request, resp *http.Response, body errorBody) string {
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return "refusing to follow a redirect" + redirectHost(req, resp)
	}
	if body.json.message != "" {
		return body.json.message
	}
	contentType := strings.ToLower(resp.Header.Get("Content-Type"))
	if title := htmlTitle(body.text); title != "" || strings.HasPrefix(contentType, "text/html") {
		return fmt.Sprintf("an HTML page %q, not an answer of envd", title)
	}
	text := strings.TrimSpace(body.text)
	switch {
	case resp.StatusCode == http.StatusOK:
		return fmt.Sprintf("an answer of type %q, not one of envd", resp.Header.Get("Content-Type"))
	case text == pageNotFound:
		return "404 page not found: this server has no " + req.URL.Path
	case text == "":
		return strings.ToLower(http.StatusText(resp.StatusCode))
	default:
		return text
	}
}

// redirectHost names the host alone: the rest of a target may hold secrets.
func redirectHost(req *http.Request, resp *http.Response) string {
	target, err := req.URL.Parse(resp.Header.Get("Location"))
	if err != nil || target.Host == "" {
		return ""
	}
	return " to " + (&url.URL{Scheme: target.Scheme, Host: target.Host}).String()
}

var titlePattern = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)

func htmlTitle(text string) string {
	m := titlePattern.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return strings.Join(strings.Fields(html.UnescapeString(m[1])), " ")
}

// pageNotFound is how Go's own mux answers an unknown path.
const pageNotFound = "404 page not found"

// The words of platform gateways; the status is the same for all of them.
var (
	sandboxGone = regexp.MustCompile(`(?i)sandbox\b[^.]{0,200}\b(not found|wasn't found|wasn&#39;t found|does not exist|doesn't exist)`)
	portClosed  = regexp.MustCompile(`(?i)port\b[^.]{0,80}\bnot open|no service running on port`)
)

func httpSentinels(status int, text string) []error {
	var is []error
	gatewayStatus := status == http.StatusBadGateway || status == http.StatusNotFound || status == http.StatusGone
	switch {
	case status == http.StatusUnauthorized:
		is = append(is, ErrUnauthenticated)
	case status == http.StatusTooManyRequests:
		is = append(is, ErrRateLimited)
	case status == http.StatusInsufficientStorage:
		is = append(is, ErrNoSpace)
	case gatewayStatus && portClosed.MatchString(text):
		is = append(is, ErrPortNotOpen)
	case gatewayStatus && sandboxGone.MatchString(text):
		is = append(is, ErrSandboxNotFound)
	}
	return is
}

// codeOfStatus gives an answer without a Connect error the code that fits its
// status.
func codeOfStatus(he *HTTPError, body string) connect.Code {
	switch he.StatusCode {
	case http.StatusBadRequest:
		return connect.CodeInvalidArgument
	case http.StatusUnauthorized:
		return connect.CodeUnauthenticated
	case http.StatusForbidden:
		return connect.CodePermissionDenied
	case http.StatusNotFound:
		if strings.TrimSpace(body) == pageNotFound {
			return connect.CodeUnimplemented
		}
		return connect.CodeNotFound
	case http.StatusConflict:
		return connect.CodeAlreadyExists
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusInsufficientStorage:
		return connect.CodeResourceExhausted
	case 499:
		return connect.CodeCanceled
	case http.StatusInternalServerError:
		return connect.CodeInternal
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return connect.CodeUnimplemented
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return connect.CodeUnavailable
	case http.StatusGatewayTimeout:
		return connect.CodeDeadlineExceeded
	default:
		return connect.CodeUnknown
	}
}

func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// clean makes a server's text fit for errors and logs: no secret of ours that
// the server echoes, no control characters, no more than 4 KiB.
func (c *core) clean(text string) string {
	for _, secret := range c.secrets() {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	return cut(escapeControls(text))
}

var secretHeader = regexp.MustCompile(`(?i)token|key|secret|cookie|password`)

func (c *core) secrets() []string {
	var secrets []string
	if c.config.token != "" {
		secrets = append(secrets, c.config.token)
	}
	for key, values := range c.config.header {
		if secretHeader.MatchString(key) && values[0] != "" {
			secrets = append(secrets, values[0])
		}
	}
	return secrets
}

func escapeControls(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			fmt.Fprintf(&b, `\x%02x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
