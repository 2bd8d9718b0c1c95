// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envd-go/envd/client"
	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/faultproxy"
)

// soakSize says how much a soak does. SOAK, such as 10m, sets the time of its
// last part and asks for the full size.
type soakSize struct {
	atOnce, short, watchers, uploads, sandboxes int
	mixed                                       time.Duration
}

func newSoakSize(t *testing.T) soakSize {
	text := os.Getenv("SOAK")
	if text == "" {
		return soakSize{atOnce: 40, short: 200, watchers: 20, uploads: 40, sandboxes: 100, mixed: time.Second}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SOAK: %v", err)
	}
	return soakSize{atOnce: 2000, short: 10_000, watchers: 500, uploads: 1000, sandboxes: 2000, mixed: d}
}

// tally counts what became of calls.
type tally struct {
	mu        sync.Mutex
	completed int
	failed    map[string]int
	wrong     []string
	mayRun    int              // errors that say that a command may still run
	sample    map[string]error // one of each class
}

func (ty *tally) add(err error, wrong string) {
	ty.mu.Lock()
	defer ty.mu.Unlock()
	switch {
	case wrong != "":
		ty.wrong = append(ty.wrong, wrong)
	case err != nil:
		if ty.failed == nil {
			ty.failed, ty.sample = map[string]int{}, map[string]error{}
		}
		ty.sample[classOf(err)] = err
		ty.failed[classOf(err)]++
		if saysItMayRun(err) {
			ty.mayRun++
		}
	default:
		ty.completed++
	}
}

func (ty *tally) String() string {
	var failed []string
	for _, class := range slices.Sorted(maps.Keys(ty.failed)) {
		failed = append(failed, fmt.Sprintf("%d %s", ty.failed[class], class))
	}
	if failed == nil {
		failed = []string{"0"}
	}
	return fmt.Sprintf("%d completed; failed: %s; %d wrong", ty.completed, strings.Join(failed, ", "), len(ty.wrong))
}

// check reports what was wrong; without faults nothing may fail either.
func (ty *tally) check(t *testing.T, faults bool) {
	t.Helper()
	for _, wrong := range ty.wrong {
		t.Errorf("wrong result: %.300s", wrong)
	}
	if !faults && len(ty.failed) > 0 {
		for class, err := range ty.sample {
			// The daemon's own limit, such as that on inotify instances, is no fault.
			if text := err.Error(); strings.Contains(text, "too many open files") || strings.Contains(text, "user instances") {
				t.Logf("the daemon's limit: %.300s", text)
				continue
			}
			t.Errorf("failed without a fault: %d %s, such as %.500v", ty.failed[class], class, err)
		}
	}
}

// resources are what must not grow.
type resources struct{ goroutines, files int }

func countResources() resources {
	files, _ := os.ReadDir("/proc/self/fd") // elsewhere it counts nothing
	return resources{runtime.NumGoroutine(), len(files)}
}

func (r resources) String() string {
	return fmt.Sprintf("%d goroutines, %d file descriptors", r.goroutines, r.files)
}

// settled waits until the resources are back to about what they were.
func settled(before resources) (resources, bool) {
	const slack = 20 // of the runtime and the test's own
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		now := countResources()
		if now.goroutines <= before.goroutines+slack && now.files <= before.files+slack {
			return now, true
		}
		if time.Now().After(deadline) {
			return now, false
		}
	}
}

// parallel calls fn for 0 to n-1, by so many workers.
func parallel(n, workers int, fn func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		})
	}
	wg.Wait()
}

// nonceCommand prints a nonce and so many zeros, which the check knows.
func nonceCommand(ctx context.Context, c *client.Client) (*client.Cmd, func(out []byte) string) {
	nonce, length := cryptorand.Text(), 100+rand.IntN(2000)
	want := nonce + strings.Repeat("0", length)
	cmd := c.Command(ctx, "printf", fmt.Sprintf("%%s%%0%dd", length), nonce, "0")
	return cmd, func(out []byte) string {
		if string(out) == want {
			return ""
		}
		return fmt.Sprintf("output of %d bytes %.40q, want %d bytes %.40q", len(out), out, len(want), want)
	}
}

