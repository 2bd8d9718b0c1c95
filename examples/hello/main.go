// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Hello runs a command in the sandbox that ENVD_URL names, or without one on
// an envd inside the program.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

func main() {
	if os.Getenv(client.EnvURL) == "" {
		srv := envdtest.NewServer() // runs commands on this machine, without a sandbox
		defer srv.Close()
		os.Setenv(client.EnvURL, srv.URL)
	}
	c, err := client.FromEnv() // ENVD_URL, ENVD_ACCESS_TOKEN, ENVD_USER
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	cmd := c.Command(context.Background(), "sh", "-c", "echo hello $NAME; exit 3")
	cmd.Env = map[string]string{"NAME": "sandbox"}
	out, err := cmd.Output()
	var exit *client.ExitError
	if err != nil && !errors.As(err, &exit) {
		log.Fatal(err) // not known how it ended
	}
	fmt.Printf("%spid %d: %s\n", out, cmd.Process.PID(), cmd.ProcessState)
}
