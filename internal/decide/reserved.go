// SPDX-License-Identifier: MIT

package decide

import (
	"sync"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// reserved knows what the requests in flight of this process have reserved until their costs are known. So a refusal
// can tell a budget that is spent from one that is reserved. Its zero value is ready to use.
type reserved struct {
	mu sync.Mutex
	by map[queueKey]*reservations
}

// reservations are those of one actor under one rule.
type reservations struct {
	sum int64
	of  map[*Evaluation]reservation
}

type reservation struct{ cost, at int64 }

// A request that is refused because of reservations in flight is to be repeated after leastBusy and at most spreadBusy
// more, so that not all come back at once. In microseconds.
const leastBusy, spreadBusy = 1_000_000, 4_000_000

// spending is what a request costs under a rule that learns it with the response.
type spending struct {
	rule   *plan.Rule
	record *record
	key    queueKey
	held   bool  // it is in Decider.reserved
	n      int64 // as reserved, and then as settled
	noted  int64 // of that in fullest

	spent, until int64 // see fullest, before the request
}

// reserve notes the reservations of a request that is allowed.
func (e *Evaluation) reserve(now int64) {
	q := &e.decider.reserved
	for s := range e.sets {
		c := &e.sets[s]
		for i, o := range c.of {
			if o.rule.Cost.Answer == "" || o.silent || !c.made(i) {
				continue
			}
			ch := &c.list[i]
			one := spending{rule: o.rule, record: e.limits.bound[o.rule.Index].record, n: ch.Cost}
			if o.shadow || ch.Shared {
				e.spends = append(e.spends, one)
				continue
			}
			one.key, one.held = queueKey{o.rule.Counters, string(ch.Key)}, true
			one.record.reserved.Add(ch.Cost)
			q.mu.Lock()
			if q.by == nil {
				q.by = map[queueKey]*reservations{}
			}
			all := q.by[one.key]
			if all == nil {
				all = &reservations{of: map[*Evaluation]reservation{}}
				q.by[one.key] = all
			}
			before := all.of[e]
			all.sum += ch.Cost
			all.of[e] = reservation{before.cost + ch.Cost, now}
			if !e.byShare(s, o.rule) {
				one.spent, one.until = one.record.fullest.decided(o.rule, ch, all.sum, now)
			}
			q.mu.Unlock()
			e.spends = append(e.spends, one)
		}
	}
}

// unreserve forgets the reservations of a request, because its costs are known, and lets those that wait for that ask
// again. Later calls do nothing.
func (e *Evaluation) unreserve() {
	q, now := &e.decider.reserved, int64(0)
	for i := range e.spends {
		one := &e.spends[i]
		if !one.held {
			continue
		}
		if one.held = false; now == 0 {
			now = e.decider.local.Now()
		}
		q.mu.Lock()
		if all := q.by[one.key]; all != nil {
			reserved := all.of[e].cost
			all.sum -= reserved
			one.record.reserved.Add(-reserved)
			if delete(all.of, e); len(all.of) == 0 {
				delete(q.by, one.key)
			}
		}
		one.record.fullest.settled(one, now)
		q.mu.Unlock()
		if !e.decider.queues.empty() {
			e.decider.queues.wake(one.key.counters, []byte(one.key.actor))
		}
	}
}

// settleAs notes what a request costs under a rule, or at least costs.
func (e *Evaluation) settleAs(r *plan.Rule, n int64, known bool) {
	for i := range e.spends {
		if one := &e.spends[i]; one.rule == r {
			if !known {
				n = max(n, one.n)
			}
			if one.n = n; !one.held && one.until > 0 { // it was settled before
				one.record.fullest.settled(one, e.decider.local.Now())
			}
		}
	}
}

// countCosts adds what the request was charged to the costs of its rules.
func (e *Evaluation) countCosts() {
	e.unreserve()
	for i := range e.spends {
		if one := &e.spends[i]; e.status == 0 || !refunds(one.rule, e.status) {
			one.record.cost.Add(one.n)
		}
	}
	clear(e.spends) // so that the pool keeps no rules
	e.spends = e.spends[:0]
}

// ReservedBy returns what requests in flight of this process have reserved for an actor under a rule.
func (d *Decider) ReservedBy(r *plan.Rule, key []byte) int64 {
	d.reserved.mu.Lock()
	defer d.reserved.mu.Unlock()
	if all := d.reserved.by[queueKey{r.Counters, string(key)}]; all != nil {
		return all.sum
	}
	return 0
}

// byShare reports whether a charge in a store decides in place of another store, by a part of the limit.
func (e *Evaluation) byShare(s int, r *plan.Rule) bool {
	return s == 0 && e.limits.bound[r.Slot].elsewhere
}

// busy reports whether a rule refuses a charge in a store only because of what requests in flight have reserved.
func (e *Evaluation) busy(s int, r *plan.Rule, ch *limit.Charge, now int64) bool {
	if r.Cost.Answer == "" || ch.Outcome.Allowed || ch.Outcome.Remaining == limit.Unknown || ch.Shared {
		return false
	}
	q := &e.decider.reserved
	q.mu.Lock()
	defer q.mu.Unlock()
	all, sum := q.by[queueKey{r.Counters, string(ch.Key)}], int64(0)
	if all != nil {
		sum = all.sum
	}
	if !e.byShare(s, r) {
		e.limits.bound[r.Index].record.fullest.decided(r, ch, sum, now)
	}
	missing := ch.Cost - ch.Outcome.Remaining
	if all == nil || sum < missing {
		return false
	}
	since := int64(0) // what was reserved before no longer counts
	if unit, _ := r.UnitAt(now); unit > 0 && !r.Algorithm.Uses("burst") {
		since = now - unit.Microseconds()
		if r.Algorithm.Uses("align") {
			since += ch.Outcome.Reset
		}
	}
	for _, one := range all.of {
		if one.at >= since {
			if missing -= one.cost; missing <= 0 {
				return true
			}
		}
	}
	return false
}

// busyWait returns when a request that was refused because of reservations is to be repeated.
func busyWait(now int64) int64 { return leastBusy + now%spreadBusy }
