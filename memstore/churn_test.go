// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/limit"
)

// At the bound, records are evicted and replaced all the time, while other goroutines read
// them. These tests make that happen as often as possible.

// churn is how many requests each worker makes.
var churn = func() int {
	if race.Enabled {
		return 4000
	}
	return 40_000
}()

// oneGoroutine skips a test in which the race detector can find nothing, because only one goroutine uses the store.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
}

// crowd runs work on many goroutines.
func crowd(work func(rnd *rand.Rand)) {
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() { work(rand.New(rand.NewPCG(uint64(w), 3))) })
	}
	wg.Wait()
}

// Requests that lock several records never deadlock.
func TestChurnWithSeveralRules(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxKeys: 50})
	var all []any
	for i := range 3 {
		all = append(all, open(t, s, limit.TokenBucket(), limit.Limit{N: 1000, Unit: time.Duration(i+1) * time.Millisecond}))
	}
	crowd(func(rnd *rand.Rand) {
		charges := make([]limit.Charge, 3)
		for range churn {
			key := fmt.Append(nil, rnd.IntN(2000))
			for i := range charges {
				charges[i] = limit.Charge{Counters: all[i], Key: key, Cost: 1}
			}
			charges[2].Key = nil
			if _, err := s.Take(context.Background(), s.Now(), charges); err != nil {
				t.Error(err)
			}
		}
	})
}

// No goroutine changes a state in cells while it is checked for eviction, and no other record
// uses its block meanwhile.
func TestChurnOfCells(t *testing.T) {
	t.Parallel()
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingWindow()} {
		s := New(Options{MaxKeys: 16})
		c := open(t, s, a, limit.Limit{N: 64, Unit: time.Millisecond})
		crowd(func(rnd *rand.Rand) {
			for range churn / 4 {
				ch := []limit.Charge{{Counters: c, Key: fmt.Append(nil, rnd.IntN(40)), Cost: 1 + rnd.Int64N(64)}}
				if _, err := s.Take(context.Background(), s.Now(), ch); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// No charge reaches a record that now belongs to another actor.
func TestChurnOfSlots(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxKeys: 4})
	c := open(t, s, limit.Concurrency(), limit.Limit{N: 1000})
	crowd(func(rnd *rand.Rand) {
		for range churn {
			ch := []limit.Charge{{Counters: c, Key: fmt.Append(nil, rnd.IntN(8)), Cost: 1}}
			if ok, _ := s.Take(context.Background(), s.Now(), ch); ok {
				s.Refund(ch)
			}
		}
	})
	for i := range 8 {
		ch := []limit.Charge{{Counters: c, Key: fmt.Append(nil, i), Cost: 1}}
		if _, err := s.Take(context.Background(), s.Now(), ch); err != nil || ch[0].Outcome.Remaining != 999 {
			t.Errorf("actor %d: %+v after all have left, want 999 places besides its own", i, ch[0].Outcome)
		}
		s.Refund(ch)
	}
}

// A queue outlives the rule under which it was made, also if the rule is added again.
func TestQueueOutlivesRetirement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 10)
		for _, name := range []string{"a", "b", "c"} {
			q.arrive(name)
		}
		q.store.Retire(q.c)
		other := open(t, q.store, limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Second})
		for i := range 100_000 { // every shard is rebuilt
			take(t, q.store, other, q.store.Now(), fmt.Sprint(i))
		}
		q.c = open(t, q.store, limit.LeakyBucket(), limit.Limit{N: 10, Unit: time.Second, Queue: 10})
		q.arrive("d")
		q.expect("a@0", "b@100", "c@200", "d@300")
	})
}

// So do the slots that are held under a rule, and no other counters get the rule's id.
func TestSlotsOutliveRetirement(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	places := func() any { return open(t, s, limit.Concurrency(), limit.Limit{N: 2}) }
	c := places()
	var held []limit.Charge
	for range 2 {
		ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
		if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
			t.Fatal(ok, err)
		}
		held = append(held, ch...)
	}
	s.Retire(c)
	for i := range s.records.shards {
		s.records.shards[i].sweep(s.records.keep, map[uint64]bool{})
	}
	c = places()
	if take(t, s, c, 0, "x") {
		t.Error("a third is allowed while two are inside")
	}
	s.Refund(held[:1])
	if !take(t, s, c, 0, "x") || take(t, s, c, 0, "x") {
		t.Error("when one has left, want that one is allowed")
	}

	unused := open(t, s, limit.SlidingLog(), limit.Limit{N: 1, Unit: time.Second})
	for _, retired := range []any{c, unused} {
		s.Retire(retired)
	}
	s.records.families.lastID = maxID // as if all names had been used
	if id := open(t, s, limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Second}).(*counters).id; id != unused.(*counters).id {
		t.Errorf("id %d is used again, want that of no record", id)
	}
	if c, err := s.Counters("more", c.(*counters).Meter); err == nil {
		t.Errorf("id %d is used again", c.(*counters).id)
	}
}

