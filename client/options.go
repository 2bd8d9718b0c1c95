// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/envd-go/envd/internal/envdversion"
)

// What a Client does unless told otherwise.
const (
	// DefaultRequestTimeout bounds calls that are answered at once.
	DefaultRequestTimeout = 60 * time.Second
	// DefaultKeepalive is how often envd is asked to show that a quiet stream
	// is alive.
	DefaultKeepalive = 50 * time.Second
	// DefaultMaxMessageBytes is the size of the largest message that is read.
	DefaultMaxMessageBytes = 64 << 20
	// DefaultWaitDelay is how long a command that was told to end may take.
	DefaultWaitDelay = 5 * time.Second
	// DefaultOutputLimit is how much Output and CombinedOutput keep.
	DefaultOutputLimit = 64 << 20
)

// Option configures a [Client]. Of two options that set the same thing, the
// later one wins; one with a bad value makes [New] fail.
type Option interface {
	apply(*config) error
}

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

type config struct {
	token          string
	user           string
	header         http.Header
	httpClient     *http.Client
	roundTripper   http.RoundTripper
	interceptors   []connect.ClientInterceptor
	connectOptions []connecthttp.Option
	requestTimeout time.Duration
	timeoutSet     bool
	keepalive      time.Duration
	maxMessage     int
	compression    bool
	json           bool
	noMarker       bool
	noRetries      bool
	reattach       int
	version        envdversion.Version
	autoVersion    bool
	logger         *slog.Logger
	// How large the pieces of parallel transfers are.
	rangeSize, partSize int64
}

func newConfig(opts []Option) (*config, error) {
	c := &config{
		header:         http.Header{},
		requestTimeout: DefaultRequestTimeout,
		keepalive:      DefaultKeepalive,
		maxMessage:     DefaultMaxMessageBytes,
		logger:         slog.New(slog.DiscardHandler),
		rangeSize:      rangeSize,
		partSize:       partSize,
	}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("envd: nil Option")
		}
		if err := opt.apply(c); err != nil {
			return nil, fmt.Errorf("envd: %w", err)
		}
	}
	return c, nil
}

// WithAccessToken sends token as X-Access-Token with every request. It is the
// token that the platform handed out with the sandbox, not the key of the
// platform's own API. An empty token is no token.
func WithAccessToken(token string) Option {
	return optionFunc(func(c *config) error {
		if !validHeaderValue(token) {
			return errors.New("access token has characters that no header can carry")
		}
		c.token = token
		return nil
	})
}

// WithUser runs commands and resolves relative paths as the named user of the
// sandbox. Without it, envd 0.4.0 and later use the sandbox's default user, and
// older ones refuse to start anything. See also [Client.As].
func WithUser(name string) Option {
	return optionFunc(func(c *config) error {
		if err := checkUser(name); err != nil {
			return err
		}
		c.user = name
		return nil
	})
}

// WithHeader sends one more header with every request; a second use with the
// same key replaces the first. Headers that belong to the client or to the
// protocol cannot be set.
func WithHeader(key, value string) Option {
	return optionFunc(func(c *config) error {
		canonical := http.CanonicalHeaderKey(key)
		if reservedHeader(canonical) {
			return fmt.Errorf("header %s belongs to the client: there is an option for what it does", canonical)
		}
		if !validHeaderName(key) || !validHeaderValue(value) {
			return fmt.Errorf("header %q cannot be sent", key)
		}
		c.header.Set(canonical, value)
		return nil
	})
}

// WithSandboxID is for gateways that find the sandbox by header instead of by
// host name: it sends E2b-Sandbox-Id, and E2b-Sandbox-Port with envd's port.
func WithSandboxID(id string) Option {
	return optionFunc(func(c *config) error {
		if id == "" || !validHeaderValue(id) {
			return fmt.Errorf("sandbox id %q cannot be sent as a header", id)
		}
		c.header.Set("E2b-Sandbox-Id", id)
		c.header.Set("E2b-Sandbox-Port", Port)
		return nil
	})
}

// WithHTTPClient uses the given client, which is copied and never changed. Its
// redirect policy is not used, since redirects are never followed. Its Timeout
// would cut every stream; it becomes the request timeout instead, unless
// [WithRequestTimeout] sets another.
func WithHTTPClient(hc *http.Client) Option {
	return optionFunc(func(c *config) error {
		if hc == nil {
			return errors.New("nil *http.Client")
		}
		c.httpClient = hc
		return nil
	})
}

// WithTransport sends requests through rt, for proxies, certificates, a shared
// connection pool or a test. The default is a pool of its own with the settings
// of [http.DefaultTransport].
func WithTransport(rt http.RoundTripper) Option {
	return optionFunc(func(c *config) error {
		if rt == nil {
			return errors.New("nil http.RoundTripper")
		}
		c.roundTripper = rt
		return nil
	})
}

// WithConnect adds interceptors and transport options of connect to those that
// the client sets itself. It is the one place where connect's types show, and
// follows connect's major version.
func WithConnect(interceptors []connect.ClientInterceptor, opts ...connecthttp.Option) Option {
	return optionFunc(func(c *config) error {
		c.interceptors = append(c.interceptors, interceptors...)
		c.connectOptions = append(c.connectOptions, opts...)
		return nil
	})
}

