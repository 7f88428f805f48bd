// SPDX-License-Identifier: MIT

package decide

import "testing"

// A request that finds its queue empty after all does not wait for the scheduled time of the
// request that used the same memory before.
func TestArriveForgetsFormerUser(t *testing.T) {
	t.Parallel()
	var q waitQueues // its waiter enters no room
	w := &waiter{next: 1_000_000}
	q.arrive(w, 1, true)
	if left, _ := q.left(w, 1); left > 0 {
		t.Errorf("it waits for %d microseconds", left)
	}
}

// A goroutine that reads the clock first and arrives last waits at least as long as the waiter in
// front of it.
func TestArriveInOrderOfTime(t *testing.T) {
	t.Parallel()
	var q waitQueues
	var front, back waiter
	q.arrive(&front, 20, true)
	q.arrive(&back, 10, true)
	if back.began < front.began {
		t.Errorf("the waiter behind began at %d, before the one in front at %d", back.began, front.began)
	}
	q.arrive(&front, 5, false) // again, with its own time
	if front.began != 5 {
		t.Errorf("it began at %d, want 5", front.began)
	}
}

// A store can learn of a reset before the first limits are bound.
func TestForgetBeforeLimits(t *testing.T) {
	t.Parallel()
	New(Options{}).Forget("counters", []byte("ann"))
}
