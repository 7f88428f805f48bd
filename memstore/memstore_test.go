// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/limit"
)

func open(t testing.TB, s *Store, a limit.Algorithm, l limit.Limit) any {
	t.Helper()
	return named(t, s, fmt.Sprintf("%s %v", a.Name(), l), a, l)
}

func named(t testing.TB, s *Store, name string, a limit.Algorithm, l limit.Limit) any {
	t.Helper()
	m, err := a.New(l)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Counters(name, m)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// take charges 1 for an actor and reports whether it was allowed.
func take(t testing.TB, s *Store, c any, now int64, key string) bool {
	t.Helper()
	ok, err := s.Take(context.Background(), now, []limit.Charge{{Counters: c, Key: []byte(key), Cost: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// perHour returns limits of n an hour under all algorithms but the leaky bucket.
func perHour(t testing.TB, s *Store, n int64) (all []any) {
	t.Helper()
	for _, a := range limit.Algorithms() {
		if a.Name() != "LB" {
			all = append(all, open(t, s, a, limit.Limit{N: n, Unit: time.Hour}))
		}
	}
	return all
}

// Tables grow, are searched and changed at the same time, and no charge is lost or made twice.
func TestExactWhileGrowing(t *testing.T) {
	t.Parallel()
	const (
		workers = 8
		actors  = 2000
		n       = 5
	)
	s := New(Options{})
	now := s.Now()
	all := perHour(t, s, n)
	admitted := make([]atomic.Int64, actors)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			charges := make([]limit.Charge, len(all))
			for round := range 3 {
				for _, a := range rnd.Perm(actors) {
					for i, c := range all {
						charges[i] = limit.Charge{Counters: c, Key: fmt.Append(nil, a), Cost: 1}
					}
					ok, err := s.Take(context.Background(), now, charges)
					if err != nil {
						t.Error(err)
					}
					if ok {
						admitted[a].Add(1)
					}
					// A crowd of newcomers makes the tables grow.
					take(t, s, all[0], now, fmt.Sprint(w, round, a))
				}
			}
		})
	}
	wg.Wait()
	for a := range admitted {
		if got := admitted[a].Load(); got != n {
			t.Fatalf("actor %d: admitted %d, want %d", a, got, n)
		}
	}
}

func TestRefundWhileGrowing(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	places := open(t, s, limit.Concurrency(), limit.Limit{N: 3})
	var inside, most atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				charges := []limit.Charge{{Counters: places, Key: []byte("x"), Cost: 1}}
				if ok, _ := s.Take(context.Background(), s.Now(), charges); ok {
					now := inside.Add(1)
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					runtime.Gosched()
					inside.Add(-1)
					s.Refund(charges)
				}
				take(t, s, places, 0, fmt.Sprint(w, i))
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d were inside at once, want at most 3", most.Load())
	}
	for i := range 4 {
		if ok := take(t, s, places, 0, "x"); ok != (i < 3) {
			t.Errorf("slot %d after all have left: %v", i, ok)
		}
	}
}

func TestBoundAndOverflow(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	const bound = 1000
	for _, a := range limit.Algorithms() {
		if a.Name() == "LB" { // its newcomers would wait
			continue
		}
		t.Run(a.Name(), func(t *testing.T) {
			t.Parallel()
			s := New(Options{MaxKeys: bound})
			now := s.Now() / 3_600_000_000 * 3_600_000_000 // all within one window
			c := open(t, s, a, limit.Limit{N: 2, Unit: time.Hour})
			for range 3 {
				take(t, s, c, now, "attacker")
			}
			refused := 0
			for i := range 20 * bound {
				if !take(t, s, c, now, fmt.Sprint("flood", i)) {
					refused++
				}
				if k := s.Keys(); k > bound+1 {
					t.Fatalf("%d keys, want at most %d and the overflow", k, bound)
				}
			}
			if take(t, s, c, now, "attacker") {
				t.Error("the flood made room for one that was being limited")
			}
			// All later actors share one counter of 2.
			if want := 20*bound - (bound - 1) - 2; refused < want-bound/10 || refused > want {
				t.Errorf("refused %d newcomers, want close to %d", refused, want)
			}
		})
	}
}

func TestExpiredGoFirst(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	const bound = 1000
	for _, a := range limit.Algorithms() {
		if a.Held { // time frees no slot
			continue
		}
		t.Run(a.Name(), func(t *testing.T) {
			t.Parallel()
			s := New(Options{MaxKeys: bound})
			c := open(t, s, a, limit.Limit{N: 1, Unit: time.Second})
			now := s.Now()
			for round := range 20 {
				for i := range bound / 2 {
					if !take(t, s, c, now, fmt.Sprint(round, i)) {
						t.Fatalf("round %d: newcomer %d refused although half of the keys have expired", round, i)
					}
				}
				now += 3_000_000
			}
			if s.Evictions() == 0 {
				t.Error("nothing was evicted")
			}
			if k := s.Keys(); k > bound {
				t.Errorf("%d keys, want at most %d", k, bound)
			}
		})
	}
}

// The smallest bounds work too, and the hand reaches every record.
func TestTinyBound(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxKeys: 1})
	c := open(t, s, limit.TokenBucket(), limit.Limit{N: 1, Unit: time.Second})
	now := s.Now()
	for i := range 100 {
		if !take(t, s, c, now, fmt.Sprint(i)) {
			t.Fatalf("actor %d refused although the one before has expired", i)
		}
		now += 1_000_000
	}
	if k := s.Keys(); k != 1 {
		t.Errorf("%d keys, want 1", k)
	}
}

