// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// turns space the requests of a leaky bucket once more when they proceed.
//
// Redis tells each request its scheduled time. A gateway that wakes up late would let all
// requests proceed at once whose time has come meanwhile. So requests of one actor proceed
// in the order of their times, and each keeps the distance of the bucket from the one before:
//
//	scheduled   A    B    C    D         E
//	proceed             A    B    C    D    E       the gateway was late for A and B
//
// Each gateway knows its own requests only. One that is late by x can let a request proceed
// up to x closer to one of another gateway than the bucket says.
type turns struct {
	mu    sync.Mutex // guards the rest
	by    map[actor]*queue
	sweep int // how many queues there are before the next sweep; 0: mostQueues
}

// queue is the requests of an actor that wait, and the last that proceeded.
type queue struct {
	waiters []*waiter // in the order of their scheduled times
	free    time.Time // from when on the next may proceed
}

// waiter is a request that waits for its scheduled time. It can be in several queues, with
// the same time in each.
type waiter struct {
	at     time.Time     // its scheduled time by the clock of this process
	order  int64         // the same by Redis' clock, which tells neighbours apart
	wake   chan struct{} // gets a value when it may have become the first
	queues []queued
}

// queued is one of a waiter's queues.
type queued struct {
	actor
	*queue
	gap time.Duration // that the next one has to keep
}

// mostQueues is how many actors' queues are kept, at least, before those are removed that say
// nothing. After that, it takes twice as many as were left. So a new queue costs little, however
// many actors wait.
const mostQueues = 1024

// join puts a request that Redis has allowed into its queues. If it can proceed at once, it
// does not wait; otherwise its outcomes have a Wait, and a Ticket for await.
func (t *turns) join(charges []limit.Charge) {
	var w *waiter
	now := time.Now()
	for i := range charges {
		ch := &charges[i]
		if c := ch.Counters.(*counters); !c.queue || !ch.Outcome.Allowed || ch.Shadow {
			continue
		}
		if w == nil {
			w = &waiter{wake: make(chan struct{}, 1)}
			t.mu.Lock()
			defer t.mu.Unlock()
		}
		w.add(t.queueOf(ch, now), ch, now)
	}
	if w == nil {
		return
	}
	for _, q := range w.queues {
		i, _ := slices.BinarySearchFunc(q.waiters, w, func(a, b *waiter) int {
			if a.order <= b.order { // behind all with the same time
				return -1
			}
			return 1
		})
		q.waiters = slices.Insert(q.waiters, i, w)
	}
	if wait, first := w.position(now); first && wait <= 0 {
		w.proceed(now)
		return
	}
	for i := range charges {
		ch := &charges[i]
		if c := ch.Counters.(*counters); c.queue && ch.Outcome.Allowed && !ch.Shadow {
			ch.Outcome.Wait = max(ch.Outcome.Wait, 1)
			ch.Ticket = w
		}
	}
}

func (w *waiter) add(q queued, ch *limit.Charge, now time.Time) {
	w.queues = append(w.queues, q)
	w.order = max(w.order, ch.At+ch.Outcome.Wait)
	if at := now.Add(time.Duration(ch.Outcome.Wait) * time.Microsecond); at.After(w.at) {
		w.at = at
	}
}

// queueOf returns the queue of a charge. t.mu is held.
func (t *turns) queueOf(ch *limit.Charge, now time.Time) queued {
	a := actor{ch.Counters.(*counters).name, string(ch.Key)}
	q := t.by[a]
	if q == nil {
		if len(t.by) >= max(t.sweep, mostQueues) || t.by == nil {
			t.clear(now)
		}
		q = &queue{}
		t.by[a] = q
	}
	return queued{a, q, time.Duration(ch.Outcome.Reset*ch.Cost) * time.Microsecond}
}

// clear removes the queues in which nobody waits and the next need not wait either.
func (t *turns) clear(now time.Time) {
	kept := map[actor]*queue{}
	for a, q := range t.by {
		if len(q.waiters) > 0 || q.free.After(now) {
			kept[a] = q
		}
	}
	t.by, t.sweep = kept, 2*len(kept)
}

// position tells how long a waiter still has to wait as far as is known, and whether it is
// the first in all its queues. turns.mu is held.
func (w *waiter) position(now time.Time) (wait time.Duration, first bool) {
	wait, first = w.at.Sub(now), true
	for _, q := range w.queues {
		first = first && q.waiters[0] == w
		wait = max(wait, q.free.Sub(now))
	}
	return wait, first
}

// proceed takes a waiter out of its queues, because its time has come. turns.mu is held.
func (w *waiter) proceed(now time.Time) {
	for _, q := range w.queues {
		q.free = now.Add(q.gap)
	}
	w.remove()
}

// remove takes a waiter out of its queues, and wakes the first of each. turns.mu is held.
func (w *waiter) remove() {
	for _, q := range w.queues {
		q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
		if len(q.waiters) > 0 {
			select {
			case q.waiters[0].wake <- struct{}{}:
			default: // it has been woken already
			}
		}
	}
	w.queues = nil
}

// leave takes a request out of its queues that does not wait for its time.
func (t *turns) leave(charges []limit.Charge) {
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			t.mu.Lock()
			w.remove()
			t.mu.Unlock()
			return // the same in all charges
		}
	}
}

// Wait implements limit.Store. A request that gives up leaves its scheduled time to Redis if
// nobody has come after it. Otherwise the time passes unused: those behind, in whichever
// gateway, wait for the times that they were told.
func (s *Store) Wait(ctx context.Context, charges []limit.Charge) error {
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			return s.turns.await(ctx, w) // the same in all charges
		}
	}
	return nil
}

func (t *turns) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(time.Until(w.at))
	defer timer.Stop()
	for {
		t.mu.Lock()
		now := time.Now()
		wait, first := w.position(now)
		if first && wait <= 0 {
			w.proceed(now)
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		if wait > 0 {
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
