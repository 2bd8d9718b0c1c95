// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envd-go/envd/client/envdtest"
)

const (
	defaultParallel = 8
	defaultTimeout  = 20 * time.Second
	cleanupTimeout  = 10 * time.Second
)

// Run tries the cases on the target. The error says that they could not be
// tried at all: the server does not answer, or the context ended. Whether the
// server is any good is in the report.
func Run(ctx context.Context, target Target, opts Options) (*Report, error) {
	if target.URL == "" {
		// Without a socket nobody else can run commands through it.
		srv := envdtest.NewPipeServer(envdtest.WithAccessToken(target.Token))
		defer srv.Close()
		target.URL, target.Transport = srv.URL, srv.Client().Transport
	}
	r, err := newRun(ctx, target, opts)
	if err != nil {
		return nil, err
	}
	defer r.close()
	jobs := r.jobs()
	report := r.newReport()
	results := make([]Result, len(jobs))
	r.each(jobs, func(i int) {
		results[i] = r.try(ctx, jobs[i])
		r.progress(len(jobs), &results[i])
	})
	report.add(results)
	report.LeftBehind = r.leftBehind(context.WithoutCancel(ctx))
	report.Seconds = time.Since(report.Started).Seconds()
	if err := ctx.Err(); err != nil {
		return report, fmt.Errorf("run conformance cases: %w", err)
	}
	return report, nil
}

// Test tries the cases on the target, each as a subtest. Without a URL the
// target is an embedded envd.
func Test(t *testing.T, target Target, opts Options) {
	t.Helper()
	report, err := Run(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range report.Results {
		r := &report.Results[i]
		t.Run(r.ID+"/"+string(r.Protocol), func(t *testing.T) {
			switch {
			case r.Status == NotRun:
				t.Skip("not run: " + r.Reason)
			case !r.Status.OK():
				t.Errorf("%s\n%s %s\n%s\n%s", r.Status, strings.ToUpper(r.Level), r.Requirement, r.Message, r.Exchange)
			}
		})
	}
}

// job is one case over one protocol.
type job struct {
	Case
	protocol Protocol
}

func (r *run) jobs() []job {
	var jobs []job
	for _, c := range Cases() {
		if r.opts.Run != "" && !Match(r.opts.Run, c.ID) {
			continue
		}
		if r.opts.Level != nil && c.Level > *r.opts.Level {
			continue
		}
		for _, p := range c.Protocols {
			if len(r.opts.Protocols) == 0 || slices.Contains(r.opts.Protocols, p) {
				jobs = append(jobs, job{c, p})
			}
		}
	}
	return jobs
}

// each calls fn for every job, several at a time, and then for each of those
// that have to be alone.
func (r *run) each(jobs []job, fn func(int)) {
	n := r.opts.Parallel
	if n <= 0 {
		n = defaultParallel
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	var alone []int
	for i := range jobs {
		if jobs[i].alone() {
			alone = append(alone, i)
			continue
		}
		next <- i
	}
	close(next)
	workers.Wait()
	for _, i := range alone {
		fn(i)
	}
}

func (r *run) progress(total int, result *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.opts.Progress != nil {
		r.opts.Progress(r.done, total, result)
	}
}

func (r *run) try(ctx context.Context, j job) Result {
	result := Result{ID: j.ID, Area: j.Area(), Procedure: j.Procedure, Requirement: j.Requirement,
		Level: j.Level.String(), Protocol: j.protocol}
	if reason := r.cannot(ctx, j); reason != "" {
		result.Status, result.Reason = NotRun, reason
		return result
	}
	if j.lock != "" {
		lock := r.lock(j.lock)
		lock.Lock()
		defer lock.Unlock()
	}
	start := time.Now()
	failure, exchange, skip := r.attempt(ctx, j)
	result.Seconds = time.Since(start).Seconds()
	if skip != "" {
		result.Status, result.Reason = NotRun, skip
		return result
	}
	result.Status = Pass
	if failure != "" {
		result.Status, result.Message, result.Exchange = Fail, failure, exchange
	}
	r.opts.Deviations.apply(&result)
	return result
}

// cannot says why a case is not run; it is empty for one that is.
func (r *run) cannot(ctx context.Context, j job) string {
	if ctx.Err() != nil {
		return "the run was cancelled"
	}
	v := r.profile.version
	if !v.IsZero() && v.Compare(j.Since) < 0 {
		return fmt.Sprintf("needs envd %s; this is %s", j.Since, v)
	}
	if !j.Until.IsZero() && (v.IsZero() || v.Compare(j.Until) >= 0) {
		return fmt.Sprintf("is for envd before %s", j.Until)
	}
	if j.protocol != HTTP && !r.opts.everything && !slices.Contains(r.profile.Protocols, j.protocol) {
		return fmt.Sprintf("needs %s, which the server does not speak", j.protocol)
	}
	for _, need := range j.Needs {
		if !r.opts.everything && !r.profile.has(need) {
			return "needs " + string(need)
		}
	}
	return ""
}

// attempt runs the case and returns what was wrong, and the HTTP exchange.
func (r *run) attempt(ctx context.Context, j job) (failure, exchange, skip string) {
	timeout := r.opts.Timeout
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return r.attemptFor(ctx, j, timeout)
}

func (r *run) attemptFor(ctx context.Context, j job, timeout time.Duration) (failure, exchange, skip string) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the case took longer than %s", timeout))
	defer cancel()
	t := newT(ctx, r, j)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.clean()
		defer func() {
			if p := recover(); p != nil {
				t.fail(fmt.Sprintf("the case panicked: %v\n%s", p, debug.Stack()))
			}
		}()
		j.Run(t)
	}()
	<-done
	if t.shared.skip != "" {
		return "", "", t.shared.skip
	}
	failure = t.shared.failure
	if failure != "" && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		failure += fmt.Sprintf("\n(%v)", context.Cause(ctx))
	}
	if failure == "" {
		return "", "", ""
	}
	return failure, t.shared.log.String(), ""
}

// Fatalf says what is wrong and ends the case.
func (t *T) Fatalf(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if t.shared.preparing.Load() > 0 {
		message = preparation + message
	}
	t.fail(message)
	runtime.Goexit()
}

// skipf says that the case makes no sense here, and ends it.
func (t *T) skipf(format string, args ...any) {
	t.shared.mu.Lock()
	t.shared.skip = fmt.Sprintf(format, args...)
	t.shared.mu.Unlock()
	runtime.Goexit()
}

// run is one call of Run.
type run struct {
	id        string
	target    Target
	opts      Options
	transport http.RoundTripper
	owned     *http.Transport
	profile   Profile
	started   time.Time

	mu    sync.Mutex
	done  int
	locks map[string]*sync.Mutex
	// watchers are the ids of the polling watchers of all cases.
	watchers []string
}

func (r *run) addWatcher(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, id)
}

func (r *run) lock(name string) *sync.Mutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locks[name] == nil {
		r.locks[name] = &sync.Mutex{}
	}
	return r.locks[name]
}

func (r *run) close() {
	if r.owned != nil {
		r.owned.CloseIdleConnections()
	}
}
