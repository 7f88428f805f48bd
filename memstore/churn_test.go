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

	"github.com/diana-limiter/diana/limit"
)

// At the bound records are evicted and their places used again all the time, under
// the hands of those who are just looking at them. These tests make that happen as
// often as they can.

// churn is how many requests each worker makes.
var churn = func() int {
	if raceEnabled {
		return 4000
	}
	return 40_000
}()

// crowd runs work on many goroutines.
func crowd(work func(rnd *rand.Rand)) {
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() { work(rand.New(rand.NewPCG(uint64(w), 3))) })
	}
	wg.Wait()
}

// Requests that lock several records never wait for one another in a circle.
func TestChurnWithSeveralRules(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxKeys: 50})
	var all []limit.Counters
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

// States in cells are judged for eviction while no one changes them, and their
// blocks are nobody else's meanwhile.
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

// No charge lands in a record that has become another's.
func TestChurnOfPlaces(t *testing.T) {
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

// A line outlives the rule that it was made under, also if the rule comes back.
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

// So do the places that are held under a rule, and nobody else's counters get their slot.
func TestPlacesOutliveRetirement(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	places := func() limit.Counters { return open(t, s, limit.Concurrency(), limit.Limit{N: 2}) }
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
	for i := range s.shards {
		s.shards[i].sweep(s, map[uint64]bool{})
	}
	c = places()
	if take(t, s, c, 0, "x") {
		t.Error("a third is let in while two are inside")
	}
	s.Refund(held[:1])
	if !take(t, s, c, 0, "x") || take(t, s, c, 0, "x") {
		t.Error("when one has left, want one to be let in")
	}

	unused := open(t, s, limit.SlidingLog(), limit.Limit{N: 1, Unit: time.Second})
	for _, retired := range []limit.Counters{c, unused} {
		s.Retire(retired)
	}
	s.lastSlot = maxSlot // as if all names had been used
	if slot := open(t, s, limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Second}).(*counters).slot; slot != unused.(*counters).slot {
		t.Errorf("slot %d is used again, want that of no record", slot)
	}
	if c, err := s.Counters("more", c.(*counters).Meter); err == nil {
		t.Errorf("slot %d is used again", c.(*counters).slot)
	}
}

// A request under two leaky buckets takes its turn in both when it goes on, so that
// those behind it in either keep their distance.
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

// One that leaves two queues does not leave the time behind for which the slower had put it
// off in the faster.
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

// An actor that has used the counter of newcomers brings that with it when there is
// room for a counter of its own; and one counter for all is always its own.
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
