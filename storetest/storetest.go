// SPDX-License-Identifier: MIT

// Package storetest is the conformance suite of limit.Store. A store that passes it can be
// injected into a Limiter. The tests of a store need ten lines:
//
//	func TestStore(t *testing.T) {
//		storetest.Suite{}.Run(t, func(t *testing.T) (limit.Store, func() int64) {
//			s := mystore.New()
//			t.Cleanup(s.Close)
//			return s, func() int64 { return time.Now().UnixMicro() }
//		})
//		// If the store can use the moments of its caller instead of a clock:
//		storetest.Suite{}.Replay(t, func(t *testing.T) limit.Store { return mystore.New() })
//		storetest.Suite{}.Agree(t, 1, 100_000, &replay.Meters{}, mystore.New())
//	}
//
// Run tests what limit.Store promises, also under concurrency. Replay compares each algorithm
// with scripts, and Agree compares the store with another one in random sequences.
//
// An algorithm of a program's own is tested by a [Suite] that lists it, on Diana's stores.
package storetest

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Suite is a set of algorithms and scripts. The functions of this package use its zero value.
type Suite struct {
	// Algorithms are the algorithms of the tests. Nil means limit.Algorithms(). A program with its own
	// algorithms lists all that it uses, so that the tests also combine them. Each must accept limits
	// of 0 to 2,000 requests a day. Unless it is a queue, it must allow an actor to use the whole
	// limit at once. The suite leaves out algorithms whose Meter is a limit.Adaptive, because latencies decide what those allow.
	Algorithms []limit.Algorithm

	// Scripts holds the .replay files for Replay, in any folder. Nil means Diana's own, which name
	// algorithms of package limit.
	Scripts fs.FS
}

func (s Suite) algorithms() []limit.Algorithm {
	if s.Algorithms == nil {
		return limit.Algorithms()
	}
	return slices.DeleteFunc(slices.Clone(s.Algorithms), func(a limit.Algorithm) bool {
		m, _ := a.New(limit.Limit{N: 1, Unit: time.Second}) // a mistake shows later
		_, adapts := m.(limit.Adaptive)
		return adapts
	})
}

// windows returns the algorithms of Run: beside those of the suite, fixed windows of the calendar. No year
// ends during a test, unless it runs over New Year.
func (s Suite) windows() []limit.Algorithm {
	all := s.algorithms()
	if s.Algorithms != nil {
		return all
	}
	for _, calendar := range []string{"total", "year"} {
		a := limit.FixedWindow()
		a.Names = []string{"W of a " + calendar}
		a.New = func(l limit.Limit) (limit.Meter, error) {
			return limit.FixedWindow().New(limit.Limit{N: l.N, Calendar: calendar})
		}
		all = append(all, a)
	}
	return all
}

// Run runs all tests except [Suite.Replay] and [Suite.Agree]. For each test open returns a new Store
// without counters, and a function that returns the moment by that store's clock.
func (s Suite) Run(t *testing.T, open func(t *testing.T) (s limit.Store, now func() int64)) {
	for _, tc := range []struct {
		name string
		run  func(*subject)
	}{
		{"limit", keepsTheLimit},
		{"apart", countsApart},
		{"all or none", allOrNone},
		{"shadow", shadowNeverRefuses},
		{"refund", refunds},
		{"debit", debitsIntoDebt},
		{"debit of a refused shadow", debitsRefusedShadows},
		{"debit under concurrency", debitsUnderConcurrency},
		{"debit of refused shadows under concurrency", debitsShadowsUnderConcurrency},
		{"refund under concurrency", refundsUnderConcurrency},
		{"outcome", outcomesSayWhatRemains},
		{"one step", decidesInOneStep},
		{"new meter", keepsStatesUnderANewMeter},
		{"new rate of a bucket", keepsABucketsMoment},
		{"exact under concurrency", exactUnderConcurrency},
		{"all or none under concurrency", allOrNoneUnderConcurrency},
		{"slots under concurrency", slotsUnderConcurrency},
		{"queue", queueIsBounded},
		{"reservations", reservesTimes},
		{"peek", peeks},
		{"peek of a queue", peeksAtQueues},
		{"peek under concurrency", peeksUnderConcurrency},
		{"reset", resets},
		{"reset of slots", resetKeepsSlots},
		{"reset of a queue", resetKeepsWaiters},
		{"reset under concurrency", resetsUnderConcurrency},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			store, now := open(t)
			tc.run(&subject{T: t, algorithms: s.windows(), store: store, now: now})
		})
	}
}

// Agree makes n random operations on both stores, one after another, and fails at the first
// different result. Both stores must use the moment that a call gets, and no clock of their
// own. No request waits: the meters of queues only compute scheduled times.
func (s Suite) Agree(t *testing.T, seed uint64, n int, a, b limit.Store) {
	t.Helper()
	t.Logf("seed %d", seed)
	g := agreement{T: t, algorithms: s.algorithms(), rnd: rand.New(rand.NewPCG(seed, seed)), a: a, b: b}
	g.run(n)
}

// subject is a store under test.
type subject struct {
	*testing.T
	algorithms []limit.Algorithm
	store      limit.Store
	now        func() int64
}

// instant returns the algorithms that never let a request wait.
func (s *subject) instant() (all []limit.Algorithm) {
	s.Helper()
	for _, a := range s.algorithms {
		if !isQueue(s.meter(a, limit.Limit{N: 1, Unit: day})) {
			all = append(all, a)
		}
	}
	return all
}

// isQueue reports whether requests wait under a meter.
func isQueue(m limit.Meter) bool {
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

// counters returns counters for n a day, which is longer than any test. Windows begin at the first
// request, so that none ends during a test.
func (s *subject) counters(name string, a limit.Algorithm, n int64) any {
	s.Helper()
	c, err := s.store.Counters(a.Name()+" "+name, s.meter(a, limit.Limit{N: n, Unit: day, AlignFirst: a.Uses("align")}))
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func charge(c any, key string, n int64) limit.Charge {
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

// left takes all that remains for an actor and returns how much it was.
func (s *subject) left(c any, key string) (n int) {
	s.Helper()
	for s.take(charge(c, key, 1)) {
		if n++; n > mostLeft {
			s.Fatalf("%d have been allowed, there is no end", n)
		}
	}
	return n
}

// debit makes charges into debt and returns them.
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

// wrong is an outcome that no store sets.
var wrong = limit.Outcome{Wait: -7, Remaining: -7, Reset: -7}

// peek returns the outcomes of charges.
func (s *subject) peek(charges ...limit.Charge) (outcomes []limit.Outcome) {
	s.Helper()
	for i := range charges {
		charges[i].Outcome = wrong
	}
	if err := s.store.Peek(context.Background(), s.now(), charges); err != nil {
		s.Fatal(err)
	}
	for _, ch := range charges {
		if ch.Outcome == wrong {
			s.Errorf("a peek did not set the outcome of a charge for %s", ch.Key)
		}
		outcomes = append(outcomes, ch.Outcome)
	}
	return outcomes
}

func (s *subject) reset(c any, key string) {
	s.Helper()
	if err := s.store.Reset(context.Background(), c, []byte(key)); err != nil {
		s.Fatal(err)
	}
}

// forgetful returns the algorithms whose counters Reset forgets.
func (s *subject) forgetful() (all []limit.Algorithm) {
	s.Helper()
	for _, a := range s.instant() {
		if !a.Held {
			all = append(all, a)
		}
	}
	return all
}
