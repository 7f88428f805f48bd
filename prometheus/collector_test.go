// SPDX-License-Identifier: MIT

package dianaprom

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

func TestCollector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testCollector) // so that both requests to /slow come at the same time
}

func testCollector(t *testing.T) {
	l := newLimiter(t, everyDecision)
	for _, path := range []string{"/slow", "/slow", "/"} {
		d, err := l.Take(t.Context(), diana.Request{Method: http.MethodGet, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		d.Done()
	}
	want := `
# HELP diana_requests_total Requests that a rule evaluated, by decision. A request that several rules evaluate counts under each of them.
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
# HELP diana_overflow_total Requests that the overflow counter of a rule evaluated, because max_keys left no room for their actors.
# TYPE diana_overflow_total counter
diana_overflow_total{rule="few\\ \"and\" quoted"} 0
diana_overflow_total{rule="shadow"} 0
diana_overflow_total{rule="slow"} 0
# HELP diana_degraded Whether the limiter decides global rules without Redis (1) or not (0).
# TYPE diana_degraded gauge
diana_degraded 0
# HELP diana_fallback_total Requests that the limiter evaluated without Redis, because a call failed or because Redis was not asked.
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
# HELP diana_evictions_total Expired actors that the local store removed to make room for new ones.
# TYPE diana_evictions_total counter
diana_evictions_total 0
# HELP diana_redis_errors_total Requests and probes that Redis did not answer, by the kind of failure.
# TYPE diana_redis_errors_total counter
diana_redis_errors_total{kind="connection"} 0
diana_redis_errors_total{kind="timeout"} 0
# HELP diana_redis_late_debits_total The sum of charges that were made without Redis and that it has received since.
# TYPE diana_redis_late_debits_total counter
diana_redis_late_debits_total 0
# HELP diana_redis_unknown_calls_total Calls to Redis that failed, and whose outcome nobody can learn. The limiter does not repeat them.
# TYPE diana_redis_unknown_calls_total counter
diana_redis_unknown_calls_total 0
`
	compare(t, New(l), want, "diana_requests_total", "diana_overflow_total", "diana_degraded", "diana_fallback_total",
		"diana_gateways", "diana_keys", "diana_waiting", "diana_evictions_total", "diana_redis_errors_total",
		"diana_redis_late_debits_total", "diana_redis_unknown_calls_total")
}

func TestRuleMetrics(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, `
- url: /
  rules:
    - {name: hourly, rpu: 100, unit: hour}
    - {name: fine, rpu: 3, unit: 250ms}
    - {name: slots, rpu: 4, algo: C}
    - {name: adaptive, rpu: 1000, algo: AC, priority: 'client:X', priorities: [high, low]}
`)
	const want = `
# HELP diana_config_last_reload_successful Whether the file and the remote configuration were valid when they were last read (1) or not (0).
# TYPE diana_config_last_reload_successful gauge
diana_config_last_reload_successful 1
# HELP diana_rule_limit Requests that a rule allows in its unit, or at once if it limits concurrency. Under adaptive concurrency: at this moment.
# TYPE diana_rule_limit gauge
diana_rule_limit{rule="adaptive"} 20
diana_rule_limit{rule="fine"} 3
diana_rule_limit{rule="hourly"} 100
diana_rule_limit{rule="slots"} 4
# HELP diana_rule_unit_seconds The unit of a rule. A rule that limits concurrency has none.
# TYPE diana_rule_unit_seconds gauge
diana_rule_unit_seconds{rule="fine"} 0.25
diana_rule_unit_seconds{rule="hourly"} 3600
# HELP diana_shed_total Requests that a rule of adaptive concurrency refused, in shadow mode too, by priority. Without priorities that is empty.
# TYPE diana_shed_total counter
diana_shed_total{priority="high",rule="adaptive"} 0
diana_shed_total{priority="low",rule="adaptive"} 0
`
	compare(t, New(l), want, "diana_config_last_reload_successful", "diana_rule_limit", "diana_rule_unit_seconds", "diana_shed_total")
}

// An alert can tell a configuration centre that does not answer from a configuration that has a mistake.
func TestCentre(t *testing.T) {
	t.Parallel()
	centre := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "limits: []")
	}))
	defer centre.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for url, reached := range map[string]string{centre.URL: "1", gone.URL: "0"} {
		file := filepath.Join(t.TempDir(), "diana.yaml")
		if err := os.WriteFile(file, []byte("remote: {url: "+url+"/limits}\nlimits: []\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := diana.Options{Logger: slog.New(slog.DiscardHandler)}.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		compare(t, New(l), `
# HELP diana_config_centre_reached Whether the configuration centre answers (1) or not (0). Without a remote configuration the metric does not exist.
# TYPE diana_config_centre_reached gauge
diana_config_centre_reached `+reached+"\n", "diana_config_centre_reached")
	}
}

// A name that is not UTF-8 does not fail the scrape.
func TestSourceIsNoUTF8(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("test\xff.yaml", []byte("url: /\nrules: [{rpu: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := diana.Options{}.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := registryOf(New(l)).Gather(); err != nil {
		t.Error(err)
	}
}

// Two limiters of one program have metrics of their own.
func TestSeveralLimiters(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for _, name := range []string{"one", "other"} {
		l := newLimiter(t, "url: /\nrules: [{rpu: 1}]")
		if err := prometheus.WrapRegistererWith(prometheus.Labels{"limiter": name}, registry).Register(New(l)); err != nil {
			t.Error(err)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "diana_keys"); n != 2 || err != nil {
		t.Error(n, err)
	}
}

func TestRedisCalls(t *testing.T) {
	t.Parallel()
	calls := NewRedisCalls()
	calls.Observe(300 * time.Microsecond)
	calls.Observe(time.Second)
	families, err := registryOf(calls).Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	if families[0].GetName() != "diana_redis_call_duration_seconds" || h.GetSampleCount() != 2 || h.GetSampleSum() != 1.0003 {
		t.Error(families[0])
	}
}

func registryOf(c ...prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(c...)
	return r
}

// compare compares the named metrics of a collector with a text, and lints all of them.
func compare(t *testing.T, c prometheus.Collector, want string, names ...string) {
	t.Helper()
	r := registryOf(c)
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
