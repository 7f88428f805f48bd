// SPDX-License-Identifier: MIT

package admin

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	dianaprom "github.com/diana-limiter/diana/prometheus"
)

// The limiters of a gateway with descriptors have metrics of the same names, side by side.
func TestMetricsWithDescriptors(t *testing.T) {
	t.Parallel()
	l, limits := limiterFor(t, "url: /\nrules: [{rpu: 5}]"), limiterFor(t, "url: /\nrules: [{rpu: 7}]")
	registry := NewRegistry(l, dianaprom.NewRedisCalls())
	families, err := prometheus.Gatherers{registry, WithDescriptors(registry, limits, func() bool { return false })}.Gather()
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
