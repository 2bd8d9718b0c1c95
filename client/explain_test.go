// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// A command that was never asked for cannot run, so nobody looks for it.
func TestStartWithoutConnection(t *testing.T) {
	srv := httptest.NewServer(nil)
	srv.Close()
	c, err := client.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Command(t.Context(), "true").Start()
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Start without a server: %v, want %v", err, syscall.ECONNREFUSED)
	}
	if err != nil && strings.Contains(err.Error(), "may have started") {
		t.Errorf("Start without a server says that something may run: %v", err)
	}
}

// Daemons before 0.2.8 have the same words for a missing program and a missing
// directory.
func TestStartMissingDirectoryOnOldDaemon(t *testing.T) {
	srv := envdtest.NewServer(envdtest.WithVersion("0.2.0"))
	defer srv.Close()
	srv.Inject(envdtest.Fault{
		Procedure: "/filesystem.Filesystem/Stat",
		Action:    envdtest.Respond,
		Status:    http.StatusNotFound,
		Header:    http.Header{"Content-Type": {"application/json"}},
		Body:      `{"code":"not_found","message":"file not found"}`,
	})
	c, err := client.New(srv.URL, client.WithUser("root"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cmd := c.Command(t.Context(), "true")
	cmd.Dir = "/no/such/dir"
	err = cmd.Start()
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		t.Errorf("Start in a missing directory: %v, want fs.ErrNotExist and not exec.ErrNotFound", err)
	}
	if err != nil && !strings.Contains(err.Error(), `directory "/no/such/dir" does not exist`) {
		t.Errorf("the error does not name the directory: %v", err)
	}
}

// That the leader is dead does not say that its tree is.
func TestKillTreeFails(t *testing.T) {
	srv := envdtest.NewServer()
	defer srv.Close()
	srv.HandleCommand("setsid", func(p *envdtest.Proc) int {
		<-p.Context.Done()
		return 0
	})
	srv.HandleCommand("/bin/sh", func(p *envdtest.Proc) int { return 1 })
	c, err := client.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cmd := c.Command(t.Context(), "anything")
	cmd.KillTree = true
	cmd.Timeout = 50 * time.Millisecond
	err = cmd.Run()
	if !errors.Is(err, client.ErrTimeout) {
		t.Fatalf("Run: %v, want %v", err, client.ErrTimeout)
	}
	if !strings.Contains(err.Error(), "its descendants may still run") {
		t.Errorf("the error does not say that the tree was not killed: %v", err)
	}
	if cmd.ProcessState == nil || cmd.ProcessState.Signal() != client.SIGKILL {
		t.Errorf("state %v, want a kill", cmd.ProcessState)
	}
}
