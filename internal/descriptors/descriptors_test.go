// SPDX-License-Identifier: MIT

package descriptors

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// describe returns what a limit says, in the order of the file.
func describe(l *Limit) string {
	r := &l.Rule
	if l.Unlimited {
		return fmt.Sprintf("%s unlimited name %q replaces %q", l.FullName, l.Name, l.Replaces)
	}
	return fmt.Sprintf("%s %d/%v %s %v %v burst %d slices %d queue %d shadow %v quota %v/%v debit %v name %q replaces %q",
		l.FullName, l.RequestsPerUnit, l.Unit, r.Algorithm.Name(), r.Scope, r.OnError, r.Limit.Burst, r.Limit.Slices, r.Limit.Queue,
		l.Shadow, l.Quota, r.Shadow, l.Debit, l.Name, l.Replaces)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"rate_limit: {unit: second, requests_per_unit: 5}":                                                                                `d.k 5/second W global share burst 0 slices 0 queue 0 shadow false quota false/false debit false name "" replaces []`,
		"rate_limit: {unit: WEEK, requests_per_unit: 4294967295}":                                                                         `d.k 4294967295/week W global share burst 0 slices 0 queue 0 shadow false quota false/false debit false name "" replaces []`,
		"rate_limit: {unit: Day, requests_per_unit: 1_000, name: n}":                                                                      `d.k 1000/day W global share burst 0 slices 0 queue 0 shadow false quota false/false debit false name "n" replaces []`,
		"rate_limit: {unit: month, requests_per_unit: 0}\n  shadow_mode: on":                                                              `d.k 0/month W global share burst 0 slices 0 queue 0 shadow true quota false/true debit false name "" replaces []`,
		"rate_limit: {unit: year, requests_per_unit: 7}\n  quota_mode: True":                                                              `d.k 7/year W global share burst 0 slices 0 queue 0 shadow false quota true/true debit false name "" replaces []`,
		"rate_limit: {unlimited: yes, name: 5, replaces: [{name: a}, {name: 6}]}":                                                         `d.k unlimited name "5" replaces ["a" "6"]`,
		"value: 404\n  rate_limit: {unit: day, requests_per_unit: 5, algo: token bucket, burst: 9, scope: local}":                         `d.k_404 5/day TB local share burst 9 slices 0 queue 0 shadow false quota false/false debit false name "" replaces []`,
		"value: true\n  rate_limit: {unit: day, requests_per_unit: 5, algo: sw, slices: 4, on_error: closed}":                             `d.k_true 5/day SW global closed burst 0 slices 4 queue 0 shadow false quota false/false debit false name "" replaces []`,
		"value: 1.50\n  rate_limit: {unit: day, requests_per_unit: 5, algo: LB, queue: 0, debit: true}":                                   `d.k_1.50 5/day LB global share burst 0 slices 0 queue -1 shadow false quota false/false debit true name "" replaces []`,
		"value: ~\n  descriptors: ~\n  rate_limit: {<<: {unit: day, requests_per_unit: 1}, requests_per_unit: 2, unlimited: no, debit: }": `d.k 2/day W global share burst 0 slices 0 queue 0 shadow false quota false/false debit false name "" replaces []`,
	} {
		tree, err := tryParse(Options{Scope: rule.Global}, "domain: d\ndescriptors:\n- key: k\n  "+text+"\n")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := describe(tree.Limits()[0]); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
}

// The units have the lengths of envoyproxy/ratelimit.
func TestUnits(t *testing.T) {
	t.Parallel()
	for u, want := range map[Unit]time.Duration{
		UnitUnknown: 0, Second: time.Second, Minute: time.Minute, Hour: time.Hour, Day: 24 * time.Hour,
		Week: 7 * 24 * time.Hour, Month: 30 * 24 * time.Hour, Year: 365 * 24 * time.Hour, 8: 0, -1: 0,
	} {
		if got := u.Duration(); got != want {
			t.Errorf("%v has %v, want %v", u, got, want)
		}
		if parsed, ok := parseUnit(strings.ToUpper(u.String())); ok != (want > 0) || ok && parsed != u {
			t.Errorf("%v is read as %v", u, parsed)
		}
	}
}

