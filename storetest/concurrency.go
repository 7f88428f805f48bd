// SPDX-License-Identifier: MIT

package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
)

// Each debit counts once, also while requests are decided.
func debitsUnderConcurrency(s *subject) {
	const most = callers * offered
	for _, a := range s.instant() {
		c := s.counters("debits", a, most)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for i := range offered {
					if i%2 == 0 {
						s.debit(charge(c, "x", 1))
					} else if s.take(charge(c, "x", 1)) {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if want := int64(most / 2); allowed.Load() != want {
			s.Errorf("%s: %d were allowed, want %d", a.Name(), allowed.Load(), want)
		}
		if n := s.left(c, "x"); n != 0 {
			s.Errorf("%s: %d are left after as many debits and requests as the limit", a.Name(), n)
		}
	}
}

// Of shadows with Debit as many are allowed as the limit has room for, and all consume.
func debitsShadowsUnderConcurrency(s *subject) {
	const room = callers * offered / 2
	for _, a := range s.instant() {
		c, open := s.counters("debited shadows", a, room), s.counters("beside debited shadows", a, callers*offered)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for i := range offered {
					charges := []limit.Charge{charge(c, "x", 1), charge(open, "x", 1)}[:1+i%2]
					charges[0].Shadow, charges[0].Debit = true, true
					if !s.take(charges...) {
						s.Errorf("%s: a shadow has refused a request", a.Name())
					}
					if charges[0].Outcome.Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if n := allowed.Load(); n != room {
			s.Errorf("%s: %d shadows were allowed, want %d", a.Name(), n, room)
		}
		if n, beside := s.left(c, "x"), s.left(open, "x"); n != 0 || beside != room {
			s.Errorf("%s: %d are left, want 0, and %d beside them, want %d", a.Name(), n, beside, room)
		}
	}
}

// A refund makes room at once, also while many requests take and refund.
func refundsUnderConcurrency(s *subject) {
	for _, a := range s.instant() {
		c := s.counters("take and refund", a, 1000)
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range offered {
					charges := []limit.Charge{charge(c, "x", 1)}
					if s.take(charges...) {
						s.store.Refund(charges)
					}
				}
			})
		}
		wg.Wait()
		if n := s.left(c, "x"); n != 1000 {
			s.Errorf("%s: %d are left after all was refunded, want 1000", a.Name(), n)
		}
	}
}

const (
	callers = 64
	offered = 14 // by each caller, an even number
)

// The callers use one of two handles, as they do while a configuration is reloaded.
func exactUnderConcurrency(s *subject) {
	for _, a := range s.instant() {
		for _, n := range []int64{1, 100, callers*offered + 5} {
			name := fmt.Sprint("crowd", n)
			handles := []any{s.counters(name, a, n), s.counters(name, a, n)}
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for range offered {
						if s.take(charge(handles[i%2], "x", 1)) {
							admitted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if want := min(n, callers*offered); admitted.Load() != want {
				s.Errorf("%s: admitted %d of %d, want %d", a.Name(), admitted.Load(), callers*offered, want)
			}
		}
	}
}

// Requests with overlapping sets of counters, in any order. An allowed request is charged everywhere,
// and a refused one nowhere.
func allOrNoneUnderConcurrency(s *subject) {
	var all []any
	for _, a := range s.instant() {
		all = append(all, s.counters("overlap", a, 300))
	}
	used := make([]atomic.Int64, len(all))
	var wg sync.WaitGroup
	for w := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(7, uint64(w)))
			for range offered {
				order := rnd.Perm(len(all))[:1+rnd.IntN(len(all))]
				var charges []limit.Charge
				for _, i := range order {
					charges = append(charges, charge(all[i], "x", 1))
				}
				if s.take(charges...) {
					for _, i := range order {
						used[i].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for i, c := range all {
		if left := s.left(c, "x"); left+int(used[i].Load()) != 300 {
			s.Errorf("counters %d: %d admitted and %d left, want 300 together", i, used[i].Load(), left)
		}
	}
}

func slotsUnderConcurrency(s *subject) {
	for _, a := range s.algorithms {
		if a.Held {
			slotsOf(s, a)
		}
	}
}

func slotsOf(s *subject, a limit.Algorithm) {
	c := s.counters("slots", a, 5)
	var held, most, admitted atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range offered {
				charges := []limit.Charge{charge(c, "x", 1)}
				if !s.take(charges...) {
					continue
				}
				admitted.Add(1)
				now := held.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				held.Add(-1)
				s.store.Refund(charges)
			}
		})
	}
	wg.Wait()
	if most.Load() > 5 || admitted.Load() == 0 {
		s.Errorf("%s: %d slots were held at once, of %d admitted, want at most 5", a.Name(), most.Load(), admitted.Load())
	}
	if n := s.left(c, "x"); n != 5 {
		s.Errorf("%s: %d slots are free after all were released, want 5", a.Name(), n)
	}
}
