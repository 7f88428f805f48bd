// SPDX-License-Identifier: MIT

package simulate

import (
	"math"

	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// counted follows a counter under an algorithm that counts requests: in a window, in a log, or in flight. At each
// entry the outcome says how much counts. The use by the entries themselves is known, so earlier requests
// have used the rest. When the rest becomes less, earlier requests have left the window or have ended.
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

func (c *counted) meets(n int, at int64, r *plan.Rule, cost int64, charged bool, met weblog.Met) (found []correction, more bool) {
	if c.seen && at >= c.until {
		return nil, false
	}
	used := r.Limit.N - met.Remaining
	if charged {
		used -= cost
	}
	if !c.seen {
		c.seen, c.entry, c.first, c.last = true, n, at, at
		c.until = c.meter.Expiry(c.chargedAt(at))
		c.earlier, c.rest = used, used
		return nil, used > 0 && !c.once
	}
	rest := used - c.used
	change, ended := max(rest, 0)-c.earlier, false
	switch {
	case change < 0:
		moment := c.leaving(at)
		if moment < c.first && c.counts(moment, c.last) {
			found = append(found, correction{entry: c.entry, kind: charge, at: moment, n: -change})
			c.rest += change
			ended = rest < 0 // a window that begins with a request
		} else {
			found = append(found, correction{entry: n, kind: charge, at: at, n: change})
		}
		c.earlier += change
	case change > 0 && (charged || met.Remaining > 0 || c.earlier+c.used < r.Limit.N): // a response has cost more
		found = append(found, correction{entry: n, kind: charge, at: at, n: change})
		c.earlier += change
	}
	c.last = at
	return found, !ended
}

func (c *counted) add(_ int64, _ *plan.Rule, cost int64) { c.used += cost }

func (c *counted) finish() []correction {
	if c.rest <= 0 {
		return nil
	}
	return []correction{{entry: c.entry, kind: charge, at: c.first, n: c.rest}}
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
