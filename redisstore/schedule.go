// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/waitqueue"
	"github.com/diana-limiter/diana/limit"
)

// schedule keeps the requests of a leaky bucket apart when they proceed.
//
// Redis computes a scheduled time for each request. If a gateway wakes up late, several
// scheduled times may have passed, and all these requests would proceed at once. Therefore
// the requests of one actor proceed in the order of their scheduled times. Each keeps the
// distance of the bucket from the one before, or a little less to catch up:
//
//	scheduled   A    B    C    D         E
//	proceed             A    B    C    D    E       the gateway was late for A and B
//
// Each gateway knows only its own requests. If it is late by x, one of its requests can be up
// to x closer to a request of another gateway than the bucket says.
type schedule struct {
	mu    sync.Mutex // guards the rest
	by    map[actor]*queue
	sweep int // the number of queues at which the next sweep is due; 0: mostQueues
}

// queue is the waiting requests of an actor, and when the last one proceeded.
type queue struct {
	waitqueue.Queue[*waiter]           // in the order of their scheduled times
	free                     time.Time // when the next may proceed
}

// waiter is a request that waits for its scheduled time. If it is in several queues, it has the
// same time in each.
type waiter struct {
	waitqueue.Signal
	at     time.Time // its scheduled time by this process' clock
	order  int64     // the same by Redis' clock, for the order
	queues []queued
}

// queued is one of a waiter's queues.
type queued struct {
	actor
	*queue
	gap time.Duration // the distance that the next request must keep
}

// mostQueues is the smallest number of queues at which useless queues are removed. After that,
// the next removal is due at twice the number that was left. So a new queue costs little,
// however many actors wait.
const mostQueues = 1024

// join adds a request that Redis has allowed to its queues. If it must wait, its outcomes get a
// Wait, and a Ticket for await.
func (t *schedule) join(charges []limit.Charge) {
	var w *waiter
	now := time.Now()
	for i := range charges {
		ch := &charges[i]
		if c := ch.Counters.(*counters); !c.queue || !ch.Outcome.Allowed || ch.Shadow {
			continue
		}
		if w == nil {
			w = &waiter{Signal: waitqueue.NewSignal()}
			t.mu.Lock()
			defer t.mu.Unlock()
		}
		w.add(t.queueOf(ch, now), ch, now)
	}
	if w == nil {
		return
	}
	for _, q := range w.queues {
		q.Insert(q.Ahead(func(other *waiter) bool { return other.order <= w.order }), w)
	}
	if wait, head := w.position(now); head && wait <= 0 {
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
func (t *schedule) queueOf(ch *limit.Charge, now time.Time) queued {
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

// clear removes the queues in which no request waits, now or next.
func (t *schedule) clear(now time.Time) {
	kept := map[actor]*queue{}
	for a, q := range t.by {
		if q.Len() > 0 || q.free.After(now) {
			kept[a] = q
		}
	}
	t.by, t.sweep = kept, 2*len(kept)
}

// forget removes the distance that the next request of an actor must keep, unless a request waits.
func (t *schedule) forget(a actor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.by[a]; q != nil && q.Len() == 0 {
		q.free = time.Time{}
	}
}

// position returns how long a waiter still must wait as far as is known, and whether it is the
// head of all its queues. schedule.mu is held.
func (w *waiter) position(now time.Time) (wait time.Duration, head bool) {
	wait, head = w.at.Sub(now), true
	for _, q := range w.queues {
		head = head && q.IsHead(w)
		wait = max(wait, q.free.Sub(now))
	}
	return wait, head
}

// catchUp is how much closer than its distance a request may follow one that was late. It is also at most a twentieth
// of the distance. A timer wakes a little late. If the next request kept its distance from that, lateness would add
// up. Then requests of this gateway would come close to those of others.
const catchUp = 2 * time.Millisecond

// proceed removes a waiter from its queues because its time has come. schedule.mu is held.
func (w *waiter) proceed(now time.Time) {
	for _, q := range w.queues {
		late := max(now.Sub(w.at), 0)
		q.free = now.Add(q.gap - min(late, q.gap/20, catchUp))
	}
	w.remove()
}

// remove removes a waiter from its queues. schedule.mu is held.
func (w *waiter) remove() {
	for _, q := range w.queues {
		q.Leave(w)
	}
	w.queues = nil
}

// leave removes a request from its queues that will not wait for its scheduled time.
func (t *schedule) leave(charges []limit.Charge) {
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			t.mu.Lock()
			w.remove()
			t.mu.Unlock()
			return // the same in all charges
		}
	}
}

func (t *schedule) await(ctx context.Context, w *waiter) error {
	timer := time.NewTimer(time.Until(w.at))
	defer timer.Stop()
	for {
		t.mu.Lock()
		now := time.Now()
		wait, head := w.position(now)
		if head && wait <= 0 {
			w.proceed(now)
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		if wait > 0 {
			timer.Reset(wait)
		}
		if err := w.Sleep(ctx, timer.C); err != nil {
			return err
		}
	}
}
