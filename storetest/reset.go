// SPDX-License-Identifier: MIT

package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Reset forgets one actor under one rule, and nothing else.
func resets(s *subject) {
	for _, a := range s.forgetful() {
		c, other := s.counters("reset", a, 3), s.counters("reset too", a, 3)
		s.reset(c, "x") // which is not there yet
		for _, use := range []func(){
			func() { s.left(c, "x") },
			func() { s.debit(charge(c, "x", 30)) },
			func() { s.left(c, "x") },
		} {
			use()
			s.left(c, "y")
			s.left(other, "x")
			if o := s.peek(charge(c, "x", 1)); o[0].Allowed {
				s.Errorf("%s: before a reset: %+v", a.Name(), o[0])
			}
			s.reset(s.counters("reset", a, 3), "x") // another handle of the same counters
			if o := s.peek(charge(c, "x", 1)); !o[0].Allowed || o[0].Remaining != 3 {
				s.Errorf("%s: after a reset: %+v", a.Name(), o[0])
			}
			if n := s.left(c, "x"); n != 3 {
				s.Errorf("%s: %d are left after a reset, want 3", a.Name(), n)
			}
			if n, m := s.left(c, "y"), s.left(other, "x"); n != 0 || m != 0 {
				s.Errorf("%s: a reset of x left %d to y, and %d to x under another rule, want none", a.Name(), n, m)
			}
		}
		made := []limit.Charge{charge(c, "z", 2)}
		s.take(made...)
		s.reset(c, "z")
		s.store.Refund(made)
		if n := s.left(c, "z"); n != 3 {
			s.Errorf("%s: after a reset and a late refund %d are left, want 3", a.Name(), n)
		}
	}
}

// Slots that are held stay held.
func resetKeepsSlots(s *subject) {
	for _, a := range s.algorithms {
		if !a.Held {
			continue
		}
		c := s.counters("reset", a, 5)
		made := []limit.Charge{charge(c, "x", 3)}
		s.take(made...)
		s.reset(c, "x")
		if n := s.left(c, "x"); n != 2 {
			s.Errorf("%s: 3 of 5 slots are held, and after a reset %d are free, want 2", a.Name(), n)
		}
		s.store.Refund(made)
		if n := s.left(c, "x"); n != 3 {
			s.Errorf("%s: 3 of 5 slots were released after a reset and %d are free, want 3", a.Name(), n)
		}
	}
}

// Requests that wait proceed at their scheduled times, and a reset queue takes new ones.
func resetKeepsWaiters(s *subject) {
	for _, a := range s.algorithms {
		const step = 20 * time.Millisecond
		m := s.meter(a, limit.Limit{N: int64(time.Second / step), Unit: time.Second, Queue: 3})
		if !isQueue(m) {
			continue
		}
		c, err := s.store.Counters(a.Name()+" reset", m)
		if err != nil {
			s.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 4 {
			charges := []limit.Charge{charge(c, "x", 1)}
			if !s.take(charges...) {
				s.Fatalf("%s: request %d was refused", a.Name(), i)
			}
			wg.Go(func() {
				if err := s.store.Wait(context.Background(), charges); err != nil {
					s.Error(err)
				}
				if went := time.Since(start); went < time.Duration(i)*step {
					s.Errorf("%s: request %d proceeded after %v, before its scheduled time", a.Name(), i, went)
				}
			})
		}
		s.reset(c, "x")
		wg.Wait()

		s.debit(charge(c, "y", 1000))
		s.reset(c, "y")
		charges := []limit.Charge{charge(c, "y", 1)}
		if !s.take(charges...) || charges[0].Outcome.Wait > 0 {
			s.Errorf("%s: the first request after a reset: %+v", a.Name(), charges[0].Outcome)
		}
	}
}

// Each reset lets the limit be used once more, and no more than that.
func resetsUnderConcurrency(s *subject) {
	const n, resets = 10, 5
	for _, a := range s.forgetful() {
		c := s.counters("resets", a, n)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range offered {
					if s.take(charge(c, "x", 1)) {
						admitted.Add(1)
					}
				}
				if i < resets {
					s.reset(c, "x")
				}
			})
		}
		wg.Wait()
		if got := admitted.Load(); got < n || got > n*(resets+1) {
			s.Errorf("%s: %d were admitted with %d resets, want %d to %d", a.Name(), got, resets, n, n*(resets+1))
		}
		s.reset(c, "x")
		if left := s.left(c, "x"); left != n {
			s.Errorf("%s: %d are left after a reset, want %d", a.Name(), left, n)
		}
	}
}
