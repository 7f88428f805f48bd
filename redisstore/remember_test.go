// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
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

// fleetOf returns gateways that share a limit of n a day, and a request for each. The first gateway may report its
// calls.
func fleetOf(t *testing.T, r *redistest.Server, gateways int, n int64, observed ...func(time.Duration)) (all []*Store, charges [][]limit.Charge) {
	t.Helper()
	for i := range gateways {
		o := Options{URL: r.URL()}
		if i < len(observed) {
			o.Observed = observed[i]
		}
		s := openBy(t, o)
		c := s.at(t, limit.FixedWindow(), limit.Limit{N: n, Unit: 24 * time.Hour})
		all, charges = append(all, s), append(charges, []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}})
	}
	return all, charges
}

// takeAnswered makes so many requests, each again until Redis answers, and returns how many were allowed.
func takeAnswered(t *testing.T, s *Store, charges []limit.Charge, times int) (allowed int) {
	t.Helper()
	for range times {
		testproc.Eventually(t, func() bool {
			ok, err := s.Take(context.Background(), 0, charges)
			if ok {
				allowed++
			}
			return err == nil
		})
	}
	return allowed
}

// A second loss soon after the first one brings back what was used before both, also if a gateway charges in between
// that knows nothing of it.
func TestLossAfterLoss(t *testing.T) {
	t.Parallel()
	for name, users := range map[string][]int{"all have used it": {0, 1, 2}, "one has not": {0, 1}} {
		for _, mended := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, mended %v", name, mended), func(t *testing.T) {
				t.Parallel()
				r := redistest.Start(t)
				const n, used, each = 1000, 700, 5
				gateways, charges := fleetOf(t, r, 3, n)
				take := func(g, times int) int { return takeAnswered(t, gateways[g], charges[g], times) }
				allowed := 0
				for i := range used {
					allowed += take(users[i%len(users)], 1)
				}
				for _, g := range []int{2, 1, 2, 0} {
					r.Must("FLUSHALL")
					allowed += take(g, each)
					if mended {
						awaitMended(t, gateways)
					}
				}
				awaitMended(t, gateways)
				if allowed += take(0, n); allowed < n || allowed > n+30 {
					t.Errorf("%d were allowed, want %d", allowed, n)
				}
			})
		}
	}
}

// A gateway that has noticed a loss asks again for its calls. It also notices a second loss just before that.
func TestLossBetweenQuestions(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	const n, used = 1000, 700
	var armed atomic.Bool
	gateways, charges := fleetOf(t, r, 2, n, func(time.Duration) {
		if armed.Load() && r.Must("EXISTS", "diana:epoch") == int64(1) && armed.Swap(false) { // the first question made it
			r.Must("FLUSHALL")
		}
	})
	take := func(g, times int) int { return takeAnswered(t, gateways[g], charges[g], times) }
	allowed := 0
	for i := range used {
		allowed += take(i%2, 1)
	}
	r.Must("FLUSHALL")
	armed.Store(true)
	allowed += take(0, 5)
	if armed.Load() {
		t.Fatal("no second loss")
	}
	r.Must("FLUSHALL")
	allowed += take(1, 5)
	awaitMended(t, gateways)
	if allowed += take(0, n); allowed < n || allowed > n+30 {
		t.Errorf("%d were allowed, want %d", allowed, n)
	}
}

// A copy of Redis from soon after a loss has the bases of that loss. After it has come back, they count no longer.
func TestOldCopyAfterLoss(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	ctx := context.Background()
	const n = 1000
	gateways, charges := fleetOf(t, r, 2, n)
	used := int64(0)
	take := func(times int) {
		for i := range times {
			testproc.Eventually(t, func() bool {
				ok, err := gateways[i%2].Take(ctx, 0, charges[i%2])
				return ok && err == nil
			})
			used++
		}
	}
	take(100)
	r.Must("FLUSHALL")
	take(2)
	awaitMended(t, gateways)
	take(50)
	r.Must("SAVE")
	take(10)
	r.Kill()
	r.Restart()
	take(4)
	awaitMended(t, gateways)
	take(2)
	wantUsed(t, gateways[0], charges[0], n, used)
}

