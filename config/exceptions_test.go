// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// The rows of "Whom a rule treats apart", the defaults first.
func TestExceptionRows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ fields, want string }{
		{`rpu: 5`, `[] []`},
		{`rpu: 5, except: [], overrides: {}`, `[] []`},
		{`rpu: 5, except: [10.0.0.0/8, '::1']`, `[10.0.0.0/8 ::1] []`},
		{`rpu: 5, except: ['::ffff:10.0.0.1', 10.0.0.0/16]`, `[10.0.0.1 10.0.0.0/16] []`},
		{`rpu: 5, actor: account, except: [ann, =10.0.0.1]`, `[ann =10.0.0.1] []`},
		{`rpu: 5, actor: account, overrides: {ann: {rpu: 7}, 10.0.0.0/8: {rpu: 0}}`, `[] [ann 7 0 0, 10.0.0.0/8 0 0 0]`},
		{`rpu: 5, burst: 9, actor: account, overrides: {ann: {rpu: 7}, bob: {burst: 3}, joe: {rpu: 1, burst: 2}}`, `[] [ann 7 9 0, bob 5 3 0, joe 1 2 0]`},
		{`rpu: 5, algo: LB, actor: account, overrides: {ann: {queue: 0}, bob: {queue: 1}, joe: {rpu: 2}}`, `[] [ann 5 0 -1, bob 5 0 1, joe 2 0 0]`},
		{`rpu: 5, algo: LB, queue: 0, actor: account, overrides: {ann: {rpu: 7}}`, `[] [ann 7 0 -1]`},
	} {
		r := oneRule(t, row.fields)
		var overrides []string
		for _, o := range r.Overrides {
			overrides = append(overrides, fmt.Sprint(o.Who, o.N, o.Burst, o.Queue))
		}
		if got := fmt.Sprintf("%v [%s]", r.Except, strings.Join(overrides, ", ")); got != row.want {
			t.Errorf("%s: %s, want %s", row.fields, got, row.want)
		}
	}
}

// An override can end, and can be an exemption.
func TestOverridesEnd(t *testing.T) {
	t.Parallel()
	r := oneRule(t, `rpu: 5, actor: account, overrides: {ann: {rpu: 7, until: 2999-12-01T00:00:00Z}, bob: {exempt: true, until: "2999-12-01T01:00:00+01:00"}, joe: {exempt: true}}`)
	end := time.Date(2999, 12, 1, 0, 0, 0, 0, time.UTC)
	for i, want := range []rule.Override{
		{N: 7, Until: end}, {Exempt: true, Until: end}, {Exempt: true},
	} {
		want.Who = r.Overrides[i].Who
		if r.Overrides[i] != want {
			t.Errorf("found %+v, want %+v", r.Overrides[i], want)
		}
	}
	for fields, want := range map[string]string{
		`{rpu: 7, until: 2001-02-03T04:05:06Z}`: "warning: until: this moment is in the past",
		`{until: 2999-12-01T00:00:00Z}`:         "expected rpu, burst, queue or exempt beside until",
		`{rpu: 7, exempt: true}`:                "exempt: expected either an exemption, or rpu, burst or queue",
		`{exempt: false}`:                       "exempt: expected true",
		`{exempt: maybe}`:                       "exempt: expected true or false",
		`{rpu: 7, until: 2999-12-01}`:           "until: expected a moment such as",
		`{rpu: 7, until: 2999-02-30T00:00:00Z}`: "until: expected a moment such as",
		`{rpu: 7, until: tomorrow}`:             "until: expected a moment such as",
		`{rpu: 7, until: 5}`:                    "until: expected text",
	} {
		text := "url: /\nrules: [{rpu: 5, actor: account, overrides: {ann: " + fields + "}}]"
		c, err := words().Parse("x", []byte(text))
		got := fmt.Sprint(err)
		if err == nil && len(c.Warnings) == 1 {
			got = "warning: " + c.Warnings[0].Message
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: found %s, want %s", fields, got, want)
		}
	}
	if _, err := words().Parse("x", []byte("url: /\nrules: [{rpu: 5, class: 'client:plan', classes: {pro: {exempt: true}}}]")); err == nil || !strings.Contains(err.Error(), `unknown key "exempt"`) {
		t.Errorf("a class is exempt: %v", err)
	}
}

// Ten thousand fit into a configuration, and are compiled to as many limits as there are.
func TestTenThousandExceptions(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("url: /\nrules:\n  - actor: account\n    rpu: 10\n    overrides:\n")
	for i := range 5000 {
		fmt.Fprintf(&text, "      customer-%d: {rpu: %d}\n      10.%d.%d.0/24: {rpu: %d, burst: 50}\n", i, 20+i, i/250, i%250, 100+i%3)
	}
	text.WriteString("    except:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "      - 2001:db8:%x::/48\n", i)
	}
	if text.Len() > bounds.MaxConfig {
		t.Fatalf("%d bytes", text.Len())
	}
	began := time.Now()
	c, err := words().Parse("x", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	read := time.Since(began)
	s, err := plan.Compile(c.Limits, c.Identity, c.Paths, words().Actors)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KiB: read in %v, compiled in %v", text.Len()>>10, read, time.Since(began)-read)
	if n := len(s.Variants); n != 5003 {
		t.Errorf("%d variants, want 5,003", n)
	}
	for _, row := range []struct {
		account, ip string
		want        limit.Limit // its zero value: excepted
	}{
		{"customer-4999", "192.0.2.1", limit.Limit{N: 5019, Unit: time.Second}},
		{"nobody", "10.19.249.7", limit.Limit{N: 101, Unit: time.Second, Burst: 50}},
		{"nobody", "10.19.250.7", limit.Limit{N: 10, Unit: time.Second}},
		{"customer-1", "2001:db8:270f:5::1", limit.Limit{}},
		{"customer-1", "2001:db8:2710:5::1", limit.Limit{N: 21, Unit: time.Second}},
	} {
		all, err := plan.Explain(s, &rule.Request{Path: "/", Actors: map[string]string{"account": row.account, "ip": row.ip}})
		if err != nil {
			t.Fatal(err)
		}
		x := all[0]
		if x.Excepted != (row.want == limit.Limit{}) || !x.Excepted && x.Rule.Limit != row.want {
			t.Errorf("%s from %s: %+v, excepted: %v", row.account, row.ip, x.Rule.Limit, x.Excepted)
		}
	}
}
