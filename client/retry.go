// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

const (
	// maxTries is how often a call is sent at most.
	maxTries = 3
	// retryBackoff is the longest wait before the second try; it doubles with
	// each further one.
	retryBackoff = 100 * time.Millisecond
	// shortBody is how much of an answer is read before it counts as arrived.
	shortBody = 64 << 10
	// maxRetryAfter is the longest wait that a server may ask for. One that asks
	// for more gets no second try.
	maxRetryAfter = 10 * time.Second
)

// repeatable are the calls that may be sent again when it is not known whether
// the first one arrived: they only read, or the second one changes nothing.
// Start, SendInput and Move must never be among them; neither must
// GetWatcherEvents, which takes what it returns out of the queue, nor /health,
// which asks about this moment.
var repeatable = []string{
	"GET /metrics",
	"GET /envs",
	"POST /process.Process/List",
	"POST /process.Process/Update",
	"POST /filesystem.Filesystem/Stat",
	"POST /filesystem.Filesystem/ListDir",
}

// isRepeatable reports whether req may be sent again. A path prefix of the base
// URL does not matter.
func isRepeatable(req *http.Request) bool {
	for _, call := range repeatable {
		method, path, _ := strings.Cut(call, " ")
		if req.Method == method && strings.HasSuffix(req.URL.Path, path) {
			return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
		}
	}
	return false
}

// sendRetrying is send, except that a call that may be repeated is, when the
// connection failed or something in front of the daemon could not serve it.
// The last answer or error is returned as it came.
func (t *transport) sendRetrying(req *http.Request) (*http.Response, error) {
	if t.core.config.noRetries || !isRepeatable(req) {
		return t.send(req)
	}
	for try := 1; ; try++ {
		resp, err := t.send(req)
		if err == nil {
			err = readShortBody(resp)
		}
		wait, why := retryWait(req.Context(), try, resp, err)
		if why == "" {
			return answer(resp, err)
		}
		next, cloneErr := again(req)
		if cloneErr != nil {
			return answer(resp, err)
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		t.core.config.logger.LogAttrs(req.Context(), slog.LevelInfo, "envd retry",
			slog.String("method", req.Method), slog.String("path", req.URL.Path),
			slog.Int("try", try+1), slog.Duration("wait", wait), slog.String("reason", t.core.clean(why)))
		if !sleep(req.Context(), wait) {
			return nil, req.Context().Err()
		}
		req = next
	}
}

// answer keeps to the rule of RoundTripper: an answer or an error.
func answer(resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// readShortBody reads the body of a small answer, so that one that breaks off
// counts as an answer that did not come. A large one is not worth a second
// copy.
func readShortBody(resp *http.Response) error {
	start, err := io.ReadAll(io.LimitReader(resp.Body, shortBody))
	if err != nil {
		return err
	}
	resp.Body = &prefixedBody{Reader: io.MultiReader(bytes.NewReader(start), resp.Body), Closer: resp.Body}
	return nil
}

// prefixedBody is a body of which the start was read already.
type prefixedBody struct {
	io.Reader
	io.Closer
}

// retryWait returns why the call should be sent again, "" if it should not,
// and how long to wait before.
func retryWait(ctx context.Context, try int, resp *http.Response, err error) (wait time.Duration, why string) {
	if try >= maxTries || ctx.Err() != nil {
		return 0, ""
	}
	if err != nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return 0, ""
		}
		return backoff(try), err.Error()
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
	default:
		return 0, ""
	}
	wait = max(backoff(try), retryAfter(resp.Header.Get("Retry-After"), time.Now()))
	if wait > maxRetryAfter {
		return 0, ""
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return 0, "" // the answer at hand says more than a deadline would
	}
	return wait, resp.Status
}

// backoff is the wait before another try, with full jitter, so that many
// clients do not come back all at once.
func backoff(try int) time.Duration {
	return rand.N(retryBackoff << (try - 1))
}

// waitToRetry waits before what failed so is tried again, for d or for as long
// as the server asked. It reports whether there is to be another try.
func waitToRetry(ctx context.Context, d time.Duration, err error) bool {
	if he, ok := errors.AsType[*HTTPError](err); ok {
		d = max(d, he.RetryAfter)
	}
	return d <= maxRetryAfter && sleep(ctx, d)
}

// again returns req with its body rewound.
func again(req *http.Request) (*http.Request, error) {
	next := req.Clone(req.Context())
	if req.GetBody == nil {
		return next, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	next.Body = body
	return next, nil
}

// sleep waits for d and reports whether ctx was still alive then.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
