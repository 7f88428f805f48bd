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

// item is a charge while takeAll decides it.
type item struct {
	place
	c         *counters
	charge    *limit.Charge
	cost      int64 // of the charge, which a waiter does not keep
	hash      uint64
	debit     bool   // into debt if need be
	evaluated bool   // charge.Outcome is that of head
	head      uint64 // of the record, while it is locked; before, as it was read
}

// usual is the number of charges that takeAll decides without an allocation.
const usual = 8

// state returns what the record holds.
func (it *item) state(s *Store) limit.State {
	if it.c.plain {
		return limit.State{Head: it.head}
	}
	return s.cells.state(it.head)
}

// Take implements limit.Store. For up to 8 charges it does not allocate, unless the request must
// wait. It returns an error if two charges have the same Counters and Key.
func (s *Store) Take(_ context.Context, now int64, charges []limit.Charge) (bool, error) {
	if len(charges) == 1 {
		ch := &charges[0]
		c := ch.Counters.(*counters)
		if c.plain && c.queue == nil && c.reserver == nil {
			if ok := s.takeWord(ch, c, now); ok {
				return ch.Outcome.Allowed || ch.Shadow, nil
			}
		}
	}
	return s.takeAll(now, charges)
}

// takeWord decides a charge whose record exists and whose state is one word.
func (s *Store) takeWord(ch *limit.Charge, c *counters, now int64) bool {
	p := s.locate(c.family, s.hash(ch.Key))
	if !p.find() {
		return false
	}
	for {
		head, ok := p.read()
		if !ok {
			return false
		}
		state := limit.State{Head: head}
		ch.Shared = false
		ch.Outcome = c.Peek(state, now, ch.Cost)
		if !ch.Outcome.Allowed {
			return true
		}
		if p.lockFrom(head) {
			p.unlock(c.Take(state, now, ch.Cost))
			ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
			ch.At, ch.Ticket = c.moment(state, now), nil
			return true
		}
	}
}

// takeAll decides more than one charge, or a charge whose state is more than a word.
//
// First it reads every state that is one word. Under a flood this is all the work, because
// one refusal decides. Then it makes the missing records and locks all records, in one
// order for all callers, so that no two callers wait for each other. If a record has moved
// meanwhile, it unlocks all and starts again.
func (s *Store) takeAll(now int64, charges []limit.Charge) (bool, error) {
	var room [usual]item
	var indexes [usual]int
	items, order := room[:min(len(charges), usual)], indexes[:min(len(charges), usual)]
	if len(charges) > usual {
		items, order = make([]item, len(charges)), make([]int, len(charges))
	}
	for i := range items {
		it, ch := &items[i], &charges[i]
		ch.Shared = false
		it.c, it.charge, it.cost, it.hash, order[i] = ch.Counters.(*counters), ch, ch.Cost, s.hash(ch.Key), i
	}
	if s.refused(now, items) {
		return false, nil
	}
	for {
		for i := range items {
			s.prepare(now, &items[i])
		}
		// By place in the shards, which is the same for all callers.
		slices.SortFunc(order, func(a, b int) int { return items[a].compare(&items[b].place) })
		for i, k := range order[1:] {
			if items[order[i]].compare(&items[k].place) == 0 {
				return false, errTwice
			}
		}
		if s.lockAll(items, order) {
			break
		}
	}
	return s.decide(now, items), nil
}

// prepare finds or makes the record of a charge, unless it is known already.
func (s *Store) prepare(now int64, it *item) {
	if it.record != nil {
		return
	}
	it.place = s.locate(it.c.family, it.hash)
	if it.charge.Shared = false; it.find() {
		return
	}
	beside := it.hash == s.everyone || it.hash == s.overflow // of which there is one a rule
	if it.insert(s, it.c, now, beside) {
		return
	}
	it.charge.Shared = true
	it.place = s.locate(it.c.family, s.overflow)
	if !it.find() {
		it.insert(s, it.c, now, true)
	}
}

