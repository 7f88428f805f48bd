// SPDX-License-Identifier: MIT

package diff

import (
	"fmt"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/limit"
)

// raisedBy is how many times as high a limit must be to be a risk.
const raisedBy = 10

// Risks returns the changes from a to b that can leave a service without protection, in the order of a. These are rules
// that are removed, renamed or put in shadow mode, and limits that are at least ten times as high.
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
