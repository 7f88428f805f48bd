// SPDX-License-Identifier: MIT

package dianaotel_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/diana-limiter/diana"
	dianaotel "github.com/diana-limiter/diana/adapters/otel"
	"github.com/diana-limiter/diana/config"
)

func newLimiter(t *testing.T, o diana.Options, file, text string) *diana.Limiter {
	t.Helper()
	c, err := config.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := o.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// provider returns a provider, and a function that returns all that is collected: by the name and the
// attributes of a metric, its unit and value.
func provider(t *testing.T) (*sdk.MeterProvider, func() map[string]string) {
	t.Helper()
	reader := sdk.NewManualReader()
	p := sdk.NewMeterProvider(sdk.WithReader(reader))
	return p, func() map[string]string {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		points := map[string]string{}
		for _, s := range all.ScopeMetrics {
			for _, m := range s.Metrics {
				if m.Description == "" || m.Unit == "" {
					t.Errorf("%s has no description or no unit", m.Name)
				}
				addPoints(points, m)
			}
		}
		return points
	}
}

func addPoints(to map[string]string, m metricdata.Metrics) {
	add := func(a attribute.Set, kind string, value any) {
		name := m.Name
		for _, kv := range a.ToSlice() {
			name += " " + strings.TrimPrefix(string(kv.Key), "diana.") + "=" + kv.Value.String()
		}
		to[name] = fmt.Sprint(kind, " ", value, " ", m.Unit)
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind := "counter"
		if !data.IsMonotonic {
			kind = "updown"
		}
		for _, p := range data.DataPoints {
			add(p.Attributes, kind, p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, "gauge", p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, "gauge", p.Value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			add(p.Attributes, "histogram", fmt.Sprint(p.Count, " ", p.Sum))
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testMetrics) // so that both requests to /slow come at the same time
}

func testMetrics(t *testing.T) {
	l := newLimiter(t, diana.Options{}, "test\xff.yaml", `
- url: /
  rules:
    - {name: few, unit: day, rpu: 2, algo: W, align: first}
    - {name: shadow, unit: day, rpu: 1, algo: W, align: first, mode: shadow}
- url: /slow
  rules:
    - {name: slow, unit: 250ms, rpu: 5, algo: LB}
    - {name: slots, rpu: 4, algo: C}
`)
	p, collect := provider(t)
	r, err := dianaotel.Register(l, p)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := dianaotel.NewRedisCalls(p)
	if err != nil {
		t.Fatal(err)
	}
	calls.Observe(300 * time.Microsecond)
	calls.Observe(time.Second)
	for _, path := range []string{"/slow", "/slow", "/", "/%00"} {
		d, err := l.Take(t.Context(), diana.Request{Method: http.MethodGet, Path: path})
		if err != nil && path != "/%00" {
			t.Fatal(err)
		}
		d.Done()
	}
	want := map[string]string{
		"diana.keys":                               "updown 4 {actor}",
		"diana.waiting":                            "updown 0 {request}",
		"diana.evictions":                          "counter 0 {actor}",
		"diana.degraded":                           "gauge 0 1",
		"diana.fallback":                           "counter 0 {request}",
		"diana.gateways":                           "gauge 1 {gateway}",
		"diana.rejected reason=path":               "counter 1 {request}",
		"diana.rejected reason=path_length":        "counter 0 {request}",
		"diana.redis.errors error.type=timeout":    "counter 0 {call}",
		"diana.redis.errors error.type=connection": "counter 0 {call}",
		"diana.redis.late_debits":                  "counter 0 1",
		"diana.redis.unknown_calls":                "counter 0 {call}",
		"diana.redis.call.duration":                "histogram 2 1.0003 s",
		"diana.config.last_reload.successful":      "gauge 1 1",
		"diana.config.last_reload.time":            fmt.Sprintf("gauge %v s", float64(time.Now().UnixMilli()/1000)),
		"diana.config.info config.source=test\uFFFD.yaml config.version=" + l.Config().Version: "gauge 1 1",
		"diana.rule.limit rule=few":    "gauge 2 {request}",
		"diana.rule.limit rule=shadow": "gauge 1 {request}",
		"diana.rule.limit rule=slow":   "gauge 5 {request}",
		"diana.rule.limit rule=slots":  "gauge 4 {request}",
		"diana.rule.unit rule=few":     "gauge 86400 s",
		"diana.rule.unit rule=shadow":  "gauge 86400 s",
		"diana.rule.unit rule=slow":    "gauge 0.25 s",
	}
	for rule, counts := range map[string][4]int{"few": {2, 1}, "shadow": {1, 0, 2}, "slow": {1, 0, 0, 1}, "slots": {2}} {
		want["diana.overflow rule="+rule] = "counter 0 {request}"
		for i, decision := range []string{"allowed", "refused", "shadow_refused", "delayed"} {
			want["diana.requests decision="+decision+" rule="+rule] = fmt.Sprintf("counter %d {request}", counts[i])
		}
	}
	got := collect()
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			t.Errorf("%s: %q, expected %q", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d points, expected %d", len(got), len(want))
	}
	if err := r.Unregister(); err != nil {
		t.Fatal(err)
	}
	if got := collect(); len(got) != 1 { // the histogram
		t.Errorf("after Unregister: %v", got)
	}
}

// Two limiters of one program have an attribute of their own.
func TestSeveralLimiters(t *testing.T) {
	t.Parallel()
	p, collect := provider(t)
	for _, name := range []string{"one", "other"} {
		l := newLimiter(t, diana.Options{}, "test.yaml", "url: /\nrules: [{name: r, rpu: 7}]")
		if _, err := dianaotel.Register(l, p, attribute.String("limiter", name)); err != nil {
			t.Fatal(err)
		}
	}
	got := collect()
	for _, name := range []string{"one", "other"} {
		if got["diana.rule.limit rule=r limiter="+name] == "" || got["diana.keys limiter="+name] == "" {
			t.Errorf("limiter %s is not in %v", name, got)
		}
	}
}

// A limiter that follows a file exports its reloads from the start.
func TestReloads(t *testing.T) {
	t.Parallel()
	l, err := diana.Open("limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, collect := provider(t)
	if _, err := dianaotel.Register(l, p); err != nil {
		t.Fatal(err)
	}
	if got := collect()["diana.config.reloads config.source=file result=error"]; got != "counter 0 {reload}" {
		t.Errorf("%q in %v", got, collect())
	}
}

// strict is a provider that accepts no gauge.
type strict struct{ embedded.MeterProvider }

type strictMeter struct{ noop.Meter }

var errStrict = errors.New("no gauges here")

func (strict) Meter(string, ...metric.MeterOption) metric.Meter { return strictMeter{} }

func (strictMeter) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	return nil, errStrict
}

func TestErrorOfProvider(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, diana.Options{}, "test.yaml", "url: /\nrules: [{rpu: 1}]")
	if _, err := dianaotel.Register(l, strict{}); !errors.Is(err, errStrict) {
		t.Error(err)
	}
}
