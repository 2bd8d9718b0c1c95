// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/envd-go/envd/internal/envdversion"
)

// Option changes how a [Server] behaves. Options are applied in order; a later
// one wins.
type Option interface {
	apply(*config)
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// config is what the options add up to. It does not change once the server is
// made.
type config struct {
	version    envdversion.Version
	versionSet bool
	dialect    Dialect
	quirks     map[Quirk]bool

	addr   string
	pipe   bool
	token  string
	env    map[string]string
	path   string
	users  []string
	runAs  bool
	noReal bool

	root     string
	quota    int64
	quotaSet bool
}

func newConfig(opts []Option) config {
	c := config{
		version: envdversion.Latest,
		quirks:  map[Quirk]bool{},
		addr:    "127.0.0.1:0",
		env:     map[string]string{},
		path:    defaultPath(),
		users:   []string{"root", "user"},
		runAs:   true,
	}
	for _, opt := range opts {
		opt.apply(&c)
	}
	if c.dialect == FC && !c.versionSet {
		c.version = fcVersion
	}
	return c
}

// WithVersion makes the server behave as that release of envd, from 0.2.0 to
// 0.6.13: RPCs, fields and errors are there or not as in that release. The
// default is the newest, 0.6.13; for the [FC] dialect it is 0.5.2. [NewServer]
// panics if the text is not a version.
func WithVersion(version string) Option {
	v, err := envdversion.Parse(version)
	if err != nil {
		panic(fmt.Sprintf("envdtest: WithVersion: %v", err))
	}
	return optionFunc(func(c *config) { c.version, c.versionSet = v, true })
}

// WithDialect makes the server talk as that family of daemons does. The
// default is [Upstream].
func WithDialect(d Dialect) Option {
	return optionFunc(func(c *config) { c.dialect = d })
}

// WithQuirk adds bugs and habits that real daemons have and that this server
// hides by default. See [Quirk] for the list.
func WithQuirk(quirks ...Quirk) Option {
	return optionFunc(func(c *config) {
		for _, q := range quirks {
			c.quirks[q] = true
		}
	})
}

// WithAddr makes the server listen on the TCP address instead of a free port
// of 127.0.0.1. Nothing but the access token guards what listens there: it
// runs any command that it is sent.
func WithAddr(addr string) Option {
	return optionFunc(func(c *config) { c.addr, c.pipe = addr, false })
}

// WithPipe makes the server listen on an in-memory network that only
// [Server.Client] reaches. No socket is opened, so the server works inside a
// testing/synctest bubble, as long as its commands are Go functions.
func WithPipe() Option {
	return optionFunc(func(c *config) { c.pipe = true })
}

// WithAccessToken sets the token that requests must carry in X-Access-Token,
// as POST /init would. An empty token leaves the server open.
func WithAccessToken(token string) Option {
	return optionFunc(func(c *config) { c.token = token })
}

// WithEnv sets variables for every command, as the envVars of POST /init do.
func WithEnv(env map[string]string) Option {
	env = maps.Clone(env)
	return optionFunc(func(c *config) { maps.Copy(c.env, env) })
}

// defaultPath is the PATH of a daemon for a server that runs as root, since
// root's own may lead through directories that other users cannot read.
func defaultPath() string {
	if os.Geteuid() == 0 {
		return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	return os.Getenv("PATH")
}

// WithPath sets the daemon's own PATH, which commands get unless a request
// brings another. The default is the PATH of the running program, or the usual
// system directories when that runs as root.
func WithPath(path string) Option {
	return optionFunc(func(c *config) { c.path = path })
}

// WithUsers replaces the names that are users even when the operating system
// does not know them; the default is "root" and "user". Names that it does
// know are users always. A user of either kind that commands cannot become
// (see [WithRunAs]) runs as the server's own user, with a home directory of
// the server's making.
func WithUsers(names ...string) Option {
	names = slices.Clone(names)
	return optionFunc(func(c *config) { c.users = names })
}

// WithRunAs says whether real commands change to the user that the request
// names. The default is true; it takes a server that runs as root and a user
// that the operating system knows.
func WithRunAs(enabled bool) Option {
	return optionFunc(func(c *config) { c.runAs = enabled })
}

// WithoutRealProcesses makes the commands of [Server.HandleCommand] the only
// ones there are. Any other is answered as one that cannot be found.
func WithoutRealProcesses() Option {
	return optionFunc(func(c *config) { c.noReal = true })
}

// WithRoot makes dir, which must exist, the root directory of the sandbox:
// paths in requests mean files below it, so that a test touches nothing else.
// Real commands run with a working directory and a HOME there, but see the
// files of the machine; use command functions with it. Symlinks with an
// absolute target leave it.
func WithRoot(dir string) Option {
	return optionFunc(func(c *config) {
		abs, err := filepath.Abs(dir)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			panic(fmt.Sprintf("envdtest: root %s: %v", dir, err))
		}
		c.root = abs
	})
}

// WithFreeSpace makes the disk full after uploads of n bytes more.
func WithFreeSpace(n int64) Option {
	return optionFunc(func(c *config) { c.quota, c.quotaSet = n, true })
}