// A call that was made before its gateway learned of a loss puts nothing back. So it must not be carried out after that.
func TestCallFromBeforeLoss(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	ctx := context.Background()
	const n, used = 1000, 10
	gateways, charges := fleetOf(t, r, 2, n)
	for i := range used { // the second gateway remembers nothing
		if ok, err := gateways[0].Take(ctx, 0, charges[0]); !ok {
			t.Fatal(i, err)
		}
	}
	br := gateways[0].batchers[0]
	br.mu.Lock()
	br.begin()
	br.next.join(charges[0], hashesOf(charges[0], nil), takes)
	br.next.urgent = true // as if Redis had been in use when it was sent
	early := br.free()
	br.mu.Unlock()
	r.Must("FLUSHALL")
	testproc.Eventually(t, func() bool { ok, _ := gateways[1].Take(ctx, 0, charges[1]); return ok })
	testproc.Eventually(t, func() bool { return br.receipts.epoch.Load() == gateways[1].batchers[0].receipts.epoch.Load() })
	br.run(early, true)
	if early.err == nil {
		t.Error("the call is carried out")
	}
	awaitMended(t, gateways)
	wantUsed(t, gateways[0], charges[0], n, used+1)
}

// While a slot moves, the base of a counter can be at the other node already. Redis carries out the call without it, or not
// at all: a call that has left its receipt is not debited.
func TestSlotMovesAfterLoss(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2)
	s := openBy(t, Options{Addresses: cluster.Addrs()})
	ctx := context.Background()
	ch := []limit.Charge{{Counters: s.at(t, limit.FixedWindow(), limit.Limit{N: 1000, Unit: 24 * time.Hour}), Key: []byte("x"), Cost: 1}}
	take := func() { testproc.Eventually(t, func() bool { ok, err := s.Take(ctx, 0, ch); return ok && err == nil }) }
	take()
	key := s.keys.counter(s.batchers.batcher(&ch[0]).tag, hashOf(&ch[0]))
	from := cluster.Master(key)
	from.Must("FLUSHALL")
	take()
	to := cluster.Masters()[0]
	if to == from {
		to = cluster.Masters()[1]
	}
	slot := fmt.Sprint(from.Must("CLUSTER", "KEYSLOT", key))
	to.Must("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Must("CLUSTER", "MYID").(string))
	from.Must("DEL", key+"=")
	from.Must("CLUSTER", "SETSLOT", slot, "MIGRATING", to.Must("CLUSTER", "MYID").(string))
	ok, err := s.Take(ctx, 0, ch)
	if err != nil { // the caller allows it alone
		s.Debit(0, ch)
	}
	from.Must("CLUSTER", "SETSLOT", slot, "STABLE")
	to.Must("CLUSTER", "SETSLOT", slot, "STABLE")
	take()
	if got := 1000 - ch[0].Outcome.Remaining; got != 4 {
		t.Errorf("%d are used, want 4; when the base was away, the request was allowed %v, %v", got, ok, err)
	}
}

// A gateway that has charged nothing for longer than receipts live notices a loss, too.
func TestLossAfterSilence(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	ctx := context.Background()
	const n, used = 1000, 10
	gateways, charges := fleetOf(t, r, 1, n)
	take := func() {
		testproc.Eventually(t, func() bool { ok, err := gateways[0].Take(ctx, 0, charges[0]); return ok && err == nil })
	}
	for range used {
		take()
	}
	receipts := &gateways[0].batchers[0].receipts
	receipts.mu.Lock()
	receipts.at = receipts.at.Add(-receiptsLive / 4)
	receipts.mu.Unlock()
	testproc.Eventually(t, func() bool { return !receipts.old() })
	receipts.mu.Lock()
	receipts.at = receipts.at.Add(-receiptsLive / 4) // together half of the time
	receipts.mu.Unlock()
	r.Must("FLUSHALL")
	take()
	wantUsed(t, gateways[0], charges[0], n, used+1)
}

