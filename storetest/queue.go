// SPDX-License-Identifier: MIT

package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// As many requests wait as the queue holds, and none proceeds before its scheduled time.
func queueIsBounded(s *subject) {
	for _, a := range s.algorithms {
		const step = 20 * time.Millisecond
		m := s.meter(a, limit.Limit{N: int64(time.Second / step), Unit: time.Second, Queue: 3})
		if isQueue(m) {
			queueOf(s, a, m, step)
		}
	}
}

func queueOf(s *subject, a limit.Algorithm, m limit.Meter, step time.Duration) {
	c, err := s.store.Counters(a.Name()+" queue", m)
	if err != nil {
		s.Fatal(err)
	}
	start := time.Now()
	var wg sync.WaitGroup
	var admitted, refused int
	for range 8 {
		charges := []limit.Charge{charge(c, "x", 1)}
		if !s.take(charges...) {
			refused++
			continue
		}
		scheduled := time.Duration(admitted) * step
		admitted++
		wg.Go(func() {
			if err := s.store.Wait(context.Background(), charges); err != nil {
				s.Error(err)
			}
			if went := time.Since(start); went < scheduled {
				s.Errorf("%s: a request proceeded after %v, it was scheduled at %v", a.Name(), went, scheduled)
			}
		})
	}
	wg.Wait()
	// The requests take time to arrive, and in each step one of the queue proceeds.
	if spent := int(time.Since(start) / step); admitted < 4 || admitted > 4+spent {
		s.Errorf("%s: %d admitted and %d refused, want 1 at once and 3 waiting", a.Name(), admitted, refused)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for range 2 {
		charges := []limit.Charge{charge(c, "y", 1)}
		if s.take(charges...) && charges[0].Outcome.Wait > 0 {
			if err := s.store.Wait(gone, charges); err == nil {
				s.Errorf("%s: one whose context has ended did not get its error", a.Name())
			}
			s.store.Refund(charges)
		}
	}
}

// Each reservation has a scheduled time of its own, if the caller would wait that long. The store holds
// no request.
func reservesTimes(s *subject) {
	// One request is stored, so the first two proceed at once, and each of the others a day later.
	c := s.counters("scheduled times", limit.Reservations(), 1)
	var mu sync.Mutex
	var times []int64
	reserve := func(longest time.Duration) (ok bool, made []limit.Charge, scheduled int64) {
		made = []limit.Charge{charge(c, "x", 1)}
		made[0].Longest = longest.Microseconds()
		ok = s.take(made...)
		if err := s.store.Wait(context.Background(), made); err != nil {
			s.Error(err)
		}
		return ok, made, made[0].At + made[0].Outcome.Wait
	}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range offered {
				_, _, scheduled := reserve(10_000 * day)
				mu.Lock()
				times = append(times, scheduled)
				mu.Unlock()
				if ok, _, _ := reserve(0); ok { // at the very beginning
					mu.Lock()
					times = append(times, 0)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(times)
	times = slices.DeleteFunc(times, func(t int64) bool { return t == 0 })
	if least := callers*offered - 1; len(times) < least {
		s.Fatalf("%d have a scheduled time, want %d", len(times), least)
	}
	step := day.Microseconds()
	for i := len(times) - 1; i > 2; i-- {
		if times[i]-times[i-1] != step {
			s.Fatalf("times %d and %d are %d µs apart, want a day", i-1, i, times[i]-times[i-1])
		}
	}
	last := times[len(times)-1]

	if ok, made, _ := reserve(day); ok || made[0].Outcome.Wait <= 0 {
		s.Errorf("a caller that would wait for a day got %+v", made[0].Outcome)
	}
	_, middle, scheduled := reserve(10_000 * day)
	if scheduled != last+step {
		s.Errorf("the next scheduled time is %d µs after the last, want a day", scheduled-last)
	}
	_, end, scheduled := reserve(10_000 * day)
	if scheduled != last+2*step {
		s.Errorf("the one after that is %d µs later, want two days", scheduled-last)
	}
	s.store.Refund(middle)
	if _, _, scheduled := reserve(10_000 * day); scheduled != last+3*step {
		s.Errorf("one in the middle was refunded, and the next scheduled time is %d µs after the last, want three days", scheduled-last)
	}
	s.store.Refund(end) // as little
	_, end, _ = reserve(10_000 * day)
	s.store.Refund(end)
	if _, _, scheduled := reserve(10_000 * day); scheduled != last+4*step {
		s.Errorf("the last was refunded, and the next scheduled time is %d µs after the last, want four days", scheduled-last)
	}
}
