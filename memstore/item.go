// SPDX-License-Identifier: MIT

package memstore

import "github.com/diana-limiter/diana/limit"

// item is a charge while a Store makes it, with the location of its counter.
type item struct {
	location
	c         *counters
	charge    *limit.Charge
	cost      int64 // of the charge, which a waiter does not keep
	hash      uint64
	debit     bool   // into debt if need be
	evaluated bool   // charge.Outcome is that of head
	head      uint64 // of the record, while it is locked; before, as it was read
}

// acquire finds and locks the record of an item. It reports false if there is no record, or
// the Store has handed over.
func (it *item) acquire() bool {
	for it.find() {
		head, ok := it.lock()
		if ok {
			it.head = head
			return true
		}
		if it.shard.settle() {
			return false
		}
	}
	return false
}

// acquireInShard is acquire for a goroutine that holds a shard's mutex. It must not wait for
// another shard's mutex, because the holder of that may be waiting for this one.
func (it *item) acquireInShard() bool {
	for spin := 0; it.find(); spin++ {
		if head, ok := it.lock(); ok {
			it.head = head
			return true
		}
		pause(spin)
	}
	return false
}

// state returns the state that the record holds.
func (it *item) state() limit.State {
	if it.c.plain {
		return limit.State{Head: it.head}
	}
	return it.c.cells.state(it.head)
}

// peek sets the outcome of the charge by the record of its location. It reports false if there is
// no record, or the Store has handed over.
func (it *item) peek(r *records, now int64) bool {
	if it.c.plain && it.c.queue == nil && it.find() {
		if head, ok := it.read(); ok {
			it.charge.Outcome = it.c.evaluate(limit.State{Head: head}, now, it.charge)
			return true
		}
	}
	if !it.acquire() {
		return false
	}
	defer func() { it.unlock(it.head) }()
	state := it.state()
	if it.c.queue != nil {
		if waiting := r.queues.get(&it.location); waiting != nil { // as in catchUp
			state.Head = it.c.queue.Delay(state, max(now-waiting.Head().at, 0))
		}
	}
	it.charge.Outcome = it.c.evaluate(state, now, it.charge)
	return true
}

// apply changes the state that a charge is made to. The record is locked.
func (it *item) apply(r *records, now int64) {
	if it.c.aging != nil {
		r.fit(it, now)
	}
	ch, state := it.charge, it.state()
	ch.At, ch.Ticket = it.c.moment(state, now), nil
	if it.c.plain {
		it.head = it.next(state, now)
		return
	}
	if need := it.c.Cells(state, ch.Cost); need > len(state.Cells) && it.c.aging == nil {
		it.grow(need)
		state = it.state()
	}
	it.c.cells.block(it.head)[0] = it.next(state, now)
}

// grow moves the state of a locked record to a block of that many cells.
func (it *item) grow(cells int) {
	slab := it.c.cells
	larger, _ := slab.alloc(cells, true)
	copy(slab.block(larger), slab.block(it.head))
	slab.free(it.head)
	it.head = larger
}

// next returns the head of the state after the charge.
func (it *item) next(state limit.State, now int64) (head uint64) {
	if it.debit {
		head, it.charge.Cut = limit.Debit(it.c.Meter, state, now, it.charge.Cost)
		return head
	}
	if it.c.adaptive != nil {
		return it.c.adaptive.Enter(state, now, it.charge.Cost, it.charge.Flight)
	}
	return it.c.Take(state, now, it.charge.Cost)
}

// leave releases the slots of a request under an adaptive limit. The record is locked.
func (it *item) leave(r *records, ch *limit.Charge) {
	now := int64(0)
	if ch.Flight != nil {
		now = ch.Flight.Ended
	}
	if now == 0 {
		now = r.queues.clock.now()
	}
	it.c.cells.block(it.head)[0] = it.c.adaptive.Leave(it.state(), now, ch.Cost, ch.Flight)
}

// refund refunds n to a locked record. It returns by how much earlier the record expires then.
func (it *item) refund(at, n int64) (gained int64) {
	state := it.state()
	before := it.c.Expiry(state)
	head := it.c.Refund(state, at, n)
	if it.c.plain {
		it.head = head
	} else {
		it.c.cells.block(it.head)[0] = head
	}
	return before - it.c.Expiry(it.state())
}
