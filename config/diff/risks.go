// SPDX-License-Identifier: MIT

package diff

import (
	"fmt"
	"slices"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// raisedBy is how many times as high a limit must be to be a risk.
const raisedBy = 10

// Risks returns the changes from a to b that can leave a service without protection, in the order of a. These are rules
// that are removed, renamed or put in shadow mode, and limits, of a class too, that are at least ten times as high.
func Risks(a, b *config.Config) (c Changes) {
	before, after := differing(a.Limits, b.Limits)
	old, now := rulesOf(before, a.Limits), rulesOf(after, b.Limits)
	match(old, now)
	for _, r := range old {
		is := r.partner
		switch {
		case is == nil:
			c = append(c, fmt.Sprintf("rule %q removed", r.name))
			continue
		case r.Name != is.Name:
			c = append(c, fmt.Sprintf("rule %q: renamed %q", r.name, is.name))
		}
		if is.Shadow && !r.Shadow {
			c = append(c, fmt.Sprintf("rule %q: mode enforce → shadow", r.name))
		}
		if raised(r.Limit, is.Limit) {
			c = append(c, fmt.Sprintf("rule %q: limit %s → %s", r.name, amount(r.Limit), amount(is.Limit)))
		}
		c = append(c, raisedClasses(r.name, &r.Rule, &is.Rule)...)
	}
	return c
}

// raisedClasses returns the classes of a rule whose limits are so high that they are a risk.
func raisedClasses(name string, was, is *rule.Rule) (c Changes) {
	for _, class := range is.Classes {
		i := slices.IndexFunc(was.Classes, func(o rule.Override) bool { return o.Who == class.Who })
		if i < 0 {
			continue
		}
		from, to := was.Limit, is.Limit
		if from.N, to.N = was.Classes[i].N, class.N; raised(from, to) {
			c = append(c, fmt.Sprintf("rule %q: limit of class %s %s → %s", name, class.Who.Value, amount(from), amount(to)))
		}
	}
	return c
}

// raised reports whether a limit is so high that it is a risk. Concurrent and other limits have nothing in common.
func raised(was, is limit.Limit) bool {
	if unitless(was) != unitless(is) {
		return false
	}
	return is.N > 0 && float64(is.N)*unitOf(was) >= raisedBy*float64(was.N)*unitOf(is)
}

// amount returns a limit as people read it: 100 per minute.
func amount(l limit.Limit) string {
	if unitless(l) {
		return fmt.Sprintf("%d at once", l.N)
	}
	return fmt.Sprintf("%d per %s", l.N, names.UnitOf(l))
}

// unitOf returns how long a unit lasts, in microseconds. A month, a year and the whole are means: they only compare limits.
func unitOf(l limit.Limit) float64 {
	const day = 24 * float64(time.Hour/time.Microsecond)
	switch l.Calendar {
	case "week":
		return 7 * day
	case "month":
		return 30 * day
	case "year":
		return 365 * day
	case "total":
		return 36500 * day
	}
	return max(float64(l.Unit/time.Microsecond), 1)
}
