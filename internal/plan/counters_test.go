// SPDX-License-Identifier: MIT

package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// counted returns the names of the counters of an entry's rules.
func counted(t testing.TB, url string, rules ...rule.Rule) (list []string) {
	t.Helper()
	entries := []rule.Entry{{URL: rule.Pattern{Path: url}, Rules: rules}}
	s, err := Compile(entries, rule.Identity{}, rule.Paths{}, actors.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Rules {
		list = append(list, r.Counters)
	}
	if got := names.Counters(entries); !slices.Equal(got, list) {
		t.Errorf("names.Counters returns %q, Compile makes %q", got, list)
	}
	return list
}

// A rule with a name has the same counters in each place of its entry. Rules without a name
// have theirs by their order among those of one shape.
func TestCountersByNameOrOrder(t *testing.T) {
	t.Parallel()
	r := func(name string, n int64) rule.Rule {
		return rule.Rule{Name: name, Algorithm: limit.FixedWindow(), Limit: limit.Limit{N: n, Unit: time.Hour}}
	}
	other := r("", 1)
	other.Actor = []rule.Actor{{Kind: "ip"}}
	first := counted(t, "/", r("a", 1), r("", 2), other, r("b", 3), r("", 4))
	then := counted(t, "/", other, r("b", 3), r("", 4), r("c", 5), r("", 2), r("a", 1))
	for _, pair := range [][2]int{{0, 5}, {1, 2}, {2, 0}, {3, 1}, {4, 4}} {
		if first[pair[0]] != then[pair[1]] {
			t.Errorf("counters %q are now %q", first[pair[0]], then[pair[1]])
		}
	}
	if slices.Contains(first, then[3]) {
		t.Errorf("a new rule has the counters %q", then[3])
	}
}

// No two identities share counters, whatever characters their parts consist of.
func TestCountersNeverMeet(t *testing.T) {
	t.Parallel()
	plain := rule.Rule{Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 1, Unit: time.Second}}
	actors := [][]rule.Actor{
		nil,
		{{Kind: "ip"}},
		{{Kind: "header", Name: "A"}, {Kind: "ip"}},
		{{Kind: "header", Name: "A+ip"}},
		{{Kind: "cookie", Name: `a" "b`}},
		{{Kind: "cookie", Name: "a"}, {Kind: "cookie", Name: "b"}},
		{{Kind: "cookie", Name: "a+cookie:b"}},
	}
	names := []string{
		"", "a", "a b", "a\" \"b", "1", "number 1", `number 1 "/" "TB" 1s ["all"]`, `"a" "/"`, "/ all TB 1/second", "named", "\\", `\"`, "all",
	}
	urls := []string{"/", "/a", "/a b", `/a" "b`, `/" "TB`, "/named", `/\`}
	seen := map[string][]string{}
	add := func(name string, of ...string) {
		if other := seen[name]; other != nil {
			t.Errorf("%q and %q count by %s", other, of, name)
		}
		seen[name] = of
	}
	for _, url := range urls {
		for _, actor := range actors {
			r := plain
			r.Actor = actor
			for _, name := range names {
				r.Name = name
				add(counted(t, url, r)[0], url, r.ActorText(), name)
			}
			r.Name = ""
			add(counted(t, url, r, r)[1], url, r.ActorText(), "the second without a name")
		}
	}
}
