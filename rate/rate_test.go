// SPDX-License-Identifier: MIT

package rate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rate"
)

func newLimiter(t testing.TB, l limit.Limit, o rate.Options) *rate.Limiter {
	t.Helper()
	r, err := rate.New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func perSecond(n int64) limit.Limit { return limit.Limit{N: n, Unit: time.Second} }

// step is a call of a table: after idle time it requests n, and has a scheduled wait.
type step struct {
	idle, n int64 // idle in ms
	wait    int64 // ms
}

// steps makes the calls of a table, under fake time.
func steps(t *testing.T, l limit.Limit, o func() rate.Options, table []step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newLimiter(t, l, o())
		for i, s := range table {
			time.Sleep(time.Duration(s.idle) * time.Millisecond)
			before := time.Now()
			wait, err := r.Wait(t.Context(), s.n)
			if want := time.Duration(s.wait) * time.Millisecond; err != nil || wait != want || time.Since(before) != want {
				t.Errorf("call %d: scheduled to wait %v, and waited %v (%v), want %v", i, wait, time.Since(before), err, want)
			}
		}
	})
}

// The Limiter keeps the tables that source 003 prints of Guava's RateLimiter, to the millisecond.
func TestGuavasTables(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]struct {
		l     limit.Limit
		steps []step
	}{
		"SmoothBursty 1": {perSecond(5), []step{
			{0, 1, 0}, {0, 1, 200}, {0, 1, 200}, {0, 1, 200}, {0, 1, 200}, {0, 1, 200}, {0, 1, 200},
		}},
		"SmoothBursty 2": {perSecond(5), []step{{0, 5, 0}, {0, 1, 1000}, {0, 1, 200}}},
		"SmoothBursty 3": {perSecond(2), []step{{0, 1, 0}, {5000, 1, 0}, {0, 1, 0}, {0, 1, 0}, {0, 1, 500}}},
		"SmoothWarmingUp 1": {limit.Limit{N: 5, Unit: time.Second, Warmup: time.Second}, []step{
			{0, 1, 0}, {0, 1, 520}, {0, 1, 360}, {0, 1, 220}, {0, 1, 200}, {0, 1, 200},
			{1000, 1, 0}, {0, 1, 360}, {0, 1, 220}, {0, 1, 200}, {0, 1, 200}, {0, 1, 200},
			{0, 1, 200}, {0, 1, 200}, {0, 1, 200}, {0, 1, 200},
		}},
		// At one a second one of four calls is a little late, which delays no other call.
		"a late one": {perSecond(1), []step{{0, 1, 0}, {1050, 1, 0}, {950, 1, 0}, {1000, 1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps(t, table.l, func() rate.Options { return rate.Options{} }, table.steps)
		})
	}
}

// A rate in a Store that has not been used has as much stored as it can.
func TestSharedBegins(t *testing.T) {
	t.Parallel()
	shared := func() rate.Options {
		return rate.Options{Store: memstore.New(memstore.Options{}), Name: "a"}
	}
	steps(t, perSecond(2), shared, []step{{0, 1, 0}, {0, 1, 0}, {0, 1, 0}, {0, 1, 500}})
	steps(t, limit.Limit{N: 2, Unit: time.Second, Burst: 1}, shared, []step{{0, 1, 0}, {0, 1, 0}, {0, 1, 500}})
	steps(t, limit.Limit{N: 5, Unit: time.Second, Warmup: time.Second}, shared, []step{{0, 1, 0}, {0, 1, 520}})
}

// Goroutines start at the times that the rate schedules, each at its own.
func TestWaitConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLimiter(t, perSecond(10), rate.Options{})
		start := time.Now()
		went := make([]time.Duration, 64)
		var wg sync.WaitGroup
		for i := range went {
			wg.Go(func() {
				if _, err := r.Wait(t.Context(), 1); err != nil {
					t.Error(err)
				}
				went[i] = time.Since(start)
			})
		}
		wg.Wait()
		slices.Sort(went)
		for i, at := range went {
			if want := time.Duration(i) * 100 * time.Millisecond; at != want {
				t.Errorf("number %d started after %v, want %v", i, at, want)
			}
		}
	})
}

