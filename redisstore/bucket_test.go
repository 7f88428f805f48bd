// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// sharing is a gateway that counts one actor by a token bucket, and without Redis by its share of it.
type sharing struct {
	*watched
	whole any
	local *memstore.Store
	share any
}

// take returns whether a request is allowed, as package decide would.
func (g *sharing) take(now, cost int64) bool {
	ctx := context.Background()
	local := []limit.Charge{{Counters: g.share, Key: []byte("x"), Cost: cost, Shadow: g.Up()}}
	charge := []limit.Charge{{Counters: g.whole, Key: []byte("x"), Cost: cost}}
	if ok, err := g.local.Take(ctx, now, local); !ok || err != nil {
		return false
	}
	if !local[0].Shadow {
		g.Debit(now, charge)
		return true
	}
	ok, err := g.Take(ctx, now, charge)
	if err != nil {
		g.Error(err)
	}
	if !ok {
		g.local.Refund(local)
	}
	return ok
}

// In no interval with an outage the gateways allow more of a token bucket than DESIGN.md says.
func TestBucketInOutage(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	const step = int64(time.Second / time.Microsecond) // a token
	for seed := range uint64(48) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		gateways, mostCost := 1+int64(seed%3), 1+2*int64(seed/3%2)
		share := 2 + rnd.Int64N(12)
		n := gateways * share
		var all []*sharing
		for range gateways {
			g := &sharing{watched: watch(t, Options{URL: r.URL(), CallerClock: true, Prefix: fmt.Sprint("seed", seed)}), local: memstore.New(memstore.Options{})}
			g.whole = g.at(t, limit.TokenBucket(), limit.Limit{N: n, Unit: time.Duration(n) * time.Second})
			m, err := limit.TokenBucket().New(limit.Limit{N: share, Unit: time.Duration(n) * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if g.share, err = g.local.Counters("share", m); err != nil {
				t.Fatal(err)
			}
			all = append(all, g)
		}
		type allowed struct{ at, cost int64 }
		var list []allowed
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		run := func(tokens int64) {
			for end := now + tokens*step; now < end; now += rnd.Int64N(step / 2) {
				for range 2 * gateways {
					if cost := 1 + rnd.Int64N(mostCost); all[rnd.IntN(len(all))].take(now, cost) {
						list = append(list, allowed{now, cost})
					}
				}
			}
		}
		run(rnd.Int64N(2 * n))
		r.Freeze()
		for _, g := range all {
			g.link.fail(context.DeadlineExceeded)
		}
		from := now
		run(1 + rnd.Int64N(3*n))
		until := now
		r.Thaw()
		for _, g := range all {
			testproc.Eventually(t, func() bool { return g.Up() && g.debts.len() == 0 })
		}
		run(n)
		for i := range list {
			sum := int64(0)
			for _, a := range list[i:] {
				sum += a.cost
				added, alone := a.at-list[i].at, max(min(a.at, until)-max(list[i].at, from), 0) // as times
				bound := n + (gateways-1)*share + (added+min(alone, n*step)+step-1)/step + gateways*mostCost
				if sum > bound {
					t.Fatalf("seed %d: %d gateways allow %d in %d s, the bound is %d", seed, gateways, sum, added/step, bound)
				}
			}
		}
	}
}

// Redis' bucket and the debits of a gateway both gain the tokens that are added in an outage.
func TestBucketGainsTwice(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	g := watch(t, Options{URL: r.URL(), CallerClock: true})
	c := g.at(t, limit.TokenBucket(), limit.Limit{N: 100, Unit: 100 * time.Second})
	charge := func(n int64) []limit.Charge { return []limit.Charge{{Counters: c, Key: []byte("x"), Cost: n}} }
	const second = 1_000_000
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	if ok, err := g.Take(context.Background(), now, charge(100)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r.Freeze()
	g.link.fail(context.DeadlineExceeded)
	for range 3 { // as many as are added
		now += second
		g.Debit(now, charge(1))
	}
	r.Thaw()
	testproc.Eventually(t, func() bool { return g.Up() && g.debts.len() == 0 })
	left := charge(1)
	if err := g.Peek(context.Background(), now, left); err != nil || left[0].Outcome.Remaining != 2 {
		t.Errorf("%d left, %v, want the 2 that the first two debits have gained", left[0].Outcome.Remaining, err)
	}
}
