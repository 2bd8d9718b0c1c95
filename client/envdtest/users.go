// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"context"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/envd-go/envd/internal/envdversion"
)

// identity is the user that a command runs as.
type identity struct {
	name string
	home string
	// uid, gid and groups are used only when become is set: the server is
	// another user and may change.
	uid, gid uint32
	groups   []uint32
	become   bool
}

// lookup finds the user, or returns nil when there is none of that name.
func (s *Server) lookup(name string) *identity {
	account, err := user.Lookup(name)
	if err == nil {
		if id := s.fromAccount(account, name); id != nil {
			return s.rootedUser(id)
		}
	} else if !slices.Contains(s.cfg.users, name) {
		return nil
	}
	if s.cfg.root != "" {
		return s.rootedUser(&identity{name: name, home: "/home/" + name})
	}
	home, err := s.homes.dir(name)
	if err != nil {
		return nil
	}
	return &identity{name: name, home: home}
}

// rootedUser makes the home directory of a user below the server's root, if it
// has one.
func (s *Server) rootedUser(id *identity) *identity {
	if s.cfg.root == "" {
		return id
	}
	if s.makeDirs(s.host(id.home), id) != nil {
		return nil
	}
	return id
}

// fromAccount returns the user of the operating system, or nil when commands
// cannot become that user.
func (s *Server) fromAccount(account *user.User, name string) *identity {
	uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
	if err1 != nil || err2 != nil || name == "" {
		return nil
	}
	id := &identity{name: name, home: account.HomeDir, uid: uint32(uid), gid: uint32(gid)}
	own := os.Geteuid() == int(uid)
	if !own && (os.Geteuid() != 0 || !s.cfg.runAs) {
		return nil
	}
	id.become = !own
	if s.cfg.version.Has(envdversion.SupplementaryGroups) {
		id.groups = groupsOf(account)
	}
	return id
}

func groupsOf(account *user.User) []uint32 {
	ids, err := account.GroupIds()
	if err != nil {
		return nil
	}
	groups := make([]uint32, 0, len(ids))
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			groups = append(groups, uint32(n))
		}
	}
	return groups
}

// makeHome makes the directory for the user below root.
func makeHome(root, name string) (string, error) {
	if err := os.Chmod(root, 0o755); err != nil {
		return "", err
	}
	dir := filepath.Join(root, "home", filepath.Base(filepath.Clean("/"+name)))
	return dir, os.MkdirAll(dir, 0o755)
}

type callKey struct{}

// call is what the handlers of RPCs know of their HTTP request.
type call struct {
	header http.Header
	life   *life
	gone   <-chan struct{} // closed when the client has gone or life is over
	user   *identity       // nil when the request names none
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// userOf returns the user of the request, or the default user.
func (s *Server) userOf(ctx context.Context) (*identity, error) {
	if id := callOf(ctx).user; id != nil {
		return id, nil
	}
	if !s.cfg.version.Has(envdversion.DefaultUser) {
		return nil, connect.NewError(connect.CodeUnauthenticated, "no user specified")
	}
	name := s.settings.user()
	if id := s.lookup(name); id != nil {
		return id, nil
	}
	return nil, connect.Errorf(connect.CodeUnauthenticated, "invalid default user: '%s'", name)
}

// resolve returns the absolute path that a path in a request means. Empty
// stands for the default directory or else the home; every other relative path
// starts at the home.
func (s *Server) resolve(path string, id *identity) (string, error) {
	if path == "" {
		if dir := s.settings.workdir(); dir != "" {
			path = dir
		} else {
			return id.home, nil
		}
	}
	if path[0] == '~' {
		rest := path[1:]
		if rest != "" && rest[0] != '/' && rest[0] != '\\' {
			return "", connect.Errorf(connect.CodeInvalidArgument,
				"failed to expand path '' for user '%s': cannot expand user-specific home dir", id.name)
		}
		return filepath.Join(id.home, rest), nil
	}
	if filepath.IsAbs(path) {
		return path, nil
	}
	return filepath.Join(id.home, path), nil
}

// basicUser reads the user name of an Authorization header.
func basicUser(r *http.Request) (string, bool) {
	name, _, ok := r.BasicAuth()
	if !ok || !strings.HasPrefix(strings.ToLower(r.Header.Get("Authorization")), "basic ") {
		return "", false
	}
	return name, true
}
