// SPDX-License-Identifier: MIT

// Package names makes the names of rules, units and counters.
package names

import (
	"fmt"
	"time"

	"github.com/diana-limiter/diana/rule"
)

// Units returns the units of time that have names.
func Units() map[string]time.Duration {
	return map[string]time.Duration{
		"second": time.Second,
		"minute": time.Minute,
		"hour":   time.Hour,
		"day":    24 * time.Hour,
	}
}

// Unit returns a unit of time in the words of a configuration: its name, or a duration.
func Unit(length time.Duration) string {
	for name, unit := range Units() {
		if unit == length {
			return name
		}
	}
	return length.String()
}

// Rules returns the names of all rules, in the order of the entries. A rule without a name gets
// one made from its other fields. No two made names are equal, and none equals a given name.
func Rules(entries []rule.Entry) []string {
	taken, made := map[string]bool{}, map[string]int{}
	for _, e := range entries {
		for i := range e.Rules {
			taken[e.Rules[i].Name] = true
		}
	}
	var names []string
	for _, e := range entries {
		for i := range e.Rules {
			name := e.Rules[i].Name
			if name == "" {
				name = unused(taken, made, describe(e.URL, &e.Rules[i]))
			}
			names = append(names, name)
		}
	}
	return names
}

// unused returns name, or name and a number if name is taken. made counts how often each name
// was made.
func unused(taken map[string]bool, made map[string]int, name string) string {
	for {
		made[name]++
		next := name
		if n := made[name]; n > 1 {
			next = fmt.Sprintf("%s #%d", name, n)
		}
		if !taken[next] {
			taken[next] = true
			return next
		}
	}
}

// describe returns the name that is made from the fields of a rule.
func describe(url rule.Pattern, r *rule.Rule) string {
	rate := fmt.Sprint(r.Limit.N)
	if r.Algorithm.Uses("unit") {
		rate += "/" + Unit(r.Limit.Unit)
	}
	return fmt.Sprintf("%s %s %s %s", url, r.ActorText(), r.Algorithm.Name(), rate)
}
