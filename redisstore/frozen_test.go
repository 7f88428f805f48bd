// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

var frozenFor = flag.Duration("freeze", 1500*time.Millisecond, "how long Redis hangs in TestFrozenRedis")

// Requests of several rules are charged exactly once, also those whose calls were in flight when Redis hung,
// and whose cost became known while it hung.
func TestFrozenRedis(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	const each = 1000 // the limit of an actor
	var late, unknown atomic.Int64
	var gateways [2]*watched
	var counters [len(gateways)][]any
	countersOf := func(s *Store) (all []any) {
		for _, a := range []limit.Algorithm{limit.FixedWindow(), limit.SlidingWindow(), limit.TokenBucket(), limit.SlidingLog()} {
			all = append(all, s.at(t, a, limit.Limit{N: each, Unit: 72 * time.Hour}))
		}
		return all
	}
	for g := range gateways {
		gateways[g] = watch(t, Options{URL: r.URL(), Timeout: 50 * time.Millisecond, Reconciled: func(debited int64, n int) {
			late.Add(debited)
			unknown.Add(int64(n))
		}})
		counters[g] = countersOf(gateways[g].Store)
	}

	var mu sync.Mutex
	spent := map[string]int64{} // what each actor really cost
	var next atomic.Int64
	var thawed atomic.Bool
	request := func(g int) {
		w, key := gateways[g], fmt.Sprint("actor ", next.Add(1))
		var charges []limit.Charge
		for _, c := range counters[g] {
			charges = append(charges, limit.Charge{Counters: c, Key: []byte(key), Cost: 100})
		}
		switch ok, err := w.Take(context.Background(), 0, charges); {
		case errors.Is(err, ErrUnavailable):
			w.Debit(0, charges)
		case err != nil || !ok:
			t.Error(ok, err)
			return
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // the upstream
		cost := 1 + rand.Int64N(200)
		rest := make([]limit.Charge, len(charges))
		copy(rest, charges)
		for i := range rest {
			if rest[i].Cost = cost - 100; cost < 100 {
				rest[i].Cost = 100 - cost
			}
		}
		if cost < 100 {
			w.Settle(0, nil, rest)
		} else if cost > 100 {
			for i := range rest {
				rest[i].Ticket = nil
			}
			w.Settle(0, rest, nil)
		}
		mu.Lock()
		defer mu.Unlock()
		spent[key] = cost
	}
	var clients sync.WaitGroup
	for n := range 64 {
		clients.Go(func() {
			for !thawed.Load() {
				request(n % len(gateways))
				time.Sleep(rand.N(20 * time.Millisecond)) // so that the check of the actors is short
			}
		})
	}
	testproc.Eventually(t, func() bool { return next.Load() > 200 })
	r.Freeze()
	time.Sleep(*frozenFor)
	r.Thaw()
	for _, w := range gateways {
		testproc.Eventually(t, w.Up)
	}
	thawed.Store(true)
	clients.Wait()
	for _, w := range gateways {
		testproc.Eventually(t, func() bool { return w.Up() && w.debts.len() == 0 && !w.batchers.anyOpen() })
		w.Store.calls.wait(nil)
	}

	reader := openBy(t, Options{URL: r.URL()})
	counted := countersOf(reader)
	wrong, sum := 0, int64(0)
	for key, cost := range spent {
		charges := make([]limit.Charge, len(counted))
		for i, c := range counted {
			charges[i] = limit.Charge{Counters: c, Key: []byte(key), Cost: 1}
		}
		if err := reader.Peek(context.Background(), 0, charges); err != nil {
			t.Fatal(err)
		}
		for i, ch := range charges {
			if used := each - ch.Outcome.Remaining; used != cost {
				if wrong++; wrong <= 10 {
					t.Errorf("%s, rule %d: %d are charged, want %d", key, i, used, cost)
				}
				sum += used - cost
			}
		}
	}
	if late.Load() == 0 || unknown.Load() > 0 {
		t.Errorf("%d were debited after the outage, want some; %d calls have an unknown fate", late.Load(), unknown.Load())
	}
	t.Logf("%d requests, %d counters are wrong, %+d in all; %d were debited late", len(spent), wrong, sum, late.Load())
}
