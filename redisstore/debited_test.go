// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// day is a limit whose window does not end during a test.
func day(n int64) limit.Limit { return limit.Limit{N: n, Unit: 24 * time.Hour, AlignFirst: true} }

// debitOf returns a charge that consumes even if it is refused.
func debitOf(c any, key string, n int64) limit.Charge {
	return limit.Charge{Counters: c, Key: []byte(key), Cost: n, Shadow: true, Debit: true}
}

// used returns how much an actor has used of a window of n, also beyond it. It changes nothing in the end.
func used(t *testing.T, s *Store, c any, key string, n int64) int64 {
	t.Helper()
	left := func(cost int64) int64 {
		ch := []limit.Charge{debitOf(c, key, cost)}
		if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return ch[0].Outcome.Remaining
	}
	over := int64(0)
	for left(0) == 0 { // the debt is one less than the refunds that make room
		s.Refund([]limit.Charge{{Counters: c, Key: []byte(key), Cost: 1, At: time.Now().UnixMicro(), Outcome: limit.Outcome{Allowed: true}}})
		over++
	}
	room := left(0)
	left(over)
	return n - room + over
}

// A refused request that consumes is one call, as an allowed one is. So it counts at the moment of its
// refusal.
func TestDebitIsOneCall(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := open(t, r)
	c, other := s.at(t, limit.FixedWindow(), day(5)), s.at(t, limit.FixedWindow(), day(100))
	take := func() []limit.Charge {
		ch := []limit.Charge{debitOf(c, "x", 3), debitOf(other, "x", 1)}
		if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
			t.Error(ok, err)
		}
		return ch
	}
	take()
	cost := costOf(r, nil, func() {
		for i := range int64(10) {
			ch := take()
			if out := ch[0].Outcome; out.Allowed || out.Wait <= 0 || ch[1].Outcome.Remaining != 98-i {
				t.Errorf("request %d: %+v, and beside it %+v", i, out, ch[1].Outcome)
			}
		}
	})
	if cost.calls != 10 || cost.commands > 10*8 {
		t.Errorf("10 requests took %d calls and %d commands, want 10 and at most 80", cost.calls, cost.commands)
	}
	if n := used(t, s, c, "x", 5); n != 33 {
		t.Errorf("%d are used, want 33", n)
	}
}

// A request that consumes counts once, whether or not Redis has carried out the call whose answer was lost.
func TestLostAnswerOfDebit(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	for _, want := range []fate{carriedOut, notCarriedOut} {
		t.Run(fmt.Sprint("fate ", want), func(t *testing.T) {
			t.Parallel()
			w := watch(t, Options{URL: r.URL(), Prefix: fmt.Sprint("fate", want)})
			c := w.at(t, limit.FixedWindow(), day(5))
			first := []limit.Charge{debitOf(c, "x", 4)}
			if ok, err := w.Take(context.Background(), 0, first); !ok || err != nil {
				t.Fatal(ok, err)
			}
			l := w.batchers[0]
			lost := newBatch(l, nil)
			ch := []limit.Charge{debitOf(c, "x", 3)}
			takeIn(lost, ch)
			lost.call, lost.known, _ = l.receipts.next()
			names := []string{w.keys.counter(l.tag, lost.keys[0].hash), w.keys.receipts(l.tag)}
			told := lost.pack()
			if want == carriedOut {
				if _, err := w.link.call(context.Background(), w.scripts.script.Load(), names, told); err != nil {
					t.Fatal(err)
				}
			}
			w.link.fail(context.DeadlineExceeded)
			lost.end(context.DeadlineExceeded)
			ch[0].Ticket = lost
			w.Debit(0, ch) // by the caller, which has allowed the request alone
			testproc.Eventually(t, func() bool { return lost.is(want) && w.Up() && w.debts.len() == 0 })
			w.Store.calls.wait(nil)
			if n := used(t, w.Store, c, "x", 5); n != 7 {
				t.Errorf("%d are used, want 7", n)
			}
		})
	}
}

// Stores that share a Redis count every request that is allowed, beyond the limit too, and no other.
func TestDebitsTogether(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	debitTogether(t, open(t, r), open(t, r))
}

// In a Cluster another master can refuse a request. Then its debit is refunded.
func TestClusterDebits(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	debitTogether(t, openCluster(t, c), openCluster(t, c))
}

