// SPDX-License-Identifier: MIT

package memstore

import (
	"context"

	"github.com/diana-limiter/diana/limit"
)

// Peek implements limit.Store. It takes no lock for a state of one word, unless the state is
// that of a queue. It makes no record for a newcomer, but evaluates the state that a new
// record would have. It does not search for an expired record to replace.
func (s *Store) Peek(_ context.Context, now int64, charges []limit.Charge) error {
	for i := range charges {
		s.peek(now, &charges[i])
	}
	return nil
}

// peek evaluates one charge.
func (s *Store) peek(now int64, ch *limit.Charge) {
	it := item{c: ch.Counters.(*counters), charge: ch, hash: s.hash(ch.Key)}
	it.place = s.locate(it.c.family, it.hash)
	ch.Shared = false
	if s.evaluate(&it, now) {
		return
	}
	unused := it.c.evaluate(limit.State{}, now, ch)
	full := s.rooms.full(it.c.family)
	if it.hash != s.everyone && (full || !it.c.held) {
		it.place = s.locate(it.c.family, s.overflow)
		if s.evaluate(&it, now) { // otherwise no newcomer has used it
			ch.Shared = full && ch.Outcome != unused
			return
		}
	}
	ch.Outcome = unused
}

// evaluate sets the outcome of a charge to the record of its place. It reports false if there
// is no record.
func (s *Store) evaluate(it *item, now int64) bool {
	if it.c.plain && it.c.queue == nil && it.find() {
		if head, ok := it.read(); ok {
			it.charge.Outcome = it.c.evaluate(limit.State{Head: head}, now, it.charge)
			return true
		}
	}
	if !s.acquire(it) {
		return false
	}
	defer func() { it.unlock(it.head) }()
	state := it.state(s)
	if it.c.queue != nil {
		if waiting := s.queues.get(&it.place); waiting != nil { // as in catchUp
			state.Head = it.c.queue.Delay(state, max(now-waiting.Head().at, 0))
		}
	}
	it.charge.Outcome = it.c.evaluate(state, now, it.charge)
	return true
}

// refused reports whether a state of one word refuses the request. If so, it sets the outcomes
// of all charges.
func (s *Store) refused(now int64, items []item) (refused bool) {
	for i := range items {
		it := &items[i]
		it.place = s.locate(it.c.family, it.hash)
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
		it.charge.Outcome = it.c.evaluate(limit.State{Head: it.head}, now, it.charge)
		it.evaluated = it.c.plain
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
			it.charge.Outcome = it.c.evaluate(limit.State{}, now, it.charge)
			continue
		}
		it.charge.Outcome = it.c.evaluate(it.state(s), now, it.charge)
		it.unlock(it.head)
	}
	return true
}
