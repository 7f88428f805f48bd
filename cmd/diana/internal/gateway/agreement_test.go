// SPDX-License-Identifier: MIT

package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/decoders"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/cmd/diana/internal/whatif"
	"github.com/diana-limiter/diana/internal/race"
)

// agreeing is a limiter whose requests are replayed.
type agreeing struct {
	*remembering

	handler http.Handler
}

// newAgreeing returns a limiter in front of an upstream, whose requests a ring remembers. It is for a bubble
// of testing/synctest, in which minutes of traffic take no time, and no timer is late.
func newAgreeing(t *testing.T, f history.Flags, rules string) *agreeing {
	t.Helper()
	c := &agreeing{remembering: &remembering{t: t}}
	c.ring = f.NewRing(c.config)
	parsed, err := command.Vocabulary().Parse("diana.yaml", []byte("limits:\n- url: /\n  rules:\n  "+rules+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := diana.Options{Logger: slog.New(slog.DiscardHandler), Decoders: (&decoders.Decoders{}).ByCoding(), Vocabulary: command.Vocabulary()}
	c.ring.Observe(&o)
	if c.limiter, err = o.New(parsed); err != nil {
		t.Fatal(err)
	}
	c.what = whatif.New(whatIf(c.limiter, c.ring, &Flags{}))
	c.handler = c.ring.Filter(c.limiter.Handler(http.HandlerFunc(c.answer)))
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
				time.Sleep(time.Until(ownMoment(i, clients, time.Now().UnixMicro()+random.Int64N(1_000_000))))
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
			}
		})
	}
	running.Wait()
	return n.Load()
}

// ownMoment returns the first moment from at on, in microseconds, at which only this one of the clients sends a
// request. If two arrive in the same microsecond, the ring may hold them in another order than the store took them.
func ownMoment(client, clients int, at int64) time.Time {
	for at%int64(clients) != int64(client) {
		at++
	}
	return time.UnixMicro(at)
}

// agreement is a configuration under which the replay makes the decisions of the gateway.
type agreement struct{ name, rules string }

// agreements are such configurations.
var agreements = []agreement{
	{"window", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 20}"},
	{"window of a quota", "- {name: a, actor: account, algo: W, unit: day, rpu: 300}"},
	{"window from the first request", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 20, align: first}"},
	{"token bucket", "- {name: a, actor: account, algo: TB, unit: minute, rpu: 60, burst: 30}"},
	{"token bucket of fractions", "- {name: a, actor: account, algo: TB, unit: minute, rpu: 61, burst: 30}"},
	{"token bucket of small fractions", "- {name: a, actor: account, algo: TB, unit: hour, rpu: 3607, burst: 20}"},
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
	{"costs", "- {name: a, actor: account, unit: minute, rpu: 200, cost: 3}"},
	{"body", "- {name: a, actor: 'body:/model', algo: W, unit: 10s, rpu: 20}"},
	{"classes", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 20, class: 'header:X-Plan', classes: {free: {rpu: 5}, pro: {rpu: 30}}}"},
	{"leaky bucket", "- {name: a, actor: account, algo: LB, unit: minute, rpu: 70, queue: 2}"},
	{"overrides", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 20, except: [eve], overrides: {ann: {rpu: 5}, bob: {rpu: 90, until: 2000-01-01T00:01:40Z}, cid: {exempt: true, until: 2000-01-01T00:01:40Z}}}"},
}

// responses are configurations under which responses change what requests are charged. When the ring begins, some
// requests from before are in flight, and their responses are not known.
var responses = []agreement{
	{"charge", "- {name: a, actor: account, algo: SW, unit: 10s, rpu: 8, charge: [401]}"},
	{"charge in a log", "- {name: a, actor: account, algo: SL, unit: 10s, rpu: 8, charge: [401]}"},
	{"charge to a bucket", "- {name: a, actor: account, unit: minute, rpu: 20, charge: [401]}"},
	{"duration", "- {name: a, actor: account, unit: minute, rpu: 1000, cost: {answer: duration, reserve: 10}}"},
	{"duration in a window", "- {name: a, actor: account, algo: W, unit: minute, rpu: 1000, cost: {answer: duration, reserve: 10}}"},
	{"reservation", "- {name: a, actor: account, algo: W, unit: minute, rpu: 1000, cost: {answer: /usage/total_tokens, reserve: 10}}"},
	{"reservation by the body", "- {name: a, actor: account, unit: minute, rpu: 1000, cost: {answer: /usage/total_tokens, reserve: 'body:/max_tokens'}}"},
	{"bytes", "- {name: a, actor: account, algo: SW, unit: minute, rpu: 1500, cost: {answer: bytes, reserve: 40}}"},
	{"several costs", "- {name: a, actor: account, algo: W, unit: minute, rpu: 1000, cost: {answer: /usage/total_tokens, reserve: 10}}\n  - {name: b, actor: ip, algo: W, unit: minute, rpu: 600, cost: {answer: duration}}\n  - {name: c, actor: ip, algo: SW, unit: minute, rpu: 1500, cost: {answer: bytes, reserve: 40}}"},
}

