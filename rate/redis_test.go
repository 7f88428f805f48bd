// SPDX-License-Identifier: MIT

package rate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rate"
	"github.com/diana-limiter/diana/redisstore"
)

// openRedis returns a store that Redis answers.
func openRedis(t *testing.T, r *redistest.Server) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(redisstore.Options{URL: r.URL(), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	testproc.Eventually(t, s.Up)
	return s
}

// A hundred workers of five processes, as far as Redis can tell, share one rate.
func TestWorkersShareARate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, l := range []limit.Limit{
		{N: 300, Unit: time.Second, Burst: 10},
		{N: 300, Unit: time.Second, Warmup: time.Second},
	} {
		t.Run(fmt.Sprint(l.Warmup), func(t *testing.T) {
			t.Parallel()
			// When each request started, at the earliest and at the latest.
			type start struct{ earliest, latest time.Time }
			var mu sync.Mutex
			var starts []start
			const lasts = 2 * time.Second
			var wg sync.WaitGroup
			for range 5 {
				r := newLimiter(t, l, rate.Options{Store: openRedis(t, server), Name: fmt.Sprint(l.Warmup)})
				for range 20 {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), lasts)
						defer cancel()
						for {
							asked := time.Now()
							wait, err := r.Wait(ctx, 1)
							now := time.Now()
							if errors.Is(err, context.DeadlineExceeded) {
								return
							}
							if err != nil || now.Sub(asked) < wait {
								t.Errorf("scheduled to wait %v, started after %v (%v)", wait, now.Sub(asked), err)
								return
							}
							mu.Lock()
							// Round(0): by the wall clock, like Redis
							starts = append(starts, start{asked.Add(wait).Round(0), now.Round(0)})
							mu.Unlock()
						}
					})
				}
			}
			begin := time.Now()
			wg.Wait()
			slices.SortFunc(starts, func(a, b start) int { return a.latest.Compare(b.latest) })
			for i, first := range starts {
				in := 0
				for _, last := range starts[i:] {
					if last.earliest.Before(first.earliest) {
						continue
					}
					in++
					span := last.latest.Sub(first.earliest)
					if most := float64(l.Burst+1) + span.Seconds()*float64(l.N); float64(in) > most+1e-6 {
						t.Fatalf("%d started within %v, want at most %.2f", in, span, most)
					}
				}
			}
			spent := min(time.Since(begin), lasts)
			if l.Warmup > 0 {
				spent -= l.Warmup
			}
			if least := spent.Seconds() * float64(l.N) / 2; float64(len(starts)) < least {
				t.Errorf("%d started in %v, want %d a second", len(starts), spent, l.N)
			}
		})
	}
}

// While Redis is down a request fails at once, or each worker has its part.
func TestRedisGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openRedis(t, server)
	l := limit.Limit{N: 400, Unit: time.Hour, Burst: 8}
	strict := newLimiter(t, l, rate.Options{Store: store, Name: "strict"})
	lenient := newLimiter(t, l, rate.Options{Store: store, Name: "lenient", Workers: 4})
	in := func() (n int) {
		for {
			ok, err := lenient.TryWait(t.Context(), 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return n
			}
			n++
		}
	}
	if n := in(); n != 9 {
		t.Errorf("with Redis %d started, want 9", n)
	}
	v, err := lenient.Reserve(t.Context(), 1)
	if err != nil || v.Delay() == 0 || v.Delay() > 9*time.Second {
		t.Errorf("the next is due in %v, want 9 s (%v)", v.Delay(), err)
	}
	server.Kill()
	testproc.Eventually(t, func() bool { _, err := strict.TryWait(t.Context(), 1, 0); return err != nil })
	for range 3 {
		if wait, err := strict.Wait(t.Context(), 1); wait != 0 || !errors.Is(err, redisstore.ErrUnavailable) {
			t.Errorf("without Redis: %v, %v", wait, err)
		}
		if v, err := strict.Reserve(t.Context(), 1); v != nil || !errors.Is(err, redisstore.ErrUnavailable) {
			t.Errorf("without Redis: %v, %v", v, err)
		}
	}
	if n := in(); n != 1 { // the part is new, and has stored next to nothing
		t.Errorf("without Redis %d started, want 1", n)
	}
	w, err := lenient.Reserve(t.Context(), 1)
	if err != nil || w.Delay() == 0 || w.Delay() > 36*time.Second {
		t.Errorf("of a quarter, the next is due in %v, want 36 s (%v)", w.Delay(), err)
	}
	w.Cancel()
	v.Cancel() // cannot reach Redis
}

// Two processes, as far as Redis can tell, share slots exactly.
func TestProcessesShareSlots(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var semaphores []*rate.Semaphore
	for range 2 {
		semaphores = append(semaphores, newSemaphore(t, 5, rate.Options{Store: openRedis(t, server), Name: "a"}))
	}
	var g gauge
	if crowd(t, &g, 48, 10, 2*time.Millisecond, semaphores...) == 0 {
		t.Error("nobody acquired a slot")
	}
	if g.most.Load() != 5 {
		t.Errorf("at most %d slots were held, want 5", g.most.Load())
	}
	for _, s := range semaphores {
		testproc.Eventually(t, func() bool { return free(t, s) == 5 })
	}
}

// The slots of a process that has crashed are free again after its lease.
func TestSlotsOfACrashedProcess(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a lease lasts for 10 s")
	}
	server := redistest.Start(t)
	crashes := openRedis(t, server)
	acquire(t, newSemaphore(t, 2, rate.Options{Store: crashes, Name: "a"}), 2)
	s := newSemaphore(t, 2, rate.Options{Store: openRedis(t, server), Name: "a"})
	crashes.Close() // which releases no slots
	expectFree(t, s, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	slots, err := s.Acquire(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	slots.Release()
	testproc.Eventually(t, func() bool { return free(t, s) == 2 })
}

// While Redis is down Acquire fails at once, or the process has its part. Slots that a process
// holds through an outage are counted in Redis afterwards.
func TestSlotsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openRedis(t, server)
	strict := newSemaphore(t, 6, rate.Options{Store: store, Name: "strict"})
	lenient := newSemaphore(t, 6, rate.Options{Store: store, Name: "lenient", Workers: 2})
	others := openRedis(t, server)
	other := newSemaphore(t, 6, rate.Options{Store: others, Name: "lenient", Workers: 2})
	held := acquire(t, lenient, 1)
	waits := make(chan error)
	all := acquire(t, strict, 6)
	go func() {
		_, err := strict.Acquire(context.Background(), 1)
		waits <- err
	}()
	server.Kill()
	if err := <-waits; !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("a waiter, without Redis: %v", err)
	}
	for range 3 {
		if slots, err := strict.Acquire(t.Context(), 1); slots != nil || !errors.Is(err, redisstore.ErrUnavailable) {
			t.Errorf("without Redis: %v, %v", slots, err)
		}
	}
	more := acquire(t, lenient, 2) // with held this is its part
	expectFree(t, lenient, 0)
	server.Restart()
	testproc.Eventually(t, func() bool { return store.Up() && others.Up() })
	testproc.Eventually(t, func() bool { return free(t, other) == 3 })
	held.Release()
	more.Release()
	all.Release()
	testproc.Eventually(t, func() bool { return free(t, other) == 6 && free(t, strict) == 6 })
}
