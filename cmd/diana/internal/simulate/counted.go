// SPDX-License-Identifier: MIT

package simulate

import (
	"math"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// counted follows a counter under an algorithm that counts requests: in a window, in a log, or in flight. At each
// entry the outcome says how much counts. The use by the entries themselves is known, so earlier requests
// have used the rest. When the rest becomes less, earlier requests have left the window or have ended.
//
// That is known only afterwards, but the counter must have their charges from the first entry on, each at a moment
// at which it leaves the window when it did. So finish charges what was not seen leaving at the first entry. A
// configuration with another limit then finds the same use.
type counted struct {
	meter limit.Debtor
	once  bool // only the first outcome counts, because other gateways change the counter too

	seen    bool
	entry   int   // the first one
	first   int64 // its moment
	until   int64 // from then on no earlier request counts
	last    int64 // moment of the latest entry
	used    int64 // by the entries
	earlier int64 // by earlier requests
	rest    int64 // of what they had used at the first entry, what was not seen leaving
}

func (c *counted) meet(m *meeting) (found correction) {
	used := m.of.Limit.N - m.Remaining
	if m.charged {
		used -= m.cost
	}
	switch {
	case !c.seen:
		c.seen, c.entry, c.first, c.last = true, m.entry, m.at, m.at
		c.earlier, c.rest = used, used
		if used > 0 && !c.once {
			c.until = c.meter.Expiry(c.chargedAt(m.at))
		}
		return correction{}
	case m.at >= c.until:
		return correction{}
	}
	rest := used - c.used
	change := max(rest, 0) - c.earlier
	switch {
	case change < 0:
		// A request that has left the window came before the first entry, and still counted at the latest one. If no
		// moment is both, the use has fallen for another reason.
		if moment := c.leaving(m.at); moment < c.first && c.counts(moment, c.last) {
			found = correction{entry: c.entry, at: moment, n: -change}
			c.rest += change
			if rest < 0 { // a new window began with a request, so the charges of entries have left it too
				c.until = m.at
			}
		} else { // an earlier request has ended, or its response has cost less
			found = correction{entry: m.entry, at: m.at, n: change}
		}
		c.earlier += change
	case change > 0: // a response has cost more
		found = correction{entry: m.entry, at: m.at, n: change}
		c.earlier += change
	}
	c.last = m.at
	return found
}

func (c *counted) add(_ int64, _ *plan.Rule, n int64) { c.used += n }

func (c *counted) finish() correction {
	return correction{entry: c.entry, at: c.first, n: max(c.rest, 0)}
}

// chargedAt returns the state after one request.
func (c *counted) chargedAt(at int64) limit.State {
	s := limit.State{}
	s.Cells = make([]uint64, c.meter.Cells(s, 1))
	s.Head = c.meter.Take(s, at, 1)
	if len(s.Cells) > 0 {
		return s
	}
	return limit.State{Head: s.Head}
}

// counts reports whether a request of the moment at still counts later.
func (c *counted) counts(at, later int64) bool { return c.meter.Used(c.chargedAt(at), later) > 0 }

// leaving returns the latest moment of a request that does not count any more at the moment at; the latest of all
// if there is none.
func (c *counted) leaving(at int64) int64 {
	low, high := int64(0), at
	if c.counts(low, at) {
		return math.MaxInt64
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; c.counts(middle, at) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}