// Of 64 goroutines as many start at once as are stored, and one more.
func TestTryWaitConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLimiter(t, limit.Limit{N: 1000, Unit: time.Hour, Burst: 300}, rate.Options{})
		time.Sleep(time.Hour)
		var in atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 20 {
					if ok, err := r.TryWait(t.Context(), 1, 0); err != nil {
						t.Error(err)
					} else if ok {
						in.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if in.Load() != 301 {
			t.Errorf("%d started, want 301", in.Load())
		}
	})
}

// next returns how long the next request would wait, and consumes nothing.
func next(t testing.TB, r *rate.Limiter) time.Duration {
	t.Helper()
	v, err := r.Reserve(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Cancel()
	return v.Delay()
}

func TestTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLimiter(t, perSecond(1), rate.Options{})
		if _, err := r.Wait(t.Context(), 10); err != nil { // the next waits 10 s
			t.Fatal(err)
		}
		start := time.Now()
		for _, left := range []time.Duration{time.Second, 10 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			_, err := r.Wait(ctx, 1)
			if !errors.Is(err, rate.ErrTooLong) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "would have to wait for 10s") {
				t.Errorf("Wait within %v: %v", left, err)
			}
			if v, err := r.Reserve(ctx, 1); !errors.Is(err, rate.ErrTooLong) || v != nil {
				t.Errorf("Reserve within %v: %v", left, err)
			}
			if ok, err := r.TryWait(ctx, 1, time.Hour); ok || err != nil {
				t.Errorf("TryWait within %v: %v, %v", left, ok, err)
			}
			cancel()
			for range 3 {
				if _, err := r.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
					t.Errorf("after its end: %v", err)
				}
			}
		}
		for _, most := range []time.Duration{-1, 0, 10*time.Second - time.Microsecond} {
			if ok, err := r.TryWait(t.Context(), 1, most); ok || err != nil {
				t.Errorf("TryWait of %v: %v, %v", most, ok, err)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("the refusals took %v", time.Since(start))
		}
		if wait := next(t, r); wait != 10*time.Second {
			t.Errorf("a refused request has consumed something: the next waits %v", wait)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+2*time.Microsecond)
		defer cancel()
		if wait, err := r.Wait(ctx, 1); wait != 10*time.Second || err != nil {
			t.Errorf("just in time: %v, %v", wait, err)
		}
		if ok, err := r.TryWait(t.Context(), 1, time.Second); !ok || err != nil || time.Since(start) != 11*time.Second {
			t.Errorf("TryWait: %v, %v after %v", ok, err, time.Since(start))
		}
	})
}

func TestWrongCalls(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		l    limit.Limit
		o    rate.Options
		want string
	}{
		{limit.Limit{N: -1, Unit: time.Second}, rate.Options{}, "N is -1"},
		{limit.Limit{N: 1}, rate.Options{}, "unit is 0s"},
		{limit.Limit{N: 1, Unit: time.Second, Burst: 1, Warmup: 1000}, rate.Options{}, "burst and warmup"},
		{perSecond(1), rate.Options{Store: memstore.New(memstore.Options{})}, "a Store needs a Name"},
		{perSecond(1), rate.Options{Store: memstore.New(memstore.Options{}), Name: "a", Workers: -1}, "Workers is -1, expected 0 or more"},
		{limit.Limit{N: 1, Unit: bounds.MaxUnit, Burst: 5000}, rate.Options{}, "over a hundred years"},
	} {
		if r, err := rate.New(tc.l, tc.o); r != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.l, err, tc.want)
		}
	}
	r := newLimiter(t, limit.Limit{N: 1, Unit: bounds.MaxUnit}, rate.Options{})
	for _, n := range []int64{0, -1, bounds.MaxN + 1} {
		if _, err := r.Wait(t.Context(), n); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("n is %d, expected 1 to 1000000000", n)) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if _, err := r.Wait(t.Context(), bounds.MaxN); !errors.Is(err, rate.ErrTooLong) {
		t.Errorf("for millions of years: %v", err)
	}
	if ok, err := r.TryWait(t.Context(), bounds.MaxN, 0); ok || err != nil {
		t.Errorf("for millions of years: %v, %v", ok, err)
	}
	closed := newLimiter(t, limit.Limit{Unit: time.Second}, rate.Options{})
	if _, err := closed.Wait(t.Context(), 1); !errors.Is(err, rate.ErrTooLong) {
		t.Errorf("a limit of 0: %v", err)
	}
	if ok, err := closed.TryWait(t.Context(), 1, time.Hour); ok || err != nil {
		t.Errorf("a limit of 0: %v, %v", ok, err)
	}
}

