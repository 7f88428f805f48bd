// SPDX-License-Identifier: MIT

package diff

import (
	"strings"
	"testing"
)

func TestRisks(t *testing.T) {
	t.Parallel()
	const a = "{url: /, rules: [{name: a, rpu: 10}]}"
	class := func(classes string) string {
		return "{url: /, rules: [{name: a, rpu: 1, class: 'header:X-Plan', classes: {" + classes + "}}]}"
	}
	for _, row := range []struct{ old, now, want string }{
		{a, a, ""},
		{a, "limits: []", `rule "a" removed`},
		{a, "{url: /, rules: [{name: b, rpu: 10}]}", `rule "a": renamed "b"`},
		{a, "{url: /, rules: [{rpu: 10}]}", `rule "a": renamed "/ all TB 10/second"`},
		{"{url: /, rules: [{rpu: 10}]}", a, `rule "/ all TB 10/second": renamed "a"`},
		{"{url: /, rules: [{rpu: 10}]}", "{url: /, rules: [{rpu: 20}]}", ""}, // the name was made from the fields
		{"{url: /, rules: [{rpu: 10}]}", "{url: /, rules: [{rpu: 10, actor: ip}]}", `rule "/ all TB 10/second" removed`},
		{a, "{url: /b, rules: [{name: a, rpu: 10}]}", ""},

		{a, "{url: /, rules: [{name: a, rpu: 10, mode: shadow}]}", `rule "a": mode enforce → shadow`},
		{"{url: /, rules: [{name: a, rpu: 10, mode: shadow}]}", a, ""},
		{"limits: []", "{url: /, rules: [{name: a, rpu: 10, mode: shadow}]}", ""},

		{a, "{url: /, rules: [{name: a, rpu: 99}]}", ""},
		{a, "{url: /, rules: [{name: a, rpu: 100}]}", `rule "a": limit 10 per second → 100 per second`},
		{a, "{url: /, rules: [{name: a, unit: minute, rpu: 600}]}", ""},
		{a, "{url: /, rules: [{name: a, unit: minute, rpu: 5999}]}", ""},
		{a, "{url: /, rules: [{name: a, unit: minute, rpu: 6000}]}", `rule "a": limit 10 per second → 6000 per minute`},
		{"{url: /, rules: [{name: a, unit: minute, rpu: 10}]}", a, `rule "a": limit 10 per minute → 10 per second`},
		{"{url: /, rules: [{name: a, rpu: 0}]}", a, `rule "a": limit 0 per second → 10 per second`},
		{a, "{url: /, rules: [{name: a, rpu: 0}]}", ""},
		{"{url: /, rules: [{name: a, unit: 100ms, rpu: 1}]}", "{url: /, rules: [{name: a, rpu: 100}]}", `rule "a": limit 1 per 100ms → 100 per second`},
		{"{url: /, rules: [{name: a, algo: C, rpu: 2}]}", "{url: /, rules: [{name: a, algo: C, rpu: 20}]}", `rule "a": limit 2 at once → 20 at once`},
		{"{url: /, rules: [{name: a, algo: C, rpu: 2}]}", "{url: /, rules: [{name: a, rpu: 20000}]}", ""},
		{"{url: /, rules: [{name: a, algo: W, unit: month, rpu: 10}]}", "{url: /, rules: [{name: a, algo: W, unit: day, rpu: 10}]}", `rule "a": limit 10 per month → 10 per day`},
		{"{url: /, rules: [{name: a, algo: W, unit: total, rpu: 10}]}", "{url: /, rules: [{name: a, algo: W, unit: year, rpu: 10}]}", `rule "a": limit 10 per total → 10 per year`},

		{class("pro: {rpu: 5}, free: {rpu: 1}"), class("free: {rpu: 9}, pro: {rpu: 50}"), `rule "a": limit of class pro 5 per second → 50 per second`},
		{class("pro: {rpu: 5}"), class("free: {rpu: 500}"), ""}, // nobody had its limit

		{"{url: /, rules: [{name: a, rpu: 1}, {name: b, rpu: 1}]}", "{url: /, rules: [{name: b, rpu: 10, mode: shadow}]}",
			"rule \"a\" removed\nrule \"b\": mode enforce → shadow\nrule \"b\": limit 1 per second → 10 per second"},
	} {
		if got := strings.Join(Risks(parse(t, row.old), parse(t, row.now)), "\n"); got != row.want {
			t.Errorf("%s\n%s\ngot  %s\nwant %s", row.old, row.now, got, row.want)
		}
	}
}