// WithRequestTimeout bounds every call that is answered at once, and the wait
// for a command's start; 0 means no bound. It never ends a running stream. The
// default is [DefaultRequestTimeout]. A context with an earlier deadline wins.
func WithRequestTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("request timeout %v is negative", d)
		}
		c.requestTimeout, c.timeoutSet = d, true
		return nil
	})
}

// WithKeepalive asks envd for a sign of life after each d without events. A
// stream that misses three is ended with [ErrStreamLost]; until the daemon has
// sent a first one it is only examined, and ended if the daemon does not answer
// or no longer has the command. It must be a positive number of whole seconds:
// anything else crashes real daemons. The default is [DefaultKeepalive].
func WithKeepalive(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < time.Second || d%time.Second != 0 {
			return fmt.Errorf("keepalive %v is not a positive number of whole seconds", d)
		}
		c.keepalive = d
		return nil
	})
}

// WithMaxMessageBytes limits the size of one message from the server, such as a
// listing. The default is [DefaultMaxMessageBytes].
func WithMaxMessageBytes(n int) Option {
	return optionFunc(func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("message limit %d is not positive", n)
		}
		c.maxMessage = n
		return nil
	})
}

// WithCompression lets both sides gzip their messages. It is off by default
// because it costs several times the throughput on a fast link; on a slow one
// it pays.
func WithCompression() Option {
	return optionFunc(func(c *config) error {
		c.compression = true
		return nil
	})
}

// WithJSON speaks JSON from the start. Without it the client speaks binary
// protobuf and changes to JSON by itself at a server that cannot read binary.
func WithJSON() Option {
	return optionFunc(func(c *config) error {
		c.json = true
		return nil
	})
}

// WithReattach makes a Cmd whose stream is lost attach to its command again, by
// pid, up to n times for each loss, with growing pauses of 5 seconds at most.
// What the command wrote in between is gone: where somebody wanted it,
// [Cmd.Wait] returns an error that matches [ErrOutputGap], also for a command
// that succeeded. A command that ended in between tells how only since envd
// 0.6.12; before, it is ErrStreamLost with [FateGone]. Without the option, or
// once n tries failed, a lost stream is [ErrStreamLost].
func WithReattach(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 0 {
			return fmt.Errorf("reattach %d times; want 0 or more", n)
		}
		c.reattach = n
		return nil
	})
}

// WithoutRetries sends every call once. Without it, calls that only read, and
// Process.Resize, are sent up to three times when the connection fails or when
// something in front of envd answers 429, 502 or 503, after a short wait or the
// one that the answer asks for. Downloads have [WithRetries] besides. Nothing
// else is ever sent twice, but for an upload that a daemon before 0.5.8 refused
// because it was making the same directory for somebody else.
func WithoutRetries() Option {
	return optionFunc(func(c *config) error {
		c.noRetries = true
		return nil
	})
}

// WithVersion says which envd the server runs, such as "0.5.2". Calls that this
// version cannot serve then fail at once with [errors.ErrUnsupported], and calls
// that newer versions serve better use that. With "auto" the first call for
// which the version matters asks as [Client.Probe] does. Without the option,
// calls are tried, and the server's answer is translated.
func WithVersion(version string) Option {
	return optionFunc(func(c *config) error {
		c.autoVersion, c.version = version == "auto", envdversion.Version{}
		if c.autoVersion {
			return nil
		}
		v, err := envdversion.Parse(version)
		if err != nil {
			return err
		}
		c.version = v
		return nil
	})
}

// WithLogger logs each request at debug level, and what the client does on its
// own account, such as killing a command, at info and warn level. Tokens,
// environment variables and contents are never logged.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(c *config) error {
		if l == nil {
			return errors.New("nil *slog.Logger")
		}
		c.logger = l
		return nil
	})
}

// WithoutStartMarker leaves out the variable [StartMarker] that each command
// gets in its environment. Without it a command whose start was lost on the way
// cannot be found again.
func WithoutStartMarker() Option {
	return optionFunc(func(c *config) error {
		c.noMarker = true
		return nil
	})
}

func (c *config) buildHTTPClient() *http.Client {
	hc := &http.Client{}
	if c.httpClient != nil {
		copied := *c.httpClient
		hc = &copied
	}
	if hc.Timeout > 0 && !c.timeoutSet {
		c.requestTimeout = hc.Timeout
	}
	hc.Timeout = 0
	if c.roundTripper != nil {
		hc.Transport = c.roundTripper
	}
	if hc.Transport == nil {
		hc.Transport = newHTTPTransport()
	}
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return hc
}

func newHTTPTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	t.DisableCompression = true
	// A dead peer behind TLS is noticed by pings, sooner than by keepalives.
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	return t
}

func reservedHeader(canonical string) bool {
	switch canonical {
	case "Authorization", headerAccessToken, "Content-Type", "Content-Length", "Content-Encoding",
		"Transfer-Encoding", "Te", "Trailer", "Connection", "Accept-Encoding", "Host", headerKeepalive:
		return true
	}
	return strings.HasPrefix(canonical, "Connect-") || strings.HasPrefix(canonical, "Grpc-")
}

func validHeaderName(s string) bool {
	if s == "" {
		return false
	}
	for _, r := range s {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) {
			return false
		}
	}
	return true
}

func validHeaderValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func checkUser(name string) error {
	if name == "" {
		return errors.New("user name is empty")
	}
	if strings.ContainsRune(name, ':') || !validHeaderValue(name) {
		return fmt.Errorf("user name %q cannot be sent", name)
	}
	return nil
}
