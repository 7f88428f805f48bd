// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// Debits that are made without Redis pass from Store to Store. The Store that has made one can refund it, before
// Redis is back and after. Redis receives each once.
func TestHandOver(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	const n, actors = 10_000, accountsAtOnce + 10
	var stores []*watched
	var handles [][]any
	for range 3 {
		w := watch(t, Options{URL: r.URL(), Lost: func(c string, _ int, sum int64) { t.Errorf("%s: %d are lost", c, sum) }})
		var own []any
		for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow(), limit.SlidingLog()} {
			own = append(own, w.at(t, a, limit.Limit{N: n, Unit: 744 * time.Hour}))
		}
		stores, handles = append(stores, w), append(handles, own)
	}
	charge := func(by int, key string, cost int64) (all []limit.Charge) {
		for _, c := range handles[by] {
			all = append(all, limit.Charge{Counters: c, Key: []byte(key), Cost: cost})
		}
		return all
	}
	type made struct {
		by      int
		charges []limit.Charge
	}
	var early, late []made // when they are settled
	debit := func(by int) {
		for _, list := range []*[]made{&early, &late} {
			m := made{by, charge(by, "x", 500)}
			stores[by].Debit(0, m.charges)
			*list = append(*list, m)
		}
	}
	settle := func(all []made) {
		for _, m := range all {
			for i := range m.charges {
				m.charges[i].Cost = 450
			}
			stores[m.by].Refund(m.charges)
		}
	}
	taken := made{0, charge(0, "x", 500)}
	if ok, err := stores[0].Take(context.Background(), 0, taken.charges); !ok || err != nil {
		t.Fatal(ok, err)
	}
	r.Freeze()
	for _, w := range stores {
		w.link.fail(context.DeadlineExceeded)
	}
	for i := range actors {
		stores[0].Debit(0, charge(0, fmt.Sprint(i), 3))
	}
	for last := range stores {
		if last > 0 {
			receive, all := stores[last].TakeOver(7), false
			err := stores[last-1].HandOver(func(note []byte) (err error) {
				all, err = receive(note)
				return err
			})
			if left := stores[last-1].debts.len(); err != nil || !all || left > 0 {
				t.Fatalf("%v, all %t, %d are left", err, all, left)
			}
		}
		for by := range last + 1 {
			debit(by)
		}
	}
	settle(append(early, taken))
	r.Thaw()
	for _, w := range stores {
		testproc.Eventually(t, w.Up)
	}
	settle(late)
	for _, w := range stores {
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]int64{"x": 50 * int64(1+len(early)+len(late)), "0": 3, fmt.Sprint(actors - 1): 3} {
		all := charge(2, key, 1)
		testproc.Eventually(t, func() bool { return stores[2].Peek(context.Background(), 0, all) == nil })
		for _, ch := range all {
			if used := n - ch.Outcome.Remaining; used != want {
				t.Errorf("%s: %s has used %d, want %d", ch.Counters.(*counters).name.Value(), key, used, want)
			}
		}
	}
}

// A Store whose successor does not get the debts keeps them.
func TestHandOverFails(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL()})
	c := w.at(t, limit.FixedWindow(), day(10))
	r.Freeze()
	w.link.fail(context.DeadlineExceeded)
	first, second := []limit.Charge{{Counters: c, Cost: 3}}, []limit.Charge{{Counters: c, Cost: 3}}
	w.Debit(0, first)
	if err := w.HandOver(func([]byte) error { return context.DeadlineExceeded }); err == nil {
		t.Error("no error")
	}
	w.Debit(0, second)
	w.Refund(first)
	r.Thaw()
	testproc.Eventually(t, w.Up)
	if n := used(t, w.Store, c, "", 10); n != 3 {
		t.Errorf("%d are charged, want 3", n)
	}
}
