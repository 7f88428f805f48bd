// SPDX-License-Identifier: MIT

package main

import (
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// docs/operating.md lists the metrics of /metrics, with the same labels.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{} // labels by name
	for _, m := range regexp.MustCompile("(?m)^\\| `(diana_\\w+)(?:\\{([a-z,]+)\\})?` \\|").FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[2]
	}
	l := newLimiter(t, "url: /\nrules: [{rpu: 5, cost: {answer: openai}}]")
	registry := newRegistry(l, dianaprom.NewRedisCalls())
	withDescriptors(registry, l, func() bool { return true }) // for what it adds to the registry
	files := writePair(t, t.TempDir(), "first", inAnHour())
	pair, err := openKeyPair(files.cert, files.key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	upstreams := newPool([]*url.URL{{Scheme: "http", Host: "a"}}, usualTimeouts, slog.New(slog.DiscardHandler))
	registry.MustRegister(pair.expiry(), poolMetrics{upstreams})
	families, err := prometheus.Gatherers{registry, newRejections(slog.New(slog.DiscardHandler)).registry()}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	// A limiter that follows a file has the first, and one with a remote configuration the second.
	there := map[string]bool{"diana_config_reloads_total": true, "diana_config_centre_reached": true}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "diana_") {
			continue
		}
		there[name] = true
		labels, ok := documented[name]
		if !ok {
			t.Errorf("docs/operating.md does not have %s", name)
			continue
		}
		want := strings.Split(labels, ",")
		slices.Sort(want)
		var got []string
		for _, label := range f.GetMetric()[0].GetLabel() {
			got = append(got, label.GetName())
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Errorf("%s has the labels %v, and docs/operating.md says %v", name, got, want)
		}
	}
	for name := range documented {
		if !there[name] {
			t.Errorf("/metrics does not have %s", name)
		}
	}
}

// The limiters of a gateway with descriptors have metrics of the same names, side by side.
func TestMetricsWithDescriptors(t *testing.T) {
	t.Parallel()
	l, limits := newLimiter(t, "url: /\nrules: [{rpu: 5}]"), newLimiter(t, "url: /\nrules: [{rpu: 7}]")
	registry := newRegistry(l, dianaprom.NewRedisCalls())
	families, err := prometheus.Gatherers{registry, withDescriptors(registry, limits, func() bool { return false })}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "diana_rule_limit" {
			continue
		}
		got := map[string]float64{}
		for _, m := range f.GetMetric() {
			of := ""
			for _, label := range m.GetLabel() {
				if label.GetName() == "limits" {
					of = label.GetValue()
				}
			}
			got[of] = m.GetGauge().GetValue()
		}
		if got[""] != 5 || got["descriptors"] != 7 {
			t.Errorf("diana_rule_limit is %v by limits, want 5 and 7", got)
		}
		return
	}
	t.Error("/metrics does not have diana_rule_limit")
}
