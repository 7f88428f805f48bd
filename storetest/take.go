// SPDX-License-Identifier: MIT

package storetest

import (
	"fmt"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/limit"
)

func keepsTheLimit(s *subject) {
	for _, a := range s.algorithms {
		closed := s.counters("closed", a, 0)
		if s.take(charge(closed, "x", 1)) {
			s.Errorf("%s: a limit of 0 allowed a request", a.Name())
		}
	}
	for _, a := range s.instant() {
		c := s.counters("limit", a, 3)
		if s.take(charge(c, "x", 4)) {
			s.Errorf("%s: a cost over the limit was allowed", a.Name())
		}
		if !s.take(charge(c, "x", 2)) {
			s.Errorf("%s: 2 of 3 were refused", a.Name())
		}
		if s.take(charge(c, "x", 2)) {
			s.Errorf("%s: 2 were allowed with 1 left", a.Name())
		}
		if n := s.left(c, "x"); n != 1 {
			s.Errorf("%s: %d were left, want 1", a.Name(), n)
		}
	}
}

func countsApart(s *subject) {
	for _, a := range s.instant() {
		c, d := s.counters("one", a, 2), s.counters("other", a, 2)
		s.left(c, "x")
		for _, key := range []string{"", "y", "x ", "X", "\x00x", string(make([]byte, 1000))} {
			if n := s.left(c, key); n != 2 {
				s.Errorf("%s: actor %q has %d, want 2", a.Name(), key, n)
			}
		}
		if n := s.left(d, "x"); n != 2 {
			s.Errorf("%s: under other counters x has %d, want 2", a.Name(), n)
		}
	}
}

// A request that one rule refuses is charged to none.
func allOrNone(s *subject) {
	for i, a := range s.instant() {
		for j, b := range s.instant() {
			name := fmt.Sprint(i, j)
			wide, narrow := s.counters("wide"+name, a, 5), s.counters("narrow"+name, b, 1)
			both := func() bool { return s.take(charge(wide, "x", 1), charge(narrow, "x", 1)) }
			if !both() {
				s.Fatalf("%s and %s: the first was refused", a.Name(), b.Name())
			}
			for range 10 {
				if both() {
					s.Fatalf("%s and %s: the narrow one allowed a second request", a.Name(), b.Name())
				}
			}
			if n := s.left(wide, "x"); n != 4 {
				s.Errorf("%s and %s: the wide one has %d left, want 4", a.Name(), b.Name(), n)
			}
		}
	}
}

func shadowNeverRefuses(s *subject) {
	for _, a := range s.instant() {
		shadow, wide := s.counters("shadow", a, 1), s.counters("beside a shadow", a, 3)
		for i := range 3 {
			charges := []limit.Charge{charge(shadow, "x", 1), charge(wide, "x", 1)}
			charges[0].Shadow = true
			if !s.take(charges...) {
				s.Errorf("%s: request %d was refused", a.Name(), i)
			}
			if got := charges[0].Outcome.Allowed; got != (i == 0) {
				s.Errorf("%s: request %d: the shadow says %v", a.Name(), i, got)
			}
		}
		if n := s.left(wide, "x"); n != 0 {
			s.Errorf("%s: %d are left, want 0", a.Name(), n)
		}
		// A refused request is not charged to a shadow either.
		fresh := s.counters("shadow of a refusal", a, 2)
		charges := []limit.Charge{charge(fresh, "x", 1), charge(wide, "x", 1)}
		charges[0].Shadow = true
		if s.take(charges...) {
			s.Errorf("%s: a refusal was overruled", a.Name())
		}
		if n := s.left(fresh, "x"); n != 2 {
			s.Errorf("%s: after a refusal the shadow has %d, want 2", a.Name(), n)
		}
		// A shadow without a cost does not refuse either.
		open := s.counters("beside a shadow without a cost", a, 3)
		charges = []limit.Charge{charge(s.counters("shadow without a cost", a, 0), "x", 0), charge(open, "x", 1)}
		charges[0].Shadow = true
		if !s.take(charges...) || s.left(open, "x") != 2 {
			s.Errorf("%s: beside a shadow without a cost, %d of 3 are left, want 2", a.Name(), s.left(open, "x"))
		}
	}
}

func refunds(s *subject) {
	for _, a := range s.instant() {
		c, d := s.counters("refund", a, 3), s.counters("refund too", a, 5)
		charges := []limit.Charge{charge(c, "x", 2), charge(d, "x", 1)}
		s.take(charges...)
		s.store.Refund(charges)
		if n, m := s.left(c, "x"), s.left(d, "x"); n != 3 || m != 5 {
			s.Errorf("%s: after all was refunded %d and %d are left, want 3 and 5", a.Name(), n, m)
		}
		refused := []limit.Charge{charge(c, "x", 1)}
		s.take(refused...)
		s.store.Refund(refused)
		if n := s.left(c, "x"); n != 0 {
			s.Errorf("%s: refunding a refusal freed %d", a.Name(), n)
		}
	}
}

