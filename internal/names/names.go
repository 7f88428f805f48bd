// SPDX-License-Identifier: MIT

// Package names makes the names of rules, units and counters.
package names

import (
	"strconv"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Units returns the units of time that have names.
func Units() map[string]time.Duration {
	units := map[string]time.Duration{}
	for _, length := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		units[Unit(length)] = length
	}
	return units
}

// Calendars returns the units that are no length of time, see limit.Limit.Calendar.
func Calendars() []string { return []string{"week", "month", "year", "total"} }

// UnitOf returns the unit of a limit in the words of a configuration.
func UnitOf(l limit.Limit) string {
	if l.Calendar != "" {
		return l.Calendar
	}
	return Unit(l.Unit)
}

// Unit returns a unit of time in the words of a configuration: its name, or a duration.
func Unit(length time.Duration) string {
	switch length {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	return length.String()
}

// Rules returns the names of all rules, in the order of the entries. A rule without a name gets
// one made from its other fields. No two made names are equal, and none equals a given name.
func Rules(entries []rule.Entry) []string { return RulesOf(entries, entries) }

// RulesOf returns the names of the rules of some entries of a configuration. all are the entries of
// the configuration. Names that are made for different URLs differ, so RulesOf makes no others.
func RulesOf(some, all []rule.Entry) []string {
	taken := given(all)
	names := make([]string, 0, count(some))
	var made []byte // memory for one name after another
	for _, e := range some {
		for i := range e.Rules {
			name := e.Rules[i].Name
			if name == "" {
				made = appendDescription(made[:0], e.URL, &e.Rules[i])
				name = unused(taken, string(made), " #")
			}
			names = append(names, name)
		}
	}
	return names
}

// given returns the names that rules have of their own. The value is the largest number that a name has got behind it, or 1.
func given(entries []rule.Entry) map[string]int {
	taken := map[string]int{}
	for i := range entries {
		for j := range entries[i].Rules {
			if name := entries[i].Rules[j].Name; name != "" {
				taken[name] = 1
			}
		}
	}
	return taken
}

// Short returns the names by which clients know all rules, in the order of the entries: a rule's own name, or one such as
// account-100-minute. The names are unique.
func Short(entries []rule.Entry) []string {
	taken := given(entries)
	names := make([]string, 0, count(entries))
	for i := range entries {
		for j := range entries[i].Rules {
			r := &entries[i].Rules[j]
			name := r.Name
			if name == "" {
				name = unused(taken, short(r), "-")
			}
			names = append(names, name)
		}
	}
	return names
}

// short returns a name without the algorithm and the URL of a rule.
func short(r *rule.Rule) string {
	name := r.ActorText() + "-" + strconv.FormatInt(r.Limit.N, 10)
	if r.Algorithm.Uses("unit") {
		name += "-" + UnitOf(r.Limit)
	}
	return name
}

// count returns the number of rules of all entries.
func count(entries []rule.Entry) (n int) {
	for i := range entries {
		n += len(entries[i].Rules)
	}
	return n
}

// unused returns name, or name, a separator and a number if name is taken.
func unused(taken map[string]int, name, separator string) string {
	n := taken[name]
	if n == 0 {
		taken[name] = 1
		return name
	}
	for {
		n++
		if next := name + separator + strconv.Itoa(n); taken[next] == 0 {
			taken[next], taken[name] = 1, n
			return next
		}
	}
}

// appendDescription appends the name that is made from the fields of a rule.
func appendDescription(b []byte, url rule.Pattern, r *rule.Rule) []byte {
	b = append(append(b, url.String()...), ' ')
	b = append(append(b, r.ActorText()...), ' ')
	b = append(append(b, r.Algorithm.Name()...), ' ')
	b = strconv.AppendInt(b, r.Limit.N, 10)
	if r.Algorithm.Uses("unit") {
		b = append(append(b, '/'), UnitOf(r.Limit)...)
	}
	return b
}
