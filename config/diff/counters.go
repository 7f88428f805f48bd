// SPDX-License-Identifier: MIT

package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/rule"
)

// Texts about the counters of a rule. They end the line of the rule.
const (
	countersAnew  = "its counters begin anew"
	countersTaken = "it takes over the counters of rule "
)

// counters are the name of the counters of a rule. Each scope has its own store.
type counters struct{ scope, name string }

// nameCounters sets the counters of all rules of a configuration.
func nameCounters(rules []*placedRule, entries []rule.Entry) {
	for i, name := range names.Counters(entries) {
		rules[i].counters = counters{rules[i].Scope.String(), name}
	}
}

// countersSince returns a text about the counters of r, or "" if r keeps those of its partner. old has
// the rules of the other configuration by counters. Only a rule without a name can take over the
// counters of another rule, because its place in the order identifies them.
func countersSince(r *placedRule, old map[counters]*placedRule) string {
	switch was := old[r.counters]; was {
	case r.partner: // nil for a new rule with new counters
		return ""
	case nil:
		return countersAnew
	default:
		return fmt.Sprintf("%s%q", countersTaken, was.name)
	}
}

// cutCounters cuts a change before the text about counters, which may be empty.
func cutCounters(change string) (what, counters string) {
	at := max(strings.LastIndex(change, ", "+countersAnew), strings.LastIndex(change, ", "+countersTaken),
		strings.LastIndex(change, ": "+countersAnew), strings.LastIndex(change, ": "+countersTaken))
	if at < 0 {
		return change, ""
	}
	return change[:at], change[at:]
}

// countersFirst returns the changes with those about counters first, and otherwise in order.
func countersFirst(changes []string) []string {
	rank := func(change string) int {
		if _, counters := cutCounters(change); counters != "" {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(changes), func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
}