// A request under two leaky buckets proceeds in both at the same moment, so that the requests
// behind it keep their distance in each.
func TestTwoQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		fast := open(t, s, limit.LeakyBucket(), limit.Limit{N: 10, Unit: time.Second, Queue: 50})
		slow := open(t, s, limit.LeakyBucket(), limit.Limit{N: 1, Unit: time.Second, Queue: 10})
		var mu sync.Mutex
		var left []int64
		var wg sync.WaitGroup
		send := func(charges ...limit.Charge) {
			ok, err := s.Take(context.Background(), s.Now(), charges)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			wg.Go(func() {
				if err := s.Wait(context.Background(), charges); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				left = append(left, s.Now())
			})
			synctest.Wait()
		}
		for range 5 {
			send(limit.Charge{Counters: fast, Cost: 1}, limit.Charge{Counters: slow, Key: []byte("x"), Cost: 1})
			send(limit.Charge{Counters: fast, Cost: 1})
			time.Sleep(130 * time.Millisecond)
		}
		wg.Wait()
		for i := 1; i < len(left); i++ {
			if d := left[i] - left[i-1]; d < 100_000 {
				t.Errorf("request %d went on %d µs after the one before, want 100,000 at least", i, d)
			}
		}
	})
}

// When a request leaves two queues, the faster queue does not keep the delay that the slower one
// had caused.
func TestLeaverOfTwoQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 50)
		slow := open(t, q.store, limit.LeakyBucket(), limit.Limit{N: 1, Unit: time.Second, Queue: 10})
		var both [][]limit.Charge
		for range 3 { // at 0, 1 and 2 s
			charges := []limit.Charge{{Counters: q.c, Key: []byte("x"), Cost: 1}, {Counters: slow, Cost: 1}}
			if ok, err := q.store.Take(context.Background(), q.store.Now(), charges); !ok || err != nil {
				t.Fatal(ok, err)
			}
			both = append(both, charges)
		}
		q.arrive("a")
		for _, charges := range both[1:] {
			q.store.Refund(charges)
			synctest.Wait()
		}
		q.arrive("b")
		q.expect("a@100", "b@200")
	})
}

// An actor that has used the counter of newcomers starts with its state when it gets a counter
// of its own. A counter for everyone is always separate.
func TestFromOverflowToOwn(t *testing.T) {
	t.Parallel()
	for _, a := range limit.Algorithms() {
		if a.Held || a.Name() == "LB" {
			continue
		}
		s := New(Options{MaxKeys: 1})
		now := s.Now() / 3_600_000_000 * 3_600_000_000
		full := open(t, s, limit.FixedWindow(), limit.Limit{N: 1, Unit: time.Second})
		c := open(t, s, a, limit.Limit{N: 2, Unit: time.Hour})
		take(t, s, full, now, "someone")
		for i := range 4 {
			if got := take(t, s, c, now, "x"); got != (i < 2) {
				t.Errorf("%s: request %d among the newcomers: %v", a.Name(), i, got)
			}
		}
		now += 2_000_000
		for i := range 3 {
			if take(t, s, c, now, "x") {
				t.Errorf("%s: request %d was allowed when there was room again, after 2 of 2", a.Name(), i)
			}
		}
		s = New(Options{MaxKeys: 1})
		full = open(t, s, limit.FixedWindow(), limit.Limit{N: 1, Unit: time.Hour})
		all := open(t, s, a, limit.Limit{N: 2, Unit: time.Hour})
		take(t, s, full, now, "someone")
		take(t, s, all, now, "newcomer")
		for i := range 3 {
			if got := take(t, s, all, now, ""); got != (i < 2) {
				t.Errorf("%s: request %d of everyone: %v", a.Name(), i, got)
			}
		}
	}
}
