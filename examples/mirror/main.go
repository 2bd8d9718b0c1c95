// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Mirror keeps a local copy of a directory of the sandbox up to date: it
// downloads the tree, then follows the changes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/examples/internal/sandbox"
)

func main() {
	log.SetFlags(0)
	c, done := sandbox.Open()
	defer done()
	if err := demo(c); err != nil {
		log.Print(err)
	}
}

// demo changes a directory while it is mirrored.
func demo(c *client.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	remote := fmt.Sprintf("/tmp/mirror-%d", time.Now().UnixNano())
	defer c.RemoveAll(context.WithoutCancel(ctx), remote)
	local, err := os.MkdirTemp("", "mirror")
	if err != nil {
		return err
	}
	defer os.RemoveAll(local)
	if err := c.WriteFile(ctx, remote+"/old", []byte("was there before")); err != nil {
		return err
	}
	seen := make(chan string, 100)
	mirrored := make(chan error, 1)
	go func() { mirrored <- mirror(ctx, c, remote, local, func(what string) { seen <- what }) }()
	fmt.Println(<-seen)
	if err := c.WriteFile(ctx, remote+"/new", []byte("came later")); err != nil {
		return err
	}
	for what := range seen {
		if what == "copied new" {
			break
		}
	}
	data, err := os.ReadFile(filepath.Join(local, "new"))
	fmt.Printf("new: %s, %v\n", data, err)
	cancel()
	if err := <-mirrored; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// mirror watches before it copies, so that no change falls between the two.
func mirror(ctx context.Context, c *client.Client, remote, local string, report func(string)) error {
	w, err := c.StartWatch(ctx, remote, client.Recursive())
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err := c.DownloadDir(ctx, remote, local, client.WithPreserve()); err != nil {
		return err
	}
	report("copied all")
	root, err := os.OpenRoot(local) // names come from the sandbox: none may lead out
	if err != nil {
		return err
	}
	defer root.Close()
	for event, err := range w.Events() {
		if err != nil {
			return err
		}
		what, err := follow(ctx, c, remote, root, event)
		if err != nil {
			return err
		}
		report(what)
	}
	return ctx.Err()
}

// follow does locally what an event says was done in the sandbox.
func follow(ctx context.Context, c *client.Client, remote string, root *os.Root, event client.Event) (string, error) {
	name := filepath.FromSlash(event.Name)
	entry, err := c.Stat(ctx, path.Join(remote, event.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "removed " + event.Name, root.RemoveAll(name)
	case err != nil:
		return "", err
	case entry.IsDir():
		return "made " + event.Name, root.MkdirAll(name, 0o755)
	case !entry.Mode().IsRegular():
		return "left out " + event.Name, nil
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return "", err
	}
	f, err := root.Create(name)
	if err != nil {
		return "", err
	}
	err = c.Download(ctx, path.Join(remote, event.Name), f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, fs.ErrNotExist) { // it went in the meantime; another event says so
		err = nil
	}
	return "copied " + event.Name, err
}
