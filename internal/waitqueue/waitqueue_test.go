// SPDX-License-Identifier: MIT

package waitqueue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/internal/waitqueue"
)

type waiter struct {
	waitqueue.Signal
	name int
}

func newWaiter(name int) *waiter { return &waiter{waitqueue.NewSignal(), name} }

func (w *waiter) woken() bool { return len(w.Signal) > 0 }

func names(waiters []*waiter) (all []int) {
	for _, w := range waiters {
		all = append(all, w.name)
	}
	return all
}

func expect(t *testing.T, what string, have []*waiter, want ...int) {
	t.Helper()
	if got := names(have); !slices.Equal(got, want) {
		t.Errorf("%s: waiters %v, want %v", what, got, want)
	}
}

func TestLeaveWakesTheNextHead(t *testing.T) {
	t.Parallel()
	var q waitqueue.Queue[*waiter]
	a, b, c := newWaiter(1), newWaiter(2), newWaiter(3)
	q.WakeHead() // of an empty queue
	q.Leave(a)   // which the queue does not hold
	for _, w := range []*waiter{a, b, c} {
		q.Join(w)
	}
	expect(t, "joined", q.Waiters(), 1, 2, 3)
	expect(t, "behind 1", q.Behind(a), 2, 3)
	expect(t, "behind 3", q.Behind(c))
	if !q.IsHead(a) || q.IsHead(b) || q.Head() != a || q.Len() != 3 {
		t.Error("1 is not the head of three")
	}
	q.Leave(b)
	if a.woken() || c.woken() {
		t.Error("a waiter is woken although the head is the same")
	}
	q.Leave(b)
	expect(t, "2 has left", q.Waiters(), 1, 3)
	expect(t, "behind 2", q.Behind(b))
	q.Leave(a)
	if !c.woken() || a.woken() || b.woken() {
		t.Error("the next head is not the only waiter that is woken")
	}
	q.Leave(c)
	if q.Len() != 0 || q.IsHead(c) {
		t.Error("the queue is not empty")
	}
}

func TestInsertKeepsAnOrder(t *testing.T) {
	t.Parallel()
	var q waitqueue.Queue[*waiter]
	for _, name := range []int{5, 2, 9, 7, 1} {
		w := newWaiter(name)
		q.Insert(q.Ahead(func(other *waiter) bool { return other.name < w.name }), w)
	}
	expect(t, "inserted", q.Waiters(), 1, 2, 5, 7, 9)
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := newWaiter(1)
		w.Wake()
		w.Wake() // counts as one
		if err := w.Sleep(t.Context(), nil); err != nil || time.Since(start) != 0 {
			t.Errorf("woken before: %v after %v", err, time.Since(start))
		}
		if err := w.Sleep(t.Context(), time.After(time.Second)); err != nil || time.Since(start) != time.Second {
			t.Errorf("by the timer: %v after %v", err, time.Since(start))
		}
		time.AfterFunc(time.Second, w.Wake)
		if err := w.Sleep(t.Context(), nil); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("woken: %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the cause"))
		if err := w.Sleep(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("the context has ended: %v", err)
		}
	})
}
