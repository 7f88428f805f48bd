// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/storetest"
)

// open returns a Store in use, on a single Redis.
func open(t testing.TB, r *redistest.Server) *Store {
	t.Helper()
	return openBy(t, Options{URL: r.URL()})
}

// openBy returns a Store in use, on a Redis that may be slow.
func openBy(t testing.TB, o Options) *Store {
	t.Helper()
	o.Timeout = 10 * time.Second
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	testproc.Eventually(t, s.Up)
	return s
}

func (s *Store) at(t testing.TB, a limit.Algorithm, l limit.Limit) any {
	t.Helper()
	m, err := a.New(l)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Counters(fmt.Sprintf("%s %v", a.Name(), l), m)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConformance(t *testing.T) {
	testConformance(t, Options{URL: redistest.Start(t).URL()})
}

// testConformance runs the suite on stores that share a Redis, each with its own prefix.
func testConformance(t *testing.T, o Options) {
	var stores atomic.Int64
	next := func(t *testing.T, callerClock bool) *Store {
		t.Helper()
		own := o
		own.Prefix, own.CallerClock = fmt.Sprint("store", stores.Add(1)), callerClock
		return openBy(t, own)
	}
	storetest.Suite{}.Run(t, func(t *testing.T) (limit.Store, func() int64) {
		return next(t, false), func() int64 { return 0 }
	})
	storetest.Suite{}.Replay(t, func(t *testing.T) limit.Store { return next(t, true) })
}

// Go and Lua have the same results for any input.
func TestAgreesWithMemory(t *testing.T) {
	t.Parallel()
	n := 100_000
	if testing.Short() || race.Enabled {
		n = 10_000
	}
	s := openBy(t, Options{URL: redistest.Start(t).URL(), CallerClock: true})
	storetest.Suite{}.Agree(t, uint64(time.Now().UnixNano()), n, memstore.New(memstore.Options{}), &alternating{s, 0})
}

// alternating lets driver.lua decide every second short call.
type alternating struct {
	*Store
	takes int
}

func (s *alternating) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	s.takes++
	s.long.Store(s.takes%2 == 0)
	return s.Store.Take(ctx, now, charges)
}

// A debit of 0 changes nothing, also if the clock went back and the debt is more than a state can hold.
func TestDebitOfNothing(t *testing.T) {
	t.Parallel()
	stores := []limit.Store{
		memstore.New(memstore.Options{}),
		openBy(t, Options{URL: redistest.Start(t).URL(), CallerClock: true}),
	}
	for i, s := range stores {
		for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.LeakyBucket(), limit.Reservations()} {
			m, err := a.New(limit.Limit{N: 2, Unit: 31 * 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Counters(a.Name(), m)
			if err != nil {
				t.Fatal(err)
			}
			const now, earlier = 1 << 50, 1<<50 - 1e6
			charge := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: bounds.MaxSettled}}
			s.Debit(now, charge)
			s.Debit(now, charge) // the first one ends less than a step below the bound
			wait := func() int64 {
				t.Helper()
				peek := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
				if err := s.Peek(context.Background(), now, peek); err != nil {
					t.Fatal(err)
				}
				return peek[0].Outcome.Wait
			}
			before := wait()
			charge[0] = limit.Charge{Counters: c, Key: []byte("x"), Shadow: true, Debit: true}
			if _, err := s.Take(context.Background(), earlier, charge); err != nil {
				t.Fatal(err)
			}
			if got := wait(); got != before {
				t.Errorf("store %d, %s: the wait was %d, and after a debit of 0 it is %d", i, a.Name(), before, got)
			}
		}
	}
}

