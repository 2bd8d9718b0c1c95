// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envd-go/envd/client/envdtest"
	"github.com/envd-go/envd/internal/envdversion"
)

// mutantsFile says by which mutant each case is caught: a line each, the id and
// the name of the mutant.
const mutantsFile = "testdata/mutants.txt"

var updateMutants = flag.Bool("update-mutants", false, "try every case on every mutant, and write "+mutantsFile)

// TestMutants proves that every case can fail: there is a server, sound but
// for one fault, on which it does.
func TestMutants(t *testing.T) {
	if *updateMutants {
		writeMutants(t)
	}
	caught := readMutants(t)
	sound := soundProfile(t)
	t.Run("no fault", func(t *testing.T) {
		none := mutant{wrap: func(h http.Handler) http.Handler { return h }}
		passes := func(r *mutantResult) bool { return r.Status == Pass }
		for _, r := range tryMutant(t, none, Cases(), mutantTimeout) {
			if slices.IndexFunc(r.needs, func(n Need) bool { return !sound.has(n) }) >= 0 {
				continue
			}
			if r = tryAgainUnless(t, passes, none, r); !passes(&r) {
				t.Errorf("%s: want it to pass, got %s %s", r.ID, r.Status, r.Message)
			}
		}
	})
	jobs := map[string][]Case{}
	for _, c := range Cases() {
		name, ok := caught[c.ID]
		if !ok {
			t.Errorf("%s: no mutant is known to make it fail: add one and run with -update-mutants", c.ID)
		}
		delete(caught, c.ID)
		jobs[name] = append(jobs[name], c)
	}
	for id := range caught {
		t.Errorf("%s: %s is no case", mutantsFile, id)
	}
	all := slices.DeleteFunc(mutants(), func(m mutant) bool { return len(jobs[m.name]) == 0 })
	for i, results := range tryAll(t, all, func(m mutant) []Case { return jobs[m.name] }) {
		name := all[i].name
		t.Run(name, func(t *testing.T) {
			if len(results) != len(jobs[name]) {
				t.Errorf("%d of %d cases were tried", len(results), len(jobs[name]))
			}
			for _, r := range results {
				if missing := slices.IndexFunc(r.needs, func(n Need) bool { return !sound.has(n) }); missing >= 0 {
					t.Logf("%s: not judged: needs %s", r.ID, r.needs[missing])
				} else if r = tryAgainUnless(t, (*mutantResult).noticed, all[i], r); !r.noticed() {
					t.Errorf("%s: want its requirement to fail, got %s %s%s", r.ID, r.Status, r.Reason, r.Message)
				}
			}
		})
	}
	for _, m := range all {
		delete(jobs, m.name)
	}
	for name := range jobs {
		t.Errorf("%s: %q is no mutant", mutantsFile, name)
	}
}

// soundProfile is what this machine offers to an embedded envd.
func soundProfile(t *testing.T) *Profile {
	t.Helper()
	r, err := Run(t.Context(), Target{Token: mutantToken, Version: "0.6.13"}, Options{Run: "http/health/ok", AllowCrash: true, AllowInit: true})
	if err != nil {
		t.Fatal(err)
	}
	r.Profile.Has = append(r.Profile.Has, NeedOpen) // which servers of other cases are
	return &r.Profile
}

func readMutants(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(mutantsFile)
	if err != nil {
		t.Fatal(err)
	}
	caught := map[string]string{}
	for line := range strings.Lines(string(data)) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		caught[id] = strings.TrimSpace(name)
	}
	return caught
}

