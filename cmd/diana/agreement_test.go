// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/whatif"
)

// agreeing is a limiter whose requests are replayed.
type agreeing struct {
	*remembering

	handler http.Handler
}

// newAgreeing returns a limiter in front of an upstream, whose requests a ring remembers. It is for a bubble
// of testing/synctest, in which minutes of traffic take no time, and no timer is late.
func newAgreeing(t *testing.T, requests int, yaml string) *agreeing {
	t.Helper()
	c := &agreeing{remembering: &remembering{t: t, memory: (&recentFlags{requests, "plain"}).newMemory()}}
	parsed, err := vocabulary().Parse("diana.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	o := diana.Options{Logger: slog.New(slog.DiscardHandler), Decoders: decoders(), Vocabulary: vocabulary()}
	c.memory.observe(&o)
	if c.limiter, err = o.New(parsed); err != nil {
		t.Fatal(err)
	}
	c.memory.follow(c.limiter)
	c.what = c.memory.whatIf(c.limiter, nil)
	c.handler = c.memory.filter(c.limiter.Handler(http.HandlerFunc(c.answer)))
	return c
}

// answer is an upstream that takes some time, refuses some requests, and says what the others have cost.
func (c *agreeing) answer(w http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Duration(rand.IntN(90_000)) * time.Microsecond)
	if rand.IntN(3) == 0 {
		w.WriteHeader(http.StatusUnauthorized)
	}
	_, _ = fmt.Fprintf(w, `{"usage": {"total_tokens": %d}}`, rand.IntN(30))
}

// load sends requests by parallel clients.
func (c *agreeing) load(clients, each int) (refused int64) {
	c.t.Helper()
	var running sync.WaitGroup
	var n atomic.Int64
	for i := range clients {
		running.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(i))) //nolint:gosec // a test repeats its numbers
			for range each {
				body := fmt.Sprintf(`{"model": "m%d", "max_tokens": %d}`, random.IntN(3), 1+random.IntN(20))
				ctx, leave := context.WithCancel(c.t.Context())
				if random.IntN(8) == 0 {
					ctx, leave = context.WithTimeout(ctx, time.Duration(random.IntN(200))*time.Millisecond)
				}
				r := httptest.NewRequestWithContext(ctx, "POST", []string{"/", "/a", "/a/b"}[random.IntN(3)], strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("X-Account-Id", []string{"ann", "bob", "cid", "dora", "eve"}[random.IntN(5)])
				r.Header.Set("X-Plan", []string{"free", "pro", "none"}[random.IntN(3)])
				r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:99", random.IntN(2), random.IntN(5))
				w := httptest.NewRecorder()
				c.handler.ServeHTTP(w, r)
				leave()
				if w.Code == http.StatusServiceUnavailable {
					n.Add(1)
				}
				_, _ = io.Copy(io.Discard, w.Body)
				time.Sleep(time.Duration(random.IntN(1_000_000)) * time.Microsecond)
			}
		})
	}
	running.Wait()
	return n.Load()
}

// again returns what the replay says under the configuration in force.
func (c *agreeing) again() *whatif.Result {
	c.t.Helper()
	result, err := c.what.Compute(c.t.Context(), c.limiter.Config())
	if err != nil {
		c.t.Fatal(err)
	}
	return result
}