// A gateway that starts soon after a loss charges a counter before another gateway puts it back.
func TestStartAfterLoss(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	ctx := context.Background()
	const n, used, more = 1000, 10, 3
	gateways, charges := fleetOf(t, r, 1, n)
	for i := range used {
		if ok, err := gateways[0].Take(ctx, 0, charges[0]); !ok {
			t.Fatal(i, err)
		}
	}
	memory := gateways[0].memory
	memory.mu.Lock()
	kept := memory.by[actor{charges[0][0].Counters.(*counters).name, "x"}].Value.(*memo)
	memory.mu.Unlock()
	memory.forget(kept.actor, kept.at) // until later
	r.Must("FLUSHALL")
	other := []limit.Charge{{Counters: charges[0][0].Counters, Key: []byte("y"), Cost: 1}}
	testproc.Eventually(t, func() bool { ok, _ := gateways[0].Take(ctx, 0, other); return ok }) // notices the loss
	late, its := fleetOf(t, r, 1, n)
	for i := range more {
		if ok, err := late[0].Take(ctx, 0, its[0]); !ok {
			t.Fatal(i, err)
		}
	}
	memory.mu.Lock()
	memory.addLocked(kept)
	memory.mu.Unlock()
	if ok, err := gateways[0].Take(ctx, 0, charges[0]); !ok {
		t.Fatal(err)
	}
	if got := n - charges[0][0].Outcome.Remaining; got != used+more+1 {
		t.Errorf("%d are used, want %d", got, used+more+1)
	}
}