func TestSoak(t *testing.T) {
	size := newSoakSize(t)
	for _, tg := range targets(t) {
		// A running daemon is loaded only when that is asked for: old ones crash
		// when clients hang up under output.
		live := tg.name == "live/binary" && os.Getenv("SOAK") != ""
		if tg.name == "0.6.13/binary" && os.Getenv(client.EnvURL) == "" || live {
			t.Run(tg.name, func(t *testing.T) { soak(t, tg, size) })
		}
	}
}

func soak(t *testing.T, tg target, size soakSize) {
	url := tg.url
	if url == "" {
		srv := envdtest.NewServer(tg.server...)
		t.Cleanup(srv.Close)
		url = srv.URL
	}
	opts := append(slices.Clone(tg.client), client.WithRequestTimeout(5*time.Minute))
	c := dial(t, url, opts...)
	ctx := t.Context()
	_, err := c.ReadFile(ctx, "/no/such/file")
	hasFiles := errors.Is(err, fs.ErrNotExist)
	dir := "/tmp/envd-go-soak-" + strings.ToLower(cryptorand.Text())
	if hasFiles {
		if err := c.Mkdir(ctx, dir); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.RemoveAll(context.WithoutCancel(ctx), dir) }()
	}
	phase := func(name string, faults bool, run func(ty *tally)) {
		c.Close()
		before, ty, began := countResources(), &tally{}, time.Now()
		peak := peakHeap(func() { run(ty) })
		took := time.Since(began)
		c.Close()
		after, ok := settled(before)
		t.Logf("SOAK %s: %s; in %v; at most %d MiB of memory; before %s, after %s",
			name, ty, took.Round(100*time.Millisecond), peak>>20, before, after)
		if ty.check(t, faults); !ok {
			t.Errorf("%s left something: before %s, after %s", name, before, after)
		}
	}
	phase(fmt.Sprintf("%d commands at once", size.atOnce), false, func(ty *tally) { soakAtOnce(ctx, c, size.atOnce, ty) })
	phase(fmt.Sprintf("%d short commands, 32 at a time", size.short), false, func(ty *tally) {
		parallel(size.short, 32, func(int) {
			cmd, check := nonceCommand(ctx, c)
			out, err := cmd.Output()
			ty.add(err, onSuccess(err, check(out)))
		})
	})
	if hasFiles {
		phase(fmt.Sprintf("%d watchers", size.watchers), false, func(ty *tally) { soakWatchers(ctx, c, dir, size.watchers, ty) })
		phase(fmt.Sprintf("%d uploads at once", size.uploads), false, func(ty *tally) {
			parallel(size.uploads, size.uploads, func(i int) { soakUpload(ctx, c, fmt.Sprintf("%s/up%d", dir, i), ty) })
		})
	}
	phase(fmt.Sprintf("mixed with faults for %v", size.mixed), true, func(ty *tally) {
		soakMixed(ctx, t, url, opts, dir, hasFiles, size.mixed, ty)
		left := soakLeft(ctx, c) // which would count as left by an embedded envd too
		t.Logf("SOAK left in the sandbox: %d commands; errors said so of %d", left, ty.mayRun)
		if left > ty.mayRun {
			t.Error("some were left without a word")
		}
	})
}

func onSuccess(err error, wrong string) string {
	if err != nil {
		return ""
	}
	return wrong
}

