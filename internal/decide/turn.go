// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Microseconds.
const (
	// The waiters in front may take so long to proceed one after another, and a hundredth of the wait, because
	// each of them wakes a little late. For so long a waiter stays whose wait is over when its scheduled time has
	// just been reached.
	handover = 10_000

	// How long at least the head of a queue leaves another store alone, or a meter that knows no
	// time. A limit of thousands a second loses nothing by it, because many waiters proceed then.
	pause = 1000

	// How often the head of a queue asks Redis for a slot, which other gateways release silently. A
	// slot that this gateway releases wakes the head at once.
	slotInterval = 20_000
)

// turn is the way of one request through the wait queues. Its memory is used again.
type turn struct {
	e *Evaluation
	w waiter
}

// take decides about a request under a rule with a wait. A request that is over such a limit, or
// finds others waiting, waits in a queue.
func (t *turn) take(ctx context.Context, e *Evaluation, now int64) error {
	t.e = e
	behind := t.othersWait()
	if behind {
		e.Allowed = false
		if err := t.peek(ctx, now); err != nil {
			return err
		}
	} else if err := e.ask(ctx, now); err != nil || e.Allowed {
		return err
	}
	q, w := &e.decider.queues, &t.w
	q.arrive(w, now, true)
	defer q.leave(w)
	if !t.join(now, behind) {
		return nil
	}
	if e.beforeWait != nil { // outside of the queue, because the hook may take long
		q.leave(w)
		if err := e.prepareWait(); err != nil {
			return err
		}
		q.arrive(w, w.began, false)
		gone := behind && !t.othersWait() // there is nobody left to wait for
		if !gone && !t.join(now, behind) {
			return nil
		}
	}
	for {
		head, err := q.wait(ctx, w, e.decider.local.Now)
		if err != nil {
			return err
		}
		if !head {
			t.giveUp()
			return nil
		}
		if again, err := t.ask(ctx); !again {
			return err
		}
	}
}

// ask asks for all rules again, and reports whether the request has to wait again.
func (t *turn) ask(ctx context.Context) (again bool, err error) {
	e := t.e
	now := e.decider.local.Now()
	limits, down := e.decider.inForce()
	e.down = down
	if limits != e.limits {
		e.limits = limits
		if strange := e.find(); strange != nil {
			e.Allowed = false
			return false, strange
		}
	}
	e.fill(now)
	if err := e.ask(ctx, now); err != nil {
		e.Allowed = false
		return false, err
	}
	if !e.Allowed {
		return t.join(now, false), nil
	}
	if t.w.key != (queueKey{}) {
		e.waited = t.w.key.counters
		e.Delayed = time.Duration(now-t.w.began) * time.Microsecond
	}
	return false, nil
}

// peek evaluates the request by the local counters, and counts it nowhere. So a request that a rule
// refuses which lets nobody wait joins no queue. The other stores are not asked.
func (t *turn) peek(ctx context.Context, now int64) error {
	for s := range t.e.sets {
		list := t.e.sets[s].list
		if s == 0 && len(list) > 0 {
			if err := t.e.decider.local.Peek(ctx, now, list); err != nil {
				return err
			}
			continue
		}
		for i := range list {
			list[i].Outcome = limit.Outcome{Allowed: true, Remaining: limit.Unknown}
		}
	}
	return nil
}

// othersWait reports whether others wait in a queue of the request.
func (t *turn) othersWait() bool {
	q := &t.e.decider.queues
	if q.empty() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range t.e.sets {
		c := &t.e.sets[s]
		for i := range c.list {
			if t.longest(s, i) == 0 {
				continue
			}
			queue, flight := q.get(c.of[i].rule.Counters, c.list[i].Key), c.list[i].Flight
			if queue != nil && (flight == nil || queue.Head().newest && queue.Head().level < flight.Level) {
				return true
			}
		}
	}
	return false
}

// longest returns how long the rule of a charge lets requests wait, in microseconds.
func (t *turn) longest(s, i int) int64 {
	r := t.e.sets[s].of[i].rule
	b := &t.e.limits.bound[r.Slot]
	if s == 0 && b.elsewhere && r.OnError == rule.Closed {
		return 0 // no wait helps, because the store is down
	}
	return b.wait
}

// never reports whether a charge costs more than is ever allowed.
func (t *turn) never(s, i int, now int64) bool {
	c := &t.e.sets[s]
	r := c.of[i].rule
	m := r.Meter
	if s == 0 {
		m = t.e.limits.bound[r.Slot].meter
	}
	cost := c.list[i].Cost
	return cost > 1 && !m.Peek(limit.State{}, now, cost).Allowed
}

// neverAllows reports whether a rule never allows a request of that cost: its meter refuses a
// client that has used nothing, also after the wait that the meter asks for. It asks the meter of
// the whole limit. The share of a gateway that has lost Redis can be too small for the request,
// but only for a while.
func neverAllows(r *plan.Rule, now, cost int64) bool {
	first := r.Meter.Peek(limit.State{}, now, cost)
	return !first.Allowed && !r.Meter.Peek(limit.State{}, now+first.Wait, cost).Allowed
}