// Requests that arrive together at a cold limit are allowed as if each came after the one before. Requests
// of cost 1 share one evaluation, and each request of a higher cost has its own.
func TestWarmupTogether(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	m, err := limit.TokenBucket().New(limit.Limit{N: 2, Unit: time.Minute, Warmup: bounds.MaxWarmup, Burst: 12})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Counters("warm", m)
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch(s.batchers[0], nil)
	for range 3 {
		takeIn(b, []limit.Charge{{Counters: c, Cost: 1}})
		takeIn(b, []limit.Charge{{Counters: c, Cost: 3}})
	}
	if len(b.groups) != 4 {
		t.Errorf("there are %d groups, want one of cost 1 and three of cost 3", len(b.groups))
	}
	for cost := range int64(4) {
		cost++
		alone, want := limit.State{Cells: make([]uint64, m.Cells(limit.State{}, 1))}, 0
		const now = 1 << 50
		for ; m.Peek(alone, now, cost).Allowed; want++ {
			alone.Head = m.Take(alone, now, cost)
		}
		var in atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 3 {
					ch := []limit.Charge{{Counters: c, Key: fmt.Append(nil, cost), Cost: cost}}
					ok, err := s.Take(context.Background(), 0, ch)
					if err != nil || ok != ch[0].Outcome.Allowed {
						t.Error(ok, err, ch[0].Outcome)
					}
					if ok {
						in.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if in.Load() != int64(want) {
			t.Errorf("of cost %d %d were admitted, want %d", cost, in.Load(), want)
		}
	}
}

// Several stores, as in several gateways, share one limit by Redis' clock.
func TestSharedByGateways(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		s := open(t, r)
		c := s.at(t, limit.SlidingLog(), limit.Limit{N: 1000, Unit: time.Hour})
		for range 64 {
			wg.Go(func() {
				for range 20 {
					ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}
					ok, err := s.Take(context.Background(), 0, ch)
					if err != nil {
						t.Error(err)
					}
					if ok {
						admitted.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	if admitted.Load() != 1000 {
		t.Errorf("admitted %d, want 1000", admitted.Load())
	}
	idle := open(t, r)
	c := idle.at(t, limit.SlidingLog(), limit.Limit{N: 1000, Unit: time.Hour})
	if ok, err := idle.Take(context.Background(), 0, []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}}); ok || err != nil {
		t.Errorf("a gateway without traffic of its own: %v, %v, want a refusal", ok, err)
	}
}

// A request with several rules is one call, and equal requests that arrive together are one.
func TestOneCall(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := open(t, r)
	var charges []limit.Charge
	for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow()} {
		charges = append(charges, limit.Charge{Counters: s.at(t, a, limit.Limit{N: 10, Unit: time.Minute}), Key: []byte("x"), Cost: 1})
	}
	take := func() {
		t.Helper()
		if _, err := s.Take(context.Background(), 0, charges); err != nil {
			t.Fatal(err)
		}
	}
	take() // Redis gets the script
	if c := costOf(r, nil, take); c.calls != 1 {
		t.Errorf("three rules took %d calls, want 1", c.calls)
	}
	r.Must("SCRIPT", "FLUSH")
	take() // and no request notices
	receipts := s.keys.receipts(s.batchers[0].tag)
	if ttl, _ := r.Must("PTTL", receipts).(int64); ttl <= 0 || ttl > receiptsLive.Milliseconds() {
		t.Errorf("the receipts have %d ms to live, want an hour at most", ttl)
	}
	r.Must("DEL", receipts)
	for _, key := range r.Must("KEYS", "*").([]any) {
		if ttl, _ := r.Must("PTTL", fmt.Sprint(key)).(int64); ttl == -1 || ttl > 70_000 { // -2: it has just expired
			t.Errorf("key %q has %d ms to live, -1 for ever, want about a minute at most", key, ttl)
		}
	}
}

// A key with our prefix and a foreign value makes only its own requests fail.
func TestForeignValue(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := open(t, r)
	c := s.at(t, limit.TokenBucket(), limit.Limit{N: 10, Unit: time.Minute})
	take := func(key string) error {
		_, err := s.Take(context.Background(), 0, []limit.Charge{{Counters: c, Key: []byte(key), Cost: 1}})
		return err
	}
	name := s.keys.counter(s.batchers[0].tag, hashOf(&limit.Charge{Counters: c, Key: []byte("x")}))
	for _, set := range [][]string{{"SET", name, "something"}, {"LPUSH", name, "something"}} {
		r.Must("DEL", name)
		r.Must(set...)
		if err := take("x"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v: %v, want ErrUnavailable", set, err)
		}
		if err := take("y"); err != nil {
			t.Errorf("%v: someone else got %v", set, err)
		}
	}
}

// If Redis does not answer, no request waits longer than the timeout. A request whose context ends does not
// wait at all.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s, err := Open(Options{URL: r.URL(), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	testproc.Eventually(t, s.Up)
	c := s.at(t, limit.TokenBucket(), limit.Limit{N: 10, Unit: time.Minute})
	take := func(ctx context.Context) error {
		_, err := s.Take(ctx, 0, []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}})
		return err
	}
	testproc.Eventually(t, func() bool { return take(context.Background()) == nil })
	r.Freeze()
	if err := take(context.Background()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("frozen: %v, want ErrUnavailable", err)
	}
	if s.Up() {
		t.Error("frozen, and said to be up")
	}
	r.Thaw()
	testproc.Eventually(t, func() bool { return take(context.Background()) == nil })
	r.Kill()
	if err := take(context.Background()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("killed: %v, want ErrUnavailable", err)
	}
	r.Restart()
	testproc.Eventually(t, func() bool { return take(context.Background()) == nil })
	s.Close()
	s.Close()
	if err := take(context.Background()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("closed: %v, want ErrUnavailable", err)
	}
	for _, bad := range []Options{{URL: "http://x"}, {URL: "redis://x:y:z"}, {Master: "x"}, {}} {
		if _, err := Open(bad); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("Open(%+v): %v, want what is wrong", bad, err)
		}
	}
}

