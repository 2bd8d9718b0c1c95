// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Fanout runs one job on many sandboxes at the same time, as a CI runner does,
// and stops at the first that fails. All clients share one transport.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

func main() {
	log.SetFlags(0)
	urls := os.Args[1:]
	if len(urls) == 0 {
		for range 5 { // five envds inside this program
			srv := envdtest.NewServer()
			defer srv.Close()
			urls = append(urls, srv.URL)
		}
	}
	if err := fanOut(context.Background(), urls, "echo shard $SHARD of $SHARDS"); err != nil {
		log.Print(err)
	}
	if err := fanOut(context.Background(), urls, "test $SHARD != 2 || { echo no luck >&2; exit 7; }; sleep 60"); err != nil {
		log.Print(err)
	}
}

// fanOut runs a shard of the job on each sandbox. When one fails the others are
// killed: their context is over.
func fanOut(ctx context.Context, urls []string, script string) error {
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	defer transport.CloseIdleConnections()
	jobs, ctx := errgroup.WithContext(ctx)
	jobs.SetLimit(100)
	for i, url := range urls {
		jobs.Go(func() error {
			c, err := client.New(url, client.WithTransport(transport))
			if err != nil {
				return err
			}
			cmd := c.Command(ctx, "sh", "-c", script)
			cmd.Env = map[string]string{"SHARD": fmt.Sprint(i), "SHARDS": fmt.Sprint(len(urls))}
			out, err := cmd.Output()
			var exit *client.ExitError
			if errors.As(err, &exit) {
				return fmt.Errorf("shard %d: %s: %s", i, exit, strings.TrimSpace(string(exit.Stderr)))
			}
			if err != nil {
				return fmt.Errorf("shard %d: %w", i, err)
			}
			fmt.Print(string(out))
			return nil
		})
	}
	return jobs.Wait()
}
