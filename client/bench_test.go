// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
)

// benchURL is the server under test: the one that ENVD_URL names, or an
// embedded one.
func benchURL(b *testing.B) string {
	b.Helper()
	if url := os.Getenv(client.EnvURL); url != "" {
		return url
	}
	srv := envdtest.NewServer()
	b.Cleanup(srv.Close)
	return srv.URL
}

// stub is the generated client as people use it without this package: with the
// defaults of connect, or tuned as this package tunes it.
func stub(b *testing.B, url string, tuned bool) processconnect.ProcessClient {
	b.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	b.Cleanup(transport.CloseIdleConnections)
	opts := []connecthttp.Option{}
	if tuned {
		transport.DisableCompression = true
		opts = append(opts, connecthttp.WithCompressors())
	}
	return processconnect.NewProcessClient(connect.NewClient(
		connecthttp.NewTransport(&http.Client{Transport: transport}, url, opts...)))
}

// runStub does with the bare stub what Cmd.Run does.
func runStub(ctx context.Context, p processconnect.ProcessClient, w io.Writer, name string, args ...string) error {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Basic cm9vdDo=")
	no := false
	stream, err := p.Start(ctx, &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: name, Args: args}, Stdin: &no})
	if err != nil {
		return err
	}
	defer stream.Close()
	var end *processpb.ProcessEvent_EndEvent
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if out := m.GetEvent().GetData().GetStdout(); out != nil {
			if _, err := w.Write(out); err != nil {
				return err
			}
		}
		if e := m.GetEvent().GetEnd(); e != nil {
			end = e
		}
	}
	if end.GetExitCode() != 0 || !end.GetExited() {
		return errors.New(end.GetStatus())
	}
	return nil
}

type runner func(ctx context.Context, w io.Writer, name string, args ...string) error

// runners are this package and its rivals.
func runners(b *testing.B) []struct {
	name string
	run  runner
} {
	b.Helper()
	url := benchURL(b)
	c, err := client.New(url, client.WithUser("root"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	viaStub := func(tuned bool) runner {
		p := stub(b, url, tuned)
		return func(ctx context.Context, w io.Writer, name string, args ...string) error {
			return runStub(ctx, p, w, name, args...)
		}
	}
	viaClient := func(ctx context.Context, w io.Writer, name string, args ...string) error {
		cmd := c.Command(ctx, name, args...)
		cmd.Stdout = w
		return cmd.Run()
	}
	return []struct {
		name string
		run  runner
	}{{"client", viaClient}, {"tuned-stub", viaStub(true)}, {"default-stub", viaStub(false)}}
}

// BenchmarkTrue is the time from Start to the end of a command that does
// nothing.
func BenchmarkTrue(b *testing.B) {
	for _, r := range runners(b) {
		b.Run(r.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := r.run(b.Context(), io.Discard, "true"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStdout is the throughput of a command's output.
func BenchmarkStdout(b *testing.B) {
	const size = 64 << 20
	for _, r := range runners(b) {
		b.Run(r.name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				n := &countingWriter{}
				if err := r.run(b.Context(), n, "head", "-c", strconv.Itoa(size), "/dev/urandom"); err != nil {
					b.Fatal(err)
				}
				if n.n != size {
					b.Fatalf("got %d bytes, want %d", n.n, size)
				}
			}
		})
	}
}

type countingWriter struct{ n int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return len(p), nil
}
