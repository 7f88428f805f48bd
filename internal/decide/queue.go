// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/waitqueue"
)

// waitQueues hold the requests over a limit whose rule has a wait. An actor of a rule has one queue,
// in order of arrival, for as long as requests wait there.
//
// A queue reserves nothing. At its scheduled time the head asks for all rules of its request again,
// by Take; so every decision stays exact, by all rules or none. The other waiters sleep until they
// are the head. A new request joins at the end:
//
//	arrives ──→ [ 4 ][ 3 ][ 2 ][ 1 ] ──→ Take, at its scheduled time
//
// A request waits in one queue, that of the rule that refuses it for longest, and moves to another
// queue when it has to wait for that one. There it takes its position by its arrival. So no request
// waits for one in front of it that waits for something else. If a request waited in all queues at
// once, an actor with too many requests under its own limit would hold up every actor of a rule for
// all.
//
// There is no deadlock, because the head of a queue waits for time alone. No request starves for
// longer than the wait of its rule, because it is refused after that.
type waitQueues struct {
	room *waitRoom    // where each waiter has a slot
	size atomic.Int64 // waiters in all queues; may be read without the lock

	mu       sync.Mutex // guards the rest
	by       map[queueKey]*waitQueue
	arrivals uint64
	latest   int64 // moment of the latest arrival
}

// queueKey names a queue by what is counted, and so stays the same across configurations.
type queueKey struct{ counters, actor string }

// waitQueue is in order of arrival, and has at least one waiter. Under an adaptive rule the order is that of
// priorities, and the last to arrive is the first of its priority. Under overload, a client that has waited for
// long may have given up.
type waitQueue struct{ waitqueue.Queue[*waiter] }

// waiter is a request in a queue. Its memory is used again for others.
type waiter struct {
	waitqueue.Signal       // woken when it is to check its position
	began            int64 // moment of arrival

	// waitQueues.mu guards the rest.

	newest  bool   // under an adaptive rule: it goes in front of the waiters of its level
	level   int64  // of its priority there
	arrival uint64 // its position among all that arrived
	key     queueKey
	queue   *waitQueue // nil: in none
	next    int64      // moment at which it asks, as the head or in no queue
	expires int64      // moment at which it gives up, unless it is the head
}

// empty reports whether nobody waits.
func (q *waitQueues) empty() bool { return q.size.Load() == 0 }

// arrive makes a waiter the last of all that arrived. began is when its wait began. A goroutine may
// read the clock before another one, and yet arrive after it. So arrive moves a first arrival to the
// latest one; otherwise its wait would end before that of the waiter in front.
func (q *waitQueues) arrive(w *waiter, began int64, first bool) {
	if w.Signal == nil {
		w.Signal = waitqueue.NewSignal()
	}
	select {
	case <-w.Signal: // meant for the previous user of this memory
	default:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if first {
		began = max(began, q.latest)
		q.latest = began
	}
	q.arrivals++
	w.arrival, w.began, w.key, w.next, w.newest = q.arrivals, began, queueKey{}, 0, false
}

// get returns the queue get an actor, or nil. q.mu is held.
func (q *waitQueues) get(counters string, actor []byte) *waitQueue {
	return q.by[queueKey{counters, string(actor)}] // without copying the actor
}

// ahead returns how many waiters are in front of w in a queue, or would be, and when the head of the
// queue asks. A nil queue has no waiters.
func (q *waitQueue) ahead(w *waiter) (n, next int64) {
	if q == nil {
		return 0, 0
	}
	return int64(q.position(w)), q.Head().next
}

// position returns how many waiters of a queue arrived before w.
func (q *waitQueue) position(w *waiter) int {
	if w.newest {
		return q.Ahead(func(o *waiter) bool {
			return o.level < w.level || o.level == w.level && o.arrival > w.arrival
		})
	}
	return q.Ahead(func(o *waiter) bool { return o.arrival < w.arrival })
}

// wakeFor makes the head of an actor's queue ask at once, if there is one.
func (q *waitQueues) wakeFor(counters string, actor []byte) {
	if !q.empty() {
		q.wake(counters, actor)
	}
}

// join puts w into a queue, or leaves it there. next is when it asks, if it is the head; otherwise
// it asks when it becomes the head. If no more requests may wait, join reports false, and w is in no
// queue. q.mu is held.
func (q *waitQueues) join(w *waiter, key queueKey, next int64) bool {
	if w.queue == nil || w.key != key {
		q.leaveLocked(w)
		if !q.room.enter(key.counters) {
			return false
		}
		if w.queue = q.by[key]; w.queue == nil {
			w.queue = &waitQueue{}
			if q.by == nil {
				q.by = map[queueKey]*waitQueue{}
			}
			q.by[key] = w.queue
		}
		w.key = key
		w.queue.Insert(w.queue.position(w), w)
		q.size.Add(1)
	}
	w.next = next
	if !w.queue.IsHead(w) {
		w.next = 0
	}
	return true
}

// leave takes w out of its queue.
func (q *waitQueues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaveLocked(w)
}

// leaveLocked takes w out of its queue, and wakes the waiter that becomes the head. q.mu is held.
func (q *waitQueues) leaveLocked(w *waiter) {
	if w.queue == nil {
		return
	}
	w.queue.Leave(w)
	q.size.Add(-1)
	q.room.leave(w.key.counters)
	if w.queue.Len() == 0 {
		delete(q.by, w.key)
	}
	w.queue = nil
}

// wakeAll makes the head of each queue ask at once, because the rules may have changed.
func (q *waitQueues) wakeAll() {
	if q.empty() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, queue := range q.by {
		queue.wakeHead()
	}
}

// wake makes the head of an actor's queue ask at once.
func (q *waitQueues) wake(counters string, actor []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if queue := q.get(counters, actor); queue != nil {
		queue.wakeHead()
	}
}

// wakeHead makes the head of a queue ask at once.
func (q *waitQueue) wakeHead() {
	q.Head().next = 0
	q.WakeHead()
}

// wait waits until w is the head of its queue at the moment at which it asks, or until its wait is
// over.
func (q *waitQueues) wait(ctx context.Context, w *waiter, now func() int64) (head bool, err error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		left, head := q.left(w, now())
		if left <= 0 {
			return head, nil
		}
		timer.Reset(time.Duration(left) * time.Microsecond)
		if err := w.Sleep(ctx, timer.C); err != nil {
			return false, err
		}
	}
}

// left returns how long w has to wait, and whether it is the head of its queue.
func (q *waitQueues) left(w *waiter, now int64) (left int64, head bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.queue == nil || w.queue.IsHead(w) {
		return w.next - now, true
	}
	return w.expires - now, false
}
