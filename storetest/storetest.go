// SPDX-License-Identifier: MIT

// Package storetest judges implementations of limit.Store: what Store promises, as
// tests. An implementation's own tests call [Run], and whatever else only it promises. Those
// of an algorithm that is not Diana's run a [Suite] that has it, on Diana's stores.
package storetest

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Suite is what a store is judged by. The functions of this package are the methods of its
// zero value.
type Suite struct {
	// Algorithms are those that stores are tried with. Nil means limit.Algorithms(). A
	// program that has its own gives all of its vocabulary, so that they are also tried
	// together. Each must be able to keep 0 to 2,000 requests a day, and let an actor have
	// them all at once, if not by a queue.
	Algorithms []limit.Algorithm

	// Scripts holds the .replay files that Replay plays, in any of its folders. Nil means
	// Diana's, which name algorithms of package limit.
	Scripts fs.FS
}

func (s Suite) algorithms() []limit.Algorithm {
	if s.Algorithms == nil {
		return limit.Algorithms()
	}
	return s.Algorithms
}

// Run is Run of the zero [Suite].
func Run(t *testing.T, open func(t *testing.T) (s limit.Store, now func() int64)) {
	Suite{}.Run(t, open)
}

// Run runs the suite, except for [Suite.Replay] and [Suite.Agree]. open returns a Store of its
// own for each test, with no counters yet; now returns the moment by that store's clock.
func (s Suite) Run(t *testing.T, open func(t *testing.T) (s limit.Store, now func() int64)) {
	for _, tc := range []struct {
		name string
		run  func(*subject)
	}{
		{"limit", (*subject).keepsTheLimit},
		{"apart", (*subject).countsApart},
		{"all or none", (*subject).allOrNone},
		{"shadow", (*subject).shadowNeverRefuses},
		{"give", (*subject).givesBack},
		{"debit", (*subject).debitsIntoDebt},
		{"debit under concurrency", (*subject).debitsUnderConcurrency},
		{"give under concurrency", (*subject).givesBackUnderConcurrency},
		{"outcome", (*subject).tellsWhatIsLeft},
		{"new meter", (*subject).keepsStatesUnderANewMeter},
		{"new rate of a bucket", (*subject).keepsABucketsMoment},
		{"exact under concurrency", (*subject).exactUnderConcurrency},
		{"all or none under concurrency", (*subject).allOrNoneUnderConcurrency},
		{"places under concurrency", (*subject).placesUnderConcurrency},
		{"queue", (*subject).queueIsBounded},
		{"reservations", (*subject).reservationsHaveTurns},
		{"peek", (*subject).peeks},
		{"peek of a queue", (*subject).peeksAtQueues},
		{"peek under concurrency", (*subject).peeksUnderConcurrency},
		{"reset", (*subject).resets},
		{"reset of slots", (*subject).resetKeepsSlots},
		{"reset of a queue", (*subject).resetKeepsWaiters},
		{"reset under concurrency", (*subject).resetsUnderConcurrency},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			store, now := open(t)
			tc.run(&subject{T: t, algorithms: s.algorithms(), store: store, now: now})
		})
	}
}

// subject is a store under test.
type subject struct {
	*testing.T
	algorithms []limit.Algorithm
	store      limit.Store
	now        func() int64
}

// instant are the algorithms that answer at once.
func (s *subject) instant() (all []limit.Algorithm) {
	s.Helper()
	for _, a := range s.algorithms {
		if !queues(s.meter(a, limit.Limit{N: 1, Unit: day})) {
			all = append(all, a)
		}
	}
	return all
}

// queues reports whether a meter lets requests wait.
func queues(m limit.Meter) bool {
	_, ok := m.(limit.Queue)
	return ok
}

func (s *subject) meter(a limit.Algorithm, l limit.Limit) limit.Meter {
	s.Helper()
	m, err := a.New(l)
	if err != nil {
		s.Fatalf("%s: %v", a.Name(), err)
	}
	return m
}

const day = 24 * time.Hour