// A gateway whose request is refused remembers that nothing is left, although others have used most of the limit.
func TestLeftAfterRefusal(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	ctx := context.Background()
	gateways, charges := fleetOf(t, r, 3, 10)
	for _, g := range []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 1} {
		if ok, err := gateways[g].Take(ctx, 0, charges[g]); !ok {
			t.Fatal(err)
		}
	}
	for g, want := range []int64{9, 0, -1} { // the last one has not used it
		left := func(told string) int64 {
			n := int64(-1)
			gateways[g].Left(charges[g][0].Counters, []byte("x"), told, func(left int64) int64 { n = left; return 0 })
			return n
		}
		if got := left("first"); got != want {
			t.Errorf("gateway %d remembers that %d are left, want %d", g, got, want)
		}
		if ok, err := gateways[g].Take(ctx, 0, charges[g]); ok || err != nil {
			t.Fatal(ok, err)
		}
		if got := left("first"); got > 0 || g != 1 && got < 0 {
			t.Errorf("refused gateway %d remembers that %d are left, want 0", g, got)
		}
		if got := left("second"); got != 0 {
			t.Errorf("to other counters gateway %d tells %d, want 0", g, got)
		}
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
		switch op := rnd.IntN(11); {
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
		case op == 10 && (!lost || algo.Name() != "SL"):
			if lost { // it could be put back after the reset
				awaitMended(t, gateways)
			}
			if err := gateways[g].Reset(ctx, counters[g], []byte("x")); err != nil {
				continue // it may not know of the loss yet
			}
			used, charges = 0, nil
			testproc.Eventually(t, func() bool { // all have read the reset
				for _, s := range gateways {
					s.memory.mu.Lock()
					n := len(s.memory.by)
					s.memory.mu.Unlock()
					if n > 0 {
						return false
					}
				}
				return true
			})
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

// wantUsed asks a store how much of a limit of n is used.
func wantUsed(t *testing.T, s *Store, charges []limit.Charge, n, want int64) {
	t.Helper()
	if err := s.Peek(context.Background(), 0, charges); err != nil {
		t.Fatal(err)
	}
	if got := n - charges[0].Outcome.Remaining; got != want {
		t.Errorf("%d are used, want %d", got, want)
	}
}

// A gateway remembers the use of a refused actor until none of it counts, and not only until the next request is available.
func TestRefusedIsRemembered(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	ctx := context.Background()
	const n = 1000
	for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.SlidingWindow(), limit.SlidingLog()} {
		s := openBy(t, Options{URL: r.URL()})
		late := openBy(t, Options{URL: r.URL()}) // which is only refused
		c, its := s.at(t, a, limit.Limit{N: n, Unit: time.Hour}), late.at(t, a, limit.Limit{N: n, Unit: time.Hour})
		for _, cost := range []int64{n / 2, n / 2} {
			if ok, err := s.Take(ctx, 0, []limit.Charge{{Counters: c, Key: []byte("x"), Cost: cost}}); !ok {
				t.Fatal(a.Name(), err)
			}
		}
		for _, g := range []struct {
			*Store
			c any
		}{{s, c}, {late, its}} {
			if ok, err := g.Take(ctx, 0, []limit.Charge{{Counters: g.c, Key: []byte("x"), Cost: n}}); ok || err != nil {
				t.Fatal(a.Name(), ok, err)
			}
			g.memory.mu.Lock()
			kept := g.memory.by[actor{g.c.(*counters).name, "x"}].Value.(*memo)
			g.memory.mu.Unlock()
			if lasts := time.Duration(kept.end-kept.at) * time.Microsecond; lasts < time.Hour*9/10 {
				t.Errorf("%s: what is used is remembered for %v, want about an hour", a.Name(), lasts)
			}
		}
	}
}

// After a loss a gateway knows that a limit was used up by its refusal, and not only by the older state that it puts back.
func TestRefusedBeforeLoss(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	ctx := context.Background()
	const n, own = 60, 21
	gateways, charges := fleetOf(t, r, 2, n)
	for i := range n + 1 {
		g := 0
		if i < own || i == n {
			g = 1
		}
		if ok, err := gateways[g].Take(ctx, 0, charges[g]); ok != (i < n) || err != nil {
			t.Fatal(i, ok, err)
		}
	}
	r.Must("FLUSHALL")
	other := []limit.Charge{{Counters: charges[1][0].Counters, Key: []byte("y"), Cost: 1}}
	testproc.Eventually(t, func() bool { ok, _ := gateways[1].Take(ctx, 0, other); return ok }) // notices the loss
	testproc.Eventually(t, func() bool {                                                        // its state is back
		ok, err := gateways[1].Take(ctx, 0, []limit.Charge{{Counters: charges[1][0].Counters, Key: []byte("x"), Cost: n}})
		return !ok && err == nil
	})
	left := int64(-1)
	gateways[1].Left(charges[1][0].Counters, []byte("x"), "share", func(n int64) int64 { left = n; return 0 })
	if left != 0 {
		t.Errorf("it remembers that %d are left, want 0", left)
	}
}

// A counter is not reduced during a refund to it. A reduction counts what is charged, so the refund would raise the
// counter above what is left.
func TestNoReductionDuringRefund(t *testing.T) {
	t.Parallel()
	gateways, charges := fleetOf(t, redistest.Start(t), 1, 10)
	s, c, key := gateways[0], charges[0][0].Counters, []byte("x")
	if ok, err := s.Take(context.Background(), 0, charges[0]); !ok {
		t.Fatal(err)
	}
	var events []string
	var reducing sync.WaitGroup
	s.Unreduced(c, key, 5, func() {
		reducing.Go(func() {
			s.Left(c, key, "share", func(int64) int64 { events = append(events, "reduced"); return 5 })
		})
		for range 1000 {
			runtime.Gosched() // for a defect to show
		}
		events = append(events, "refunded")
	})
	reducing.Wait()
	s.Unreduced(c, key, 5, func() { events = append(events, "refunded again") })
	s.Unreduced(c, key, 6, func() { events = append(events, "refunded later") })
	if got, want := fmt.Sprint(events), "[refunded reduced refunded later]"; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// A gateway does not count the tokens that a bucket has got back since then.
func TestLeftOfBucket(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	ctx := context.Background()
	const n = 60
	s := openBy(t, Options{URL: r.URL()})
	charges := []limit.Charge{{Counters: s.at(t, limit.TokenBucket(), limit.Limit{N: n, Unit: time.Hour}), Key: []byte("x"), Cost: n}}
	for _, want := range []bool{true, false} {
		if ok, err := s.Take(ctx, 0, charges); ok != want || err != nil {
			t.Fatal(ok, err)
		}
	}
	for half := range int64(2) {
		left := int64(-1)
		s.Left(charges[0].Counters, []byte("x"), half, func(n int64) int64 { left = n; return 0 })
		if left != half*n/2 {
			t.Errorf("%d half hours later %d are left, want %d", half, left, half*n/2)
		}
		s.ahead.Add((time.Hour/2 + time.Second).Microseconds())
	}
}