// writeMutants tries every case on every mutant, and gives each case the mutant
// that the fewest other cases notice.
func writeMutants(t *testing.T) {
	t.Helper()
	all := mutants()
	notices := map[string][]string{} // by mutant
	for i, results := range tryAll(t, all, func(mutant) []Case { return Cases() }) {
		for _, r := range results {
			if r.noticed() {
				notices[all[i].name] = append(notices[all[i].name], r.ID)
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(notices), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(notices[a]), len(notices[b])), strings.Compare(a, b))
	})
	var out strings.Builder
	for _, c := range Cases() {
		i := slices.IndexFunc(names, func(name string) bool {
			return slices.Contains(notices[name], c.ID) && provedAgain(t, all[slices.IndexFunc(all, func(m mutant) bool { return m.name == name })], c)
		})
		if i < 0 {
			t.Errorf("%s: no mutant makes it fail", c.ID)
			continue
		}
		fmt.Fprintf(&out, "%-40s %s\n", c.ID, names[i])
	}
	for _, m := range all {
		if len(notices[m.name]) == 0 {
			t.Logf("%s: no case notices", m.name)
		}
	}
	if err := os.WriteFile(mutantsFile, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mutantTimeout is for cases that wait for what a mutant never sends.
const mutantTimeout = 5 * time.Second

// provedAgain tries one case once more, now that the machine is not as busy,
// since a case that only took too long has not noticed anything.
func provedAgain(t *testing.T, m mutant, c Case) bool {
	t.Helper()
	results := tryMutant(t, m, []Case{c}, mutantTimeout)
	return len(results) == 1 && results[0].noticed()
}

// tryAgainUnless tries a case alone and with more time when its result is not
// what is wanted: on a busy machine a case can run out of time.
func tryAgainUnless(t *testing.T, wanted func(*mutantResult) bool, m mutant, r mutantResult) mutantResult {
	t.Helper()
	i := slices.IndexFunc(Cases(), func(c Case) bool { return c.ID == r.ID })
	if wanted(&r) || i < 0 {
		return r
	}
	if again := tryMutant(t, m, Cases()[i:i+1], 6*mutantTimeout); len(again) == 1 {
		return again[0]
	}
	return r
}

const mutantToken = "secret"

// way is how cases have to be tried.
type way struct {
	version  envdversion.Version
	token    string
	protocol Protocol
}

func wayOf(c *Case) way {
	w := way{version: envdversion.Latest, protocol: c.Protocols[0]}
	if !c.Until.IsZero() {
		for _, v := range envdversion.Supported() {
			if v.Compare(c.Until) < 0 && v.Compare(c.Since) >= 0 {
				w.version = v
			}
		}
	}
	if slices.Contains(c.Needs, NeedToken) {
		w.token = mutantToken
	}
	if slices.Contains(c.Protocols, JSON) {
		w.protocol = JSON
	}
	return w
}

type mutantResult struct {
	Result
	needs []Need
}

// noticed reports whether the case found the fault. One that could not even be
// prepared has not.
func (r *mutantResult) noticed() bool {
	return r.Status == Fail && !strings.HasPrefix(r.Message, preparation)
}

// tryAll tries cases on many mutants at the same time: most of them wait.
func tryAll(t *testing.T, all []mutant, cases func(mutant) []Case) [][]mutantResult {
	t.Helper()
	results := make([][]mutantResult, len(all))
	slots := make(chan struct{}, 16)
	var running sync.WaitGroup
	for i, m := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			results[i] = tryMutant(t, m, cases(m), mutantTimeout)
		})
	}
	running.Wait()
	return results
}

// tryMutant tries cases on a server with a fault.
func tryMutant(t *testing.T, m mutant, cases []Case, timeout time.Duration) []mutantResult {
	t.Helper()
	ways := map[way][]string{}
	needs := map[string][]Need{}
	for i := range cases {
		w := wayOf(&cases[i])
		ways[w] = append(ways[w], cases[i].ID)
		needs[cases[i].ID] = cases[i].Needs
	}
	var all []mutantResult
	for w, ids := range ways {
		options := append([]envdtest.Option{envdtest.WithVersion(w.version.String()), envdtest.WithAccessToken(w.token)}, m.options...)
		srv := envdtest.NewUnstartedServer(options...)
		guard := newGuard(srv.Handler())
		web := httptest.NewServer(m.wrap(guard))
		transport := &http.Transport{DisableCompression: true}
		r, err := Run(t.Context(), Target{URL: web.URL, Token: w.token, Version: w.version.String(), Transport: transport},
			Options{Run: strings.Join(ids, ","), Protocols: []Protocol{w.protocol}, Timeout: timeout, AllowCrash: true, AllowInit: true, everything: true})
		transport.CloseIdleConnections()
		web.CloseClientConnections()
		web.Close()
		guard.close()
		srv.Close()
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		for _, result := range r.Results {
			all = append(all, mutantResult{result, needs[result.ID]})
		}
	}
	return all
}
