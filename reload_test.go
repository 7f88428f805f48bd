// SPDX-License-Identifier: MIT

package diana_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana"
)

// A reload keeps the counters of a rule with a name, also if the rule moves. Rules without a name keep
// their counters by their order.
func TestCountersAfterReload(t *testing.T) {
	t.Parallel()
	const ( // KEYS stands for the keys that all rules have in common
		named     = "{KEYS, name: quota, rpu: 100}"
		unnamed   = "{KEYS, rpu: 100}"
		trial     = "{KEYS, name: trial, rpu: 50, mode: shadow}, "
		noName    = "{KEYS, rpu: 50, mode: shadow}, "
		overrides = "{KEYS, name: quota, rpu: 1, overrides: {10.0.0.1: {rpu: 100}}}"
		double    = "KEYS, rpu: 100, cost: 2, mode: shadow" // uses its limit twice as fast
	)
	for _, row := range []struct {
		name        string
		before, now string // rules
		used, want  int    // requests that are allowed before the reload, and after
	}{
		{"no change", named, named, 100, 0},
		{"no change without a name", unnamed, unnamed, 100, 0},
		{"named trial in front", named, trial + named, 100, 0},
		{"unnamed trial in front", named, noName + named, 100, 0},
		{"named trial in front of unnamed", unnamed, trial + unnamed, 100, 0},
		{"unnamed trial in front of unnamed", unnamed, noName + unnamed, 100, 100},
		{"trial in front of overrides", overrides, trial + overrides, 100, 0},
		{"trial removed", trial + named, named, 100, 0},

		{"order of two named", "{KEYS, name: a, rpu: 100}, {name: b, " + double + "}", "{name: b, " + double + "}, {KEYS, name: a, rpu: 100}", 40, 60},
		{"order of named and unnamed", "{KEYS, name: a, rpu: 100}, {" + double + "}", "{" + double + "}, {KEYS, name: a, rpu: 100}", 40, 60},
		{"order of two unnamed", "{KEYS, rpu: 100}, {" + double + "}", "{" + double + "}, {KEYS, rpu: 100}", 40, 20},
		{"names swapped", "{KEYS, name: a, rpu: 100}, {name: b, " + double + "}", "{KEYS, name: b, rpu: 100}, {name: a, " + double + "}", 40, 20},

		{"renamed", named, "{KEYS, name: other, rpu: 100}", 100, 100},
		{"name added", unnamed, named, 100, 100},
		{"name removed", named, unnamed, 100, 100},
		{"default name given", unnamed, "{KEYS, name: '/ all ALGO 100/hour', rpu: 100}", 100, 100},
	} {
		for _, algo := range []string{"TB", "W", "SW", "SL"} {
			for _, scope := range []string{"local", "global"} { // global: without Redis
				t.Run(fmt.Sprintf("%s/%s/%s", row.name, algo, scope), func(t *testing.T) {
					t.Parallel()
					text := func(rules string) string {
						keys := fmt.Sprintf("algo: %s, scope: %s, unit: hour", algo, scope)
						return fmt.Sprintf("{url: /, rules: [%s]}", strings.NewReplacer("KEYS", keys, "ALGO", algo).Replace(rules))
					}
					now := time.Now()
					o := quiet
					o.Now = func() time.Time { return now }
					f := newFolder(t)
					l := open(t, o, f.write("diana.yaml", text(row.before)))
					request := diana.Request{Actors: map[string]string{"ip": "10.0.0.1"}}
					if got := count(t, l, row.used, request); got != row.used {
						t.Fatalf("%d of the first %d requests are allowed", got, row.used)
					}
					f.write("diana.yaml", text(row.now))
					if err := l.Reload(); err != nil {
						t.Fatal(err)
					}
					if got := count(t, l, 150, request); got != row.want {
						t.Errorf("%d more requests are allowed after the reload, want %d", got, row.want)
					}
				})
			}
		}
	}
}

// The log of a change says which rules start with new counters.
func TestLogOfRenamedRule(t *testing.T) {
	t.Parallel()
	var log journal
	f := newFolder(t)
	l := open(t, log.options(), f.write("diana.yaml", "{url: /, rules: [{name: quota, rpu: 100}]}"))
	f.write("diana.yaml", "{url: /, rules: [{name: other, rpu: 100}]}")
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	want := `changes="rule \"quota\": renamed \"other\", its counters begin anew"`
	if !strings.Contains(log.String(), want) {
		t.Errorf("the log is\n%s\nwant %s", log.String(), want)
	}
}
