// SPDX-License-Identifier: MIT

package memstore

import (
	"context"

	"github.com/diana-limiter/diana/limit"
)

// Debit implements limit.Store. It makes each charge separately. A debit to a queue takes
// scheduled times at which no request waits.
func (s *Store) Debit(now int64, charges []limit.Charge) {
	for i := range charges {
		ch := &charges[i]
		it := item{c: ch.Counters.(*counters), charge: ch, hash: s.hash(ch.Key), debit: true}
		for {
			s.prepare(now, &it)
			if head, ok := it.lock(); ok {
				it.head = head
				break
			}
			it.shard.settle()
			it.record = nil
		}
		ch.Outcome = limit.Outcome{Allowed: true, Remaining: limit.Unknown}
		s.apply(&it, now)
		it.unlock(it.head)
	}
}

// Refund implements limit.Store.
func (s *Store) Refund(charges []limit.Charge) {
	for i := range charges {
		ch := &charges[i]
		if !ch.Outcome.Allowed {
			continue
		}
		if w, ok := ch.Ticket.(*waiter); ok {
			s.leave(w, ch.At, ch.Cost)
			continue
		}
		hash := s.hash(ch.Key)
		if ch.Shared {
			hash = s.overflow
		}
		it := item{c: ch.Counters.(*counters)}
		it.place = s.locate(it.c.family, hash)
		if s.acquire(&it) {
			switch scheduled := ch.At + ch.Outcome.Wait; {
			case it.c.queue != nil:
				s.refundUnwaited(&it, scheduled, ch.Cost)
			case it.c.reserver != nil:
				s.giveBack(&it, scheduled, ch.Cost)
			default:
				s.giveBack(&it, ch.At, ch.Cost)
			}
			it.unlock(it.head)
		}
	}
}

// Reset implements limit.Store. It keeps the record, because a new record would begin with
// what newcomers have used.
func (s *Store) Reset(_ context.Context, h any, key []byte) error {
	it := item{c: h.(*counters)}
	it.place = s.locate(it.c.family, s.hash(key))
	if !s.acquire(&it) {
		return nil
	}
	defer func() { it.unlock(it.head) }()
	if it.c.Expiry(it.state(s)) == limit.Never {
		return nil // slots that are held
	}
	if !it.c.plain {
		clear(s.cells.block(it.head))
		return nil
	}
	it.head = 0
	if waiting := s.queues.get(&it.place); waiting != nil {
		// Waiters keep their scheduled times, and a later request comes after the last.
		all := waiting.Waiters()
		last := all[len(all)-1]
		it.head = it.c.Take(limit.State{}, last.at, last.cost)
	}
	return nil
}
