// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	processpb "github.com/envd-go/envd/gen/process"
	"github.com/envd-go/envd/gen/process/processconnect"
	"github.com/envd-go/envd/internal/envdversion"
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

// inShort is how much is done in a run that is only to show that it works.
func inShort[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

// benchUser is whom benchmarks act as.
func benchUser() string { return cmp.Or(os.Getenv(client.EnvUser), "root") }

// benchVersion is what the daemon is, for clients that are told.
func benchVersion() string { return cmp.Or(os.Getenv("ENVD_VERSION"), envdversion.Latest.String()) }

// benchClient is the client as most would use it.
func benchClient(b *testing.B, url string, opts ...client.Option) *client.Client {
	b.Helper()
	c, err := client.New(url, append([]client.Option{client.WithUser(benchUser()), client.WithVersion(benchVersion())}, opts...)...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// stub is the generated client as people use it without this package: with the
// defaults of connect, or tuned as this package tunes it.
func stub(b *testing.B, url string, tuned bool) processconnect.ProcessClient {
	b.Helper()
	return processconnect.NewProcessClient(stubTransport(b, url, tuned))
}

func stubTransport(b *testing.B, url string, tuned bool) *connect.Client {
	b.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	b.Cleanup(transport.CloseIdleConnections)
	opts := []connecthttp.Option{connecthttp.WithReadMaxBytes(client.DefaultMaxMessageBytes)}
	if tuned {
		transport.DisableCompression = true
		opts = append(opts, connecthttp.WithCompressors())
	}
	return connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, url, opts...))
}

// asBenchUser adds the user to a call of a bare stub.
func asBenchUser(ctx context.Context) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(benchUser()+":")))
	return ctx
}

// runStub does with the bare stub what Cmd.Run does.
func runStub(ctx context.Context, p processconnect.ProcessClient, w io.Writer, name string, args ...string) error {
	no := false
	stream, err := p.Start(asBenchUser(ctx), &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: name, Args: args}, Stdin: &no})
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
	c := benchClient(b, url)
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
		b.Run("impl="+r.name, func(b *testing.B) {
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
	size := inShort(int64(128<<20), 1<<20)
	for _, r := range runners(b) {
		b.Run("impl="+r.name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				n := &countingWriter{}
				if err := r.run(b.Context(), n, "head", "-c", strconv.FormatInt(size, 10), "/dev/urandom"); err != nil {
					b.Fatal(err)
				}
				if n.n != size {
					b.Fatalf("got %d bytes, want %d", n.n, size)
				}
			}
		})
	}
}

// BenchmarkTrueParallel is the same with 32 commands under way at a time.
func BenchmarkTrueParallel(b *testing.B) {
	for _, r := range runners(b) {
		b.Run("impl="+r.name, func(b *testing.B) {
			b.SetParallelism(32 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := r.run(context.Background(), io.Discard, "true"); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkStdoutText is the throughput of lines of text, which compress well.
func BenchmarkStdoutText(b *testing.B) {
	size := inShort(int64(128<<20), 1<<20)
	script := "yes 'the quick brown fox jumps over the lazy dog' | head -c " + strconv.FormatInt(size, 10)
	for _, r := range runners(b) {
		b.Run("impl="+r.name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				n := &countingWriter{}
				if err := r.run(b.Context(), n, "sh", "-c", script); err != nil {
					b.Fatal(err)
				}
				if n.n != size {
					b.Fatalf("got %d bytes, want %d", n.n, size)
				}
			}
		})
	}
}

// BenchmarkSmallEvents is 200 commands at a time that each write a hundred
// lines one by one.
func BenchmarkSmallEvents(b *testing.B) {
	for _, r := range runners(b) {
		b.Run("impl="+r.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				runLines(b, r.run, 200, 100)
			}
		})
	}
}

// runLines runs so many commands at a time that each write so many lines.
func runLines(b *testing.B, run runner, streams, lines int) {
	b.Helper()
	script := "i=0; while [ $i -lt " + strconv.Itoa(lines) + " ]; do echo x; i=$((i+1)); done"
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			n := &countingWriter{}
			if err := run(context.Background(), n, "sh", "-c", script); err != nil {
				b.Error(err)
			} else if n.n != int64(2*lines) {
				b.Errorf("got %d bytes, want %d", n.n, 2*lines)
			}
		})
	}
	wg.Wait()
}

// BenchmarkEvents is 200 commands at a time that each write one byte a thousand
// times, a millisecond apart.
func BenchmarkEvents(b *testing.B) {
	streams, events := inShort(200, 20), inShort(1000, 50)
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do printf x; sleep 0.001; i=$((i+1)); done", events)
	for _, r := range runners(b) {
		b.Run("impl="+r.name, func(b *testing.B) {
			b.ReportAllocs()
			before := processorTime()
			for b.Loop() {
				var wg sync.WaitGroup
				for range streams {
					wg.Go(func() {
						n := &countingWriter{}
						if err := r.run(context.Background(), n, "sh", "-c", script); err != nil || n.n != int64(events) {
							b.Errorf("got %d bytes, %v", n.n, err)
						}
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N)/float64(streams*events), "cpu-µs/event")
		})
	}
}

// BenchmarkStreams is what a command costs as more run at a time.
func BenchmarkStreams(b *testing.B) {
	run := runners(b)[0].run
	for _, n := range inShort([]int{25, 50, 100, 200, 400}, []int{25, 50}) {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			for b.Loop() {
				runLines(b, run, n, 20)
			}
		})
	}
}

// BenchmarkIdleStream is the memory that one waiting command takes in the
// client's process: heap and stacks.
func BenchmarkIdleStream(b *testing.B) {
	const streams = 200
	url := benchURL(b)
	measure := func(b *testing.B, open func(ctx context.Context) error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		before := memoryInUse()
		for range streams {
			if err := open(ctx); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(memoryInUse()-before)/streams/1024, "KiB/stream")
		b.ReportMetric(float64(runtime.NumGoroutine())/streams, "goroutines/stream")
		b.ReportMetric(0, "ns/op")
	}
	b.Run("impl=client", func(b *testing.B) {
		c := benchClient(b, url)
		var commands []*client.Cmd
		measure(b, func(ctx context.Context) error {
			cmd := c.Command(ctx, "sleep", "60")
			commands = append(commands, cmd)
			return cmd.Start()
		})
		for _, cmd := range commands {
			_ = cmd.Wait()
		}
	})
	b.Run("impl=tuned-stub", func(b *testing.B) {
		p := stub(b, url, true)
		var streams []any
		measure(b, func(ctx context.Context) error {
			stream, err := p.Start(asBenchUser(ctx), &processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "sleep", Args: []string{"60"}}})
			if err != nil {
				return err
			}
			streams = append(streams, stream)
			_, err = stream.Receive()
			return err
		})
		runtime.KeepAlive(streams)
	})
}

// memoryInUse is the heap and the stacks after a collection.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

type countingWriter struct{ n int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return len(p), nil
}
