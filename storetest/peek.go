// SPDX-License-Identifier: MIT

package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/limit"
)

// Peek describes the state before the charge and changes nothing.
func peeks(s *subject) {
	for _, a := range s.algorithms {
		if o := s.peek(charge(s.counters("closed to peeks", a, 0), "x", 1)); o[0].Allowed {
			s.Errorf("%s: a peek at a limit of 0 was allowed", a.Name())
		}
	}
	for _, a := range s.instant() {
		c, other := s.counters("peek", a, 5), s.counters("peek too", a, 5)
		for i := range 10 {
			if o := s.peek(charge(c, fmt.Sprint("new", i), 1)); !o[0].Allowed || o[0].Remaining != 5 {
				s.Errorf("%s: a peek at an actor never seen: %+v", a.Name(), o[0])
			}
		}
		s.take(charge(c, "x", 3))
		for range 10 {
			if o := s.peek(charge(c, "x", 2)); !o[0].Allowed || o[0].Remaining != 2 {
				s.Errorf("%s: a peek of 2 with 2 of 5 left: %+v", a.Name(), o[0])
			}
			// Each charge is evaluated, also behind one that is refused, and a shadow too.
			charges := []limit.Charge{charge(c, "x", 3), charge(other, "x", 1), charge(other, "y", 6)}
			charges[2].Shadow = true
			o := s.peek(charges...)
			if o[0].Allowed || o[0].Wait <= 0 || o[0].Remaining != 2 {
				s.Errorf("%s: a peek of 3 with 2 of 5 left: %+v", a.Name(), o[0])
			}
			if !o[1].Allowed || o[1].Remaining != 5 || o[2].Allowed || o[2].Remaining != 5 {
				s.Errorf("%s: behind a refusal a peek of 1 and one of 6 with 5 left: %+v", a.Name(), o[1:])
			}
		}
		if n, m := s.left(c, "x"), s.left(other, "x"); n != 2 || m != 5 {
			s.Errorf("%s: after peeks %d and %d are left, want 2 and 5", a.Name(), n, m)
		}
		if o := s.peek(charge(c, "x", 1)); o[0].Allowed || o[0].Remaining != 0 || o[0].Wait <= 0 {
			s.Errorf("%s: a peek with none left: %+v", a.Name(), o[0])
		}
	}
}

// A peek at a queue says how long a request would wait, and takes no scheduled time.
func peeksAtQueues(s *subject) {
	for _, a := range s.algorithms {
		m := s.meter(a, limit.Limit{N: 1, Unit: bounds.MaxQueueWait / 2, Queue: 1})
		if !isQueue(m) {
			continue
		}
		c, err := s.store.Counters(a.Name()+" peek", m)
		if err != nil {
			s.Fatal(err)
		}
		s.take(charge(c, "x", 1))
		for range 10 {
			if o := s.peek(charge(c, "x", 1)); !o[0].Allowed || o[0].Wait <= 0 || o[0].Wait > (bounds.MaxQueueWait/2).Microseconds() {
				s.Errorf("%s: a peek behind one request: %+v", a.Name(), o[0])
			}
		}
		second := []limit.Charge{charge(c, "x", 1)}
		if !s.take(second...) || second[0].Outcome.Wait > (bounds.MaxQueueWait/2).Microseconds() {
			s.Errorf("%s: after peeks the second request: %+v", a.Name(), second[0].Outcome)
		}
		if o := s.peek(charge(c, "x", 1)); o[0].Allowed || o[0].Wait <= 0 {
			s.Errorf("%s: a peek at a queue that is full: %+v", a.Name(), o[0])
		}
		s.store.Refund(second)
	}
}

// A peek beside other calls sees a state that some Take has left, and does not disturb them.
func peeksUnderConcurrency(s *subject) {
	const n = callers * offered / 4
	for _, a := range s.instant() {
		c := s.counters("peeks", a, n)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for i := range offered {
					if i%2 == 0 {
						if s.take(charge(c, "x", 1)) {
							admitted.Add(1)
						}
					} else if o := s.peek(charge(c, "x", 1))[0]; o.Remaining < 0 || o.Remaining > n || o.Allowed != (o.Remaining > 0) {
						s.Errorf("%s: a peek beside others: %+v", a.Name(), o)
					}
				}
			})
		}
		wg.Wait()
		if admitted.Load() != n {
			s.Errorf("%s: %d were admitted beside peeks, want %d", a.Name(), admitted.Load(), n)
		}
	}
}
