// SPDX-License-Identifier: MIT

package gateway

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
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/decoders"
	"github.com/diana-limiter/diana/cmd/diana/internal/exchange"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/cmd/diana/internal/simulate"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
	"github.com/diana-limiter/diana/cmd/diana/internal/whatif"
	"github.com/diana-limiter/diana/config"
)

// remembering is a gateway that follows a file and remembers its requests.
type remembering struct {
	t       *testing.T
	file    string
	limiter *diana.Limiter
	ring    *history.Ring
	what    *whatif.WhatIf
	url     string
	admin   string
}

// config returns the configuration in force.
func (r *remembering) config() *config.Config { return r.limiter.Config() }

// remember starts a gateway with these flags and this configuration, until the test ends.
func remember(t *testing.T, f history.Flags, text string, behind http.HandlerFunc) *remembering {
	t.Helper()
	server := httptest.NewServer(behind)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &remembering{t: t, file: filepath.Join(t.TempDir(), "diana.yaml")}
	r.write(text)
	logger := slog.New(slog.DiscardHandler)
	o := diana.Options{Logger: logger, Decoders: (&decoders.Decoders{}).ByCoding(), Vocabulary: command.Vocabulary()}
	r.ring = f.NewRing(r.config)
	r.ring.Observe(&o)
	if r.limiter, err = o.Open(r.file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.limiter.Close() })
	replays := whatIf(r.limiter, r.ring, &Flags{})
	replays.Longest = time.Hour // however slow the machine is
	r.what = whatif.New(replays)
	last, _ := (&upstream.Flags{URLs: []*url.URL{target}}).Proxy(usualTimeouts.Timeouts, r.limiter.Config, upstream.NewUpgrades(nil, logger), logger)
	g := assembled(r.limiter, last, usualTimeouts, logger, r.what.Register)
	g.server.Handler = r.ring.Filter(g.server.Handler)
	if err := g.listen(listenAt{requests: "127.0.0.1:0", admin: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + g.open[0].Addr().String()
	r.admin = "http://" + g.open[1].Addr().String()
	signals, ended := make(chan os.Signal, 2), make(chan error, 1)
	go func() { ended <- g.Run(context.Background(), signals, func() {}) }()
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
  - {name: account, actor: account, unit: 10s, rpu: 700, algo: SW, except: [eve], overrides: {bob: {rpu: 40}}}
  - {name: address, actor: ip, unit: 10s, rpu: 200, algo: SL, except: [10.1.0.0/16], overrides: {10.2.0.3: {rpu: 25}}}
- url: /b
  rules: [{name: everyone, unit: minute, rpu: 200, burst: 50}]
- url: /a
  rules:
  - {name: session, actor: "cookie:sid", unit: minute, rpu: 60, algo: W}
  - {name: dear, actor: [account, ip], unit: minute, rpu: 20, cost: 3, mode: shadow}
- url: /a/{any}
  rules: [{name: key, actor: "query:key", unit: minute, rpu: 30, algo: TB}]
- url: /slots
  rules: [{name: slots, actor: account, rpu: 1, algo: C}, {name: evenly, rpu: 900, algo: LB, queue: 0}]
- url: /login
  rules: [{name: failed, actor: ip, rpu: 8, unit: minute, algo: SW, charge: [401]}]
`

// compare replays the requests under the configuration in force, and returns how many of the gateway's
// decisions the replay does not make.
func (r *remembering) compare(show bool) (wrong, n int) {
	r.t.Helper()
	s := r.ring.Snapshot()
	s.Label(r.ring, r.limiter.Config())
	count, err := simulate.NewCount(r.limiter.Config(), command.Vocabulary())
	if err != nil {
		r.t.Fatal(err)
	}
	c, earlier := simulate.NewComparison(s.Names(), count), simulate.NewEarlier(s.Names(), s.Whole)
	for i := range s.Len() {
		earlier.Look(s.Set(i), s.Entry(i))
	}
	earlier.Finish()
	c.Begin(earlier)
	for i := range s.Len() {
		e := s.Entry(i)
		text := fmt.Sprintf("%d %s %s %v, status %d", e.Start, e.Target, e.Remote, e.Actors, e.Status)
		o, err := c.Play(e)
		if err != nil {
			r.t.Fatal(err)
		}
		if o[0].Allowed != e.Allowed {
			if wrong++; show && wrong < 10 {
				r.t.Errorf("request %d: the gateway: %v, the replay: %v: %s", i, e.Allowed, o[0].Allowed, text)
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
			r := remember(t, history.Flags{Recent: 100_000, RecentActors: actors}, manyRules, randomUpstream)
			const clients, each = 16, 400
			allowed, refused := r.load(clients, each, 1)
			wrong, n := r.compare(true)
			if s := r.ring.Snapshot(); n != clients*each || wrong > 0 || !s.Whole || s.Running > 0 || allowed < 500 || refused < 500 {
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

// predicted are rules whose decisions do not depend on the time, so that a prediction is exact.
const predicted = "limits:\n- {url: /, rules: [{name: %s, actor: account, unit: day, algo: W, rpu: %d}, {name: %s-address, actor: ip, unit: day, algo: W, rpu: %d}]}\n"

// predict returns what would have been decided under another configuration.
func (r *remembering) predict(yaml string) *whatif.Result {
	r.t.Helper()
	proposed, err := command.Vocabulary().Parse("proposed", []byte(yaml))
	if err != nil {
		r.t.Fatal(err)
	}
	result, err := r.what.Compute(r.t.Context(), proposed, true)
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

// After a change is pushed, the gateway decides about the same load as the replay has predicted.
func TestPrediction(t *testing.T) {
	t.Parallel()
	for _, actors := range []string{"plain", "hash"} {
		t.Run(actors, func(t *testing.T) {
			t.Parallel()
			r := remember(t, history.Flags{Recent: 100_000, RecentActors: actors}, fmt.Sprintf(predicted, "old", 300, "old", 1000), randomUpstream)
			const clients, each = 8, 250
			_, refusedBefore := r.load(clients, each, 7)
			next := fmt.Sprintf(predicted, "new", 150, "new", 100)
			result := r.predict(next)
			r.push(next)
			allowed, refused := r.load(clients, each, 7)
			report := result.Report
			t.Logf("refused before: %d, replayed %d; after: predicted %d, found %d", refusedBefore, report.Config.Refused, report.Against.Refused, refused)
			if report.Config.Refused != refusedBefore || report.Requests != clients*each {
				t.Errorf("the gateway has refused %d of %d, and the replay %d", refusedBefore, report.Requests, report.Config.Refused)
			}
			// Which client of an address and an account is first differs from load to load.
			if off := report.Against.Refused - refused; off < -20 || off > 20 || allowed == 0 {
				t.Errorf("%d are refused, predicted %d", refused, report.Against.Refused)
			}
		})
	}
}

// With rates the prediction depends on when requests come, and is close.
func TestPredictionOfRates(t *testing.T) {
	t.Parallel()
	r := remember(t, history.Flags{Recent: 100_000, RecentActors: "hash"}, manyRules, randomUpstream)
	r.load(16, 300, 3)
	next := strings.NewReplacer("rpu: 700", "rpu: 300", "rpu: 200", "rpu: 100").Replace(manyRules)
	result := r.predict(next)
	r.push(next)
	allowed, refused := r.load(16, 300, 4)
	share := func(refused, of int64) float64 { return float64(refused) / float64(of) * 100 }
	before, predicted, found := share(result.Report.Config.Refused, result.Report.Requests), share(result.Report.Against.Refused, result.Report.Requests), share(refused, allowed+refused)
	t.Logf("refused before %.1f %%, predicted %.1f %%, found %.1f %%; notes: %q", before, predicted, found, result.Notes)
	if wrong, n := r.compare(false); n != 16*300*2 || wrong == 0 {
		t.Errorf("%d of %d requests are decided otherwise, expected the requests before the change", wrong, n)
	}
}

// A rule whose requests wait is replayed exactly, although real timers are late.
func TestReplayOfWaits(t *testing.T) {
	t.Parallel()
	r := remember(t, history.Flags{Recent: 100_000, RecentActors: "plain"}, "limits: [{url: /, rules: [{name: bucket, actor: account, algo: LB, rpu: 200, queue: 2}]}]", randomUpstream)
	allowed, refused := r.load(16, 60, 5)
	wrong, n := r.compare(true)
	t.Logf("%d of %d are decided otherwise; %d allowed, %d refused", wrong, n, allowed, refused)
	if n != 16*60 || wrong > 0 {
		t.Errorf("%d of %d requests are decided otherwise", wrong, n)
	}
}

// Costs that responses turn out to have are replayed as the gateway has charged them.
func TestReplayOfCosts(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		"{name: a, actor: account, rpu: 300, cost: {answer: duration, reserve: 2}}",
		"{name: a, actor: account, algo: W, rpu: 300, cost: {answer: duration, reserve: 2}}",
		"{name: a, actor: account, algo: SW, rpu: 200, cost: {answer: bytes, reserve: 20}}",
		"{name: a, actor: account, algo: SL, unit: minute, rpu: 1000, cost: {answer: /usage/total_tokens, reserve: 20}}",
		"{name: a, actor: account, unit: minute, rpu: 1000, cost: {answer: /usage/total_tokens, reserve: 20}}",
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			r := remember(t, history.Flags{Recent: 100_000, RecentActors: "plain"}, "limits: [{url: /, rules: ["+rule+"]}]", func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
				_, _ = fmt.Fprintf(w, `{"usage": {"total_tokens": %d}}`, rand.IntN(30))
			})
			allowed, refused := r.load(16, 100, 5)
			if wrong, n := r.compare(true); wrong > 0 || n != 1600 || allowed == 0 || refused == 0 {
				t.Errorf("%d of %d requests are decided otherwise; %d allowed, %d refused", wrong, n, allowed, refused)
			}
		})
	}
}

// The API of the administrators' listener.
func TestWhatIfAPI(t *testing.T) {
	t.Parallel()
	r := remember(t, history.Flags{Recent: 1000, RecentActors: "hash"}, fmt.Sprintf(predicted, "old", 3, "old", 1000), randomUpstream)
	r.load(1, 50, 1)
	good, bad := fmt.Sprintf(predicted, "old", 2, "old", 1000), "limits: [{url: /, rules: [{nme: a, rpu: 1}]}]"
	text := func(s string) string {
		b, err := json.Marshal(map[string]string{"text": s})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "recent", "", 200, `"requests":50,"capacity":1000,`},
		{"POST", "validate", text(good), 200, `{"valid":true,"errors":[],"warnings":[],"rules":2,"version":"`},
		{"POST", "validate", text(bad), 200, `{"valid":false,"errors":[{"line":1,"column":28,"message":"unknown key`},
		{"POST", "validate", text("limits: [{url: /, rules: [{actor: account, rpu: 1, except: [a, a]}]}]"), 200, `"valid":`},
		{"POST", "validate", text(""), 200, `"valid":`},
		{"POST", "validate", "{}", 400, `"detail":"expected`},
		{"POST", "validate", "", 400, `"status":400`},
		{"POST", "validate", `{"text":"","more":1}`, 400, `unknown field`},
		{"POST", "validate", text(good) + "1", 400, `"status":400`},
		{"POST", "validate", `{"text":1}`, 400, `"status":400`},
		{"POST", "validate", text(strings.Repeat("#", 2<<20)), 413, `"status":413`},
		{"POST", "compare", text(good), 200, `{"diff":["rule \"old\": rpu 3 → 2"],"risks":[]}`},
		{"POST", "compare", text(strings.ReplaceAll(good, "old", "new")), 200, `"risks":["rule \"old\" removed",`},
		{"POST", "compare", text(bad), 422, `"errors":[{"line":1,"column":28,"message":"unknown key`},
		{"POST", "compare", "{}", 400, `"title":"Bad Request"`},
		{"POST", "whatif", text(good), 200, `{"diff":["rule \"old\": rpu 3 → 2"],"report":{"files":[{`},
		{"POST", "whatif", text(bad), 422, `"errors":[{"line":1,"column":28,"message":"unknown key`},
		{"POST", "whatif", "{}", 400, `"title":"Bad Request"`},
		{"GET", "whatif", "", 404, "404 page not found"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), tc.method, r.admin+"/api/v1/"+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		got := exchange.RoundTrip(t, request)
		if got.Status != tc.status || !strings.Contains(got.Body, tc.want) {
			t.Errorf("%s %s %.60s: %d %.300s, want %d %s", tc.method, tc.path, tc.body, got.Status, got.Body, tc.status, tc.want)
		}
		if kind := got.Header.Get("Content-Type"); got.Status != 404 && (kind != "application/json" && kind != "application/problem+json" || got.Header.Get("Cache-Control") != "no-store") {
			t.Errorf("%s: %v", tc.path, got.Header)
		}
	}
}

// Without a ring nothing is replayed, and requests are served as before.
func TestWithoutRecent(t *testing.T) {
	t.Parallel()
	r := remember(t, history.Flags{Recent: 0, RecentActors: "hash"}, fmt.Sprintf(predicted, "old", 3, "old", 1000), randomUpstream)
	if allowed, refused := r.load(1, 50, 1); allowed == 0 || refused == 0 {
		t.Errorf("%d allowed, %d refused", allowed, refused)
	}
	for path, want := range map[string]int{"validate": 200, "whatif": 409} {
		request, err := http.NewRequestWithContext(t.Context(), "POST", r.admin+"/api/v1/"+path, strings.NewReader(`{"text":"limits: [{url: /, rules: [{rpu: 1}]}]"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		if got := exchange.RoundTrip(t, request); got.Status != want {
			t.Errorf("%s: %d %s", path, got.Status, got.Body)
		}
	}
}
