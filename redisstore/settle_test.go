// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// When Settle returns, another gateway sees what it has debited and refunded.
func TestSettleIsSeen(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	a, b := watch(t, Options{URL: r.URL()}), watch(t, Options{URL: r.URL()})
	for _, algorithm := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow(), limit.SlidingLog()} {
		l := limit.Limit{N: 100, Unit: 24 * time.Hour}
		in := map[*watched]any{a: a.at(t, algorithm, l), b: b.at(t, algorithm, l)}
		charge := func(w *watched, key string, n int64) []limit.Charge {
			return []limit.Charge{{Counters: in[w], Key: []byte(key), Cost: n}}
		}
		for range 20 {
			more, less := charge(a, "more", 1), charge(a, "less", 4)
			for _, ch := range [][]limit.Charge{more, less} {
				if ok, err := a.Take(context.Background(), 0, ch); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			less[0].Cost = 3
			a.Settle(0, charge(a, "more", 3), less)
			for _, key := range []string{"more", "less"} {
				before, after := charge(a, key, 1), charge(b, key, 1)
				if err := b.Peek(context.Background(), 0, after); err != nil {
					t.Fatal(err)
				}
				if err := a.Peek(context.Background(), 0, before); err != nil {
					t.Fatal(err)
				}
				if before[0].Outcome.Remaining != after[0].Outcome.Remaining {
					t.Fatalf("%s: %s: %d remaining, and %d for another gateway", algorithm.Name(), key, before[0].Outcome.Remaining, after[0].Outcome.Remaining)
				}
			}
		}
		for key, want := range map[string]int64{"more": 100 - 20*4, "less": 100 - 20} {
			ch := charge(b, key, 1)
			if err := b.Peek(context.Background(), 0, ch); err != nil || ch[0].Outcome.Remaining != want {
				t.Errorf("%s: %s: %d remaining, %v, want %d", algorithm.Name(), key, ch[0].Outcome.Remaining, err, want)
			}
		}
	}
}

// Reservations that were made while Redis was down are settled at what they cost. Redis may be back by then or not,
// and they need not be in the order of their moments.
func TestSettleAfterOutage(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL(), CallerClock: true})
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow(), limit.SlidingLog()} {
		c := w.at(t, a, limit.Limit{N: 100_000, Unit: 24 * time.Hour})
		charge := func(n int64) []limit.Charge {
			return []limit.Charge{{Counters: c, Key: []byte("x"), Cost: n}}
		}
		var early, late [][]limit.Charge // when they are settled
		r.Freeze()
		w.link.fail(context.DeadlineExceeded)
		for i := range int64(10) {
			first, second := charge(1000), charge(1000)
			w.Debit(start+1000*i, first)
			w.Debit(start+1000*i-500, second)
			early, late = append(early, second), append(late, first)
			if i%2 == 0 {
				early, late = append(early[:i], first), append(late[:i], second)
			}
		}
		settle := func(all [][]limit.Charge) {
			for _, ch := range all {
				ch[0].Cost = 900
				w.Settle(start+20_000, nil, ch)
			}
		}
		settle(early)
		r.Thaw()
		testproc.Eventually(t, w.Up)
		settle(late)
		ch := charge(1)
		if err := w.Peek(context.Background(), start+20_000, ch); err != nil {
			t.Fatal(err)
		}
		if n := 100_000 - ch[0].Outcome.Remaining; n != 20*100 {
			t.Errorf("%s: %d are charged, want 2000", a.Name(), n)
		}
	}
}

