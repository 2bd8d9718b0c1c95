// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Package sandbox gives the examples a sandbox to work in.
package sandbox

import (
	"log"
	"os"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// Open returns a client of the sandbox that ENVD_URL names, or without one of
// an envd inside the program, which runs commands on this machine. Call done
// at the end.
func Open() (c *client.Client, done func()) {
	stop := func() {}
	if os.Getenv(client.EnvURL) == "" {
		srv := envdtest.NewServer()
		stop = srv.Close
		os.Setenv(client.EnvURL, srv.URL)
	}
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		c.Close()
		stop()
	}
}
