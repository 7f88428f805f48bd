// SPDX-License-Identifier: MIT

package descriptors

import (
	"strings"
	"testing"
)

// Each key of a descriptor is a difference, and a limit has its full name.
func TestChanges(t *testing.T) {
	t.Parallel()
	descriptor := func(text string) string { return "domain: w\ndescriptors:\n- {key: k, value: 'v*', " + text + "}\n" }
	const limit = "rate_limit: {unit: minute, requests_per_unit: 5"
	for _, row := range []struct{ old, now, want string }{
		{limit + "}", limit + ", burst: }", ""},
		{limit + "}", limit + "}, share_threshold: true", `limit "w.k_v*": share_threshold off → on, its counters begin anew`},
		{limit + "}", limit + ", debit: true}", `limit "w.k_v*": debit off → on`},
		{limit + "}", limit + ", algo: SW, slices: 20}", `limit "w.k_v*": algo W → SW, slices 0 → 20, its counters begin anew`},
		{limit + "}", limit + ", scope: global, on_error: closed}", `limit "w.k_v*": scope local → global, on_error share → closed, its counters begin anew`},
		{limit + ", algo: LB, queue: 3}", limit + ", algo: LB, queue: 0}", `limit "w.k_v*": queue 3 → 0`},
		{limit + ", algo: TB}", limit + ", algo: TB, burst: 9}", `limit "w.k_v*": burst 0 → 9`},
		{limit + "}", "rate_limit: {unit: hour, requests_per_unit: 6}", `limit "w.k_v*": requests_per_unit 5 → 6, unit minute → hour, its counters begin anew`},
		{limit + ", name: a}", limit + ", replaces: [{name: a}]}", `limit "w.k_v*": name a → none, replaces none → a`},
		{
			limit + "}", limit + "}, shadow_mode: true, quota_mode: true, detailed_metric: true, value_to_metric: true",
			`limit "w.k_v*": shadow_mode off → on, quota_mode off → on, detailed_metric off → on, value_to_metric off → on`,
		},
		{"share_threshold: false", limit + "}", `limit "w.k_v*" added: 5 per minute, W`},
		{limit + "}", "share_threshold: false", `limit "w.k_v*" removed`},
		{"share_threshold: false", "share_threshold: true", `limit "w.k_v*": share_threshold off → on, its counters begin anew`},
		{"descriptors: [{key: z, " + limit + "}}]", "descriptors: [{key: y, " + limit + "}}]", `limit "w.k_v*.y" added: 5 per minute, W; limit "w.k_v*.z" removed`},
		{limit + "}", "rate_limit: {unlimited: true}", `limit "w.k_v*": 5 per minute, W → unlimited`},
	} {
		got := strings.Join(parse(t, descriptor(row.now)).Changes(parse(t, descriptor(row.old))), "; ")
		if got != row.want {
			t.Errorf("%s\nbecomes %s\ngot  %s\nwant %s", row.old, row.now, got, row.want)
		}
	}
}
