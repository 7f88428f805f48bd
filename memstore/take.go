// SPDX-License-Identifier: MIT

package memstore

import (
	"errors"
	"slices"

	"github.com/diana-limiter/diana/limit"
)

// errTwice is a programmer's mistake: which of the two would come first?
var errTwice = errors.New("memstore: two charges of one request have the same counters and key")

// item is a charge on its way through takeAll.
type item struct {
	place
	c      *counters
	charge *limit.Charge
	hash   uint64
	debit  bool   // into debt if need be
	judged bool   // charge.Outcome is that of head
	head   uint64 // of the record, while it is locked; before, as it was read
}

// usual is up to how many charges are decided without an allocation.
const usual = 8

// state returns what the record holds.
func (it *item) state(s *Store) limit.State {
	if it.c.plain {
		return limit.State{Head: it.head}
	}
	return s.cells.state(it.head)
}

// takeAll decides charges that are more than one, or more than a word.
//
// First every state that is one word is read: under a flood that is all there is
// to do, as one refusal decides. Then the records are made that do not exist, and
// all are locked, in one order for all callers, so that no two wait for each other.
// If one has moved meanwhile, all are let go and looked for again.
func (s *Store) takeAll(now int64, charges []limit.Charge) (bool, error) {
	var room [usual]item
	var turns [usual]int
	items, order := room[:min(len(charges), usual)], turns[:min(len(charges), usual)]
	if len(charges) > usual {
		items, order = make([]item, len(charges)), make([]int, len(charges))
	}
	for i := range items {
		it, ch := &items[i], &charges[i]
		ch.Shared = false
		it.c, it.charge, it.hash, order[i] = ch.Counters.(*counters), ch, s.hash(ch.Key), i
	}
	if s.peek(now, items) {
		return false, nil
	}
	for {
		for i := range items {
			s.prepare(now, &items[i])
		}
		// By address in the shards, which is the same for everyone.
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

// peek reports whether a state of one word refuses already, and then fills in the
// outcomes of all charges.
func (s *Store) peek(now int64, items []item) (refused bool) {
	for i := range items {
		it := &items[i]
		it.place = s.locate(it.c.family, it.hash)
		if it.find() {
			if !it.c.plain {
				continue
			}
			head, ok := it.read()
			if !ok {
				return false // it has moved: its outcome is not known
			}
			it.head = head
		}
		it.charge.Outcome = it.c.look(limit.State{Head: it.head}, now, it.charge)
		it.judged = it.c.plain
		refused = refused || !it.charge.Outcome.Allowed && !it.charge.Shadow
	}
	if !refused {
		return false
	}
	for i := range items {
		it := &items[i]
		if it.c.plain || it.record == nil {
			continue
		}
		if !s.acquire(it) {
			it.charge.Outcome = it.c.look(limit.State{}, now, it.charge)
			continue
		}
		it.charge.Outcome = it.c.look(it.state(s), now, it.charge)
		it.unlock(it.head)
	}
	return true
}

// prepare finds the record of a charge, if it is not known, or makes it.
func (s *Store) prepare(now int64, it *item) {
	if it.record != nil {
		return
	}
	it.place = s.locate(it.c.family, it.hash)
	if it.charge.Shared = false; it.find() {
		return
	}
	beside := it.hash == s.everyone || it.hash == s.overflow // which no flood can multiply
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
		it.judged = it.judged && head == it.head
		it.head = head
	}
	return true
}

// decide judges the charges, makes all that are allowed or none, and unlocks.
func (s *Store) decide(now int64, items []item) bool {
	allowed := true
	for i := range items {
		it := &items[i]
		if it.c.queue != nil {
			s.catchUp(it, now)
			it.judged = false
		}
		if !it.judged {
			it.charge.Outcome = it.c.look(it.state(s), now, it.charge)
		}
		allowed = allowed && (it.charge.Outcome.Allowed || it.charge.Shadow)
	}
	var turn int64 // at which the request goes on: in all its queues at once
	for i := range items {
		if it := &items[i]; it.c.queue != nil && it.charge.Outcome.Allowed && !it.charge.Shadow {
			turn = max(turn, it.charge.Outcome.Wait)
		}
	}
	for i := range items {
		it := &items[i]
		if allowed && it.charge.Outcome.Allowed {
			s.charge(it, now, turn)
		}
		it.unlock(it.head)
	}
	return allowed
}

// charge makes a charge that is allowed. The record is locked. turn is how long the
// request waits in the slowest of its queues: who comes behind it in another must keep
// the distance from when it really goes on.
func (s *Store) charge(it *item, now, turn int64) {
	ch := it.charge
	ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
	s.apply(it, now)
	if turn > 0 && !ch.Shadow && it.c.queue != nil {
		late := turn - ch.Outcome.Wait
		it.head = it.c.queue.Delay(limit.State{Head: it.head}, late)
		ch.Outcome.Wait = turn
		if s.clock == nil {
			ch.Ticket = s.join(it, now+turn, late)
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

// acquire finds and locks the record of a place. It reports false if there is none.
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

// giveBack gives n back to a record that is locked, and returns by how much earlier
// that lets it expire.
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