// A debit is made where a request would be refused, and can be refunded.
func debitsIntoDebt(s *subject) {
	for _, a := range s.instant() {
		c := s.counters("debit", a, 5)
		s.debit(charge(c, "x", 3))
		if n := s.left(c, "x"); n != 2 {
			s.Errorf("%s: 3 of 5 were debited and %d are left, want 2", a.Name(), n)
		}
		s.debit(charge(c, "x", 1), charge(c, "y", 7))
		for _, key := range []string{"x", "y"} {
			if s.take(charge(c, key, 1)) {
				s.Errorf("%s: %s is in debt, and a request was allowed", a.Name(), key)
			}
		}
		s.debit(charge(c, "z", bounds.MaxN), charge(c, "z", bounds.MaxN), charge(c, "z", bounds.MaxN))
		if s.take(charge(c, "z", 1)) {
			s.Errorf("%s: a request was allowed beside the largest debt", a.Name())
		}
		none := s.counters("debit closed", a, 0)
		s.debit(charge(none, "x", 1))

		d := s.counters("debit and refund", a, 5)
		debited := s.debit(charge(d, "x", 3))
		s.store.Refund(debited)
		// A store for many processes may not find the charge, because it cannot say when it made it.
		if n := s.left(d, "x"); n < 2 || n > 5 {
			s.Errorf("%s: a debit of 3 was refunded and %d of 5 are left", a.Name(), n)
		}
	}
}

// A shadow with Debit is charged although it is refused, unless another charge refuses the request.
func debitsRefusedShadows(s *subject) {
	for _, a := range s.instant() {
		c, narrow := s.counters("debited shadow", a, 5), s.counters("beside a debited shadow", a, 2)
		debited := func(n int64, others ...limit.Charge) []limit.Charge {
			charges := append([]limit.Charge{charge(c, "x", n)}, others...)
			charges[0].Shadow, charges[0].Debit = true, true
			return charges
		}
		first := debited(3)
		if !s.take(first...) || !first[0].Outcome.Allowed || first[0].Outcome.Remaining != 2 {
			s.Errorf("%s: 3 of 5: %+v", a.Name(), first[0].Outcome)
		}
		if s.take(debited(4, charge(narrow, "x", 3))...) {
			s.Errorf("%s: a refusal was overruled", a.Name())
		}
		if out := s.peek(charge(c, "x", 1))[0]; out.Remaining != 2 {
			s.Errorf("%s: after a refused request %d of 5 are left, want 2", a.Name(), out.Remaining)
		}
		second := debited(4, charge(narrow, "x", 1)) // 7 of 5
		if !s.take(second...) || second[0].Outcome.Allowed || second[0].Outcome.Remaining != 2 || second[0].Outcome.Wait <= 0 {
			s.Errorf("%s: 4 where 2 are left: %+v", a.Name(), second[0].Outcome)
		}
		if s.take(charge(c, "x", 1)) {
			s.Errorf("%s: 7 of 5 are used, and a request was allowed", a.Name())
		}
		third := debited(4)
		s.take(third...)
		s.store.Refund(third)
		s.store.Refund(second)
		// An algorithm can cut off debt, so a refund can return more than was debited.
		if n, beside := s.left(c, "x"), s.left(narrow, "x"); n < 2 || n > 5 || beside != 2 {
			s.Errorf("%s: after refunds %d of 5 are left, and %d of 2 beside them", a.Name(), n, beside)
		}
		closed := []limit.Charge{charge(s.counters("debited shadow, closed", a, 0), "x", 1)}
		closed[0].Shadow, closed[0].Debit = true, true
		if !s.take(closed...) || closed[0].Outcome.Allowed {
			s.Errorf("%s: a debit at a limit of 0: %+v", a.Name(), closed[0].Outcome)
		}
	}
}

func outcomesSayWhatRemains(s *subject) {
	for _, a := range s.instant() {
		c := s.counters("left", a, 2)
		for want := range int64(2) {
			charges := []limit.Charge{charge(c, "x", 1)}
			s.take(charges...)
			if got := charges[0].Outcome; !got.Allowed || got.Remaining != 1-want {
				s.Errorf("%s: request %d: %+v", a.Name(), want, got)
			}
		}
		charges := []limit.Charge{charge(c, "x", 1)}
		s.take(charges...)
		if got := charges[0].Outcome; got.Allowed || got.Remaining != 0 || got.Wait <= 0 {
			s.Errorf("%s: the third: %+v", a.Name(), got)
		}
	}
}

// Earlier charges count against a changed limit. A retired handle changes nothing for another handle
// that is in use.
func keepsStatesUnderANewMeter(s *subject) {
	for _, a := range s.instant() {
		old := s.counters("reload", a, 5)
		for range 3 {
			s.take(charge(old, "x", 1))
		}
		smaller := s.counters("reload", a, 2)
		s.store.Retire(old)
		if s.take(charge(smaller, "x", 1)) {
			s.Errorf("%s: 3 were used, and a limit of 2 allows another", a.Name())
		}
		if n := s.left(smaller, "y"); n != 2 {
			s.Errorf("%s: a newcomer has %d, want 2", a.Name(), n)
		}
	}
}

// When its limit changes, a token bucket will be full at the same moment as before. If rate and
// burst change alike, it is as full in proportion. If only the burst changes, the difference is
// available, or lost, at once.
func keepsABucketsMoment(s *subject) {
	for _, change := range []struct{ n, burst, left int64 }{{20, 20, 10}, {5, 5, 2}, {10, 20, 15}, {10, 6, 1}, {20, 10, 0}} {
		at := func(n, burst int64) any {
			c, err := s.store.Counters(fmt.Sprint("bucket", change), s.meter(limit.TokenBucket(), limit.Limit{N: n, Unit: day, Burst: burst}))
			if err != nil {
				s.Fatal(err)
			}
			return c
		}
		s.take(charge(at(10, 10), "x", 5)) // which drip in within half a day
		if got := s.left(at(change.n, change.burst), "x"); int64(got) != change.left {
			s.Errorf("5 of 10 a day were left, and %d of %d a day with a burst of %d are, want %d", got, change.n, change.burst, change.left)
		}
	}
}
