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
)

// memoryLoss is a way in which Redis loses counters after 700 of 1,000 requests.
type memoryLoss struct {
	name   string
	before func(r *redistest.Server) // is called after 500 requests
	lose   func(r *redistest.Server)
}

var memoryLosses = []memoryLoss{
	{"FLUSHALL", nil, func(r *redistest.Server) { r.Must("FLUSHALL") }},
	{"FLUSHDB ASYNC", nil, func(r *redistest.Server) { r.Must("FLUSHDB", "ASYNC") }},
	{"empty restart", nil, func(r *redistest.Server) { r.Kill(); r.Restart() }},
	{"old RDB", func(r *redistest.Server) { r.Must("SAVE") }, func(r *redistest.Server) { r.Kill(); r.Restart() }},
}

// After Redis has lost its memory, the gateways put back what they remember.
func TestLosses(t *testing.T) {
	for _, loss := range memoryLosses {
		for _, algo := range []limit.Algorithm{
			limit.FixedWindow(), limit.TokenBucket(), limit.SlidingWindow(), limit.SlidingLog(),
		} {
			for _, load := range [][]int{{1, 1, 1}, {98, 1, 1}} {
				t.Run(fmt.Sprint(loss.name, " ", algo.Name(), " ", load), func(t *testing.T) {
					t.Parallel()
					testLoss(t, loss, algo, load)
				})
			}
		}
	}
}

func testLoss(t *testing.T, loss memoryLoss, algo limit.Algorithm, load []int) {
	r := redistest.Start(t)
	const n = 1000
	var gateways []*Store
	var counters []any
	for range load {
		s := openBy(t, Options{URL: r.URL()})
		gateways = append(gateways, s)
		counters = append(counters, s.at(t, algo, limit.Limit{N: n, Unit: time.Hour}))
	}
	var order []int // of the gateways that get the requests
	for i, times := range load {
		for range times {
			order = append(order, i)
		}
	}
	sent, allowed := 0, 0
	take := func() (ok bool, err error) {
		g := order[sent%len(order)]
		if sent >= len(order)*2 && sent%97 == 0 { // so that each has used the counter recently
			g = sent / 97 % len(order) % len(load)
		}
		sent++
		for {
			ok, err = gateways[g].Take(context.Background(), 0, []limit.Charge{{Counters: counters[g], Key: []byte("x"), Cost: 1}})
			if err == nil {
				break
			}
			testproc.Eventually(t, gateways[g].Up)
		}
		if ok {
			allowed++
		}
		return ok, err
	}
	for range 500 {
		_, _ = take()
	}
	if loss.before != nil {
		loss.before(r)
	}
	for range 200 {
		_, _ = take()
	}
	if allowed != 700 {
		t.Fatalf("%d of 700 were allowed before the loss", allowed)
	}
	loss.lose(r)
	for refused := 0; refused < 3*len(order) && sent < 4*n; {
		if ok, _ := take(); !ok {
			refused++
		}
	}
	if allowed > n+30 || allowed < n-30 {
		t.Errorf("%d were allowed, want %d", allowed, n)
	}
}

// Charges, refunds, debits and losses in random order: what is used is the sum of them, whichever gateway put
// what back.
func TestRandomLosses(t *testing.T) {
	t.Parallel()
	const seeds = 8
	for _, algo := range []limit.Algorithm{
		limit.FixedWindow(), limit.TokenBucket(), limit.SlidingWindow(), limit.SlidingLog(),
	} {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(algo.Name(), " ", seed), func(t *testing.T) {
				t.Parallel()
				testRandomLosses(t, algo, seed)
			})
		}
	}
}

func testRandomLosses(t *testing.T, algo limit.Algorithm, seed uint64) {
	r := redistest.Start(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const n = 10_000
	ctx := context.Background()
	var gateways []*Store
	var counters []any
	for range 3 {
		s := openBy(t, Options{URL: r.URL()})
		gateways, counters = append(gateways, s), append(counters, s.at(t, algo, limit.Limit{N: n, Unit: 24 * time.Hour}))
	}
	type made struct {
		gateway int
		charge  []limit.Charge
	}
	var charges []made
	used, lost := int64(0), false
	settled := func(g int) {
		testproc.Eventually(t, func() bool {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return gateways[g].Up() && gateways[g].Flush(short) == nil
		})
	}
	for range 60 {
		g := rnd.IntN(len(gateways))
		cost := 1 + rnd.Int64N(5)
		charge := []limit.Charge{{Counters: counters[g], Key: []byte("x"), Cost: cost}}
		switch op := rnd.IntN(10); {
		case op < 5:
			for {
				ok, err := gateways[g].Take(ctx, 0, charge)
				if err == nil {
					if !ok {
						t.Fatal("refused, although there is room")
					}
					break
				}
				settled(g)
			}
			used += cost
			charges = append(charges, made{g, charge})
		case op < 7:
			gateways[g].Debit(0, charge)
			used += cost
			settled(g)
		case op < 9 && len(charges) > 0 && (!lost || algo.Name() != "SL"):
			i := rnd.IntN(len(charges))
			c := charges[i]
			charges = append(charges[:i], charges[i+1:]...)
			gateways[c.gateway].Refund(c.charge)
			used -= c.charge[0].Cost
			settled(c.gateway)
		case op == 9:
			if lost { // a second loss before the first is mended can lose what was not back yet
				awaitMended(t, gateways)
			}
			r.Must("FLUSHALL")
			lost = true
		}
	}
	charge := []limit.Charge{{Counters: counters[0], Key: []byte("x"), Cost: 1}}
	left := func() int64 {
		if gateways[0].Peek(ctx, 0, charge) != nil {
			return -1
		}
		return charge[0].Outcome.Remaining
	}
	if lost {
		mine := []limit.Charge{{Counters: counters[0], Key: []byte("y"), Cost: 1}} // notices the loss
		testproc.Eventually(t, func() bool { ok, _ := gateways[0].Take(ctx, 0, mine); return ok })
		awaitMended(t, gateways)
	}
	if got := n - left(); got != used {
		t.Errorf("%d are used, want %d", got, used)
	}
}

// awaitMended waits until all gateways know of a loss that one of them has noticed, and have put back all that they remember.
func awaitMended(t *testing.T, gateways []*Store) {
	t.Helper()
	testproc.Eventually(t, func() bool {
		newest := int64(0)
		for _, s := range gateways {
			newest = max(newest, s.batchers[0].receipts.epoch.Load())
		}
		for _, s := range gateways {
			epoch := s.batchers[0].receipts.epoch.Load()
			if epoch < newest || !s.Up() || len(s.memory.allLost(func(actor) int64 { return epoch })) > 0 {
				return false
			}
		}
		return true
	})
}
