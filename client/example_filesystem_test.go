// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"

	"github.com/envd-go/envd/client"
)

func ExampleClient_ReadDir() {
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	entries, err := c.ReadDir(context.Background(), "/app")
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.Mode(), e.Owner(), e.Size(), e.Name())
	}
}

func ExampleClient_FS() {
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	err = fs.WalkDir(c.FS(context.Background(), "/app"), ".", func(name string, d fs.DirEntry, err error) error {
		fmt.Println(name)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Watch() {
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range c.Watch(context.Background(), "/app", client.Recursive()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Op, event.Name)
	}
}

func ExampleClient_StartWatch() {
	ctx := context.Background()
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	w, err := c.StartWatch(ctx, "/app/out")
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	// The watch has begun, so nothing that the command makes is missed.
	if err := c.Shell(ctx, "cd /app && make").Run(); err != nil {
		log.Fatal(err)
	}
	for event, err := range w.Events() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event)
		break
	}
}
