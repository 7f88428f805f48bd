// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"errors"
	"slices"

	"github.com/diana-limiter/diana/limit"
)

// errTwice is a programmer's mistake, because the order of the two would be undefined.
var errTwice = errors.New("memstore: two charges of one request have the same counters and key")

// errGone means that the Store has handed over and has decided nothing.
var errGone = errors.New("memstore: handed over")

// Take implements limit.Store. For up to 8 charges it does not allocate, unless the request must
// wait. It returns an error if two charges have the same Counters and Key.
func (s *Store) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	if len(charges) != 1 {
		if allowed, decided := s.takeWords(now, charges); decided {
			return allowed, nil
		}
		return s.takeAll(ctx, now, charges)
	}
	one := (*[1]limit.Charge)(charges) // one pointer to keep during the calls, where a slice is three words
	ch := &one[0]
	c := ch.Counters.(*counters)
	if c.adaptive != nil {
		if allowed, decided := s.enter(now, ch, c); decided {
			return allowed, nil
		}
	}
	if c.word == nil {
		return s.takeAll(ctx, now, one[:])
	}
	p := s.records.locate(c.id, s.records.hash(ch.Key))
	r := p.shard.find(p.meta)
	if r == nil {
		return s.takeAll(ctx, now, one[:])
	}
	for {
		head := r.head.Load()
		if head&locked != 0 {
			var ok bool
			if head, ok = r.read(); !ok {
				return s.takeAll(ctx, now, one[:])
			}
		}
		next, out := c.word.Decide(head, now, ch.Cost)
		if out.Allowed {
			if !r.head.CompareAndSwap(head, next&^locked) {
				continue
			}
			ch.At, ch.Ticket = now, nil
			if c.clamped != nil {
				ch.At = c.clamped.Moment(limit.State{Head: head}, now)
			}
		} else if ch.Debit {
			return s.takeAll(ctx, now, one[:])
		}
		ch.Outcome, ch.Shared = out, false
		return out.Allowed || ch.Shadow, nil
	}
}

// enter decides one charge under an adaptive limit as takeAll would. It reports decided as false, and has charged
// nothing, if takeAll must decide.
func (s *Store) enter(now int64, ch *limit.Charge, c *counters) (allowed, decided bool) {
	r := &s.records
	it := item{c: c, location: r.locate(c.id, r.hash(ch.Key))}
	if ch.Debit || !it.find() {
		return false, false
	}
	head, ok := it.lock()
	if !ok {
		return false, false
	}
	state := c.cells.state(head)
	ch.Outcome, ch.Shared = c.adaptive.Admit(state, now, ch.Cost, ch.Flight), false
	if ch.Outcome.Allowed {
		ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
		ch.At, ch.Ticket = now, nil
		c.cells.block(head)[0] = c.adaptive.Enter(state, now, ch.Cost, ch.Flight)
	} else {
		c.adaptive.Refuse(state, now, ch.Flight)
	}
	it.unlock(head)
	return ch.Outcome.Allowed || ch.Shadow, true
}

// takeWords decides a few charges to words. It reports decided as false if it has charged nothing and
// takeAll must decide.
func (s *Store) takeWords(now int64, charges []limit.Charge) (allowed, decided bool) {
	if len(charges) > mostWords {
		return false, false
	}
	var room [mostWords]word
	ws := words(room[:len(charges)])
	if !ws.find(&s.records, charges) {
		return false, false
	}
	for range mostTries {
		allowed, known := ws.evaluate(now, charges)
		if !known || !allowed {
			return false, known
		}
		if ws.charge(now, charges) {
			return true, true
		}
	}
	return false, false
}

// takeAll decides more than one charge, or a charge whose state is more than a word.
func (s *Store) takeAll(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	var room [usual]item
	var indexes [usual]int
	n := len(charges)
	q := request{now: now, items: room[:min(n, usual)], order: indexes[:min(n, usual)]}
	if n > usual {
		q.items, q.order = make([]item, n), make([]int, n)
	}
	for i := range q.items {
		it, ch := &q.items[i], &charges[i]
		ch.Shared = false
		it.c, it.charge, it.cost, it.hash = ch.Counters.(*counters), ch, ch.Cost, s.records.hashOf(ch)
		q.order[i] = i
	}
	allowed, err := q.take(&s.records)
	if errors.Is(err, errGone) {
		return s.records.away.Load().take(ctx, now, charges)
	}
	return allowed, err
}

// usual is the number of charges that takeAll decides without an allocation.
const usual = 8