// soakAtOnce starts all commands before it lets any of them end.
func soakAtOnce(ctx context.Context, c *client.Client, n int, ty *tally) {
	var started, done sync.WaitGroup
	release := make(chan struct{})
	slots := make(chan struct{}, 64) // for starts under way
	started.Add(n)
	for range n {
		done.Go(func() {
			nonce, length := cryptorand.Text(), 100+rand.IntN(2000)
			cmd := c.Command(ctx, "sh", "-c", fmt.Sprintf(`read go; printf '%%s%%0%dd' "$go" 0`, length))
			cmd.Env = map[string]string{"SOAK": "1"}
			var out bytes.Buffer
			cmd.Stdout = &out
			in, _ := cmd.StdinPipe()
			slots <- struct{}{}
			err := cmd.Start()
			<-slots
			started.Done()
			if err != nil {
				ty.add(err, "")
				return
			}
			<-release
			// The command may end before the answer to its input comes.
			_, inErr := io.WriteString(in, nonce+"\n")
			if err = cmd.Wait(); err == nil && !errors.Is(inErr, client.ErrNoInput) {
				err = inErr
			}
			want := nonce + strings.Repeat("0", length)
			if err == nil && out.String() != want {
				ty.add(nil, fmt.Sprintf("%d bytes %.40q, want %d bytes %.40q", out.Len(), out.String(), len(want), want))
				return
			}
			ty.add(err, "")
		})
	}
	started.Wait()
	if infos, err := c.Processes(ctx); err != nil || len(infos) < n-len(ty.failed) {
		ty.add(nil, fmt.Sprintf("%d commands listed, want %d: %v", len(infos), n, err))
	}
	close(release)
	done.Wait()
}

// soakWatchers has each directory watched, and makes a file in each.
func soakWatchers(ctx context.Context, c *client.Client, dir string, n int, ty *tally) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	watchers := make([]*client.Watcher, n)
	parallel(n, 32, func(i int) {
		path := fmt.Sprintf("%s/w%d", dir, i)
		err := c.Mkdir(ctx, path)
		if err == nil {
			watchers[i], err = c.StartWatch(ctx, path)
		}
		if err != nil {
			ty.add(err, "")
		}
	})
	parallel(n, n, func(i int) {
		w := watchers[i]
		if w == nil {
			return
		}
		defer w.Close()
		name := cryptorand.Text()
		if err := c.WriteFile(ctx, w.Path()+"/"+name, nil); err != nil {
			ty.add(err, "")
			return
		}
		for event, err := range w.Events() {
			if err == nil && event.Name != name {
				ty.add(nil, fmt.Sprintf("event %v, want one of %s", event, name))
				return
			}
			ty.add(err, "")
			return
		}
	})
}

// soakUpload stores a file and reads it back.
func soakUpload(ctx context.Context, c *client.Client, path string, ty *tally) {
	data := bytes.Repeat([]byte(cryptorand.Text()+"\n"), 1+rand.IntN(4000))
	err := c.WriteFile(ctx, path, data)
	var got []byte
	if err == nil {
		got, err = c.ReadFile(ctx, path)
	}
	if err == nil && !bytes.Equal(got, data) {
		ty.add(nil, fmt.Sprintf("%s: %d bytes came back of %d", path, len(got), len(data)))
		return
	}
	ty.add(err, "")
}

// soakMixed does everything at once, through a proxy that spoils a tenth of the
// requests.
func soakMixed(ctx context.Context, t *testing.T, url string, opts []client.Option, dir string, files bool, d time.Duration, ty *tally) {
	proxy, err := faultproxy.New(url)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	at := faultproxy.BreakAt
	proxy.Inject("", -1, faultproxy.Mix(0.1,
		at(faultproxy.BeforeRequest, faultproxy.Cut), at(faultproxy.BeforeHead, faultproxy.Reset),
		at(faultproxy.AfterHead, faultproxy.Cut), at(faultproxy.AfterStart, faultproxy.Reset),
		at(faultproxy.MidFrame, faultproxy.HalfClose), at(faultproxy.BetweenFrames, faultproxy.Cut),
		at(faultproxy.AfterEnd, faultproxy.Reset), faultproxy.SlowDown(20*time.Millisecond, 256),
		faultproxy.NoEnd, faultproxy.DataAfterEnd, faultproxy.TwoStarts,
		faultproxy.Answer(http.StatusBadGateway, header("Content-Type", "text/html"), "<title>Bad Gateway</title>"),
		faultproxy.Answer(http.StatusTooManyRequests, header("Retry-After", "1"), ""),
	))
	c, err := client.New(proxy.URL, append(slices.Clone(opts), client.WithRequestTimeout(20*time.Second), client.WithKeepalive(time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				switch {
				case files && (worker+i)%4 == 0:
					soakUpload(ctx, c, fmt.Sprintf("%s/m%d", dir, worker), ty)
				case (worker+i)%4 == 1:
					cmd := c.Command(ctx, "cat")
					nonce := strings.Repeat(cryptorand.Text(), 50)
					cmd.Stdin = strings.NewReader(nonce)
					cmd.Env = map[string]string{"SOAK": "1"}
					out, err := cmd.Output()
					wrong := ""
					if err == nil && string(out) != nonce {
						wrong = fmt.Sprintf("cat gave %d bytes back of %d", len(out), len(nonce))
					}
					ty.add(err, wrong)
				default:
					cmd, check := nonceCommand(ctx, c)
					cmd.Env = map[string]string{"SOAK": "1"}
					out, err := cmd.Output()
					ty.add(err, onSuccess(err, check(out)))
				}
			}
		})
	}
	wg.Wait()
}

