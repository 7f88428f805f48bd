// SPDX-License-Identifier: MIT

package rate_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rate"
)

func newSemaphore(t testing.TB, n int64, o rate.Options) *rate.Semaphore {
	t.Helper()
	s, err := rate.NewSemaphore(n, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func acquire(t testing.TB, s *rate.Semaphore, n int64) *rate.Slots {
	t.Helper()
	slots, err := s.Acquire(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	return slots
}

// free returns how many slots a semaphore of at most 64 can give, which it takes and releases.
func free(t testing.TB, s *rate.Semaphore) (n int) {
	t.Helper()
	for ; n < 64; n++ {
		slots, err := s.TryAcquire(context.Background(), 1)
		if errors.Is(err, rate.ErrTooLong) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		defer slots.Release()
	}
	return n
}

func expectFree(t testing.TB, s *rate.Semaphore, want int) {
	t.Helper()
	if n := free(t, s); n != want {
		t.Errorf("%d slots are free, want %d", n, want)
	}
}

// gauge counts the slots that are held, and remembers the most.
type gauge struct{ held, most atomic.Int64 }

func (g *gauge) add(n int64) {
	now := g.held.Add(n)
	for most := g.most.Load(); now > most && !g.most.CompareAndSwap(most, now); most = g.most.Load() {
	}
}

// crowd has goroutines acquire, hold and release 1 to 3 slots, many times. Some of them try, and
// some have little time. It returns how often slots were acquired.
func crowd(t *testing.T, g *gauge, goroutines, times int, hold time.Duration, semaphores ...*rate.Semaphore) int64 {
	t.Helper()
	var acquired atomic.Int64
	var wg sync.WaitGroup
	for i := range goroutines {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		s := semaphores[i%len(semaphores)]
		wg.Go(func() {
			for range times {
				ctx, cancel := context.WithCancel(context.Background())
				if i%5 == 0 {
					ctx, cancel = context.WithTimeout(context.Background(), time.Duration(random.Int64N(int64(2*hold)+1)))
				}
				n := 1 + random.Int64N(3)
				try := s.Acquire
				if i%7 == 0 {
					try = s.TryAcquire
				}
				slots, err := try(ctx, n)
				switch {
				case err == nil:
					g.add(n)
					time.Sleep(time.Duration(random.Int64N(int64(hold) + 1)))
					g.add(-n)
					slots.Release()
					slots.Release()
					acquired.Add(1)
				case !errors.Is(err, rate.ErrTooLong) && !errors.Is(err, context.DeadlineExceeded):
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	return acquired.Load()
}

func TestSemaphoreIsExact(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]int{"own": 1, "shared": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var o rate.Options
				if count > 1 {
					o = rate.Options{Store: memstore.New(memstore.Options{}), Name: "a"}
				}
				var semaphores []*rate.Semaphore
				for range count {
					semaphores = append(semaphores, newSemaphore(t, 5, o))
				}
				var g gauge
				if crowd(t, &g, 64, 50, time.Millisecond, semaphores...) == 0 {
					t.Error("nobody acquired a slot")
				}
				if g.most.Load() != 5 {
					t.Errorf("at most %d slots were held, want 5", g.most.Load())
				}
				expectFree(t, semaphores[0], 5)
			})
		})
	}
}

// No slot stays free while somebody waits for it.
func TestSemaphoreWastesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSemaphore(t, 4, rate.Options{})
		start := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				defer acquire(t, s, 1).Release()
				time.Sleep(time.Second)
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 25*time.Second {
			t.Errorf("100 seconds of work on 4 slots took %v, want 25 s", took)
		}
	})
}

func TestSemaphoreWaitersInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSemaphore(t, 3, rate.Options{})
		first := acquire(t, s, 3)
		var mu sync.Mutex
		var order []int64
		slots := map[int64]*rate.Slots{}
		cancels := map[int64]context.CancelFunc{}
		var wg sync.WaitGroup
		for id, n := range []int64{2, 1, 3, 1, 1, 1} {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[int64(id)] = cancel
			wg.Go(func() {
				got, err := s.Acquire(ctx, n)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					order = append(order, int64(id))
					slots[int64(id)] = got
				} else if !errors.Is(err, context.Canceled) || got != nil {
					t.Errorf("waiter %d: %v, %v", id, got, err)
				}
			})
			synctest.Wait()
		}
		expect := func(want ...int64) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(order, want) {
				t.Errorf("waiters %v have slots, want %v", order, want)
			}
		}
		expect()
		first.Release()
		expect(0, 1)
		slots[1].Release() // one slot is free, and the next waiter needs three
		expect(0, 1)
		if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, rate.ErrTooLong) {
			t.Errorf("TryAcquire overtakes a waiter: %v", err)
		}
		cancels[4]() // in the middle
		expect(0, 1)
		cancels[2]() // the head, so that those behind it need not wait any more
		expect(0, 1, 3)
		slots[0].Release()
		expect(0, 1, 3, 5)
		slots[3].Release()
		slots[5].Release()
		wg.Wait()
		expectFree(t, s, 3)
		for _, cancel := range cancels {
			cancel()
		}
	})
}