// The scheduled time of a refunded request is never used twice: the requests behind keep theirs.
func TestScheduledTimeRefunded(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	const step = 2 * time.Second
	c := s.at(t, limit.LeakyBucket(), limit.Limit{N: 1, Unit: step, Queue: 10})
	take := func() ([]limit.Charge, time.Time) {
		t.Helper()
		ch := []limit.Charge{{Counters: c, Cost: 1}}
		if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return ch, time.UnixMicro(ch[0].At + ch[0].Outcome.Wait)
	}
	_, first := take()
	leaver, _ := take()
	_, third := take()
	s.Refund(leaver)
	last, fourth := take()
	if fourth.Sub(third) < step {
		t.Errorf("turns at 0, %v and %v, want them two seconds apart", third.Sub(first), fourth.Sub(first))
	}
	s.Refund(last) // which has no request behind it
	if _, again := take(); !again.Equal(fourth) {
		t.Errorf("the last request was refunded, and the next is scheduled %v later", again.Sub(fourth))
	}
}

// A request under several leaky buckets proceeds in all of them at once. In each, the next request keeps
// its distance from that moment.
func TestSeveralQueues(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	fast := s.at(t, limit.LeakyBucket(), limit.Limit{N: 10, Unit: time.Second, Queue: 100})
	slow := s.at(t, limit.LeakyBucket(), limit.Limit{N: 1, Unit: 9 * time.Second})
	take := func(of ...any) (turn time.Time, charges []limit.Charge) {
		t.Helper()
		for _, c := range of {
			charges = append(charges, limit.Charge{Counters: c, Cost: 1})
		}
		if ok, err := s.Take(context.Background(), 0, charges); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for _, ch := range charges {
			if at := time.UnixMicro(ch.At + ch.Outcome.Wait); at.After(turn) {
				turn = at
			}
		}
		return turn, charges
	}
	take(slow)
	both, charges := take(fast, slow)
	behind, last := take(fast)
	if d := behind.Sub(both); d < 100*time.Millisecond {
		t.Errorf("the next request proceeded %v after, want 100 ms", d)
	}
	s.Refund(last)
	s.Refund(charges)
	if next, _ := take(fast); next.After(both) {
		t.Errorf("a turn that was left is free only after %v", next.Sub(both))
	}
}