// Waiters that give up leave no trace, in whatever order they give up.
func TestCancelRefunds(t *testing.T) {
	t.Parallel()
	for _, l := range []limit.Limit{perSecond(7), {N: 7, Unit: time.Second, Warmup: 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			r := newLimiter(t, l, rate.Options{})
			if _, err := r.Wait(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
			before := next(t, r)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range int64(64) {
				wg.Go(func() {
					if wait, err := r.Wait(ctx, 1+i%3); wait != 0 || !errors.Is(err, context.Canceled) {
						t.Errorf("%v, %v", wait, err)
					}
				})
			}
			synctest.Wait()
			cancel()
			wg.Wait()
			if after := next(t, r); after != before {
				t.Errorf("%+v: the next waits %v, and waited %v before", l, after, before)
			}
		})
	}
}

// Reservations behind a cancelled one keep their scheduled times, and no other gets one of these.
func TestCancelKeepsTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLimiter(t, perSecond(1), rate.Options{})
		var all []*rate.Reservation
		for i := range 4 {
			v, err := r.Reserve(t.Context(), 1)
			if want := time.Duration(i) * time.Second; err != nil || v.Delay() != want {
				t.Fatalf("reservation %d is due in %v, want %v", i, v.Delay(), want)
			}
			all = append(all, v)
		}
		all[0].Cancel() // its time has come
		all[1].Cancel()
		if wait := next(t, r); wait != 4*time.Second {
			t.Errorf("one in the middle is cancelled, and the next waits %v, want 4 s", wait)
		}
		all[3].Cancel()
		all[3].Cancel()
		if wait := next(t, r); wait != 3*time.Second {
			t.Errorf("the last is cancelled, and the next waits %v, want 3 s", wait)
		}
		if all[2].Delay() != 2*time.Second {
			t.Errorf("one that stays is due in %v, want 2 s", all[2].Delay())
		}
		time.Sleep(500 * time.Millisecond)
		all[2].Cancel()
		if wait := next(t, r); wait != 500*time.Millisecond {
			t.Errorf("all are cancelled, and the next waits %v, want 500 ms", wait)
		}
		late, err := r.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(late.Delay())
		late.Cancel() // the caller may have started
		if wait := next(t, r); wait != time.Second {
			t.Errorf("one was cancelled after its time, and the next waits %v, want 1 s", wait)
		}
	})
}

func TestSetLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newLimiter(t, perSecond(2), rate.Options{})
		start := time.Now()
		var wg sync.WaitGroup
		waits := func(n int64, until time.Duration) {
			wg.Go(func() {
				if _, err := r.Wait(t.Context(), n); err != nil || time.Since(start) != until {
					t.Errorf("cost %d started after %v, want %v (%v)", n, time.Since(start), until, err)
				}
			})
			synctest.Wait()
		}
		set := func(l limit.Limit) {
			if err := r.SetLimit(l); err != nil || r.Limit() != l {
				t.Error(err)
			}
		}
		waits(2, 0)
		waits(2, time.Second)
		set(perSecond(10))      // waiters keep their times, and later requests pay less
		waits(5, 2*time.Second) // earlier requests are paid for at the old rate
		waits(1, 2500*time.Millisecond)
		if err := r.SetLimit(limit.Limit{N: 1}); err == nil || r.Limit().N != 10 {
			t.Errorf("a wrong limit: %v, and the limit is %v", err, r.Limit())
		}
		set(limit.Limit{Unit: time.Second}) // none
		if _, err := r.Wait(t.Context(), 1); !errors.Is(err, rate.ErrTooLong) {
			t.Error(err)
		}
		set(perSecond(10))
		waits(1, 2600*time.Millisecond) // earlier requests are still to be paid for
		wg.Wait()
		time.Sleep(100 * time.Millisecond) // all is paid for
		time.Sleep(500 * time.Millisecond) // 5 of 10 are stored: it is half full
		set(perSecond(20))
		for i := range 12 {
			ok, err := r.TryWait(t.Context(), 1, 0)
			if want := i < 11; ok != want || err != nil {
				t.Errorf("of 20 a second request %d: %v, %v", i, ok, err)
			}
		}
		set(limit.Limit{N: 5, Unit: time.Second, Warmup: time.Second}) // cold
		start = time.Now()
		waits(1, 0)
		waits(1, 520*time.Millisecond)
		wg.Wait()
		time.Sleep(time.Hour)
		set(perSecond(5)) // nothing stored
		start = time.Now()
		waits(1, 0)
		waits(1, 200*time.Millisecond)
		wg.Wait()
	})
}

// gone is a store that fails.
type gone struct{ *memstore.Store }

func (gone) Take(context.Context, int64, []limit.Charge) (bool, error) {
	return false, errors.New("gone")
}

// While the store fails each worker has its part, however small.
func TestPart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		l    limit.Limit
		idle time.Duration
		in   int // at once after that
	}{
		{limit.Limit{N: 400, Unit: time.Hour, Burst: 8}, time.Hour, 3},
		{limit.Limit{N: 400, Unit: time.Hour, Burst: 2}, time.Hour, 2},
		{limit.Limit{N: 1, Unit: bounds.MaxUnit, Burst: 2}, 2 * bounds.MaxUnit, 2},
		{limit.Limit{N: 12, Unit: bounds.MaxUnit, Burst: 4}, bounds.MaxUnit / 3, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newLimiter(t, tc.l, rate.Options{Store: gone{memstore.New(memstore.Options{})}, Name: "a", Workers: 4})
			time.Sleep(tc.idle)
			in := 0
			for {
				ok, err := r.TryWait(t.Context(), 1, -time.Second) // as 0
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				in++
			}
			if in != tc.in {
				t.Errorf("%+v: after %v %d started in the part of one of four workers, want %d", tc.l, tc.idle, in, tc.in)
			}
			if v, err := r.Reserve(t.Context(), 1); err != nil || v.Delay() == 0 {
				t.Errorf("%+v: %v", tc.l, err)
			}
		})
	}
}

