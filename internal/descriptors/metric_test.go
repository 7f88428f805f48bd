// SPDX-License-Identifier: MIT

package descriptors

import "testing"

// The names are those that envoyproxy/ratelimit uses for the same files.
func TestMetricName(t *testing.T) {
	t.Parallel()
	tree := parse(t, `
domain: m
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: verb
        value_to_metric: true
        descriptors:
          - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}}
      - key: verb
        value: GET
        descriptors:
          - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}
          - {key: full, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: plain, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: plain, value: set, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: wild, value: x*, rate_limit: {unit: minute, requests_per_unit: 6}}
  - {key: told, value: x*, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 7}}
  - {key: one, value: x*, value_to_metric: true, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 8}}
  - key: one
    value: y*
    share_threshold: true
    descriptors:
      - {key: full, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: head*, rate_limit: {unit: minute, requests_per_unit: 10}}
  - key: none
`)
	for entries, want := range map[string]string{
		"route=buy, verb=PUT, user=ann": "m.route_buy.verb_PUT.user",
		"route=buy, verb=GET, user=ann": "m.route_buy.verb_GET.user",
		"route=, verb=GET, user=ann":    "m.route.verb_GET.user",
		"route=, verb=, user=":          "m.route.verb.user",
		"route=buy, verb=GET, full=x":   "m.route_buy.verb_GET.full_x",
		"route=, verb=GET, full=":       "m.route_.verb_GET.full_",
		"plain=x":                       "m.plain",
		"plain=set":                     "m.plain_set",
		"wild=xyz":                      "m.wild_x*",
		"told=xyz":                      "m.told_xyz",
		"one=xyz":                       "m.one_x*",
		"one=yz, full=f":                "m.one_y*.full_f",
		"one=yz, full=":                 "m.one_y*.full",
		"header=x":                      "m.header_head*",
		"none=x":                        "",
		"missing=x":                     "",
		"":                              "",
	} {
		if got := tree.MetricName("m", entriesOf(entries)); got != want {
			t.Errorf("%s: %q, want %q", entries, got, want)
		}
	}
	if got := tree.MetricName("other", entriesOf("plain=x")); got != "" {
		t.Errorf("an unknown domain has the name %q", got)
	}
}
