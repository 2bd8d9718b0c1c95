// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package envdtest is an envd inside the running program, for tests and demos,
// as net/http/httptest is for web servers.
//
//	srv := envdtest.NewServer()
//	defer srv.Close()
//	c, err := client.New(srv.URL)
//
// The server speaks the protocol as measured on real daemons: Connect with
// JSON or binary and gRPC-Web over HTTP/1.1. [WithVersion] makes it any release
// from 0.2.0 to 0.6.13, [WithDialect] a vendor's daemon.
//
// # It isolates nothing
//
// A command runs as a process of this machine, with the rights of the program
// that runs the server, and sees all its files. There is no sandbox. Do not
// let anybody reach the server who may not run programs on the machine; it
// listens on 127.0.0.1 unless told otherwise.
//
// # Commands
//
// [Server.HandleCommand] makes a command of a Go function. Such commands are
// deterministic, run on every operating system and need no program to be
// installed. With [WithPipe] the server also needs no socket, and works inside
// a testing/synctest bubble, where a timeout of an hour takes no time.
//
// Any other command is a real process, with pipes or, on Unix, a terminal.
// [WithoutRealProcesses] forbids these.
//
// # Users
//
// Requests name their user by HTTP Basic authentication. A user that the
// operating system knows is used as it is when the server runs as root, as
// daemons do. Otherwise the commands of "root" and "user" run as the user of
// the program, with a home directory in a temporary directory.
//
// # Trouble
//
// [Server.Inject] makes requests fail: an answer from a proxy, a connection
// that breaks in the middle of an event, an answer that never comes. What real
// daemons do badly is there too, but only on request: see [Quirk].
package envdtest