// Limiters of one name in a Store share a rate. Limiters of another name do not.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		one := newLimiter(t, perSecond(1), rate.Options{Store: store, Name: "a"})
		two := newLimiter(t, perSecond(1), rate.Options{Store: store, Name: "a"})
		other := newLimiter(t, perSecond(1), rate.Options{Store: store, Name: "b"})
		for i, r := range []*rate.Limiter{one, two, one, two, one} {
			v, err := r.Reserve(t.Context(), 1)
			if want := time.Duration(max(i-1, 0)) * time.Second; err != nil || v.Delay() != want {
				t.Errorf("reservation %d is due in %v, want %v (%v)", i, v.Delay(), want, err)
			}
		}
		if wait := next(t, other); wait != 0 {
			t.Errorf("the other waits %v", wait)
		}
		// One Limiter can use what the other refunds, if no reservation is behind it.
		v, err := one.Reserve(t.Context(), 1)
		if err != nil || v.Delay() != 4*time.Second {
			t.Fatal(v.Delay(), err)
		}
		w, err := two.Reserve(t.Context(), 1)
		if err != nil || w.Delay() != 5*time.Second {
			t.Fatal(w.Delay(), err)
		}
		v.Cancel()
		if wait := next(t, one); wait != 6*time.Second {
			t.Errorf("one behind another is cancelled, and the next waits %v, want 6 s", wait)
		}
		w.Cancel()
		if wait := next(t, one); wait != 5*time.Second {
			t.Errorf("the last is cancelled, and the next waits %v, want 5 s", wait)
		}
		one.Close()
		two.Close()
	})
}

// tardy is a store that can answer late.
type tardy struct {
	*memstore.Store
	late time.Duration
}

func (s *tardy) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	late := s.late
	ok, err := s.Store.Take(ctx, now, charges)
	time.Sleep(late)
	return ok, err
}

// A reservation whose answer is late is in the order of the store. When all are cancelled, they
// leave no trace.
func TestCancelAfterLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &tardy{Store: memstore.New(memstore.Options{})}
		r := newLimiter(t, perSecond(1), rate.Options{Store: store, Name: "a"})
		if _, err := r.Wait(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		before := next(t, r)
		var first *rate.Reservation
		store.late = 5 * time.Second
		var wg sync.WaitGroup
		wg.Go(func() {
			var err error
			if first, err = r.Reserve(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		store.late = 0
		second, err := r.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		first.Cancel()
		second.Cancel()
		if after := next(t, r); after != before-5*time.Second {
			t.Errorf("after 5 s the next waits %v, and waited %v before", after, before)
		}
	})
}

func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, l := range []limit.Limit{perSecond(bounds.MaxN), {N: 1, Unit: bounds.MaxUnit}} { // all at once, and nearly none
		r := newLimiter(t, l, rate.Options{})
		shared := newLimiter(t, l, rate.Options{Store: memstore.New(memstore.Options{}), Name: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for name, r := range map[string]*rate.Limiter{"own": r, "shared": shared} {
			for { // until nothing is stored
				if ok, _ := r.TryWait(ctx, 1, 0); !ok || l.N > 1 {
					break
				}
			}
			allocs := testing.AllocsPerRun(1000, func() {
				if ok, err := r.TryWait(ctx, 1, 0); err != nil || !ok && l.N > 1 {
					t.Fatal(ok, err)
				}
				if l.N > 1 {
					if _, err := r.Wait(ctx, 1); err != nil {
						t.Fatal(err)
					}
				}
			})
			if allocs != 0 {
				t.Errorf("%s, %+v: %v allocations", name, l, allocs)
			}
		}
	}
}

// A second Close of a Limiter does not close another Limiter of the same name.
func TestCloseTwice(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	day := limit.Limit{N: 1, Unit: 24 * time.Hour}
	a := newLimiter(t, day, rate.Options{Store: store, Name: "x"})
	b := newLimiter(t, day, rate.Options{Store: store, Name: "x"})
	for range 3 { // what is stored, and one more
		_, _ = b.TryWait(t.Context(), 1, 0)
	}
	a.Close()
	a.Close()
	others, err := store.Counters("others", mustMeter(t, limit.TokenBucket(), perSecond(1)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100_000 { // the tables grow, and forget retired counters
		if _, err := store.Take(t.Context(), store.Now(), []limit.Charge{{Counters: others, Key: fmt.Append(nil, i), Cost: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := b.TryWait(t.Context(), 1, 0); ok || err != nil {
		t.Errorf("%v, %v, want false", ok, err)
	}
}

func mustMeter(t testing.TB, a limit.Algorithm, l limit.Limit) limit.Meter {
	t.Helper()
	m, err := a.New(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
