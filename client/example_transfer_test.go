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
	"time"

	"github.com/envd-go/envd/client"
)

func ExampleClient_Upload() {
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	f, err := os.Open("model.bin")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	err = c.Upload(context.Background(), "/data/model.bin", f,
		client.WithAtomic(),
		client.WithIdleTimeout(30*time.Second),
		client.WithProgress(func(p client.Progress) { fmt.Printf("\r%d of %d bytes", p.Bytes, p.Total) }))
	var broken *client.TransferError
	switch {
	case errors.Is(err, client.ErrNoSpace):
		log.Fatal("the sandbox's disk is full")
	case errors.As(err, &broken):
		log.Fatalf("%d bytes were sent: %v", broken.Bytes, err)
	}
}

func ExampleClient_Open() {
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	f, err := c.Open(context.Background(), "/data/model.bin")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	header := make([]byte, 16)
	if _, err := f.ReadAt(header, 0); err != nil {
		log.Fatal(err)
	}
	if _, err := f.Seek(-1024, io.SeekEnd); err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(os.Stdout, f); err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_UploadDir() {
	c, err := client.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	s, err := c.UploadDir(context.Background(), "./src", "/app/src",
		client.WithExclude(".git/", "*_test.go"),
		client.WithPreserve(),
		client.WithKeepGoing())
	fmt.Printf("%d files, %d bytes\n", s.Files, s.Bytes)
	if err != nil {
		log.Fatal(err) // one line for each path that failed
	}
}

// The address works without the token, for curl or a browser.
func ExampleClient_SignedDownloadURL() {
	c, err := client.New("https://49983-i3p1q.e2b.app", client.WithAccessToken("a token"), client.WithUser("user"))
	if err != nil {
		log.Fatal(err)
	}
	url, err := c.SignedDownloadURL("/app/report.pdf", 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(url)
	// Output: https://49983-i3p1q.e2b.app/files?path=%2Fapp%2Freport.pdf&signature=v1_tA82D41oizpBW0zrqwEckoUyB70UY2aQtYomDPBmeqk&username=user
}