// never is neverAllows. For a cost of 1 the answer is known from the binding.
func (b *bound) never(r *plan.Rule, now, cost int64) bool {
	return (cost > 1 || !b.allowsOne) && neverAllows(r, now, cost)
}

// join puts a request that was evaluated at the moment now, and refused, into the queue in which it
// has to wait longest. In three cases it reports false, and the request is in no queue. A rule that
// refuses the request has no wait, or too short a one. The cost is never allowed. No more requests may
// wait.
// With behind the request also counts as refused where others wait.
func (t *turn) join(now int64, behind bool) bool {
	q, w := &t.e.decider.queues, &t.w
	q.mu.Lock()
	defer q.mu.Unlock()
	best := candidate{at: -1}
	for s := range t.e.sets {
		c := &t.e.sets[s]
		for i := range c.list {
			n, ok := t.candidate(s, i, now, behind)
			if !ok {
				q.leaveLocked(w)
				return false
			}
			if n.at > best.at {
				best = n
			}
		}
	}
	if best.at < 0 { // the waiters in front are gone
		q.leaveLocked(w)
		return true
	}
	if w.newest = best.flight != nil; w.newest {
		w.level = best.flight.Level
	}
	if !q.join(w, queueKey{best.counters, string(best.actor)}, best.at) {
		return false
	}
	w.expires = w.began + best.longest + lateness(best.longest)
	return true
}

// lateness returns how much longer than the wait of its rule a waiter stays, see handover.
func lateness(longest int64) int64 { return handover + longest/100 }

// candidate is a queue that a request may have to wait in.
type candidate struct {
	at       int64 // scheduled time; -1: it need not wait there
	longest  int64 // wait of the rule
	counters string
	actor    []byte
	flight   *limit.Flight
}

// candidate returns the queue of a charge. It reports false if the request must not wait for it.
// waitQueues.mu is held.
func (t *turn) candidate(s, i int, now int64, behind bool) (n candidate, ok bool) {
	c, q, w := &t.e.sets[s], &t.e.decider.queues, &t.w
	ch, r := &c.list[i], c.of[i].rule
	n = candidate{at: -1, longest: t.longest(s, i), counters: r.Counters, actor: ch.Key, flight: ch.Flight}
	refused := !ch.Outcome.Allowed
	releases := r.Algorithm.Held || t.e.busy(s, r, ch, now) // a slot or a reservation, at any time
	if ch.Shadow || !refused && (!behind || n.longest == 0) {
		return n, true
	}
	if n.longest == 0 || refused && t.never(s, i, now) {
		return n, false
	}
	if refused {
		n.at = now + ch.Outcome.Wait
		if s > 0 || ch.Outcome.Wait == 0 {
			n.at = max(n.at, now+pause)
		}
		if releases {
			n.at = slotTime(now, w.began+n.longest, s > 0 && ch.Flight == nil || t.e.decider.local.HandedOver())
		}
	}
	if w.newest = ch.Flight != nil; w.newest {
		w.level = ch.Flight.Level
	}
	if ahead, first := q.get(r.Counters, ch.Key).ahead(w); ahead > 0 {
		n.at = max(n.at, max(first, t.e.decider.local.Now())+spacing(r, ahead))
		if ch.Flight == nil || !refused { // else it has a wait of its own
			refuse(ch, n.at-now)
		}
	}
	most := n.longest
	if w.key != (queueKey{}) && !releases { // it has waited, because its time was soon enough
		most += lateness(n.longest)
	}
	return n, n.at < 0 || n.at-w.began <= most
}

// slotTime returns when the head of a queue asks for a slot, unless one is released before. In this
// process that is the end of its wait. Another store is asked now and then until the end. After the
// end the request is refused.
func slotTime(now, end int64, elsewhere bool) int64 {
	if now >= end {
		return end + 1
	}
	if elsewhere {
		return min(now+slotInterval, end)
	}
	return end
}

// giveUp sets the outcome of a request that leaves its queue before it was the head.
func (t *turn) giveUp() {
	q, w := &t.e.decider.queues, &t.w
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range t.e.sets {
		c := &t.e.sets[s]
		for i := range c.list {
			ch, r := &c.list[i], c.of[i].rule
			if r.Counters == w.key.counters && string(ch.Key) == w.key.actor && !ch.Shadow {
				if ch.Flight != nil && !ch.Outcome.Allowed {
					continue
				}
				ahead, first := w.queue.ahead(w)
				refuse(ch, max(first-t.e.decider.local.Now(), 0)+spacing(r, ahead))
			}
		}
	}
}

// refuse sets the outcome of a charge that is refused for a while, because others wait.
func refuse(ch *limit.Charge, wait int64) {
	wait = max(wait, 1)
	ch.Outcome = limit.Outcome{Wait: wait, Reset: wait}
}

// spacing returns how long after the head of a queue a waiter with so many in front can proceed, at
// the earliest. A limit with a burst refills one by one, and a window as a whole.
func spacing(r *plan.Rule, ahead int64) int64 {
	unit := unitOf(r).Microseconds()
	if r.Algorithm.Held {
		return 0 // slots are released at any time
	}
	if r.Algorithm.Uses("burst") {
		return ahead * unit / r.Limit.N
	}
	return ahead / r.Limit.N * unit
}
