// SPDX-License-Identifier: MIT

// Package waitqueue orders the goroutines that wait for the same thing.
//
// A waiter is a struct of the package that uses the queue. It embeds a [Signal], by which
// others wake it, and holds what that package needs to know. The waiter at the front is the
// head:
//
//	joins ──→ [ 4 ][ 3 ][ 2 ][ 1 ] ──→ leaves, and wakes 2
//	                          head
//
// Usually only the head looks whether it may proceed, and the others sleep until they become
// the head. A queue decides nothing: the package that uses it says which request proceeds and when.
//
//	type waiter struct {
//		waitqueue.Signal
//		...
//	}
//
//	q.Join(w) // each call of q holds the lock that guards q; Sleep does not
//	for !mayProceed(w) { // which calls q.IsHead(w)
//		if err := w.Sleep(ctx, timer.C); err != nil {
//			break
//		}
//	}
//	q.Leave(w)
package waitqueue

import (
	"context"
	"slices"
	"time"
)

// Signal wakes one waiter. Use NewSignal. It is safe for concurrent use.
type Signal chan struct{}

// NewSignal returns a Signal that has not been woken.
func NewSignal() Signal { return make(Signal, 1) }

// Wake ends the current Sleep of the waiter, or its next one if it does not sleep now. It never
// blocks. Calls before that Sleep count as one.
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default: // the waiter has been woken already
	}
}

// Sleep returns nil when the waiter is woken or timer delivers a value, and the error of ctx
// when ctx ends. The waiter then looks again whether it may proceed; Sleep does not say why it
// returned. A nil timer never delivers a value.
func (s Signal) Sleep(ctx context.Context, timer <-chan time.Time) error {
	select {
	case <-timer:
	case <-s:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Waiter is the pointer to a struct that embeds a Signal.
type Waiter interface {
	comparable
	Wake()
}

// Queue holds waiters in order, without duplicates. The zero value is an empty queue. A Queue
// has no lock; the package that uses it guards it by one of its own. Join and IsHead take
// constant time, and Leave and Insert time in proportion to the waiters behind.
type Queue[W Waiter] struct{ waiters []W }

// Len returns how many waiters the queue holds.
func (q *Queue[W]) Len() int { return len(q.waiters) }

// Head returns the first waiter. It panics if the queue is empty.
func (q *Queue[W]) Head() W { return q.waiters[0] }

// IsHead reports whether w is the first waiter.
func (q *Queue[W]) IsHead(w W) bool { return len(q.waiters) > 0 && q.waiters[0] == w }

// Waiters returns all waiters, the head first. The caller may read the slice until the queue
// changes, and must not change it.
func (q *Queue[W]) Waiters() []W { return q.waiters }

// Behind returns the waiters behind w, like Waiters. It returns nil if the queue does not hold w.
func (q *Queue[W]) Behind(w W) []W {
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return nil
	}
	return q.waiters[i+1:]
}

// Join adds w at the end. The queue must not hold w yet.
func (q *Queue[W]) Join(w W) { q.waiters = append(q.waiters, w) }

// Insert adds w with i waiters in front of it; see Ahead. If w becomes the head, the old head
// is not woken. The queue must not hold w yet.
func (q *Queue[W]) Insert(i int, w W) { q.waiters = slices.Insert(q.waiters, i, w) }

// Ahead returns how many waiters are at the front for which before returns true. It is for
// Insert, in queues with an order of their own. before reports whether a waiter belongs in front
// of the new one. Ahead looks from the end, as most waiters belong there.
func (q *Queue[W]) Ahead(before func(W) bool) int {
	for i := len(q.waiters); i > 0; i-- {
		if before(q.waiters[i-1]) {
			return i
		}
	}
	return 0
}

// Leave removes w. If w was the head, the next waiter becomes the head and is woken. Leave
// does nothing if the queue does not hold w.
func (q *Queue[W]) Leave(w W) {
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if i == 0 {
		q.WakeHead()
	}
}

// WakeHead wakes the head, if there is one.
func (q *Queue[W]) WakeHead() {
	if len(q.waiters) > 0 {
		q.waiters[0].Wake()
	}
}
