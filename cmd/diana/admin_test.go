// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

func newLimiter(t *testing.T, text string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

const everyDecision = `
- url: /
  rules:
    - {name: "few\\ \"and\" quoted", unit: day, rpu: 2, algo: W, align: first}
    - {name: shadow, unit: day, rpu: 1, algo: W, align: first, mode: shadow}
- url: /slow
  rules:
    - {name: slow, rpu: 5, algo: LB}
`

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testMetrics) // so that the two that are slowed come at the same moment
}

func testMetrics(t *testing.T) {
	l := newLimiter(t, everyDecision)
	for _, path := range []string{"/slow", "/slow", "/"} {
		d, err := l.Take(t.Context(), diana.Request{Method: http.MethodGet, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		d.Done()
	}
	registry := newRegistry(l, newRedisSeconds())
	want := `
# HELP diana_requests_total Requests that a rule judged, by what it decided. A request that several rules judge is counted under each.
# TYPE diana_requests_total counter
diana_requests_total{decision="allowed",rule="few\\ \"and\" quoted"} 2
diana_requests_total{decision="allowed",rule="shadow"} 1
diana_requests_total{decision="allowed",rule="slow"} 1
diana_requests_total{decision="delayed",rule="few\\ \"and\" quoted"} 0
diana_requests_total{decision="delayed",rule="shadow"} 0
diana_requests_total{decision="delayed",rule="slow"} 1
diana_requests_total{decision="refused",rule="few\\ \"and\" quoted"} 1
diana_requests_total{decision="refused",rule="shadow"} 0
diana_requests_total{decision="refused",rule="slow"} 0
diana_requests_total{decision="shadow_refused",rule="few\\ \"and\" quoted"} 0
diana_requests_total{decision="shadow_refused",rule="shadow"} 2
diana_requests_total{decision="shadow_refused",rule="slow"} 0
# HELP diana_overflow_total Requests that a rule's overflow counter judged, because max_keys left no room for their actors.
# TYPE diana_overflow_total counter
diana_overflow_total{rule="few\\ \"and\" quoted"} 0
diana_overflow_total{rule="shadow"} 0
diana_overflow_total{rule="slow"} 0
# HELP diana_degraded Whether global rules are judged without Redis (1) or not (0).
# TYPE diana_degraded gauge
diana_degraded 0
# HELP diana_fallback_total Requests that this gateway evaluated without Redis, because a call failed or because Redis was not asked.
# TYPE diana_fallback_total counter
diana_fallback_total 0
# HELP diana_gateways Gateways last seen alive, this one included.
# TYPE diana_gateways gauge
diana_gateways 1
# HELP diana_keys Actors that the local store remembers, all rules together.
# TYPE diana_keys gauge
diana_keys 3
# HELP diana_waiting Requests that wait now, for a rule with a wait or for a leaky bucket. At most 10,000.
# TYPE diana_waiting gauge
diana_waiting 0
# HELP diana_evictions_total Expired actors that have made room for new ones.
# TYPE diana_evictions_total counter
diana_evictions_total 0
`
	err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"diana_requests_total", "diana_overflow_total", "diana_degraded", "diana_fallback_total", "diana_gateways", "diana_keys", "diana_waiting", "diana_evictions_total")
	if err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, name := range []string{"diana_config_info", "go_goroutines", "process_cpu_seconds_total"} {
		if !strings.Contains(strings.Join(names, " "), name) {
			t.Error("no", name)
		}
	}
}

// ask asks an administrators' listener.
func ask(t *testing.T, h http.Handler, method, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	well := newLimiter(t, generous)
	degraded := newLimiter(t, "url: /\nrules: [{rpu: 1, scope: global}]")
	no, yes := func() bool { return false }, func() bool { return true }
	for _, test := range []struct {
		name         string
		limiter      *diana.Limiter
		draining     func() bool
		method, path string
		status       int
		body         string // that it begins with
	}{
		{"healthy", well, no, "GET", "/healthz", 200, "ok\n"},
		{"ready", well, no, "GET", "/readyz", 200, "ready\n"},
		{"healthy", well, no, "HEAD", "/healthz", 200, ""},
		{"degraded is healthy", degraded, no, "GET", "/healthz", 200, "degraded\n"},
		{"degraded is ready", degraded, no, "GET", "/readyz", 200, "degraded\n"},
		{"draining is healthy", well, yes, "GET", "/healthz", 200, "ok\n"},
		{"draining is not ready", well, yes, "GET", "/readyz", 503, "draining\n"},
		{"metrics", well, no, "GET", "/metrics", 200, "# HELP "},
		{"no such path", well, no, "GET", "/", 404, ""},
		{"no such path", well, no, "GET", "/metricsx", 404, ""},
		{"no such path", well, no, "GET", "/healthz/x", 404, ""},
		{"no such path", well, no, "POST", "/nothing", 404, ""},
		{"other method", well, no, "POST", "/metrics", 405, ""},
		{"other method", well, no, "PUT", "/status", 405, ""},
		{"other method", well, no, "DELETE", "/readyz", 405, ""},
	} {
		h := newAdmin(test.limiter, test.draining, newRegistry(test.limiter, newRedisSeconds()), slog.New(slog.DiscardHandler))
		if status, body := ask(t, h, test.method, test.path); status != test.status || !strings.HasPrefix(body, test.body) {
			t.Errorf("%s: %s %s: %d %.40q", test.name, test.method, test.path, status, body)
		}
	}
}

func TestStatusPage(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, "url: /\nrules: [{name: one, rpu: 1, scope: global, on_error: closed}]")
	h := newAdmin(l, func() bool { return false }, newRegistry(l, newRedisSeconds()), slog.New(slog.DiscardHandler))
	code, body := ask(t, h, "GET", "/status")
	var s diana.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err, body)
	}
	if code != 200 || s.Config.Source != "test.yaml" || s.Config.Version == "" || !s.Degraded || s.DegradedSince == nil ||
		s.Gateways != 1 || len(s.Rules) != 1 || s.Rules[0].Name != "one" || s.Rules[0].Scope != "global" {
		t.Error(code, body)
	}
}
