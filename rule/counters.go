// SPDX-License-Identifier: MIT

package rule

import (
	"fmt"

	"github.com/diana-limiter/diana/limit"
)

// A rule's counters have a name. A reload keeps the counters whose name is in the new Set
// too. The name says what gives the counts their meaning:
//
//   - the URL of the entry,
//   - the rule's own name, or its number among the rules of the entry that have no name and
//     the same shape,
//   - the shape: algorithm, unit and actor,
//   - the layout of the states.
//
// The limit is not part of the name, so a changed limit applies to what is already used.
// A default name is not part of it either, because it contains the limit. Each part that a
// configuration can choose is quoted, so two different identities never have one name.

// CounterNames returns the names of the counters of all rules, in the order of the entries.
// They are those that Compile sets as Counters.
func CounterNames(entries []Entry) []string {
	names := identities(entries)
	i := 0
	for _, e := range entries {
		for _, r := range e.Rules {
			if m, err := r.Algorithm.New(r.Limit); err == nil { // otherwise Compile refuses the rule
				names[i] = countersName(names[i], m)
			}
			i++
		}
	}
	return names
}

// identities returns the names of the counters of all rules, in the order of the entries,
// without the layout of the states.
func identities(entries []Entry) []string {
	alike := map[string]int{}
	var list []string
	for _, e := range entries {
		for _, r := range e.Rules {
			shape := fmt.Sprintf("%q %s", e.URL.String(), r.Shape())
			if r.Name != "" {
				list = append(list, fmt.Sprintf("named %q %s", r.Name, shape))
				continue
			}
			alike[shape]++
			list = append(list, fmt.Sprintf("number %d %s", alike[shape], shape))
		}
	}
	return list
}

// Shape returns a text that is equal for two rules with the same algorithm, unit and actor.
// Where rules of one entry have no name and the same shape, only their order tells their
// counters apart.
func (r *Rule) Shape() string {
	unit := "-"
	if r.Algorithm.Uses("unit") {
		unit = r.Limit.Unit.String()
	}
	return fmt.Sprintf("%q %s %q", r.Algorithm.Name(), unit, actorTexts(r.Actor))
}

// countersName returns the name of the counters that a rule of that identity has with m.
func countersName(identity string, m limit.Meter) string {
	return fmt.Sprintf("%s %q", identity, m.StateVersion())
}
