// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/limit"
)

// peek returns what one more request of an actor would get.
func peek(t testing.TB, s *Store, c any, now int64, key string) limit.Charge {
	t.Helper()
	ch := []limit.Charge{{Counters: c, Key: []byte(key), Cost: 1}}
	if err := s.Peek(context.Background(), now, ch); err != nil {
		t.Fatal(err)
	}
	return ch[0]
}

// A peek makes no record and does not allocate. It says what a Take of a newcomer would get,
// also when newcomers share a counter.
func TestPeekOfNewcomers(t *testing.T) { // not parallel, because it counts allocations
	s := New(Options{MaxKeys: 8})
	now := s.Now()
	for _, c := range perHour(t, s, 100) {
		if ch := peek(t, s, c, now, "new"); !ch.Outcome.Allowed || ch.Outcome.Remaining != 100 || ch.Shared {
			t.Errorf("a peek of a newcomer: %+v", ch)
		}
	}
	if n := s.Keys(); n != 0 {
		t.Errorf("peeks have made %d records", n)
	}
	for _, c := range perHour(t, s, 100) {
		for i := range 20 {
			take(t, s, c, now, fmt.Sprint("key", i))
		}
		keys := s.Keys()
		ch := peek(t, s, c, now, "new")
		taken := []limit.Charge{{Counters: c, Key: []byte("new"), Cost: 1}}
		if _, err := s.Take(context.Background(), now, taken); err != nil {
			t.Fatal(err)
		}
		if !ch.Shared || !taken[0].Shared || ch.Outcome.Remaining != taken[0].Outcome.Remaining+1 || s.Keys() != keys {
			t.Errorf("a peek of a newcomer that shares a counter: %+v, and the take: %+v", ch, taken[0])
		}
	}
	if race.Enabled {
		return
	}
	for _, c := range perHour(t, s, 7) {
		ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}, {Counters: c, Key: []byte("key1"), Cost: 1}}
		if n := testing.AllocsPerRun(100, func() { _ = s.Peek(context.Background(), now, ch) }); n > 0 {
			t.Errorf("a peek makes %v allocations", n)
		}
	}
}

// After a reset waiters proceed at their scheduled times, and a later request keeps its distance
// from the last of them.
func TestResetOfQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		c := open(t, s, limit.LeakyBucket(), limit.Limit{N: 10, Unit: time.Second, Queue: 10})
		start := time.Now()
		arrive := func(cost int64, at time.Duration) {
			charges := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: cost}}
			want := peek(t, s, c, s.Now(), "x").Outcome.Wait
			if ok, err := s.Take(context.Background(), s.Now(), charges); !ok || err != nil {
				t.Fatal(ok, err)
			}
			if charges[0].Outcome.Wait != want {
				t.Errorf("a peek says a wait of %d, and a take %d", want, charges[0].Outcome.Wait)
			}
			go func() {
				if err := s.Wait(context.Background(), charges); err != nil {
					t.Error(err)
				}
				if went := time.Since(start); went != at {
					t.Errorf("a request proceeded at %v, want %v", went, at)
				}
			}()
			synctest.Wait()
		}
		arrive(1, 0)
		arrive(1, 100*time.Millisecond)
		arrive(3, 200*time.Millisecond)
		s.Debit(s.Now(), []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 100}})
		if err := s.Reset(context.Background(), c, []byte("x")); err != nil {
			t.Fatal(err)
		}
		arrive(1, 500*time.Millisecond)
		time.Sleep(time.Second)
		if o := peek(t, s, c, s.Now(), "x").Outcome; o.Wait != 0 {
			t.Errorf("a peek when all have proceeded: %+v", o)
		}
	})
}

// A peek counts how late the head of a queue is, as a Take does.
func TestPeekOfLateQueue(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	c := open(t, s, limit.LeakyBucket(), limit.Limit{N: 1, Unit: 10 * time.Second, Queue: 1})
	now := s.Now()
	for range 2 {
		take(t, s, c, now, "x") // and nobody calls Wait
	}
	const late = 13_000_000
	if o := peek(t, s, c, now+late, "x").Outcome; !o.Allowed || o.Wait != 10_000_000 {
		t.Errorf("a peek behind a waiter that is 3 s late: %+v, want a wait of 10 s", o)
	}
	if o := peek(t, s, c, now+11_000_000, "x").Outcome; o.Wait != 10_000_000 {
		t.Errorf("a peek behind a waiter that is 1 s late: %+v, want a wait of 10 s", o)
	}
}
