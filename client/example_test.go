// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// The examples run on an envd inside the test program. Its commands are Go
// functions, so that they do the same on every machine.
func exampleClient() (*client.Client, func()) {
	srv := envdtest.NewServer()
	srv.HandleCommand("uname", func(p *envdtest.Proc) int {
		fmt.Fprintln(p.Stdout, "Linux")
		return 0
	})
	srv.HandleCommand("greet", func(p *envdtest.Proc) int {
		fmt.Fprintf(p.Stdout, "hello %s\n", p.Env["NAME"])
		return 0
	})
	srv.HandleCommand("make", func(p *envdtest.Proc) int {
		fmt.Fprintln(p.Stderr, "make: no rule")
		return 2
	})
	srv.HandleCommand("tr", func(p *envdtest.Proc) int {
		text, err := io.ReadAll(p.Stdin)
		if err != nil {
			return 1
		}
		fmt.Fprint(p.Stdout, strings.ToUpper(string(text)))
		return 0
	})
	srv.HandleCommand("sleep", func(p *envdtest.Proc) int {
		<-p.Context.Done()
		return 1
	})
	c, err := client.New(srv.URL, client.WithUser("user"))
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		c.Close()
		srv.Close()
	}
}

func ExampleNew() {
	c, err := client.New(client.SandboxURL("e2b.app", "i3p1q"),
		client.WithAccessToken("the token that came with the sandbox"),
		client.WithUser("user"),
		client.WithRequestTimeout(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.URL())
	// Output: https://49983-i3p1q.e2b.app
}

func ExampleClient_Command() {
	c, done := exampleClient()
	defer done()

	out, err := c.Command(context.Background(), "uname").Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", out)
	// Output: Linux
}

func ExampleCmd() {
	c, done := exampleClient()
	defer done()

	cmd := c.Command(context.Background(), "greet")
	cmd.Env = map[string]string{"NAME": "sandbox"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Timeout = 10 * time.Minute
	if err := cmd.Run(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(cmd.ProcessState)
	// Output:
	// hello sandbox
	// exit status 0
}

func ExampleExitError() {
	c, done := exampleClient()
	defer done()

	err := c.Command(context.Background(), "make", "test").Run()
	var exit *client.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		fmt.Println("the sandbox has no make")
	case errors.As(err, &exit):
		fmt.Printf("code %d, and it said: %s", exit.ExitCode(), exit.Stderr)
	case err != nil:
		fmt.Println("not known how it ended:", err)
	}
	// Output: code 2, and it said: make: no rule
}

func ExampleCmd_StdinPipe() {
	c, done := exampleClient()
	defer done()

	cmd := c.Command(context.Background(), "tr", "a-z", "A-Z")
	cmd.Stdout = os.Stdout
	stdin, err := cmd.StdinPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(stdin, "one")
	fmt.Fprintln(stdin, "two")
	if err := stdin.Close(); err != nil {
		log.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// ONE
	// TWO
}

// A timeout kills the command in the sandbox, and the error tells it from an
// exit.
func ExampleCmd_timeout() {
	c, done := exampleClient()
	defer done()

	cmd := c.Command(context.Background(), "sleep", "infinity")
	cmd.Timeout = 50 * time.Millisecond
	err := cmd.Run()
	fmt.Println(errors.Is(err, client.ErrTimeout))

	left, err := c.Processes(context.Background())
	fmt.Println(len(left), err)
	// Output:
	// true
	// 0 <nil>
}

func ExampleClient_Processes() {
	c, done := exampleClient()
	defer done()
	ctx := context.Background()

	cmd := c.Command(ctx, "sleep", "infinity")
	cmd.Tag = "nap"
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	processes, err := c.Processes(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range processes {
		fmt.Println(p.Tag, p.Path, p.Args)
	}
	if err := c.Process(client.Tag("nap")).Kill(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(cmd.Wait())
	// Output:
	// nap sleep [infinity]
	// signal: killed
}

// Attach joins a command that another program has started. Letting go of it
// leaves it running.
func ExampleClient_Attach() {
	c, done := exampleClient()
	defer done()
	ctx := context.Background()

	cmd := c.Command(ctx, "sleep", "infinity")
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	again := c.Attach(ctx, client.PID(cmd.Process.PID()))
	if err := again.Start(); err != nil {
		log.Fatal(err)
	}
	if err := again.Process.Kill(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(again.Wait())
	fmt.Println(cmd.Wait())
	// Output:
	// signal: killed
	// signal: killed
}

// As acts as another user of the sandbox, over the same connections.
func ExampleClient_As() {
	c, done := exampleClient()
	defer done()

	fmt.Println(c.User(), c.As("root").User())
	// Output: user root
}

// The stubs that buf generated are at hand for what has no call of its own.
func ExampleClient_ProcessService() {
	c, done := exampleClient()
	defer done()

	resp, err := c.ProcessService().List(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(resp.GetProcesses()))
	// Output: 0
}