// A window of a week begins on Thursday, and all windows are those of the unit since 1970.
func TestWindows(t *testing.T) {
	t.Parallel()
	sunday := time.Date(2026, time.November, 22, 14, 30, 0, 0, time.UTC)
	for unit, want := range map[string]time.Time{
		"minute": sunday,
		"week":   time.Date(2026, time.November, 19, 0, 0, 0, 0, time.UTC),
		"month":  time.Unix(sunday.Unix()/(30*86400)*(30*86400), 0),
		"year":   time.Unix(sunday.Unix()/(365*86400)*(365*86400), 0),
	} {
		l := parse(t, one("{requests_per_unit: 1, unit: "+unit+"}")).Limits()[0]
		m, err := l.Rule.Algorithm.New(l.Rule.Limit)
		if err != nil {
			t.Fatal(err)
		}
		out := m.Peek(limit.State{}, sunday.UnixMicro(), 1)
		if end := sunday.Add(time.Duration(out.Reset) * time.Microsecond); !end.Add(-l.Unit.Duration()).Equal(want) {
			t.Errorf("the %s begins %v, want %v", unit, end.Add(-l.Unit.Duration()).UTC(), want.UTC())
		}
	}
}

// Full names can be equal. Names of rules and of counters are not.
func TestEntries(t *testing.T) {
	t.Parallel()
	limited := "rate_limit: {unit: day, requests_per_unit: 4294967295}"
	tree := parse(t,
		"domain: a\ndescriptors: [{key: b.c, "+limited+"}, {key: b, descriptors: [{key: c, "+limited+"}]}, {key: free, rate_limit: {unlimited: true}}]",
		"domain: a.b\ndescriptors: [{key: c, "+limited+"}, {key: 'c #2', "+limited+"}, {key: '{x}/%', "+limited+"}]",
		"domain: .\ndescriptors: [{key: .., "+limited+"}]",
	)
	set, err := plan.Compile(tree.Entries(), rule.Identity{}, rule.Paths{}, config.DefaultVocabulary().Actors)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range set.Rules {
		got = append(got, r.Name+" at "+r.URL.String())
	}
	want := []string{
		"a.b.c at /a/b.c", "a.b.c #3 at /a/b/c", "a.b.c #4 at /a.b/c", "a.b.c #2 at /a.b/c%2520%25232", "a.b.{x}/% at /a.b/%257Bx%257D%252F%2525", ".... at /%252E/%252E%252E",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, l := range tree.Limits() {
		if !l.Unlimited && set.Rules[l.Index].Limit.N != math.MaxUint32 {
			t.Errorf("%s: %+v", l.FullName, set.Rules[l.Index].Limit)
		}
	}
}

// A configuration accepts the URL of every entry.
func TestURLs(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"*", "foo*", "/cart/*", "ünï", "a b", "{x}", "?a#b", "%2F", "..", "_", "\x7f"} {
		tree := parse(t, fmt.Sprintf("domain: %[1]q\ndescriptors: [{key: k, value: %[1]q, rate_limit: {unit: day, requests_per_unit: 1}}]", value))
		u := tree.Entries()[0].URL
		var read rule.Pattern
		if err := read.UnmarshalText([]byte(u.String())); err != nil || read != u {
			t.Errorf("%q has the url %q, which is read as %q: %v", value, u, read, err)
		}
	}
}

// A reload that moves a descriptor, or changes its limit, keeps its counters.
func TestCountersStay(t *testing.T) {
	t.Parallel()
	before := parse(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
	after := parse(t, "domain: c\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]",
		"domain: d\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}, {key: a, rate_limit: {unit: day, requests_per_unit: 2}}]")
	old, now := names.Counters(before.Entries()), names.Counters(after.Entries())
	if len(now) != 3 || old[0] != now[2] || old[0] == now[0] {
		t.Errorf("%q became %q", old, now)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	tree, err := tryParse(Options{Merge: true},
		"domain: d\ndescriptors: [{key: k, value: a*, rate_limit: {unit: day, requests_per_unit: 1}}]",
		"domain: d\ndescriptors: [{key: k, value: ab*, rate_limit: {unit: day, requests_per_unit: 2}}, {key: k, rate_limit: {unit: day, requests_per_unit: 3}}]")
	if err != nil {
		t.Fatal(err)
	}
	if tree.Domains() != 1 || !tree.Has("d") || tree.Has("") {
		t.Errorf("%d domains", tree.Domains())
	}
	for value, want := range map[string]uint32{"ab": 1, "b": 3} {
		if l, _ := tree.Find("d", []Entry{{"k", value}}, nil); l == nil || l.RequestsPerUnit != want {
			t.Errorf("%s: %+v, want %d", value, l, want)
		}
	}
}