// soakLeft counts and kills what is left of the soak in the sandbox.
func soakLeft(ctx context.Context, c *client.Client) int {
	infos, err := c.Processes(ctx)
	if err != nil {
		return -1
	}
	left := 0
	for _, p := range infos {
		if p.Env["SOAK"] != "" {
			left++
			_ = c.Process(client.PID(p.PID)).Kill(ctx)
		}
	}
	return left
}

// A service that talks to many sandboxes, with a client for each and one
// connection pool for all of them.
func TestSoakFleet(t *testing.T) {
	size := newSoakSize(t)
	envd := envdtest.NewUnstartedServer()
	defer envd.Close()
	envd.HandleCommand("whoami", func(p *envdtest.Proc) int {
		fmt.Fprint(p.Stdout, p.Env["NONCE"])
		return 0
	})
	var hosts sync.Map
	var accepted atomic.Int64
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts.Store(r.Host, true)
		envd.Handler().ServeHTTP(w, r)
	}))
	front.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted.Add(1)
		}
	}
	front.Start()
	defer front.Close()

	// The recipe of docs/reliability.md.
	pool := http.DefaultTransport.(*http.Transport).Clone()
	pool.MaxIdleConns = 512
	pool.MaxIdleConnsPerHost = 2
	pool.IdleConnTimeout = 30 * time.Second
	pool.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, front.Listener.Addr().String())
	}
	defer pool.CloseIdleConnections()

	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	empty := m.HeapAlloc
	before := countResources()
	clients := make([]*client.Client, size.sandboxes)
	for i := range clients {
		c, err := client.New(fmt.Sprintf("http://49983-sandbox%d.example.test", i), client.WithTransport(pool), client.WithUser("user"), client.WithAccessToken(fmt.Sprintf("token%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = c
	}
	runtime.GC()
	runtime.ReadMemStats(&m)
	perClient := (m.HeapAlloc - empty) / uint64(len(clients))

	ty, began := &tally{}, time.Now()
	peak := peakHeap(func() {
		parallel(len(clients), 256, func(i int) {
			nonce := cryptorand.Text()
			cmd := clients[i].Command(t.Context(), "whoami")
			cmd.Env = map[string]string{"NONCE": nonce}
			out, err := cmd.Output()
			wrong := ""
			if err == nil && string(out) != nonce {
				wrong = fmt.Sprintf("sandbox %d said %q, want %q", i, out, nonce)
			}
			ty.add(err, wrong)
		})
	})
	took := time.Since(began)
	idle := countResources()
	pool.CloseIdleConnections()
	after, ok := settled(before)
	seen := 0
	hosts.Range(func(any, any) bool { seen++; return true })
	t.Logf("SOAK fleet of %d sandboxes: %s; in %v; %d connections; %d bytes of memory for each client value, %d MiB at most while the commands ran; before %s, with idle connections %s, after %s",
		len(clients), ty, took.Round(time.Millisecond), accepted.Load(), perClient, peak>>20, before, idle, after)
	if ty.check(t, false); !ok || seen != len(clients) {
		t.Errorf("%d hosts were asked; before %s, after %s", seen, before, after)
	}
	runtime.KeepAlive(clients)
}