func TestBytesPerKey(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's own memory is counted too")
	}
	const keys = 1_000_000
	for _, tc := range []struct {
		algorithm limit.Algorithm
		limit     limit.Limit
		most      float64
	}{
		{limit.TokenBucket(), limit.Limit{N: 100, Unit: time.Second}, 32},
		{limit.FixedWindow(), limit.Limit{N: 100, Unit: time.Second}, 32},
		{limit.LeakyBucket(), limit.Limit{N: 100, Unit: time.Second}, 32},
		{limit.SlidingWindow(), limit.Limit{N: 100, Unit: time.Second}, 32 + 4*10},
	} {
		t.Run(tc.algorithm.Name(), func(t *testing.T) {
			before := heap()
			s := New(Options{MaxKeys: 2 * keys})
			c := open(t, s, tc.algorithm, tc.limit)
			var key [8]byte
			charges := []limit.Charge{{Counters: c, Key: key[:], Cost: 1}}
			worst := 0.0
			for i := range keys {
				binary.LittleEndian.PutUint64(charges[0].Key, uint64(i))
				if _, err := s.Take(context.Background(), s.Now(), charges); err != nil {
					t.Fatal(err)
				}
				if n := i + 1; n == keys || n >= keys/2 && n%(keys/20) == 0 {
					worst = max(worst, float64(heap()-before)/float64(n))
				}
			}
			if k := s.Keys(); k != keys {
				t.Errorf("%d keys, want %d", k, keys)
			}
			t.Logf("at most %.1f bytes a key", worst)
			if worst > tc.most {
				t.Errorf("%.1f bytes a key, want at most %.0f", worst, tc.most)
			}
			runtime.KeepAlive(s)
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestNoAllocation(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	s := New(Options{})
	for _, n := range []int64{1, bounds.MaxN} { // refused, allowed
		for _, a := range limit.Algorithms() {
			l := limit.Limit{N: n, Unit: time.Hour}
			if a.Name() == "LB" && n == 1 {
				continue // covered by allowed; a refusal is the same read
			}
			c := open(t, s, a, l)
			one := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
			now := s.Now()
			if got := testing.AllocsPerRun(100, func() { now += 10; _, _ = s.Take(context.Background(), now, one) }); got != 0 {
				t.Errorf("%s, %d an hour: %v allocations", a.Name(), n, got)
			}
		}
		all := perHour(t, s, n)
		charges := make([]limit.Charge, len(all))
		for i, c := range all {
			charges[i] = limit.Charge{Counters: c, Key: []byte("y"), Cost: 1}
		}
		now := s.Now()
		if got := testing.AllocsPerRun(100, func() { now++; _, _ = s.Take(context.Background(), now, charges) }); got > 0 {
			t.Errorf("all algorithms together, %d an hour: %v allocations", n, got)
		}
	}
}

func TestCountersGoOn(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	now := s.Now()
	for _, a := range limit.Algorithms() {
		if a.Name() == "LB" {
			continue
		}
		c := named(t, s, a.Name(), a, limit.Limit{N: 3, Unit: time.Hour})
		for range 3 {
			take(t, s, c, now, "x")
		}
		larger := named(t, s, a.Name(), a, limit.Limit{N: 5, Unit: time.Hour})
		s.Retire(c)
		admitted := 0
		for range 10 {
			if take(t, s, larger, now, "x") {
				admitted++
			}
		}
		// A bucket is still as far from full, in time, as it was: empty.
		want := 2
		if a.Name() == "TB" {
			want = 0
		}
		if admitted != want {
			t.Errorf("%s: 3 of 3 used, then the limit is 5: %d more allowed, want %d", a.Name(), admitted, want)
		}
	}
}

func TestNamesAndLayouts(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	s := New(Options{})
	meter := func(a limit.Algorithm, n int64) limit.Meter {
		m, err := a.New(limit.Limit{N: n, Unit: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if _, err := s.Counters("x", meter(limit.SlidingWindow(), 10)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Counters("x", meter(limit.SlidingWindow(), 100_000)); err == nil {
		t.Error("counters with another layout were accepted under the same name")
	}
	// Over time, many more names than there are ids.
	m := meter(limit.TokenBucket(), 1)
	for i := range 2*maxID + 10 {
		c, err := s.Counters(fmt.Sprint("rule", i), m)
		if err != nil {
			t.Fatal(err)
		}
		s.Retire(c)
	}
}

func TestTwiceTheSame(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	c := open(t, s, limit.TokenBucket(), limit.Limit{N: 5, Unit: time.Hour})
	twice := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}, {Counters: c, Key: []byte("x"), Cost: 1}}
	if _, err := s.Take(context.Background(), s.Now(), twice); err == nil {
		t.Error("two charges of the same actor were accepted")
	}
}

func BenchmarkTake(b *testing.B) {
	for _, tc := range []struct {
		name string
		keys int
	}{{"hot", 1}, {"uniform1M", 1 << 20}} {
		b.Run(tc.name, func(b *testing.B) {
			s := New(Options{MaxKeys: 2 << 20})
			c := open(b, s, limit.TokenBucket(), limit.Limit{N: 100, Unit: time.Second})
			keys := make([][]byte, tc.keys)
			for i := range keys {
				keys[i] = fmt.Append(nil, "actor-", i)
				take(b, s, c, s.Now(), string(keys[i]))
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				rnd := rand.Uint64()
				charges := []limit.Charge{{Counters: c, Cost: 1}}
				for pb.Next() {
					rnd = rnd*6364136223846793005 + 1442695040888963407
					charges[0].Key = keys[rnd>>33%uint64(len(keys))]
					_, _ = s.Take(context.Background(), s.Now(), charges)
				}
			})
		})
	}
}

// A refusal sets the outcome of every charge, also while records move.
func TestOutcomesWhileMoving(t *testing.T) {
	t.Parallel()
	for _, other := range []limit.Algorithm{limit.TokenBucket(), limit.SlidingLog()} { // one word, and more
		s := New(Options{MaxKeys: 8})
		c := []any{
			named(t, s, "full", limit.TokenBucket(), limit.Limit{N: 0, Unit: time.Hour}),
			named(t, s, "other", other, limit.Limit{N: 10, Unit: time.Hour}),
		}
		take(t, s, c[1], s.Now(), "x")
		stop := make(chan struct{})
		var moves sync.WaitGroup
		moves.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.records.shards[0].sweep(s.records.keep, map[uint64]bool{})
				}
			}
		})
		wrong := 0
		for range churn {
			charges := []limit.Charge{{Counters: c[0], Key: []byte("x"), Cost: 1}, {Counters: c[1], Key: []byte("x"), Cost: 1}}
			if ok, err := s.Take(t.Context(), s.Now(), charges); ok || err != nil {
				t.Fatal(ok, err)
			}
			if !charges[1].Outcome.Allowed {
				wrong++
			}
		}
		close(stop)
		moves.Wait()
		if wrong > 0 {
			t.Errorf("%s: %d of %d refusals are said to be of a rule that has room", other.Name(), wrong, churn)
		}
	}
}
