// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
	"unique"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// When Redis is reachable again, it receives the debits that were made without it, as far as they still
// count, and without those that were refunded meanwhile.
func TestDebtsAreTold(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	w := watch(t, Options{URL: r.URL()})
	for _, a := range []limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow(), limit.SlidingLog()} {
		c := w.at(t, a, limit.Limit{N: 10, Unit: 24 * time.Hour})
		charge := func(key string, n int64) []limit.Charge {
			return []limit.Charge{{Counters: c, Key: []byte(key), Cost: n}}
		}
		if ok, err := w.Take(context.Background(), 0, charge("x", 3)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		r.Freeze()
		w.link.fail(context.DeadlineExceeded)
		w.Debit(0, charge("x", 4))
		name := c.(*counters).name
		w.debts.add(debt{actor: actor{name, "expired"}, c: c.(*counters), debit: 4, at: w.now() - (48 * time.Hour).Microseconds()})
		w.debts.add(debt{actor: actor{name, "deep"}, c: c.(*counters), debit: 25, at: w.now()})
		refunded := charge("y", 4)
		w.Debit(0, refunded)
		w.Refund(refunded)
		r.Thaw()
		testproc.Eventually(t, w.Up)
		for key, want := range map[string]int64{"x": 3, "y": 10, "expired": 10, "deep": 1} {
			ch := charge(key, 1)
			if ok, err := w.Take(context.Background(), 0, ch); ok != (key != "deep") || err != nil || ch[0].Outcome.Remaining != want-1 {
				t.Errorf("%s: %s has %d left, %v, want %d", a.Name(), key, ch[0].Outcome.Remaining+1, err, want)
			}
		}
	}
}

// Debts have a bound, but an existing debt can still grow.
func TestDebtsAreBounded(t *testing.T) {
	t.Parallel()
	var d debts
	m, err := limit.FixedWindow().New(limit.Limit{N: 10, Unit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c := &counters{name: unique.Make("c"), meter: m}
	for i := range maxDebts + 100 {
		d.add(debt{actor: actor{c.name, fmt.Sprint(i)}, c: c, debit: 1})
	}
	d.add(debt{actor: actor{c.name, "0"}, c: c, debit: 1})
	if n := len(d.by); n != maxDebts {
		t.Errorf("%d debts, want %d", n, maxDebts)
	}
	if n := d.by[actor{c.name, "0"}].counts(0); n != 2 {
		t.Errorf("a debt of 1 and 1 is %d", n)
	}
}

// Close sends Redis what was refunded and debited just before.
func TestCloseTellsAll(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	other := open(t, r)
	for round := range 10 {
		s := openBy(t, Options{URL: r.URL()})
		name := fmt.Sprint("round ", round)
		const n = 400
		counted := func(s *Store, a limit.Algorithm) any {
			m, err := a.New(limit.Limit{N: n, Unit: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			c, err := s.Counters(name+a.Name(), m)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		slots, window, debited := counted(s, limit.Concurrency()), counted(s, limit.FixedWindow()), counted(s, limit.SlidingWindow())
		var wg sync.WaitGroup
		for range n / 2 {
			wg.Go(func() {
				ch := []limit.Charge{{Counters: slots, Cost: 1}, {Counters: window, Cost: 1}}
				if ok, err := s.Take(context.Background(), 0, ch); !ok || err != nil {
					t.Error(ok, err)
				}
				s.Refund(ch)
				s.Debit(0, []limit.Charge{{Counters: debited, Cost: 2}})
			})
		}
		wg.Wait()
		s.Close()
		for a, want := range map[string]struct {
			limit.Algorithm
			left int64
		}{"slots": {limit.Concurrency(), n}, "window": {limit.FixedWindow(), n}, "debits": {limit.SlidingWindow(), 0}} {
			ch := []limit.Charge{{Counters: counted(other, want.Algorithm), Cost: 1, Shadow: true}}
			if _, err := other.Take(context.Background(), 0, ch); err != nil {
				t.Fatal(err)
			}
			left := ch[0].Outcome.Remaining
			if ch[0].Outcome.Allowed {
				left++
			}
			if left != want.left {
				t.Errorf("round %d: %s: %d are left, want %d", round, a, left, want.left)
			}
		}
	}
}

// A gateway whose Store is replaced by another one counts once, and a closed gateway does not count. A gateway that a busy
// machine keeps from announcing itself does not count either, so several tries may be needed.
func TestGatewayCountsOnce(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	other := watch(t, Options{URL: r.URL()})
	alive := func() int {
		n, err := other.gateway.announce(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return n.gateways
	}
	testproc.Eventually(t, func() bool {
		o := Options{URL: r.URL(), Gateway: newGateway()}
		first := openBy(t, o)
		testproc.Eventually(t, func() bool { return alive() == 2 })
		second := openBy(t, o)
		for range 20 {
			if alive() > 2 {
				t.Fatal("a gateway counts twice while its Store is replaced")
			}
		}
		announced := time.Now()
		if _, err := second.gateway.announce(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		first.Leave(ctx)
		left := alive()
		judged := time.Since(announced) < expireAfter
		if judged && left != 2 {
			t.Error("a Store that was replaced took its gateway with it")
		}
		second.Close()
		if alive() != 1 {
			t.Error("a gateway that has ended is still alive")
		}
		return judged
	})
}

// A timeout can be changed without another connection, unless it is long.
func TestSetTimeout(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := redistest.StartProxy(t, r.Addr())
	w := watch(t, Options{URL: "redis://" + p.Addr(), Timeout: 20 * time.Millisecond})
	if w.SetTimeout(5 * time.Second) {
		t.Error("a connection that may be silent for a second has a timeout of five")
	}
	if !w.SetTimeout(400 * time.Millisecond) {
		t.Error("a timeout of 20 ms cannot become 400 ms")
	}
	p.SetLatency(60 * time.Millisecond)
	for range 5 {
		if err := w.take(); err != nil {
			t.Errorf("an answer after 60 ms: %v", err)
		}
	}
}
