// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/recent"
	"github.com/diana-limiter/diana/cmd/diana/internal/simulate"
	"github.com/diana-limiter/diana/cmd/diana/internal/whatif"
	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// remembering is a gateway that follows a file and remembers its requests.
type remembering struct {
	t       *testing.T
	file    string
	limiter *diana.Limiter
	memory  *memory
	what    *whatif.WhatIf
	url     string
}

// remember starts a gateway with these flags and this configuration, until the test ends.
func remember(t *testing.T, f recentFlags, text string, upstream http.HandlerFunc) *remembering {
	t.Helper()
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &remembering{t: t, file: filepath.Join(t.TempDir(), "diana.yaml"), memory: f.newMemory()}
	r.write(text)
	logger := slog.New(slog.DiscardHandler)
	o := diana.Options{Logger: logger, Decoders: decoders(), Vocabulary: vocabulary()}
	r.memory.observe(&o)
	if r.limiter, err = o.Open(r.file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.limiter.Close() })
	r.memory.follow(r.limiter)
	r.what = r.memory.whatIf(r.limiter, nil)
	last, _ := (&upstreamFlags{Upstream: []*url.URL{target}}).proxy(usualTimeouts, r.limiter.Config, logger)
	g := newGateway(r.limiter, last, usualTimeouts, logger, newRegistry(r.limiter, dianaprom.NewRedisCalls()))
	g.server.Handler = r.memory.filter(g.server.Handler)
	g.admin.Handler = withAPI(g.admin.Handler, r.what.Register)
	if err := g.listen(listenAt{requests: "127.0.0.1:0", admin: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + g.open[0].Addr().String()
	signals, ended := make(chan os.Signal, 2), make(chan error, 1)
	go func() { ended <- g.run(context.Background(), signals, nil) }()
	t.Cleanup(func() {
		signals <- syscall.SIGTERM
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *remembering) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// push has the gateway reload its file with this text.
func (r *remembering) push(text string) {
	r.t.Helper()
	r.write(text)
	if err := r.limiter.Reload(); err != nil {
		r.t.Fatal(err)
	}
}

// load sends requests by parallel clients, and returns how many were allowed and refused.
func (r *remembering) load(clients, each int, seed uint64) (allowed, refused int64) {
	r.t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	var counts [2]atomic.Int64
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a test repeats its numbers
			for range each {
				request, err := http.NewRequestWithContext(r.t.Context(), "GET", r.url+[]string{"/", "/a", "/a/b?key=k" + fmt.Sprint(random.IntN(4)), "/slots", "/login", "/b"}[random.IntN(6)], nil)
				if err != nil {
					r.t.Error(err)
					return
				}
				request.Header.Set("X-Account-Id", []string{"ann", "bob", "cid", "dora", "eve"}[random.IntN(5)])
				request.Header.Set("Cookie", "other=1; sid=s"+fmt.Sprint(random.IntN(9)))
				request.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.0.%d", random.IntN(3), random.IntN(5)))
				response, err := transport.RoundTrip(request)
				if err != nil {
					r.t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				counts[min(response.StatusCode/503, 1)].Add(1)
				time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond)
			}
		})
	}
	running.Wait()
	return counts[0].Load(), counts[1].Load()
}

// randomUpstream answers after a random while, and refuses some logins.
func randomUpstream(w http.ResponseWriter, r *http.Request) {
	if rand.IntN(4) == 0 {
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	}
	if r.URL.Path == "/login" && rand.IntN(2) == 0 {
		w.WriteHeader(http.StatusUnauthorized)
	}
	_, _ = io.WriteString(w, "an answer")
	if rand.IntN(4) == 0 {
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
	}
}

// manyRules have every algorithm, several actors, exceptions and networks. No request waits.
const manyRules = `
identity: {trusted_proxies: [127.0.0.0/8]}
limits:
- url: /
  rules:
  - {name: account, actor: account, rpu: 700, algo: SW, except: [eve], overrides: {bob: {rpu: 90}}}
  - {name: address, actor: ip, rpu: 200, algo: SL, except: [10.1.0.0/16], overrides: {10.2.0.3: {rpu: 25}}}
- url: /b
  rules: [{name: everyone, rpu: 200, burst: 50}]
- url: /a
  rules:
  - {name: session, actor: "cookie:sid", rpu: 40, algo: W}
  - {name: dear, actor: [account, ip], unit: minute, rpu: 20, cost: 3, mode: shadow}
- url: /a/{any}
  rules: [{name: key, actor: "query:key", rpu: 30, algo: TB}]
- url: /slots
  rules: [{name: slots, actor: account, rpu: 1, algo: C}, {name: evenly, rpu: 900, algo: LB, queue: 0}]
- url: /login
  rules: [{name: failed, actor: ip, rpu: 8, unit: 5s, algo: SW, charge: [401]}]
`

// compare replays the requests under the configuration in force, and returns how many of the gateway's
// decisions the replay does not make.
func (r *remembering) compare(show bool) (wrong, n int) {
	r.t.Helper()
	s := r.memory.ring.Snapshot()
	s.Label(r.memory.ring, r.limiter.Config())
	count, err := simulate.NewCount(r.limiter.Config(), vocabulary())
	if err != nil {
		r.t.Fatal(err)
	}
	c := simulate.NewComparison(s.Names(), count)
	for i := range s.Len() {
		e := s.Entry(i)
		text := fmt.Sprintf("%d %s %s %v, status %d", e.Start, e.Target, e.Remote, e.Actors, e.Status)
		o, err := c.Play(e)
		if err != nil {
			r.t.Fatal(err)
		}
		if o[0].Allowed != s.Allowed(i) {
			if wrong++; show && wrong < 10 {
				r.t.Errorf("request %d: the gateway: %v, the replay: %v: %s", i, s.Allowed(i), o[0].Allowed, text)
			}
		}
	}
	return wrong, s.Len()
}

// The replay of the latest requests under the configuration in force makes exactly the decisions that the
// gateway has made.
func TestReplayIsExact(t *testing.T) {
	t.Parallel()
	for _, actors := range []string{"plain", "hash"} {
		t.Run(actors, func(t *testing.T) {
			t.Parallel()
			r := remember(t, recentFlags{100_000, actors}, manyRules, randomUpstream)
			const clients, each = 16, 400
			allowed, refused := r.load(clients, each, 1)
			wrong, n := r.compare(true)
			if s := r.memory.ring.Snapshot(); n != clients*each || wrong > 0 || !s.Whole || s.Running > 0 || allowed < 500 || refused < 500 {
				t.Errorf("%d of %d requests are decided otherwise; %d allowed, %d refused, whole: %v, running: %d", wrong, n, allowed, refused, s.Whole, s.Running)
			}
			for _, rule := range r.limiter.Status().Rules {
				t.Logf("%s: %d allowed, %d refused, %d shadow", rule.Name, rule.Allowed, rule.Refused, rule.ShadowRefused)
				if rule.Refused+rule.ShadowRefused == 0 {
					t.Errorf("%s has refused nothing", rule.Name)
				}
			}
		})
	}
}

var _ = recent.Reset
var _ = json.Marshal
var _ = strings.Contains