// counters returns counters for n a day, which no test outlasts.
func (s *subject) counters(name string, a limit.Algorithm, n int64) limit.Counters {
	s.Helper()
	c, err := s.store.Counters(a.Name()+" "+name, s.meter(a, limit.Limit{N: n, Unit: day, Align: alignFor(a)}))
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// alignFor lets windows begin with their first request, so that none ends in a test.
func alignFor(a limit.Algorithm) limit.Align {
	if a.Uses("align") {
		return limit.AlignFirst
	}
	return limit.AlignClock
}

func charge(c limit.Counters, key string, n int64) limit.Charge {
	return limit.Charge{Counters: c, Key: []byte(key), Cost: n}
}

func (s *subject) take(charges ...limit.Charge) bool {
	s.Helper()
	ok, err := s.store.Take(context.Background(), s.now(), charges)
	if err != nil {
		s.Fatal(err)
	}
	return ok
}

// mostLeft is more than any limit of the suite.
const mostLeft = 10_000

// left takes what is left for an actor and returns how much it was.
func (s *subject) left(c limit.Counters, key string) (n int) {
	s.Helper()
	for s.take(charge(c, key, 1)) {
		if n++; n > mostLeft {
			s.Fatalf("%d have been allowed, there is no end to it", n)
		}
	}
	return n
}

func (s *subject) keepsTheLimit() {
	for _, a := range s.algorithms {
		closed := s.counters("closed", a, 0)
		if s.take(charge(closed, "x", 1)) {
			s.Errorf("%s: a limit of 0 let one pass", a.Name())
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

func (s *subject) countsApart() {
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

// A request that any rule refuses is charged to none.
func (s *subject) allOrNone() {
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
					s.Fatalf("%s and %s: the narrow one let a second pass", a.Name(), b.Name())
				}
			}
			if n := s.left(wide, "x"); n != 4 {
				s.Errorf("%s and %s: the wide one has %d left, want 4", a.Name(), b.Name(), n)
			}
		}
	}
}

func (s *subject) shadowNeverRefuses() {
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
		// A request that is refused is not charged to a shadow either.
		fresh := s.counters("shadow of a refusal", a, 2)
		charges := []limit.Charge{charge(fresh, "x", 1), charge(wide, "x", 1)}
		charges[0].Shadow = true
		if s.take(charges...) {
			s.Errorf("%s: a refusal was overruled", a.Name())
		}
		if n := s.left(fresh, "x"); n != 2 {
			s.Errorf("%s: after a refusal the shadow has %d, want 2", a.Name(), n)
		}
	}
}

func (s *subject) givesBack() {
	for _, a := range s.instant() {
		c, d := s.counters("give", a, 3), s.counters("give too", a, 5)
		charges := []limit.Charge{charge(c, "x", 2), charge(d, "x", 1)}
		s.take(charges...)
		s.store.Refund(charges)
		if n, m := s.left(c, "x"), s.left(d, "x"); n != 3 || m != 5 {
			s.Errorf("%s: after giving all back %d and %d are left, want 3 and 5", a.Name(), n, m)
		}
		refused := []limit.Charge{charge(c, "x", 1)}
		s.take(refused...)
		s.store.Refund(refused)
		if n := s.left(c, "x"); n != 0 {
			s.Errorf("%s: giving a refusal back freed %d", a.Name(), n)
		}
	}
}

// A debit is made also where a request would be refused, and can be given back.
func (s *subject) debitsIntoDebt() {
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
		s.debit(charge(c, "z", limit.MaxN), charge(c, "z", limit.MaxN), charge(c, "z", limit.MaxN))
		if s.take(charge(c, "z", 1)) {
			s.Errorf("%s: a request was allowed beside the largest debt", a.Name())
		}
		none := s.counters("debit closed", a, 0)
		s.debit(charge(none, "x", 1))

		d := s.counters("debit and give", a, 5)
		debited := s.debit(charge(d, "x", 3))
		s.store.Refund(debited)
		// A store of many processes may not find it, as it cannot say when it made it.
		if n := s.left(d, "x"); n < 2 || n > 5 {
			s.Errorf("%s: a debit of 3 was given back and %d of 5 are left", a.Name(), n)
		}
	}
}

// debit makes charges into debt, and returns them.
func (s *subject) debit(charges ...limit.Charge) []limit.Charge {
	s.Helper()
	s.store.Debit(s.now(), charges)
	for _, ch := range charges {
		if !ch.Outcome.Allowed {
			s.Errorf("a debit was not allowed: %+v", ch.Outcome)
		}
	}
	return charges
}

// Each debit counts once, also while requests are decided.
func (s *subject) debitsUnderConcurrency() {
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

// What is given back at once is free again, also while many come and go.
func (s *subject) givesBackUnderConcurrency() {
	for _, a := range s.instant() {
		c := s.counters("give and take", a, 1000)
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
			s.Errorf("%s: %d are left after all has been given back, want 1000", a.Name(), n)
		}
	}
}

