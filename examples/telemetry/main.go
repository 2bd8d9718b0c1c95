// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// Telemetry shows the client in OpenTelemetry: a span for each call of the
// program, one for each RPC below it, one for each HTTP request below that, and
// metrics. The client itself knows nothing of OpenTelemetry: an interceptor and
// a transport are all that it takes.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
)

// instrumented returns the options that show a client in OpenTelemetry.
func instrumented() ([]client.Option, error) {
	calls, err := otel.Meter("envd").Int64Counter("envd.client.rpcs", metric.WithDescription("RPCs to sandboxes, by procedure and code"))
	if err != nil {
		return nil, err
	}
	return []client.Option{
		client.WithTransport(otelhttp.NewTransport(http.DefaultTransport)),
		client.WithConnect([]connect.ClientInterceptor{spans(otel.Tracer("envd"), calls)}),
	}, nil
}

// spans makes a span of each RPC, which lasts as long as its stream.
func spans(tracer trace.Tracer, calls metric.Int64Counter) connect.ClientInterceptor {
	return func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			procedure := strings.TrimPrefix(spec.Procedure, "/")
			ctx, span := tracer.Start(ctx, procedure, trace.WithSpanKind(trace.SpanKindClient))
			s := &spanStream{span: span, calls: calls, procedure: procedure}
			stream, err := next(ctx, spec)
			if err != nil {
				s.end(err)
				return nil, err
			}
			s.ClientStream = stream
			return s, nil
		}
	}
}

type spanStream struct {
	connect.ClientStream
	span      trace.Span
	calls     metric.Int64Counter
	procedure string
	messages  int64
	ended     bool
}

func (s *spanStream) Receive(msg any) error {
	err := s.ClientStream.Receive(msg)
	switch {
	case err == nil:
		s.messages++
	case errors.Is(err, io.EOF):
		s.end(nil)
	default:
		s.end(err)
	}
	return err
}

func (s *spanStream) Close() error {
	err := s.ClientStream.Close()
	s.end(nil)
	return err
}

func (s *spanStream) end(err error) {
	if s.ended {
		return
	}
	s.ended = true
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
		s.span.SetStatus(codes.Error, code)
	}
	s.span.SetAttributes(attribute.Int64("rpc.messages", s.messages), attribute.String("rpc.code", code))
	s.span.End()
	s.calls.Add(context.Background(), 1, metric.WithAttributes(attribute.String("rpc.method", s.procedure), attribute.String("rpc.code", code)))
}

func main() {
	log.SetFlags(0)
	recorder, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	if err := work(); err != nil {
		log.Fatal(err)
	}
	printSpans(recorder.Ended())
	if err := printMetrics(reader); err != nil {
		log.Fatal(err)
	}
}

// work runs a command, uploads a file and watches a directory, each in a span.
func work() error {
	if os.Getenv(client.EnvURL) == "" {
		srv := envdtest.NewServer()
		defer srv.Close()
		os.Setenv(client.EnvURL, srv.URL)
	}
	opts, err := instrumented()
	if err != nil {
		return err
	}
	c, err := client.FromEnv(opts...)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := fmt.Sprintf("/tmp/telemetry-%d", time.Now().UnixNano())
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"exec", func(ctx context.Context) error { return c.Command(ctx, "sh", "-c", "echo one; echo two").Run() }},
		{"upload", func(ctx context.Context) error {
			return c.Upload(ctx, dir+"/file", bytes.NewReader(make([]byte, 1<<20)))
		}},
		{"watch", func(ctx context.Context) error { return watchOnce(ctx, c, dir) }},
		{"clean", func(ctx context.Context) error { return c.RemoveAll(ctx, dir) }},
	} {
		ctx, span := otel.Tracer("example").Start(ctx, step.name)
		err := step.do(ctx)
		span.End()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func watchOnce(ctx context.Context, c *client.Client, dir string) error {
	w, err := c.StartWatch(ctx, dir)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := c.Mkdir(ctx, dir+"/new"); err != nil {
		return err
	}
	for _, err := range w.Events() {
		return err
	}
	return nil
}

func printSpans(spans []sdktrace.ReadOnlySpan) {
	children := map[trace.SpanID][]sdktrace.ReadOnlySpan{}
	for _, s := range spans {
		children[s.Parent().SpanID()] = append(children[s.Parent().SpanID()], s)
	}
	var show func(trace.SpanID, string)
	show = func(id trace.SpanID, indent string) {
		for _, s := range children[id] {
			fmt.Printf("%s%s %s\n", indent, s.Name(), s.Status().Code)
			show(s.SpanContext().SpanID(), indent+"  ")
		}
	}
	show(trace.SpanID{}, "")
}

func printMetrics(reader *sdkmetric.ManualReader) error {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		return err
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "envd.client.rpcs" {
				continue
			}
			for _, point := range sum.DataPoints {
				method, _ := point.Attributes.Value("rpc.method")
				fmt.Printf("%s %s %d\n", m.Name, method.AsString(), point.Value)
			}
		}
	}
	return nil
}
