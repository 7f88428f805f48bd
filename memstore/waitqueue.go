// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/waitqueue"
	"github.com/diana-limiter/diana/limit"
)

// waitQueues are the wait queues of leaky buckets, one for each actor whose requests wait.
//
// The meter of a leaky bucket schedules a time for each allowed request. A wait queue keeps
// these times true for waiters that come and go. If a waiter leaves, those behind it move up.
// If a waiter proceeds late, the queue delays those behind it by as much, so that two
// neighbours never come closer than the meter scheduled them.
//
// A wait queue and its record change together, under the lock of the record. The mutex
// guards only the map.
type waitQueues struct {
	mu sync.Mutex
	by map[queueKey]*waitQueue

	clock *clock // of the Store
}

// queueKey names a wait queue by the record of its actor.
type queueKey struct {
	shard *shard
	meta  uint64
}

type waitQueue = waitqueue.Queue[*waiter]

// waiter is one request in one wait queue. It is the Ticket of its charge.
type waiter struct {
	waitqueue.Signal
	item             // where the charge was made, for later use by this waiter alone
	queue *waitQueue // nil once the waiter has left it
	at    int64      // its scheduled time
	late  int64      // by how much that is later than this queue asks for, because another queue is slower
}

func (qs *waitQueues) exists(shard *shard, meta uint64) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	_, ok := qs.by[queueKey{shard, meta}]
	return ok
}

// get returns the wait queue of a record, or nil if no request waits there.
func (qs *waitQueues) get(p *location) *waitQueue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.by[queueKey{p.shard, p.meta}]
}

// join adds a waiter to the wait queue of a record, and makes it the Ticket of its charge. With a
// custom clock no request waits. The record is locked.
func (qs *waitQueues) join(it *item, at, late int64) {
	if qs.clock.custom != nil {
		return
	}
	w := &waiter{Signal: waitqueue.NewSignal(), item: *it, at: at, late: late}
	w.charge = nil // the caller's memory
	qs.mu.Lock()
	defer qs.mu.Unlock()
	key := queueKey{it.shard, it.meta}
	if w.queue = qs.by[key]; w.queue == nil {
		w.queue = &waitQueue{}
		if qs.by == nil {
			qs.by = map[queueKey]*waitQueue{}
		}
		qs.by[key] = w.queue
	}
	w.queue.Join(w)
	it.charge.Ticket = w
}

// catchUp delays all waiters of a record if the head should have proceeded before now. The
// record is locked.
func (qs *waitQueues) catchUp(it *item, now int64) {
	q := qs.get(&it.location)
	if q == nil {
		return
	}
	if late := now - q.Head().at; late > 0 {
		for _, w := range q.Waiters() {
			w.at += late
		}
		it.head = it.c.queue.Delay(limit.State{Head: it.head}, late)
	}
}

// wakeAll wakes all waiters.
func (qs *waitQueues) wakeAll() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.by {
		for _, w := range q.Waiters() {
			w.Wake()
		}
	}
}

// remove takes w out of its wait queue. The record is locked.
func (qs *waitQueues) remove(w *waiter) {
	q := w.queue
	w.queue = nil
	if q.Leave(w); q.Len() == 0 {
		qs.mu.Lock()
		delete(qs.by, queueKey{w.shard, w.meta})
		qs.mu.Unlock()
	}
}

// await waits until w is the head of its queue and its scheduled time has come.
func (qs *waitQueues) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(time.Hour) // until w is the head
	defer timer.Stop()
	for {
		wait, head := qs.position(w)
		if head && wait <= 0 {
			return nil
		}
		if head {
			timer.Reset(time.Duration(wait) * time.Microsecond)
		}
		if err := w.Sleep(ctx, timer.C); err != nil {
			return err
		}
	}
}

// position reports whether w is the head of its queue, and if so returns how long it waits until
// its scheduled time. A waiter that has left is a head that need not wait.
func (qs *waitQueues) position(w *waiter) (wait int64, head bool) {
	if !w.acquire() {
		return w.at - qs.clock.now(), true // the Store has handed over, so the time does not change any more
	}
	defer func() { w.unlock(w.head) }()
	if w.queue == nil || !w.queue.IsHead(w) {
		return 0, w.queue == nil
	}
	return w.at - qs.clock.now(), true
}

// proceed takes w out of its queue at its scheduled time.
func (qs *waitQueues) proceed(w *waiter) {
	if !w.acquire() {
		return
	}
	defer func() { w.unlock(w.head) }()
	if w.queue != nil {
		qs.catchUp(&w.item, qs.clock.now())
		qs.remove(w)
	}
}

// leave takes a waiter out of its queue before its scheduled time, refunds its charge, and
// moves those behind it up. For a waiter that has proceeded leave does nothing, because its
// scheduled time is over.
func (qs *waitQueues) leave(w *waiter, at, n int64) {
	if !w.acquire() {
		return
	}
	defer func() { w.unlock(w.head) }()
	if w.queue == nil {
		return
	}
	gained := w.refund(at, n) + w.late
	w.head = w.c.queue.Delay(limit.State{Head: w.head}, -w.late)
	for _, behind := range w.queue.Behind(w) {
		behind.at -= gained
	}
	qs.remove(w)
}

// refundUnwaited refunds a charge whose request did not wait, because it need not or because
// the charge is a shadow, and moves the whole wait queue up. If other requests have proceeded
// since, it refunds nothing: the next request must keep its distance from those. The record
// is locked.
func (qs *waitQueues) refundUnwaited(it *item, at, n int64) {
	before := it.head
	next := it.c.Expiry(limit.State{Head: before}) // of a request that arrives now, or of the head
	q := qs.get(&it.location)
	if q != nil {
		next = q.Head().at
	}
	gained := it.refund(at, n)
	if next-gained > at {
		it.head = before
		return
	}
	if q == nil {
		return
	}
	for _, w := range q.Waiters() {
		w.at -= gained
	}
	q.WakeHead() // it sleeps until its old time
}