// lockAll locks all records in that order, or none if one has moved.
func (s *Store) lockAll(items []item, order []int) bool {
	for i, k := range order {
		it := &items[k]
		head, ok := it.lock()
		if !ok {
			for _, k := range order[:i] {
				items[k].unlock(items[k].head)
			}
			it.shard.settle()
			it.record = nil
			return false
		}
		it.evaluated = it.evaluated && head == it.head
		it.head = head
	}
	return true
}

// decide evaluates the charges, makes all allowed ones or none, and unlocks the records.
func (s *Store) decide(now int64, items []item) bool {
	allowed := true
	for i := range items {
		it := &items[i]
		if it.c.queue != nil {
			s.catchUp(it, now)
			it.evaluated = false
		}
		if !it.evaluated {
			it.charge.Outcome = it.c.evaluate(it.state(s), now, it.charge)
		}
		allowed = allowed && (it.charge.Outcome.Allowed || it.charge.Shadow)
	}
	var wait int64 // the longest wait: the request proceeds in all its queues at once
	for i := range items {
		if it := &items[i]; it.c.queue != nil && it.charge.Outcome.Allowed && !it.charge.Shadow {
			wait = max(wait, it.charge.Outcome.Wait)
		}
	}
	for i := range items {
		it := &items[i]
		if allowed && it.charge.Outcome.Allowed {
			s.charge(it, now, wait)
		}
		it.unlock(it.head)
	}
	return allowed
}

// charge makes an allowed charge. The record is locked. wait is how long the request waits in
// its slowest queue. In the other queues the next request must keep its distance from that
// time.
func (s *Store) charge(it *item, now, wait int64) {
	ch := it.charge
	ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
	s.apply(it, now)
	if wait > 0 && !ch.Shadow && it.c.queue != nil {
		late := wait - ch.Outcome.Wait
		it.head = it.c.queue.Delay(limit.State{Head: it.head}, late)
		ch.Outcome.Wait = wait
		if s.clock == nil {
			ch.Ticket = s.join(it, now+wait, late)
		}
	}
}

// apply changes the state that a charge is made to. The record is locked.
func (s *Store) apply(it *item, now int64) {
	if it.c.aging != nil {
		s.fit(it, now)
	}
	ch, state := it.charge, it.state(s)
	ch.At, ch.Ticket = it.c.moment(state, now), nil
	if it.c.plain {
		it.head = it.next(state, now)
		return
	}
	if need := it.c.Cells(state, ch.Cost); need > len(state.Cells) && it.c.aging == nil {
		s.grow(it, need)
		state = it.state(s)
	}
	s.cells.block(it.head)[0] = it.next(state, now)
}

// grow gives the state of a record that is locked so many cells.
func (s *Store) grow(it *item, cells int) {
	larger, _ := s.cells.alloc(cells, true)
	copy(s.cells.block(larger), s.cells.block(it.head))
	s.cells.free(it.head)
	it.head = larger
}

// next returns the head of the state after the charge.
func (it *item) next(state limit.State, now int64) uint64 {
	if it.debit {
		return limit.Debit(it.c.Meter, state, now, it.charge.Cost)
	}
	return it.c.Take(state, now, it.charge.Cost)
}

// acquire finds and locks the record of a place. It reports false if there is no record.
func (s *Store) acquire(it *item) bool {
	for it.find() {
		head, ok := it.lock()
		if ok {
			it.head = head
			return true
		}
		it.shard.settle()
	}
	return false
}

// giveBack refunds n to a locked record. It returns by how much earlier the record expires then.
func (s *Store) giveBack(it *item, at, n int64) (gained int64) {
	state := it.state(s)
	before := it.c.Expiry(state)
	head := it.c.Refund(state, at, n)
	if it.c.plain {
		it.head = head
	} else {
		s.cells.block(it.head)[0] = head
	}
	return before - it.c.Expiry(it.state(s))
}