// Close tells what Redis has not received, as far as it still counts.
func TestCloseTellsWhatIsLost(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	var actors, sum atomic.Int64
	w := watch(t, Options{URL: r.URL(), Lost: func(counters string, n int, debits int64) {
		if !strings.HasPrefix(counters, "W") {
			t.Errorf("debits of %q are lost", counters)
		}
		actors.Store(int64(n))
		sum.Store(debits)
	}})
	c := w.at(t, limit.FixedWindow(), limit.Limit{N: 10, Unit: 24 * time.Hour})
	charge := func(key string, n int64) []limit.Charge {
		return []limit.Charge{{Counters: c, Key: []byte(key), Cost: n}}
	}
	if ok, err := w.Take(context.Background(), 0, charge("x", 1)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r.Kill()
	w.Settle(0, charge("x", 30), nil) // fails, if the store has not noticed yet
	testproc.Eventually(t, func() bool { return !w.Up() })
	refunded := charge("z", 5)
	w.Debit(0, refunded)
	w.Refund(refunded)
	w.Settle(0, charge("y", 3), nil)
	w.Close()
	if actors.Load() != 2 || sum.Load() != 33 {
		t.Errorf("%d actors, %d in sum, want 2 and 33", actors.Load(), sum.Load())
	}
}

// A reservation that was made while Redis was unavailable is settled after its return, under every algorithm.
func TestSettleAfterTheReturn(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL()})
	reader := openBy(t, Options{URL: r.URL()})
	var all [][]limit.Charge
	var algorithms []limit.Algorithm
	l := limit.Limit{N: 10_000, Unit: 72 * time.Hour}
	counters := map[string]any{}
	for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow(), limit.SlidingLog()} {
		counters[a.Name()] = w.at(t, a, l)
		algorithms = append(algorithms, a)
	}
	r.Freeze()
	w.link.fail(context.DeadlineExceeded)
	testproc.Eventually(t, func() bool { return !w.Up() })
	for n := range 20 {
		var charges []limit.Charge
		for _, a := range algorithms {
			charges = append(charges, limit.Charge{Counters: counters[a.Name()], Key: fmt.Append(nil, "actor ", n), Cost: 1000})
		}
		w.Debit(0, charges)
		all = append(all, charges)
	}
	r.Thaw()
	testproc.Eventually(t, func() bool { return w.Up() && w.debts.len() == 0 })
	for _, charges := range all {
		for i := range charges {
			charges[i].Cost = 900
		}
		w.Settle(0, nil, charges)
	}
	for _, charges := range all {
		for i, a := range algorithms {
			seen := []limit.Charge{{Counters: reader.at(t, a, l), Key: charges[i].Key, Cost: 1}}
			testproc.Eventually(t, func() bool {
				return reader.Peek(context.Background(), 0, seen) == nil && seen[0].Outcome.Remaining == 10_000-100
			})
		}
	}
}

// A refund of what Redis has charged before an outage is none of the debits that were made in it.
func TestRefundBesideDebit(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL(), Timeout: time.Second})
	for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow(), limit.SlidingLog()} {
		for _, earlierFirst := range []bool{true, false} {
			c := w.at(t, a, limit.Limit{N: 1000, Unit: 72 * time.Hour})
			charge := func() []limit.Charge {
				return []limit.Charge{{Counters: c, Key: fmt.Append(nil, earlierFirst), Cost: 1}}
			}
			earlier, alone := charge(), charge()
			if ok, err := w.Take(context.Background(), 0, earlier); !ok || err != nil {
				t.Fatal(ok, err)
			}
			r.Freeze()
			w.link.fail(context.DeadlineExceeded)
			testproc.Eventually(t, func() bool { return !w.Up() })
			w.Debit(0, alone)
			if earlierFirst {
				w.Refund(earlier)
				testproc.Eventually(t, func() bool { // its call has failed, and the refund is a debt
					w.debts.mu.Lock()
					defer w.debts.mu.Unlock()
					o := w.debts.by[actor{c.(*counters).name, string(alone[0].Key)}]
					return o == nil || len(o.refunds) > 0
				})
				w.Refund(alone)
			} else {
				w.Refund(alone)
				w.Refund(earlier)
			}
			r.Thaw()
			testproc.Eventually(t, func() bool { return w.Up() && w.debts.len() == 0 && !w.batchers.anyOpen() })
			ch := charge()
			testproc.Eventually(t, func() bool { return w.Peek(context.Background(), 0, ch) == nil })
			if left := ch[0].Outcome.Remaining; left != 1000 {
				t.Errorf("%s, earlier first %v: %d left, want 1000", a.Name(), earlierFirst, left)
			}
		}
	}
}
