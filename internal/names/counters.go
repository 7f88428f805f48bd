// SPDX-License-Identifier: MIT

package names

import (
	"strconv"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// The counters of a rule have a name. A reload keeps the counters whose name is also in the new
// configuration. The name contains everything that gives the counts their meaning:
//
//   - the URL of the entry,
//   - the rule's own name, or its number among the rules of the entry that have no name and
//     the same shape,
//   - the shape: algorithm, unit, time zone and actor,
//   - the version of the states.
//
// The limit is not part of the name, so a changed limit applies to what is already used.
// A made name is not part of it either, because it contains the limit. Each part that a
// configuration can choose is quoted, so two different identities never have one name.

// Counters returns the names of the counters of all rules, in the order of the entries.
func Counters(entries []rule.Entry) []string {
	names := Identities(entries)
	i := 0
	for _, e := range entries {
		for _, r := range e.Rules {
			if m, err := r.Algorithm.New(r.Limit); err == nil { // otherwise no configuration has the rule
				names[i] = CountersOf(names[i], m)
			}
			i++
		}
	}
	return names
}

// CountersOf returns the name of the counters that m evaluates for the rule with this identity.
func CountersOf(identity string, m limit.Meter) string {
	return identity + " " + strconv.Quote(m.StateVersion())
}

// Identities returns the names of the counters of all rules, in the order of the entries,
// without the version of the states.
func Identities(entries []rule.Entry) []string {
	list := make([]string, 0, count(entries))
	var name, shape []byte // memory for one rule after another
	alike := map[string]int{}
	for i := range entries {
		e := &entries[i]
		clear(alike) // entries with different urls have different shapes
		for i := range e.Rules {
			r := &e.Rules[i]
			shape = strconv.AppendQuote(shape[:0], e.URL.String())
			shape = appendShape(append(shape, ' '), r)
			switch {
			case r.Name != "":
				name = strconv.AppendQuote(append(name[:0], "named "...), r.Name)
			case len(e.Rules) == 1:
				name = append(name[:0], "number 1"...)
			default:
				alike[string(shape)]++
				name = strconv.AppendInt(append(name[:0], "number "...), int64(alike[string(shape)]), 10)
			}
			name = append(append(name, ' '), shape...)
			list = append(list, string(name))
		}
	}
	return list
}

// Shape returns a text that is equal for two rules with the same algorithm, unit, time zone and actor.
// If rules of one entry have no name and the same shape, only their order distinguishes their
// counters.
func Shape(r *rule.Rule) string { return string(appendShape(nil, r)) }

func appendShape(b []byte, r *rule.Rule) []byte {
	b = append(strconv.AppendQuote(b, r.Algorithm.Name()), ' ')
	switch l := r.Limit; {
	case !r.Algorithm.Uses("unit"):
		b = append(b, '-')
	case l.Calendar != "":
		b = append(b, l.Calendar...)
	default:
		b = append(b, l.Unit.String()...)
	}
	if r.Limit.Zone != "" {
		b = strconv.AppendQuote(append(b, ' '), r.Limit.Zone)
	}
	b = append(b, " ["...)
	if len(r.Actor) == 0 {
		b = strconv.AppendQuote(b, rule.All.String())
	}
	for i, a := range r.Actor {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendQuote(b, a.String())
	}
	return append(b, ']')
}