func debitTogether(t *testing.T, stores ...*Store) {
	t.Helper()
	const actors, each = 16, 10
	var allowed, fit atomic.Int64
	var wg sync.WaitGroup
	for _, s := range stores {
		all, own := s.at(t, limit.FixedWindow(), day(100)), s.at(t, limit.SlidingLog(), limit.Limit{N: each, Unit: time.Hour})
		for i := range 32 {
			wg.Go(func() {
				for j := range 20 {
					ch := []limit.Charge{debitOf(all, "all", 1), {Counters: own, Key: fmt.Appendf(nil, "actor%d", (i+j)%actors), Cost: 1}}
					ok, err := s.Take(context.Background(), 0, ch)
					if err != nil {
						t.Error(err)
					}
					if ok {
						allowed.Add(1)
					}
					if ok && ch[0].Outcome.Allowed {
						fit.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	for _, s := range stores {
		s.calls.wait(nil) // for the refunds
	}
	if n := allowed.Load(); n != actors*each {
		t.Errorf("%d requests are allowed, want %d", n, actors*each)
	}
	if n := fit.Load(); n > 100 || n < 100 && len(stores[0].batchers) == 1 {
		t.Errorf("the limit of 100 had room for %d", n)
	}
	s := stores[0]
	if n := used(t, s, s.at(t, limit.FixedWindow(), day(100)), "all", 100); n != actors*each {
		t.Errorf("%d are used, want %d", n, actors*each)
	}
}

// Slots beyond the limit are held too: the gateway renews them, and a refund releases them.
func TestDebitedSlots(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	c := s.at(t, limit.Concurrency(), limit.Limit{N: 3})
	first, second := []limit.Charge{debitOf(c, "x", 2)}, []limit.Charge{debitOf(c, "x", 2)}
	for _, ch := range [][]limit.Charge{first, second} {
		if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := s.leases.renewAll(false); err != nil {
		t.Fatal(err)
	}
	enter := func() (bool, error) {
		return s.Take(context.Background(), 0, []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1}})
	}
	s.Refund(first) // 2 of 3 are held
	if ok, err := enter(); !ok || err != nil {
		t.Error("a slot is free, and a request gets", ok, err)
	}
	if ok, err := enter(); ok || err != nil {
		t.Error("3 of 3 slots are held, and a request gets", ok, err)
	}
	s.Refund(second)
	s.calls.wait(nil)
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	if n := s.leases.held[actor{c.(*counters).name, "x"}].n; n != 1 {
		t.Errorf("the gateway holds %d slots, want 1", n)
	}
}

// Equal requests of one call are one entry of it, and are decided as in memory, one after another.
func TestEqualDebits(t *testing.T) {
	t.Parallel()
	s := openBy(t, Options{URL: redistest.Start(t).URL(), CallerClock: true})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, seed))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	refused := 0
	algorithms := slices.DeleteFunc(limit.Algorithms(), func(a limit.Algorithm) bool { return a.Called("LB") }) // its requests have no equals
	for round := range 400 {
		local := memstore.New(memstore.Options{})
		var handles [][2]any
		for i := range 1 + rnd.IntN(3) {
			a := algorithms[rnd.IntN(len(algorithms))]
			handles = append(handles, sameCounters(t, rnd, a, fmt.Sprint("equal ", round, " ", i), local, s)[0])
		}
		var kind []limit.Charge
		for i := range handles {
			ch := limit.Charge{Key: []byte("x"), Cost: 1 + rnd.Int64N(4), Shadow: rnd.IntN(3) > 0}
			ch.Debit = ch.Shadow && (i == 0 || rnd.IntN(4) > 0)
			kind = append(kind, ch)
		}
		for range 3 {
			now += rnd.Int64N(400_000)
			asked := [2][][]limit.Charge{}
			for range 1 + rnd.IntN(12) {
				for store := range asked {
					charges := slices.Clone(kind)
					for i := range charges {
						charges[i].Counters = handles[i][store]
					}
					asked[store] = append(asked[store], charges)
				}
			}
			var entries []entry
			b := s.batchers[0].add(func(b *batch) { // beside which the batcher sends no renewal of slots
				b.now = now
				for _, charges := range asked[1] {
					entries = append(entries, takeIn(b, charges))
				}
			})
			if err := wait(map[*batch]bool{b: true}); err != nil {
				t.Fatal(err)
			}
			for n, want := range asked[0] {
				ok, err := local.Take(context.Background(), now, want)
				got := asked[1][n]
				gotOK, gotErr := entries[n].outcome(got)
				if err != nil || gotErr != nil || ok != gotOK {
					t.Fatalf("round %d, request %d: %v %v, want %v %v", round, n, gotOK, gotErr, ok, err)
				}
				for i := range want {
					if ok && !want[i].Outcome.Allowed && want[i].Debit {
						refused++
					} else if ok { // the request has the outcomes of the first one, without those before it
						got[i].Outcome.Reset, got[i].Outcome.Wait = want[i].Outcome.Reset, want[i].Outcome.Wait
					}
					if want[i].Shadow && !want[i].Debit {
						continue
					}
					if got[i].Outcome != want[i].Outcome {
						t.Fatalf("round %d, request %d, charge %d of %+v: %+v, want %+v", round, n, i, kind, got[i].Outcome, want[i].Outcome)
					}
				}
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d debits of refused charges were compared", refused)
	}
}

// A shadow and a shadow with Debit are no equal requests.
func TestDebitsAreApart(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	c := s.at(t, limit.FixedWindow(), day(1))
	b := newBatch(s.batchers[0], nil)
	for range 3 {
		takeIn(b, []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1, Shadow: true}})
		takeIn(b, []limit.Charge{debitOf(c, "x", 1)})
	}
	b.born = time.Now()
	b.call, b.known, _ = s.batchers[0].receipts.next()
	if b.send(); b.err != nil {
		t.Fatal(b.err)
	}
	if n := len(b.groups); n != 2 {
		t.Errorf("the requests are %d entries, want 2", n)
	}
	if n := used(t, s, c, "x", 1); n != 4 { // one shadow, and three debits
		t.Errorf("%d are used, want 4", n)
	}
}
