// SPDX-License-Identifier: MIT

package decide

import "testing"

// A request that finds its queue empty after all does not wait for the scheduled time of the
// request that used the same memory before.
func TestArriveForgetsFormerUser(t *testing.T) {
	t.Parallel()
	var q waitQueues // its waiter enters no room
	w := &waiter{next: 1_000_000}
	q.arrive(w, 1)
	if left, _ := q.left(w, 1); left > 0 {
		t.Errorf("it waits for %d microseconds", left)
	}
}
