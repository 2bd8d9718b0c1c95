// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package client runs commands and handles files in a sandbox, through envd,
// the daemon inside sandboxes of E2B's kind.
//
// It is shaped like packages that every Go program uses: [Cmd] like the one of
// os/exec, file calls like those of os and io/fs. It talks to one sandbox,
// whose address the platform hands out; creating sandboxes is the platform's
// own API and not part of it.
//
//	c, err := client.New(client.SandboxURL("e2b.app", id), client.WithAccessToken(token))
//	out, err := c.Command(ctx, "uname", "-a").Output()
//
// # Commands
//
// [Client.Command] executes a program without a shell, [Client.Shell] a shell
// script; both return a [Cmd] to be set up and then run with Run, Output, or
// Start and Wait. [Client.Attach] joins a command that runs already,
// [Client.Processes] lists them, and [Client.Process] is a handle to signal
// one or to write to its input.
//
// Three things differ from os/exec, since the command runs elsewhere:
//
//   - Success means that envd said so. A stream that ends without an end event
//     is [ErrStreamLost], never a nil error.
//   - The end of the context kills the program in the sandbox and waits for
//     its end, for [Cmd.WaitDelay] at most, so that nothing is left running.
//     A program that is to outlive its context returns [ErrDetach] from
//     [Cmd.Cancel].
//   - envd signals only the program itself. [Cmd.KillTree] makes the kill reach
//     its descendants too.
//
// No call has a hidden time limit that could cut a long command short.
// [Cmd.Timeout] bounds the run and [Cmd.IdleTimeout] the silence, both off
// until set. A connection whose other side went away is noticed all the same,
// by envd's keepalive messages; see [WithKeepalive].
//
// # Files
//
// [Client.ReadFile] and [Client.WriteFile] are for what fits in memory.
// [Client.Download] and [Client.Upload] move files of any size,
// [Client.DownloadDir] and [Client.UploadDir] whole directories, and
// [Client.Open] reads here and there in a file. A transfer has no time limit
// but that of its context; it ends when no byte has moved for a minute (see
// [WithIdleTimeout]). Its errors say how far it came, as [TransferError].
//
// An upload empties the file first, so one that breaks off leaves a part of it;
// [WithAtomic] replaces the file when the new one is complete. A download that
// breaks off is taken up again, if the file is the same still.
//
// # Numbers and names
//
// A pid is envd's own number of a command. It may look like one of the
// operating system's, and must not be used as one. A tag is a label that a
// command was given with [Cmd.Tag].
//
// # Errors
//
// A failed call is an [*Error], to be tested with errors.Is against the errors
// of the standard library ([io/fs.ErrNotExist], [os/exec.ErrNotFound],
// [errors.ErrUnsupported], [context.DeadlineExceeded] and so on) and those
// listed below, such as [ErrUnauthenticated] and [ErrSandboxNotFound]. A
// command that ran and failed is an [*ExitError], and nothing else is.
//
// errors.ErrUnsupported means that this envd is too old for the call, or that
// the protocol has no way to do it; the text says which, and which version
// could.
//
// # Servers
//
// The client works with envd from 0.2.0 to 0.6.13, and with daemons of other
// vendors that differ in what they accept and how they word it. The codec is
// binary protobuf, and JSON after a server turned out not to read that. Calls
// need no knowledge of the server's version; [WithVersion] makes those that
// cannot work fail early.
//
// The sandbox is not trusted. Redirects are not followed, what it sends has
// limits, its texts are stripped of control characters in errors, and the
// access token appears in no error and no log.
//
// For tests without a sandbox there is [github.com/envd-go/envd/client/envdtest].
package client
