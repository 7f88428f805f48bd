// SPDX-License-Identifier: MIT

package decide

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The room is that of a slow obvious model, whatever rules are loaded and removed.
func TestWaitRoom(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	r := &waitRoom{}
	inside, own := map[string]int{}, map[string]int{}
	sum := func() (all, shared int) {
		for c, n := range inside {
			all, shared = all+n, shared+max(n-own[c], 0)
		}
		return all, shared
	}
	for range 300 {
		if rnd.IntN(10) == 0 { // a reload
			rules := map[string]bool{}
			for c := range 6 {
				if rnd.IntN(2) == 0 {
					rules[fmt.Sprint(c)] = true
				}
			}
			clear(own)
			for c := range rules {
				own[c] = MaxWaiting / 4 / len(rules)
			}
			r.divide(rules)
		}
		c := fmt.Sprint(rnd.IntN(6))
		if rnd.IntN(3) == 0 {
			for n := rnd.IntN(inside[c] + 1); n > 0; n-- {
				r.leave(c)
				inside[c]--
			}
			continue
		}
		for range rnd.IntN(4000) {
			all, shared := sum()
			want := all < MaxWaiting && (inside[c] < own[c] || shared < MaxWaiting*3/4)
			if got := r.enter(c); got != want {
				t.Fatalf("enter: %v, want %v with %v inside of %v", got, want, inside, own)
			}
			if !want {
				break
			}
			inside[c]++
		}
	}
	for c, n := range inside {
		for range n {
			r.leave(c)
		}
	}
	if r.waiting != 0 || r.shared != 0 || len(r.by) != 0 {
		t.Errorf("%d wait, %d of them in the common part, under %d rules, want none after all have left", r.waiting, r.shared, len(r.by))
	}
}