// waits are configurations under which requests wait in a queue, and are refused because of others that wait.
var waits = []agreement{
	{"wait", "- {name: a, actor: account, algo: W, unit: 10s, rpu: 10, wait: 2s}"},
	{"wait for a bucket", "- {name: a, actor: account, unit: minute, rpu: 60, burst: 5, wait: 1s}"},
	{"wait for a slot", "- {name: a, actor: account, algo: C, rpu: 1, wait: 20ms}"},
	{"long wait for a slot", "- {name: a, algo: C, rpu: 1, wait: 120ms}"},
	{"wait and charge", "- {name: a, actor: account, unit: minute, rpu: 25, burst: 4, wait: 1s, charge: [401]}"},
	{"wait and duration", "- {name: a, actor: account, unit: minute, rpu: 1500, wait: 1s, cost: {answer: duration, reserve: 10}}"},
}

// The replay makes the decisions that the gateway has made, request by request, by parallel clients of which some
// disconnect. Also when the ring has dropped most of the requests: then it begins with the counters at the start of
// the ring.
func TestAgreement(t *testing.T) {
	t.Parallel()
	for _, a := range agreements {
		a.test(t, 0, 0)
	}
	for _, a := range responses {
		a.test(t, 0, 1) // nearly always none
	}
	for _, a := range waits {
		a.test(t, 5, 5) // mostly none
	}
}

// test compares the replay with the gateway. Of 100 decisions of a ring that has all requests, or that has dropped
// some, so many may differ.
func (a *agreement) test(t *testing.T, whole, dropped int) {
	for _, f := range []history.Flags{{Recent: 10_000, RecentActors: "plain"}, {Recent: 1000, RecentActors: "plain"}, {Recent: 1000, RecentActors: "hash"}} {
		if race.Enabled && f.RecentActors != "hash" {
			continue // one ring is enough for the race detector, and the run without it has all
		}
		tolerated := dropped
		if f.Recent == 10_000 {
			tolerated = whole
		}
		t.Run(fmt.Sprint(a.name, " ", f.Recent, " ", f.RecentActors), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newAgreeing(t, f, a.rules)
				defer func() { _ = c.limiter.Close() }()
				refused := c.load(4, 600)
				wrong, n := c.compare(tolerated == 0)
				s := c.ring.Snapshot()
				t.Logf("%d of %d are decided otherwise; %d refused", wrong, n, refused)
				if wrong*100 > n*tolerated || s.Share < 1 || s.Whole != (f.Recent == 10_000) || n < 700 || refused == 0 {
					t.Errorf("%d of %d are decided otherwise; %d refused; whole: %v, share %v", wrong, n, refused, s.Whole, s.Share)
				}
			})
		})
	}
}

// A note names each counter whose state at the start of the ring the replay cannot know.
func TestDisagreement(t *testing.T) {
	t.Parallel()
	for rules, note := range map[string]string{
		"- {name: a, actor: account, unit: minute, rpu: 60, burst: 10, warmup: 30s}":                                                "1 rules have a warmup.",
		"- {name: a, actor: account, algo: SW, unit: minute, rpu: 2000, cost: {answer: bytes, reserve: 5}}":                         "1 rules can let a client go far over its limit",
		"- {name: a, actor: account, rpu: 900, cost: {answer: bytes}}\n  - {name: b, algo: SW, rpu: 900, cost: {answer: duration}}": "remembers the cost of a response for the first rule",
		"- {name: a, actor: account, rpu: 20, unit: minute, charge: [401]}":                                                         "1 rules charge by the response.",
		"- {name: a, actor: account, algo: LB, unit: minute, rpu: 70, queue: 2}":                                                    "have moved the scheduled times",
		"- {name: a, actor: account, algo: W, unit: 10s, rpu: 10, wait: 2s}":                                                        "waited under a rule with wait",
		"- {name: a, actor: account, algo: W, unit: day, rpu: 300}":                                                                 "are not remembered",
	} {
		t.Run(note, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newAgreeing(t, history.Flags{Recent: 1000, RecentActors: "plain"}, rules)
				defer func() { _ = c.limiter.Close() }()
				c.load(4, 600)
				result, err := c.what.Compute(t.Context(), c.limiter.Config(), true)
				if err != nil {
					t.Fatal(err)
				}
				t.Log(result.Notes[0])
				if !slices.ContainsFunc(result.Notes, func(n string) bool { return strings.Contains(n, note) }) {
					t.Errorf("no note says %q: %q", note, result.Notes)
				}
			})
		})
	}
}

// The proposed configuration takes over the counters at the start of the ring, as it would after a push. One whose
// counters mean something else begins with empty ones.
func TestProposedCounters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newAgreeing(t, history.Flags{Recent: 1000, RecentActors: "hash"}, "- {name: quota, actor: account, algo: W, unit: total, rpu: 250}")
		defer func() { _ = c.limiter.Close() }()
		c.load(4, 600) // uses up all five quotas, before the ring begins
		for rule, allowed := range map[string]int64{
			"{name: quota, actor: account, algo: W, unit: total, rpu: 300}": 5 * 50,
			"{name: quota, actor: account, algo: W, unit: total, rpu: 200}": 0,
			"{name: other, actor: account, algo: W, unit: total, rpu: 60}":  5 * 60,
		} {
			report := c.predict("limits: [{url: /, rules: [" + rule + "]}]").Report
			if report.Config.Allowed != 0 || report.Against.Allowed != allowed {
				t.Errorf("%s allows %d, and the configuration in force %d; expected %d and 0", rule, report.Against.Allowed, report.Config.Allowed, allowed)
			}
		}
	})
}