// request is the charges of one request while takeAll decides it.
//
// First the request reads every state that is one word. Under a flood this is all the work,
// because one refusal decides. Then it makes the missing records and locks all records, in one
// order for all callers, so that no two callers wait for each other. If a record has moved
// meanwhile, it unlocks all and starts again.
//
// Rejected: a field for the records. With it the arrays of takeAll would be on the heap.
type request struct {
	now   int64
	items []item
	order []int // indexes of items, in the order of locking
}

// take makes all charges or none.
func (q *request) take(r *records) (allowed bool, err error) {
	if q.refused(r) {
		return false, nil
	}
	for {
		for i := range q.items {
			r.findOrInsert(&q.items[i], q.now)
		}
		slices.SortFunc(q.order, func(a, b int) int { return q.items[a].compare(&q.items[b].location) })
		for i, k := range q.order[1:] {
			if q.items[q.order[i]].compare(&q.items[k].location) == 0 {
				return false, errTwice
			}
		}
		switch locked, gone := q.lockAll(); {
		case locked:
			return q.decide(r), nil
		case gone:
			return false, errGone
		}
	}
}

// refused reports whether a state of one word refuses the request. If so, it sets the outcomes
// of all charges.
func (q *request) refused(r *records) (refused bool) {
	for i := range q.items {
		it := &q.items[i]
		it.location = r.locate(it.c.id, it.hash)
		if it.find() {
			if !it.c.plain {
				continue
			}
			head, ok := it.read()
			if !ok {
				return false // it has moved, so its outcome is not known
			}
			it.head = head
		}
		it.charge.Outcome = it.c.evaluate(limit.State{Head: it.head}, q.now, it.charge)
		it.evaluated = it.c.plain
		refused = refused || !it.charge.Outcome.Allowed && !it.charge.Shadow
	}
	if !refused {
		return false
	}
	for i := range q.items {
		it := &q.items[i]
		if it.c.plain || it.record == nil {
			continue
		}
		if !it.acquire() {
			it.charge.Outcome = it.c.evaluate(limit.State{}, q.now, it.charge)
			continue
		}
		it.charge.Outcome = it.c.evaluate(it.state(), q.now, it.charge)
		it.unlock(it.head)
	}
	return true
}

// lockAll locks all records in order, or none if one has moved. It reports gone if the Store has handed over.
func (q *request) lockAll() (locked, gone bool) {
	for i, k := range q.order {
		it := &q.items[k]
		head, ok := it.lock()
		if !ok {
			for _, k := range q.order[:i] {
				q.items[k].unlock(q.items[k].head)
			}
			it.record = nil
			return false, it.shard.settle()
		}
		it.evaluated = it.evaluated && head == it.head
		it.head = head
	}
	return true, false
}

// decide evaluates the charges, makes all of them or none, and unlocks the records.
func (q *request) decide(r *records) bool {
	allowed := true
	for i := range q.items {
		it := &q.items[i]
		if it.c.queue != nil {
			r.queues.catchUp(it, q.now)
			it.evaluated = false
		}
		if !it.evaluated {
			it.charge.Outcome = it.c.evaluate(it.state(), q.now, it.charge)
		}
		allowed = allowed && (it.charge.Outcome.Allowed || it.charge.Shadow)
	}
	var wait int64 // the longest wait: the request proceeds in all its queues at once
	for i := range q.items {
		if it := &q.items[i]; it.c.queue != nil && it.charge.Outcome.Allowed && !it.charge.Shadow {
			wait = max(wait, it.charge.Outcome.Wait)
		}
	}
	for i := range q.items {
		it := &q.items[i]
		switch {
		case it.c.adaptive != nil && !it.charge.Outcome.Allowed:
			it.c.adaptive.Refuse(it.state(), q.now, it.charge.Flight)
		case !allowed:
		case it.charge.Outcome.Allowed:
			q.charge(r, it, wait)
		case it.charge.Debit:
			it.debit = true
			it.apply(r, q.now)
		}
		it.unlock(it.head)
	}
	return allowed
}

// charge makes an allowed charge. The record is locked. wait is how long the request waits in
// its slowest queue. In the other queues the next request must keep its distance from that
// time.
func (q *request) charge(r *records, it *item, wait int64) {
	ch := it.charge
	ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
	it.apply(r, q.now)
	if wait > 0 && !ch.Shadow && it.c.queue != nil {
		late := wait - ch.Outcome.Wait
		it.head = it.c.queue.Delay(limit.State{Head: it.head}, late)
		ch.Outcome.Wait = wait
		r.queues.join(it, q.now+wait, late)
	}
}