// Whatever the order in which waiters give up, nothing is left of them.
func TestSemaphoreCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSemaphore(t, 4, rate.Options{})
		held := acquire(t, s, 3)
		var wg sync.WaitGroup
		for i := range int64(64) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*37%64)*time.Millisecond)
				defer cancel()
				if slots, err := s.Acquire(ctx, 2+i%3); !errors.Is(err, context.DeadlineExceeded) || slots != nil {
					t.Errorf("%v, %v", slots, err)
				}
			})
		}
		wg.Wait()
		expectFree(t, s, 1)
		held.Release()
		expectFree(t, s, 4)
	})
}

func TestSemaphoreReleaseTwice(t *testing.T) {
	t.Parallel()
	s := newSemaphore(t, 2, rate.Options{})
	a, b := acquire(t, s, 1), acquire(t, s, 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(a.Release)
	}
	wg.Wait()
	expectFree(t, s, 1)
	b.Release()
	expectFree(t, s, 2)
	var none *rate.Slots
	none.Release()
	new(rate.Slots).Release()
}

func TestSemaphoreWrongCalls(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Options{})
	for _, tc := range []struct {
		n    int64
		o    rate.Options
		want string
	}{
		{-1, rate.Options{}, "N is -1"},
		{bounds.MaxN + 1, rate.Options{}, "N is 1000000001"},
		{1, rate.Options{Store: store}, "a Store needs a Name"},
		{1, rate.Options{Workers: -1}, "Workers is -1, expected 0 or more"},
	} {
		if s, err := rate.NewSemaphore(tc.n, tc.o); s != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%d, %+v: %v, want %q", tc.n, tc.o, err, tc.want)
		}
	}
	s := newSemaphore(t, 3, rate.Options{})
	for _, n := range []int64{0, -1, bounds.MaxN + 1} {
		if _, err := s.Acquire(t.Context(), n); err == nil || !strings.Contains(err.Error(), "expected 1 to 1000000000") {
			t.Errorf("%d slots: %v", n, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, try := range []func(context.Context, int64) (*rate.Slots, error){s.Acquire, s.TryAcquire} {
		if slots, err := try(t.Context(), 4); slots != nil || !errors.Is(err, rate.ErrTooLong) {
			t.Errorf("4 slots of 3: %v, %v", slots, err)
		}
		if slots, err := try(ended, 1); slots != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v, %v", slots, err)
		}
	}
	expectFree(t, s, 3)
	var zero rate.Semaphore
	for _, s := range []*rate.Semaphore{&zero, newSemaphore(t, 0, rate.Options{})} {
		if slots, err := s.Acquire(t.Context(), 1); slots != nil || !errors.Is(err, rate.ErrTooLong) {
			t.Errorf("no slots: %v, %v", slots, err)
		}
		s.Close()
	}
}

// Semaphores of one name in a Store share their slots. A Limiter of that name shares nothing.
func TestSemaphoresShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Options{})
		one := newSemaphore(t, 2, rate.Options{Store: store, Name: "a"})
		two := newSemaphore(t, 2, rate.Options{Store: store, Name: "a"})
		other := newSemaphore(t, 2, rate.Options{Store: store, Name: "b"})
		l := newLimiter(t, perSecond(1), rate.Options{Store: store, Name: "a"})
		a := acquire(t, one, 1)
		b := acquire(t, two, 1)
		expectFree(t, one, 0)
		expectFree(t, two, 0)
		expectFree(t, other, 2)
		if wait := next(t, l); wait != 0 {
			t.Errorf("a Limiter of the same name waits %v", wait)
		}
		time.AfterFunc(time.Minute, b.Release)
		acquire(t, one, 1).Release() // waits for the other
		one.Close()
		one.Close() // does not close the other
		expectFree(t, two, 1)
		a.Release()
		expectFree(t, two, 2)
	})
}

// switched is a store that can fail.
type switched struct {
	*memstore.Store
	down atomic.Bool
}

var errDown = errors.New("the store is down")

func (s *switched) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	if s.down.Load() {
		return false, errDown
	}
	return s.Store.Take(ctx, now, charges)
}

// While the store fails a process has its part, and what it held before belongs to that. The
// store learns what was acquired meanwhile.
func TestSemaphorePart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &switched{Store: memstore.New(memstore.Options{})}
		options := rate.Options{Store: store, Name: "a", Workers: 3}
		s := newSemaphore(t, 8, options) // a part is 2
		other := newSemaphore(t, 8, options)
		small := newSemaphore(t, 2, rate.Options{Store: store, Name: "small", Workers: 3})
		before := acquire(t, s, 1)
		store.down.Store(true)
		meanwhile := acquire(t, s, 1)
		expectFree(t, s, 0)
		expectFree(t, other, 2)
		if _, err := small.Acquire(t.Context(), 1); !errors.Is(err, errDown) {
			t.Errorf("a process without a part: %v", err)
		}
		before.Release()
		expectFree(t, s, 1)
		var last *rate.Slots
		var wg sync.WaitGroup
		wg.Go(func() { last = acquire(t, s, 3) }) // more than a part
		synctest.Wait()
		store.down.Store(false)
		wg.Wait()
		expectFree(t, other, 4) // of 8, without 1 of meanwhile and 3 of last
		meanwhile.Release()
		last.Release()
		expectFree(t, other, 8)
		store.down.Store(true)
		expectFree(t, s, 2)
	})
}
