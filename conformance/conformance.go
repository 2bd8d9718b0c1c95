// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance judges whether a server speaks envd.
//
// Each [Case] is one requirement with a stable id. [Run] tries the cases on a
// server and returns a [Report]; [Test] does so within go test:
//
//	func TestDaemon(t *testing.T) {
//		conformance.Test(t, conformance.Target{URL: "http://127.0.0.1:49983"}, conformance.Options{})
//	}
//
// The cases speak through the generated stubs and through plain HTTP with bytes
// made by hand, never through a client library that would repair what is wrong.
//
// It is safe on a sandbox that is in use: what a case makes lies in one
// directory below /tmp, which is removed; what it starts is marked and killed.
// Unless [Options.AllowInit] says so it does not call POST /init, and it never
// calls an endpoint that is for orchestrators alone.
package conformance

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/envd-go/envd/internal/envdversion"
)

// Level is how binding a requirement is.
type Level int

// The levels.
const (
	// Must: clients break without it.
	Must Level = iota
	// Should: clients have to work around its lack.
	Should
	// May: it is nice to have.
	May
)

// String returns "must", "should" or "may".
func (l Level) String() string {
	switch l {
	case Must:
		return "must"
	case Should:
		return "should"
	case May:
		return "may"
	}
	return "unknown"
}

// ParseLevel reads what Level.String writes, in any case of letters.
func ParseLevel(s string) (Level, bool) {
	for _, l := range []Level{Must, Should, May} {
		if strings.EqualFold(s, l.String()) {
			return l, true
		}
	}
	return Must, false
}

// Protocol is what a case speaks.
type Protocol string

// The protocols.
const (
	// HTTP is plain HTTP, with bytes made by hand. It needs no codec.
	HTTP Protocol = "http"
	// JSON and Proto are the Connect protocol with either codec.
	JSON  Protocol = "connect+json"
	Proto Protocol = "connect+proto"
	// GRPCWeb is gRPC-Web with the binary codec.
	GRPCWeb Protocol = "grpc-web"
)

var (
	both     = []Protocol{JSON, Proto}
	core     = []Protocol{JSON, Proto, GRPCWeb}
	justJSON = []Protocol{JSON}
	justHTTP = []Protocol{HTTP}
)

// Need is something that a sandbox must have for a case to make sense.
type Need string

// The needs.
const (
	// NeedShell is a working /bin/sh with the usual small programs.
	NeedShell Need = "a shell"
	// NeedPTY is a working terminal.
	NeedPTY Need = "a terminal"
	// NeedInterrupt is a daemon whose processes do not ignore SIGINT, as they do
	// below a shell that has started it in the background.
	NeedInterrupt Need = "processes that SIGINT ends"
	// NeedProc is a mounted /proc.
	NeedProc Need = "/proc"
	// NeedRoot is a daemon that runs as root and changes to the user.
	NeedRoot Need = "a daemon that runs as root, and a user who is not"
	// NeedFilesystem is a filesystem service that makes directories.
	NeedFilesystem Need = "a filesystem service"
	// NeedToken is a target with an access token.
	NeedToken Need = "an access token"
	// NeedOpen is a target without one.
	NeedOpen Need = "a server without an access token"
	// NeedCrash is the permission to crash the server.
	NeedCrash Need = "permission to crash the server"
	// NeedInit is the permission to call POST /init.
	NeedInit Need = "permission to call POST /init"
)

// A Case is one requirement on a server.
type Case struct {
	// ID is the case's stable name: area/subject/detail.
	ID string
	// Procedure is the RPC ("process.Process/Start") or endpoint ("GET /files").
	Procedure string
	// Requirement is what a server has to do, in one sentence.
	Requirement string
	Level       Level
	// Since is the first version of envd for which it holds, Until the first for
	// which it does no more; zero where there is none.
	Since, Until envdversion.Version
	// Protocols are what it is tried over, one result each.
	Protocols []Protocol
	Needs     []Need
	// Run tries it. It fails by t.Fatalf.
	Run func(t *T)

	// lock names what no other case may use at the same time.
	lock string
}

// alone reports whether no other case may run at the same time.
func (c *Case) alone() bool { return slices.Contains(c.Needs, NeedInit) }

// Area returns the first two parts of the id: "process/start".
func (c *Case) Area() string {
	parts := strings.Split(c.ID, "/")
	if len(parts) < 3 {
		return parts[0]
	}
	return parts[0] + "/" + parts[1]
}

// Cases returns all cases, sorted by area and otherwise in the order in which
// they are best read.
func Cases() []Case {
	all := slices.Concat(
		processStartCases, processEnvCases, processCwdCases, processEndCases, processTimeoutCases,
		processListCases, processConnectCases, processSignalCases, processInputCases, processPTYCases,
		keepaliveCases, tagCases,
		filesGetCases, filesUploadCases, composeCases, httpCases, authCases,
		fsStatCases, fsListCases, fsChangeCases, fsWatchCases, concurrencyCases, initCases,
	)
	all = slices.Concat(all, wireCases())
	for i := range all {
		if all[i].Protocols == nil {
			all[i].Protocols = both
		}
	}
	slices.SortStableFunc(all, func(a, b Case) int { return strings.Compare(a.Area(), b.Area()) })
	return all
}

// Target is the server under test.
type Target struct {
	// URL is its base URL. With an empty one an embedded envd is started, which
	// runs commands on this machine.
	URL string
	// Token is its access token.
	Token string
	// User is the user that cases act as; "user" if empty.
	User string
	// Version is the envd version that the server claims to be. Empty, or
	// "auto", asks the server by harmless requests.
	Version string
	// Header is added to every request, for gateways that route by header.
	Header http.Header
	// Transport sends the requests; nil is a transport of the run's own.
	Transport http.RoundTripper
}

// Options say how to run. The zero value runs everything.
type Options struct {
	// Run is a pattern that ids must match, or several with commas between
	// them; "*" stands for any characters. An empty one matches all.
	Run string
	// Protocols limits the protocols.
	Protocols []Protocol
	// Level is the weakest level to run. Nil runs all.
	Level *Level
	// Parallel is the number of cases at a time; 8 if zero.
	Parallel int
	// Timeout is for one case; 20 s if zero.
	Timeout time.Duration
	// Deviations are the failures that are known.
	Deviations Deviations
	// AllowCrash runs cases that crash daemons with a known bug.
	AllowCrash bool
	// AllowInit runs cases that call POST /init. What they change they change
	// back, except that envd before 0.5.25 keeps variables that were added.
	AllowInit bool
	// everything runs cases also where what they need is not there.
	everything bool
	// Progress is called after each result, one call at a time.
	Progress func(done, total int, r *Result)
}
