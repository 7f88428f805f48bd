// SPDX-License-Identifier: MIT

package names_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need zones on every machine

	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// The names of counters are in Redis and in the memory of running gateways, so their form never
// changes.
func TestCountersForm(t *testing.T) {
	t.Parallel()
	for _, algo := range limit.Algorithms() {
		for _, name := range []string{"", "login", "a \"quoted\" \x7f name"} {
			for _, actors := range [][]rule.Actor{nil, {{Kind: "ip"}}, {{Kind: "header", Name: "X-Key"}, {Kind: "account"}}} {
				r := rule.Rule{Name: name, Actor: actors, Algorithm: algo, Limit: limit.Limit{N: 10, Unit: 90 * time.Second}}
				url := rule.Pattern{Method: "POST", Path: "/a b/{x}"}
				unit := "1m30s"
				if !algo.Uses("unit") {
					unit = "-"
				}
				if len(actors) == 0 {
					actors = []rule.Actor{rule.All}
				}
				shape := fmt.Sprintf("%q %s %q", algo.Name(), unit, actors)
				m, err := algo.New(r.Limit)
				if err != nil {
					t.Fatal(err)
				}
				got := names.Counters([]rule.Entry{{URL: url, Rules: []rule.Rule{r, r}}})
				for i := range got {
					want := fmt.Sprintf("number %d %q %s %q", i+1, url.String(), shape, m.StateVersion())
					if name != "" {
						want = fmt.Sprintf("named %q %q %s %q", name, url.String(), shape, m.StateVersion())
					}
					if got[i] != want {
						t.Errorf("got  %s\nwant %s", got[i], want)
					}
				}
			}
		}
	}
}

// A rule without a name gets one of its own, whatever names the others have.
func TestRulesAreUnique(t *testing.T) {
	t.Parallel()
	r := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 10, Unit: time.Second}}
	named := func(name string) rule.Rule { n := r; n.Name = name; return n }
	got := names.Rules([]rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: []rule.Rule{
		r, named("/ all TB 10/second #2"), r, r, named("/ all TB 10/second #4"), r,
	}}})
	want := []string{
		"/ all TB 10/second", "/ all TB 10/second #2", "/ all TB 10/second #3", "/ all TB 10/second #5", "/ all TB 10/second #4", "/ all TB 10/second #6",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The names of counters of the calendar are in Redis too. They have the unit and the zone.
func TestCountersOfCalendars(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]limit.Limit{
		`number 1 "/" "W" month ["all"] "calendar"`:                      {N: 1, Calendar: "month"},
		`number 1 "/" "W" total ["all"] "calendar"`:                      {N: 1, Calendar: "total"},
		`number 1 "/" "W" week "Asia/Tokyo" ["all"] "calendar"`:          {N: 1, Calendar: "week", Zone: "Asia/Tokyo"},
		`number 1 "/" "W" 24h0m0s "America/New_York" ["all"] "calendar"`: {N: 1, Unit: 24 * time.Hour, Zone: "America/New_York"},
		`number 1 "/" "W" 24h0m0s ["all"] "1"`:                           {N: 1, Unit: 24 * time.Hour},
		`number 1 "/" "W" 24h0m0s ["all"] "2"`:                           {N: 1e12, Unit: 24 * time.Hour},
	} {
		r := rule.Rule{Algorithm: limit.FixedWindow(), Limit: l}
		if got := names.Counters([]rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: []rule.Rule{r}}}); got[0] != want {
			t.Errorf("got  %s\nwant %s", got[0], want)
		}
	}
}

// The names that clients read are unique, also against those that rules have of their own.
func TestShort(t *testing.T) {
	t.Parallel()
	r := func(name string, a limit.Algorithm, l limit.Limit, actors ...string) rule.Rule {
		of := rule.Rule{Name: name, Algorithm: a, Limit: l}
		for _, text := range actors {
			kind, value, _ := strings.Cut(text, ":")
			of.Actor = append(of.Actor, rule.Actor{Kind: kind, Name: value})
		}
		return of
	}
	minute := limit.Limit{N: 100, Unit: time.Minute}
	got := names.Short([]rule.Entry{
		{Rules: []rule.Rule{
			r("", limit.TokenBucket(), minute, "account"),
			r("", limit.SlidingWindow(), minute, "account"),
			r("account-100-minute-3", limit.TokenBucket(), minute),
		}},
		{Rules: []rule.Rule{
			r("", limit.TokenBucket(), minute, "account"),
			r("", limit.TokenBucket(), limit.Limit{N: 5, Unit: 90 * time.Second}),
			r("", limit.Concurrency(), limit.Limit{N: 8}, "header:X-Key", "ip"),
			r("", limit.FixedWindow(), limit.Limit{N: 7, Calendar: "month"}, "ip"),
		}},
	})
	want := []string{"account-100-minute", "account-100-minute-2", "account-100-minute-3", "account-100-minute-4", "all-5-1m30s", "header:X-Key+ip-8", "ip-7-month"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