// agreements are configurations under which the replay makes the decisions of the gateway.
var agreements = []struct{ name, yaml string }{
	{"window", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 20}"},
	{"window of a quota", "- {name: a, actor: account, algo: W, unit: day, rpu: 300}"},
	{"window from the first request", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 20, align: first}"},
	{"token bucket", "- {name: a, actor: account, algo: TB, unit: minute, rpu: 100, burst: 30}"},
	{"token bucket of fractions", "- {name: a, actor: account, algo: TB, unit: minute, rpu: 97, burst: 30}"},
	{"sliding window", "- {name: a, actor: account, algo: SW, unit: 10s, rpu: 20}"},
	{"long sliding window", "- {name: a, actor: account, algo: SW, unit: 15m, rpu: 300}"},
	{"sliding log", "- {name: a, actor: account, algo: SL, unit: 10s, rpu: 20}"},
	{"long sliding log", "- {name: a, actor: account, algo: SL, unit: 15m, rpu: 300}"},
	{"leaky bucket without a queue", "- {name: a, actor: account, algo: LB, unit: minute, rpu: 100, queue: 0}"},
	{"concurrency", "- {name: a, actor: account, algo: C, rpu: 1}"},
	{"month in a zone", "- {name: a, actor: account, algo: W, unit: month, zone: Europe/Berlin, rpu: 200}"},
	{"total", "- {name: a, actor: account, algo: W, unit: total, rpu: 400}"},
	{"several", "- {name: a, actor: account, algo: W, unit: minute, rpu: 100}\n  - {name: b, actor: ip, algo: SW, unit: 10s, rpu: 20}\n  - {name: c, rpu: 50, unit: 10s}\n- url: /a\n  rules:\n  - {name: d, actor: ip, rpu: 30, unit: minute, algo: SL}"},
	{"shadow", "- {name: a, actor: account, algo: W, unit: minute, rpu: 50, mode: shadow}\n  - {name: b, actor: account, algo: SW, unit: 10s, rpu: 15}\n  - {name: c, actor: account, unit: minute, rpu: 50, mode: shadow}"},
	{"costs", "- {name: a, actor: account, unit: minute, rpu: 300, cost: 3}"},
	{"charge", "- {name: a, actor: account, algo: SW, unit: 10s, rpu: 8, charge: [401]}"},
	{"charge in a log", "- {name: a, actor: account, algo: SL, unit: 10s, rpu: 8, charge: [401]}"},
	{"charge to a bucket", "- {name: a, actor: account, unit: minute, rpu: 50, charge: [401]}"},
	{"duration", "- {name: a, actor: account, unit: minute, rpu: 1000, cost: {answer: duration, reserve: 10}}"},
	{"duration in a window", "- {name: a, actor: account, algo: W, unit: minute, rpu: 1000, cost: {answer: duration, reserve: 10}}"},
	{"reservation", "- {name: a, actor: account, algo: W, unit: minute, rpu: 1000, cost: {answer: /usage/total_tokens, reserve: 10}}"},
	{"reservation by the body", "- {name: a, actor: account, unit: minute, rpu: 1000, cost: {answer: /usage/total_tokens, reserve: 'body:/max_tokens'}}"},
	{"bytes", "- {name: a, actor: account, algo: SW, unit: minute, rpu: 3000, cost: {answer: bytes, reserve: 25}}"},
	{"several costs", "- {name: a, actor: account, algo: W, unit: minute, rpu: 1000, cost: {answer: /usage/total_tokens, reserve: 10}}\n  - {name: b, actor: ip, algo: W, unit: minute, rpu: 600, cost: {answer: duration}}\n  - {name: c, actor: ip, algo: SW, unit: minute, rpu: 3000, cost: {answer: bytes}}"},
	{"body", "- {name: a, actor: 'body:/model', algo: W, unit: 10s, rpu: 40}"},
	{"classes", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 20, class: 'header:X-Plan', classes: {free: {rpu: 5}, pro: {rpu: 30}}}"},
	{"leaky bucket", "- {name: a, actor: account, algo: LB, unit: minute, rpu: 70, queue: 2}"},
	{"wait", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 10, wait: 2s}"},
	{"wait for a bucket", "- {name: a, actor: account, unit: minute, rpu: 60, burst: 5, wait: 1s}"},
	{"wait for a slot", "- {name: a, actor: account, algo: C, rpu: 1, wait: 20ms}"},
	{"long wait for a slot", "- {name: a, algo: C, rpu: 1, wait: 120ms}"},
	{"wait and charge", "- {name: a, actor: account, unit: minute, rpu: 60, burst: 5, wait: 1s, charge: [401]}"},
	{"wait and duration", "- {name: a, actor: account, unit: minute, rpu: 1500, wait: 1s, cost: {answer: duration, reserve: 10}}"},
	{"warmup", "- {name: a, actor: account, unit: minute, rpu: 60, burst: 10, warmup: 30s}"},
	{"overrides", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 20, except: [eve], overrides: {ann: {rpu: 5}, bob: {rpu: 90, until: 2000-01-01T00:01:40Z}, cid: {exempt: true, until: 2000-01-01T00:01:40Z}}}"},
}

// The replay makes the decisions that the gateway has made, request by request.
func TestAgreement(t *testing.T) {
	t.Parallel()
	for _, a := range agreements {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, requests := range []int{10_000, 1000} {
					c := newAgreeing(t, requests, "limits:\n- url: /\n  rules:\n  "+a.yaml+"\n")
					refused := c.load(4, 600)
					result := c.again()
					wrong, n := 0, 0
					state := c.memory.ring.Status()
					t.Logf("%s: ring of %d: %d of %d are decided otherwise; refused %d; share %v; %v: %.110s", a.name, requests, wrong, n, refused, state.Sampled, state.To.Sub(state.From), result.Notes[0])
					_ = c.limiter.Close()
				}
			})
		})
	}
}
