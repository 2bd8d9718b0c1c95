// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Agent is the loop of a coding agent: a model asks for tools, which run in the
// sandbox, and is told what came of them. The model here is a script; put yours
// in its place.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"path"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/examples/internal/sandbox"
)

// call is what a model asks for.
type call struct {
	Tool    string
	Command string
	Path    string
	Content string
}

// tools runs calls of the model in one directory of a sandbox.
type tools struct {
	sandbox *client.Client
	dir     string
}

// run returns what the model is told. That a command failed is something for
// the model; an error is something for the program.
func (t *tools) run(ctx context.Context, c call) (string, error) {
	switch c.Tool {
	case "shell":
		return t.shell(ctx, c.Command)
	case "write":
		if err := t.sandbox.WriteFile(ctx, t.file(c.Path), []byte(c.Content)); err != nil {
			return "", err
		}
		return "written", nil
	case "read":
		data, err := t.sandbox.ReadFile(ctx, t.file(c.Path))
		return string(data), err
	}
	return "there is no tool " + c.Tool, nil
}

// shell bounds what a command may take: time, silence, output and children that
// it leaves.
func (t *tools) shell(ctx context.Context, script string) (string, error) {
	cmd := t.sandbox.Shell(ctx, script)
	cmd.Dir = t.dir
	cmd.Timeout, cmd.IdleTimeout = 2*time.Minute, time.Minute
	cmd.OutputLimit = 64 << 10
	cmd.KillTree = true
	out, err := cmd.CombinedOutput()
	var exit *client.ExitError
	switch {
	case err == nil, errors.As(err, &exit):
		return fmt.Sprintf("%s[%s]", out, cmd.ProcessState), nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, client.ErrIdleTimeout), errors.Is(err, client.ErrOutputLimit):
		return fmt.Sprintf("%s[%v]", out, err), nil
	}
	return "", err
}

// file keeps the model below its directory.
func (t *tools) file(name string) string { return path.Join(t.dir, path.Clean("/"+name)) }

// script stands for a model: it writes a program, runs it, reads the mistake,
// mends it, and runs it again.
var script = []string{
	`{"tool":"write","path":"greet.sh","content":"ecko hello\n"}`,
	`{"tool":"shell","command":"sh greet.sh"}`,
	`{"tool":"write","path":"greet.sh","content":"echo hello\n"}`,
	`{"tool":"shell","command":"sh greet.sh"}`,
	`{"tool":"read","path":"../../etc/greet.sh"}`,
}

func main() {
	log.SetFlags(0)
	c, done := sandbox.Open()
	defer done()
	if err := loop(context.Background(), c); err != nil {
		log.Print(err)
	}
}

func loop(ctx context.Context, c *client.Client) error {
	dir := fmt.Sprintf("/tmp/agent-%d", time.Now().UnixNano())
	if err := c.MkdirAll(ctx, dir); err != nil {
		return err
	}
	defer c.RemoveAll(ctx, dir)
	t := &tools{c, dir}
	for _, text := range script {
		var want call
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			return err
		}
		answer, err := t.run(ctx, want)
		if err != nil {
			answer = err.Error() // a missing file, say: let the model deal with it
		}
		fmt.Printf("%s\n  -> %q\n", text, answer)
	}
	return nil
}