func (s *subject) tellsWhatIsLeft() {
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

// What has been used counts against a limit that is changed, and a handle that is
// retired takes nothing with it while another is in use.
func (s *subject) keepsStatesUnderANewMeter() {
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

// A token bucket whose limit is changed will be full when it would have been. So with
// rate and burst alike it is as full, in proportion, as before; a new burst alone is there
// at once, or is gone.
func (s *subject) keepsABucketsMoment() {
	for _, change := range []struct{ n, burst, left int64 }{{20, 20, 10}, {5, 5, 2}, {10, 20, 15}, {10, 6, 1}, {20, 10, 0}} {
		at := func(n, burst int64) limit.Counters {
			c, err := s.store.Counters(fmt.Sprint("bucket", change), s.meter(limit.TokenBucket(), limit.Limit{N: n, Unit: day, Burst: burst}))
			if err != nil {
				s.Fatal(err)
			}
			return c
		}
		s.take(charge(at(10, 10), "x", 5)) // which are back in half a day
		if got := s.left(at(change.n, change.burst), "x"); int64(got) != change.left {
			s.Errorf("5 of 10 a day were left, and %d of %d a day with a burst of %d are, want %d", got, change.n, change.burst, change.left)
		}
	}
}

const (
	callers = 64
	offered = 20 // by each caller
)

// The callers use one of two handles, as they do while a configuration is reloaded.
func (s *subject) exactUnderConcurrency() {
	for _, a := range s.instant() {
		for _, n := range []int64{1, 100, callers*offered + 5} {
			name := fmt.Sprint("crowd", n)
			handles := []limit.Counters{s.counters(name, a, n), s.counters(name, a, n)}
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

// Requests with overlapping sets of counters, in any order: whatever was admitted is
// charged everywhere, and what was refused nowhere.
func (s *subject) allOrNoneUnderConcurrency() {
	var all []limit.Counters
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

func (s *subject) placesUnderConcurrency() {
	for _, a := range s.algorithms {
		if a.Held {
			s.placesOf(a)
		}
	}
}

func (s *subject) placesOf(a limit.Algorithm) {
	c := s.counters("places", a, 5)
	var inside, most, admitted atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range offered {
				charges := []limit.Charge{charge(c, "x", 1)}
				if !s.take(charges...) {
					continue
				}
				admitted.Add(1)
				now := inside.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				inside.Add(-1)
				s.store.Refund(charges)
			}
		})
	}
	wg.Wait()
	if most.Load() > 5 || admitted.Load() == 0 {
		s.Errorf("%s: %d were inside at once, of %d admitted, want at most 5", a.Name(), most.Load(), admitted.Load())
	}
	if n := s.left(c, "x"); n != 5 {
		s.Errorf("%s: %d places are free after all have left, want 5", a.Name(), n)
	}
}

// As many wait as the queue holds, and no one goes on before its turn.
func (s *subject) queueIsBounded() {
	for _, a := range s.algorithms {
		const step = 20 * time.Millisecond
		m := s.meter(a, limit.Limit{N: int64(time.Second / step), Unit: time.Second, Queue: 3})
		if queues(m) {
			s.queueOf(a, m, step)
		}
	}
}

func (s *subject) queueOf(a limit.Algorithm, m limit.Meter, step time.Duration) {
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
		turn := time.Duration(admitted) * step
		admitted++
		wg.Go(func() {
			if err := s.store.Wait(context.Background(), charges); err != nil {
				s.Error(err)
			}
			if went := time.Since(start); went < turn {
				s.Errorf("%s: one went on after %v, its turn was at %v", a.Name(), went, turn)
			}
		})
	}
	wg.Wait()
	// Arriving takes time, and each step of it frees a place.
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

// Whoever reserves is told a turn of its own, if it would wait so long, and is not held.
func (s *subject) reservationsHaveTurns() {
	// One is stored, so the first two go on at once, and each of the others a day later.
	c := s.counters("turns", limit.Reservations(), 1)
	var mu sync.Mutex
	var turns []int64
	reserve := func(longest time.Duration) (ok bool, made []limit.Charge, turn int64) {
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
				_, _, turn := reserve(10_000 * day)
				mu.Lock()
				turns = append(turns, turn)
				mu.Unlock()
				if ok, _, _ := reserve(0); ok { // at the very beginning
					mu.Lock()
					turns = append(turns, 0)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(turns)
	turns = slices.DeleteFunc(turns, func(t int64) bool { return t == 0 })
	if least := callers*offered - 1; len(turns) < least {
		s.Fatalf("%d have a turn, want %d", len(turns), least)
	}
	step := day.Microseconds()
	for i := len(turns) - 1; i > 2; i-- {
		if turns[i]-turns[i-1] != step {
			s.Fatalf("turns %d and %d are %d µs apart, want a day", i-1, i, turns[i]-turns[i-1])
		}
	}
	last := turns[len(turns)-1]

	if ok, made, _ := reserve(day); ok || made[0].Outcome.Wait <= 0 {
		s.Errorf("who would wait for a day was told %+v", made[0].Outcome)
	}
	_, middle, turn := reserve(10_000 * day)
	if turn != last+step {
		s.Errorf("the next turn is %d µs after the last, want a day", turn-last)
	}
	_, end, turn := reserve(10_000 * day)
	if turn != last+2*step {
		s.Errorf("the turn after that is %d µs later, want two days", turn-last)
	}
	s.store.Refund(middle)
	if _, _, turn := reserve(10_000 * day); turn != last+3*step {
		s.Errorf("one in the middle was given back, and the next turn is %d µs after the last, want three days", turn-last)
	}
	s.store.Refund(end) // as little
	_, end, _ = reserve(10_000 * day)
	s.store.Refund(end)
	if _, _, turn := reserve(10_000 * day); turn != last+4*step {
		s.Errorf("the last was given back, and the next turn is %d µs after the last, want four days", turn-last)
	}
}
