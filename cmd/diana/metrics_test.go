// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// What the documents say of metrics is what /metrics has, with the same labels.
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
	l := newLimiter(t, "url: /\nrules: [{rpu: 5}]")
	families, err := newRegistry(l, newRedisSeconds()).Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{"diana_config_reloads_total": true} // of a limiter that follows a file
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

func TestRuleMetrics(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, `
- url: /
  rules:
    - {name: hourly, rpu: 100, unit: hour}
    - {name: fine, rpu: 3, unit: 250ms}
    - {name: slots, rpu: 4, algo: C}
`)
	const want = `
# HELP diana_config_last_reload_successful Whether the file and the configuration centre were valid when they were last read (1) or not (0).
# TYPE diana_config_last_reload_successful gauge
diana_config_last_reload_successful 1
# HELP diana_rule_limit Requests that a rule allows in its unit, or at once if it limits concurrency.
# TYPE diana_rule_limit gauge
diana_rule_limit{rule="fine"} 3
diana_rule_limit{rule="hourly"} 100
diana_rule_limit{rule="slots"} 4
# HELP diana_rule_unit_seconds The unit of a rule. A rule that limits concurrency has none.
# TYPE diana_rule_unit_seconds gauge
diana_rule_unit_seconds{rule="fine"} 0.25
diana_rule_unit_seconds{rule="hourly"} 3600
`
	err := testutil.GatherAndCompare(newRegistry(l, newRedisSeconds()), strings.NewReader(want),
		"diana_config_last_reload_successful", "diana_rule_limit", "diana_rule_unit_seconds")
	if err != nil {
		t.Error(err)
	}
}
