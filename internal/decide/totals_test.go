// SPDX-License-Identifier: MIT

package decide

import (
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/minutes"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
)

// The totals have the decisions of rules that changes have removed, also those that are counted after the change. A
// Decider that has no Limits yet has decided nothing, because a store in Redis may ask it already.
func TestTotals(t *testing.T) {
	t.Parallel()
	d := New(Options{Local: memstore.New(memstore.Options{})})
	defer d.Close()
	if got := d.Totals(); got != (minutes.Counts{}) {
		t.Errorf("%+v before the first Limits", got)
	}
	use := func(names ...string) {
		t.Helper()
		var rules []rule.Rule
		for _, name := range names {
			rules = append(rules, rule.Rule{Name: name, Actor: []rule.Actor{rule.All}, Algorithm: limit.TokenBucket(), Limit: limit.Limit{N: 5, Unit: time.Second}})
		}
		set, err := plan.Compile([]rule.Entry{{URL: rule.Pattern{Path: "/"}, Rules: rules}}, rule.Identity{}, rule.Paths{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Use(Plan{Set: set, MaxKeys: 1000}, Redis{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	use("a", "b")
	a := d.records["a"]
	a.tally.part(0).allowed.Add(3)
	d.records["b"].tally.part(0).refused.Add(2)
	want := minutes.Counts{Allowed: 3, Refused: 2}
	for _, names := range [][]string{{"b"}, {"b"}, {"c"}, {"a", "b"}, {"d"}, {"e"}} {
		use(names...)
		if got := d.Totals(); got != want {
			t.Errorf("with the rules %q: %+v, want %+v", names, got, want)
		}
		if a != nil { // a request that began before the change
			a.tally.part(0).delayed.Add(1)
			want.Delayed, a = 1, nil
		}
	}
}
