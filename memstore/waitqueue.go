// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/waitqueue"
	"github.com/diana-limiter/diana/limit"
)

// waitQueues are the wait queues of leaky buckets, one for each actor for whom a request waits.
//
// The meter of a leaky bucket gives each allowed request a scheduled time. A wait queue keeps
// these times true for waiters that come and go. If a waiter leaves, those behind it move up.
// If a waiter proceeds late, the queue delays those behind it by as much, so that two
// neighbours never come closer than the meter scheduled them.
//
// A wait queue and its record change together, under the lock of the record. The mutex
// guards only the map.
type waitQueues struct {
	mu sync.Mutex
	by map[queueKey]*waitQueue
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

func (q *waitQueues) exists(shard *shard, meta uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.by[queueKey{shard, meta}]
	return ok
}

// get returns the wait queue of a record, or nil if no request waits there.
func (q *waitQueues) get(p *place) *waitQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.by[queueKey{p.shard, p.meta}]
}

// join adds a waiter to the wait queue of a record. The record is locked.
func (s *Store) join(it *item, at, late int64) *waiter {
	w := &waiter{Signal: waitqueue.NewSignal(), item: *it, at: at, late: late}
	w.charge = nil // the caller's memory
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	key := queueKey{it.shard, it.meta}
	if w.queue = s.queues.by[key]; w.queue == nil {
		w.queue = &waitQueue{}
		if s.queues.by == nil {
			s.queues.by = map[queueKey]*waitQueue{}
		}
		s.queues.by[key] = w.queue
	}
	w.queue.Join(w)
	return w
}

// catchUp delays all waiters of a record if the head should have proceeded before now. The
// record is locked.
func (s *Store) catchUp(it *item, now int64) {
	q := s.queues.get(&it.place)
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

// remove takes w out of its wait queue. The record is locked.
func (s *Store) remove(w *waiter) {
	q := w.queue
	w.queue = nil
	if q.Leave(w); q.Len() == 0 {
		s.queues.mu.Lock()
		delete(s.queues.by, queueKey{w.shard, w.meta})
		s.queues.mu.Unlock()
	}
}

// Wait implements limit.Store. A request in several wait queues stays in all of them until it
// proceeds.
func (s *Store) Wait(ctx context.Context, charges []limit.Charge) error {
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			if err := s.await(ctx, w); err != nil {
				return err
			}
		}
	}
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			s.proceed(w)
		}
	}
	return nil
}

// await waits until w is the head of its queue and its scheduled time has come.
func (s *Store) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(time.Hour) // until w is the head
	defer timer.Stop()
	for {
		wait, head := s.position(w)
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
func (s *Store) position(w *waiter) (wait int64, head bool) {
	if !s.acquire(&w.item) {
		return 0, true // impossible while it waits: see Store.expired
	}
	defer func() { w.unlock(w.head) }()
	if w.queue == nil || !w.queue.IsHead(w) {
		return 0, w.queue == nil
	}
	return w.at - s.Now(), true
}

// proceed takes w out of its queue at its scheduled time.
func (s *Store) proceed(w *waiter) {
	if !s.acquire(&w.item) {
		return
	}
	defer func() { w.unlock(w.head) }()
	if w.queue != nil {
		s.catchUp(&w.item, s.Now())
		s.remove(w)
	}
}

// leave takes a waiter out of its queue before its scheduled time, refunds its charge, and
// moves those behind it up. For a waiter that has proceeded leave does nothing, because its
// scheduled time is over.
func (s *Store) leave(w *waiter, at, n int64) {
	if !s.acquire(&w.item) {
		return
	}
	defer func() { w.unlock(w.head) }()
	if w.queue == nil {
		return
	}
	gained := s.giveBack(&w.item, at, n) + w.late
	w.head = w.c.queue.Delay(limit.State{Head: w.head}, -w.late)
	for _, behind := range w.queue.Behind(w) {
		behind.at -= gained
	}
	s.remove(w)
}

// refundUnwaited refunds a charge whose request did not wait, because it need not or because
// the charge is a shadow, and moves the whole wait queue up. If other requests have proceeded
// since, it refunds nothing: the next request must keep its distance from those. The record
// is locked.
func (s *Store) refundUnwaited(it *item, at, n int64) {
	before := it.head
	next := it.c.Expiry(limit.State{Head: before}) // of a request that arrives now, or of the head
	q := s.queues.get(&it.place)
	if q != nil {
		next = q.Head().at
	}
	gained := s.giveBack(it, at, n)
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
