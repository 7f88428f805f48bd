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

// reserve notes the reservations of a request that is allowed.
func (e *Evaluation) reserve(now int64) {
	q := &e.decider.reserved
	for s := range e.sets {
		c := &e.sets[s]
		for i, o := range c.of {
			if o.rule.Cost.Answer == "" || o.silent || o.shadow || c.list[i].Shared || !c.made(i) {
				continue
			}
			key := queueKey{o.rule.Counters, string(c.list[i].Key)}
			e.reserves = append(e.reserves, key)
			q.mu.Lock()
			if q.by == nil {
				q.by = map[queueKey]*reservations{}
			}
			all := q.by[key]
			if all == nil {
				all = &reservations{of: map[*Evaluation]reservation{}}
				q.by[key] = all
			}
			one := all.of[e]
			all.sum += c.list[i].Cost
			all.of[e] = reservation{one.cost + c.list[i].Cost, now}
			q.mu.Unlock()
		}
	}
}

// unreserve forgets the reservations of a request, because its costs are known, and lets those that wait for that ask
// again. Later calls do nothing.
func (e *Evaluation) unreserve() {
	if len(e.reserves) == 0 {
		return
	}
	q := &e.decider.reserved
	q.mu.Lock()
	for _, key := range e.reserves {
		if all := q.by[key]; all != nil {
			all.sum -= all.of[e].cost
			if delete(all.of, e); len(all.of) == 0 {
				delete(q.by, key)
			}
		}
	}
	q.mu.Unlock()
	for _, key := range e.reserves {
		if !e.decider.queues.empty() {
			e.decider.queues.wake(key.counters, []byte(key.actor))
		}
	}
	e.reserves = e.reserves[:0]
}

// busy reports whether a rule refuses a charge only because of what requests in flight have reserved.
func (e *Evaluation) busy(r *plan.Rule, ch *limit.Charge, now int64) bool {
	if r.Cost.Answer == "" || ch.Outcome.Allowed || ch.Outcome.Remaining == limit.Unknown || ch.Shared {
		return false
	}
	q := &e.decider.reserved
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.by[queueKey{r.Counters, string(ch.Key)}]
	missing := ch.Cost - ch.Outcome.Remaining
	if all == nil || all.sum < missing {
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
