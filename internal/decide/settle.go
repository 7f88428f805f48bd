// SPDX-License-Identifier: MIT

package decide

import (
	"slices"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/redisstore"
)

// Settles reports whether a rule charges the request by what its response turns out to cost.
func (e *Evaluation) Settles() bool { return e.settles }

// settled is the true cost of a request under a rule.
type settled struct {
	rule *plan.Rule
	n    int64
	less bool // the rule is charged n even if it has reserved more
}

// Settle makes the charges of the rules whose cost is known with the response as large as cost says. It
// debits the difference, into debt if need be, or refunds it. If a cost is not known, the rule keeps what
// it has reserved, or what cost says if that is more. Rules that are not concerned stay as they are.
//
// It waits for Redis, for redis.timeout at most. A later call changes the charges again. Only the last one
// counts costs that are not known. Settle reports whether all are known. It does nothing after Done, and for
// rules that have refunded the request because of its status.
func (h *Handle) Settle(cost func(*plan.Rule) (n int64, known, concerned bool), last bool) (all bool) {
	e := h.Evaluation()
	if e == nil || !e.settles {
		return true
	}
	all = true
	var costs []settled
	for i, r := range e.rules {
		if r.Cost.Answer == "" || e.status != 0 && refunds(r, e.status) {
			continue
		}
		n, known, concerned := cost(r)
		if !concerned {
			continue
		}
		all = all && known
		if !known && last {
			e.part(r).unsettled.Add(1)
		}
		costs = append(costs, settled{r, min(max(n, 0), bounds.MaxSettled), known})
		e.settleAs(r, costs[len(costs)-1].n, known)
		if len(costs) == 1 {
			if e.Moments.Cost, e.Moments.Known = n, known; !known {
				e.Moments.Cost = max(n, e.cost(i, r)) // it keeps what it has reserved
			}
		}
	}
	for s := range e.sets {
		e.settle(s, &e.sets[s], costs)
		e.settle(s, &e.debts[s], costs)
	}
	if all || last {
		e.unreserve()
	}
	return all
}

// settle settles charges to one store. A debit becomes a charge of its own, because it has its own moment.
func (e *Evaluation) settle(store int, c *charges, costs []settled) {
	var debits, refunds charges
	for i, o := range c.of {
		at := slices.IndexFunc(costs, func(s settled) bool { return s.rule == o.rule })
		if at < 0 || !c.made(i) || slices.Contains(c.of[:i], o) {
			continue
		}
		n, charged := costs[at].n, c.charged(o)
		switch {
		case n > charged:
			ch := c.list[i]
			if ch.Shared {
				ch.Key = overflowKey
			}
			debits.add(ch.Counters, ch.Key, n-charged, ch.Shadow, o)
		case costs[at].less:
			c.take(o, charged-n, &refunds)
		}
	}
	if len(debits.list)+len(refunds.list) == 0 {
		return
	}
	now := e.decider.local.Now()
	if redis, ok := e.limits.stores[store].(*redisstore.Store); ok {
		redis.Settle(now, debits.list, refunds.list)
	} else {
		e.decider.order.change(e, store, &e.Moments.Settled, func() {
			if store == 0 {
				now = max(now, e.Moments.Settled)
			}
			e.limits.stores[store].Debit(now, debits.list)
			e.limits.stores[store].Refund(refunds.list)
		})
	}
	e.released(&refunds, always)
	for i, o := range debits.of {
		if debits.list[i].Cut > 0 {
			e.part(o.rule).saturated.Add(1)
		}
	}
	c.list, c.of = append(c.list, debits.list...), append(c.of, debits.of...)
}

// made reports whether the store has made a charge.
func (c *charges) made(i int) bool { return c.list[i].Outcome.Allowed || c.of[i].debit }

// charged returns how much a rule has charged, in all of its charges.
func (c *charges) charged(o origin) (n int64) {
	for i := range c.list {
		if c.of[i] == o && c.made(i) {
			n += c.list[i].Cost
		}
	}
	return n
}

// take moves n of what a rule has charged to refunds, from the latest charge on.
func (c *charges) take(o origin, n int64, refunds *charges) {
	for i := len(c.list) - 1; i >= 0 && n > 0; i-- {
		if ch := &c.list[i]; c.of[i] == o && c.made(i) && ch.Cost > 0 {
			back := *ch
			back.Cost = min(n, ch.Cost)
			ch.Cost -= back.Cost
			n -= back.Cost
			refunds.list, refunds.of = append(refunds.list, back), append(refunds.of, o)
		}
	}
}
