// SPDX-License-Identifier: MIT

package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/internal/takeover"
	"github.com/diana-limiter/diana/limit"
)

// successor hands the counters of a Store over to a new one, which has the counters that declare makes.
func successor(t testing.TB, s *Store, o Options, declare func(*Store)) (*Store, takeover.Predecessor) {
	t.Helper()
	next := New(o)
	declare(next)
	var p takeover.Predecessor
	ready := make(chan struct{})
	document := s.HandOver(func(ctx context.Context, op takeover.Op, charges []limit.Charge) (bool, error) {
		<-ready
		return p.Call(ctx, op, charges)
	})
	var left []string
	var err error
	p, left, err = next.TakeOver(document)
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
	close(ready)
	return next, p
}

// A Store that is handed over now and then decides as one that is not. Some requests still come to the old Stores.
func TestHandOverAsOneStore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := time.UnixMicro(1_800_000_000_000_000)
	o := Options{Clock: func() time.Time { return now }}
	algorithms := append(limit.Algorithms(), limit.Reservations())
	declare := func(s *Store) (all []any) {
		for i, a := range algorithms {
			all = append(all, named(t, s, a.Name(), a, limit.Limit{N: 7, Unit: time.Duration(i+1) * time.Second}))
		}
		return all
	}
	whole, first := New(o), New(o)
	stores, handles := []*Store{first}, [][]any{declare(first)}
	plain := declare(whole)
	rnd := rand.New(rand.NewPCG(1, 2))
	type made struct {
		by          int
		here, there []limit.Charge
	}
	var past []made
	for step := range 60_000 {
		now = now.Add(time.Duration(rnd.IntN(40)) * time.Millisecond)
		if step%5000 == 4999 {
			next, _ := successor(t, stores[len(stores)-1], o, func(s *Store) { handles = append(handles, declare(s)) })
			stores = append(stores, next)
		}
		by := max(len(stores)-1-rnd.IntN(3), 0)
		at := now.UnixMicro()
		if len(past) > 0 && rnd.IntN(3) == 0 {
			i := rnd.IntN(len(past))
			m := past[i]
			whole.Refund(m.here)
			stores[m.by].Refund(m.there)
			past = slices.Delete(past, i, i+1)
			continue
		}
		key := fmt.Append(nil, rnd.IntN(5))
		var m made
		m.by = by
		for i := range algorithms {
			if rnd.IntN(4) > 0 {
				continue
			}
			ch := limit.Charge{Key: key, Cost: 1 + rnd.Int64N(3), Shadow: rnd.IntN(5) == 0}
			ch.Debit = ch.Shadow && rnd.IntN(2) == 0
			ch.Counters = plain[i]
			m.here = append(m.here, ch)
			ch.Counters = handles[by][i]
			m.there = append(m.there, ch)
		}
		if len(m.here) == 0 {
			continue
		}
		var ok, okThere bool
		var err, errThere error
		switch s := stores[by]; rnd.IntN(8) {
		case 0:
			err, errThere = whole.Peek(ctx, at, m.here), s.Peek(ctx, at, m.there)
		case 1:
			whole.Debit(at, m.here)
			s.Debit(at, m.there)
			ok = true
		case 2:
			err, errThere = whole.Reset(ctx, m.here[0].Counters, key), s.Reset(ctx, m.there[0].Counters, key)
			m = made{}
		default:
			ok, err = whole.Take(ctx, at, m.here)
			okThere, errThere = s.Take(ctx, at, m.there)
			if ok != okThere {
				t.Fatalf("step %d: %t, without a hand-over %t", step, okThere, ok)
			}
		}
		if err != nil || errThere != nil {
			t.Fatal(err, errThere)
		}
		for i := range m.here {
			a, b := &m.here[i], &m.there[i]
			if a.Outcome != b.Outcome || a.At != b.At || a.Cut != b.Cut {
				t.Fatalf("step %d: %v gives %+v at %d cut %d, without a hand-over %+v at %d cut %d", step, b.Counters.(*counters).name, b.Outcome, b.At, b.Cut, a.Outcome, a.At, a.Cut)
			}
		}
		if ok {
			past = append(past, m)
		}
	}
	if n := stores[len(stores)-1].Keys(); n != whole.Keys() {
		t.Errorf("%d records, without a hand-over %d", n, whole.Keys())
	}
}

// Goroutines charge while the Store is handed over, and no charge is lost or made twice.
func TestHandOverDuringCharges(t *testing.T) {
	t.Parallel()
	const n, actors = 400, 20
	var algorithms []limit.Algorithm
	for _, a := range limit.Algorithms() {
		if a.Name() != "LB" {
			algorithms = append(algorithms, a)
		}
	}
	var mu sync.Mutex
	handles := map[*Store][]any{}
	declare := func(s *Store) {
		for _, a := range algorithms {
			handles[s] = append(handles[s], named(t, s, a.Name(), a, limit.Limit{N: n, Unit: 72 * time.Hour}))
		}
	}
	s := New(Options{})
	declare(s)
	current := []*Store{s}
	var allowed [actors]atomic.Int64
	crowd(func(rnd *rand.Rand) {
		for i := range 2 * actors * n / 8 {
			mu.Lock()
			if rnd.IntN(1000) == 0 && len(current) < 6 {
				next, _ := successor(t, current[len(current)-1], Options{}, declare)
				current = append(current, next)
			}
			by := current[max(len(current)-1-rnd.IntN(2), 0)]
			all := handles[by]
			mu.Unlock()
			k := (i + rnd.IntN(2)) % actors
			var charges []limit.Charge
			for _, c := range all {
				charges = append(charges, limit.Charge{Counters: c, Key: []byte{byte(k)}, Cost: 1})
			}
			switch ok, err := by.Take(context.Background(), by.Now(), charges); {
			case err != nil:
				t.Error(err)
			case ok && rnd.IntN(3) == 0:
				by.Refund(charges)
			case ok:
				allowed[k].Add(1)
			}
		}
	})
	if len(current) < 3 {
		t.Fatal("too few hand-overs")
	}
	last := current[len(current)-1]
	for k := range actors {
		got := allowed[k].Load()
		for _, c := range handles[last] {
			ch := []limit.Charge{{Counters: c, Key: []byte{byte(k)}, Cost: 1}}
			if err := last.Peek(context.Background(), last.Now(), ch); err != nil || ch[0].Outcome.Remaining != n-got {
				t.Errorf("%v: actor %d: %d remain, %v, want %d", c.(*counters).name, k, ch[0].Outcome.Remaining, err, n-got)
			}
		}
	}
}

// A Store whose successor fails decides by its frozen counters, and can be handed over again.
func TestHandOverFails(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	all := perHour(t, s, 3)
	takes := func(want int) {
		t.Helper()
		for _, c := range all {
			got := 0
			for range 5 {
				if take(t, s, c, s.Now(), "x") {
					got++
				}
			}
			if got != want {
				t.Errorf("%s: %d allowed, want %d", c.(*counters).name, got, want)
			}
		}
	}
	for _, c := range all {
		take(t, s, c, s.Now(), "x")
	}
	s.HandOver(func(context.Context, takeover.Op, []limit.Charge) (bool, error) { return false, errors.New("down") })
	charge := []limit.Charge{{Counters: all[0], Key: []byte("x"), Cost: 1}}
	if ok, err := s.Take(context.Background(), s.Now(), charge); !ok || err != nil {
		t.Error(ok, err)
	}
	s.Refund(charge)
	takes(2)
	successor(t, s, Options{}, func(next *Store) { perHour(t, next, 3) })
	takes(0)
}

// When the old process ends, its slots are free and its waiting requests have left. The slots of the new process stay.
func TestPredecessorEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		declare := func(s *Store) (c, lb any) {
			return named(t, s, "C", limit.Concurrency(), limit.Limit{N: 4}),
				named(t, s, "LB", limit.LeakyBucket(), limit.Limit{N: 1, Unit: time.Second})
		}
		c, lb := declare(s)
		if !take(t, s, c, s.Now(), "x") {
			t.Fatal("refused")
		}
		var nextC, nextLB any
		next, p := successor(t, s, Options{}, func(next *Store) { nextC, nextLB = declare(next) })
		for range 2 {
			if !take(t, s, c, s.Now(), "x") || !take(t, s, lb, s.Now(), "x") {
				t.Error("refused")
			}
		}
		if !take(t, next, nextC, next.Now(), "x") || take(t, next, nextC, next.Now(), "x") {
			t.Error("the fifth slot of four, or not the fourth")
		}
		p.Close()
		for _, want := range []bool{true, true, true, false} {
			if take(t, next, nextC, next.Now(), "x") != want {
				t.Error("the slots of the old process")
			}
		}
		ch := []limit.Charge{{Counters: nextLB, Key: []byte("x"), Cost: 1}}
		if ok, err := next.Take(context.Background(), next.Now(), ch); !ok || err != nil || ch[0].Outcome.Wait != 1_000_000 {
			t.Errorf("%t, %v: waits %d, want a second", ok, err, ch[0].Outcome.Wait)
		}
	})
}

// Requests that wait for a leaky bucket keep their times over a hand-over, and later ones follow them in both processes.
func TestHandOverOfQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 100)
		for i := range 3 {
			q.arrive(fmt.Sprint("old", i))
		}
		next := newQueue(t, 100)
		next.start = q.start
		next.store, _ = successor(t, q.store, Options{}, func(s *Store) {
			next.c = open(t, s, limit.LeakyBucket(), limit.Limit{N: 10, Unit: time.Second, Queue: 100})
		})
		next.arrive("new0")
		leave := q.arrive("gone")
		q.arrive("late0")
		next.arrive("new1")
		leave()
		q.arrive("late1")
		time.Sleep(time.Second)
		synctest.Wait()
		if got, want := fmt.Sprint(q.left), "[old0@0 old1@100 old2@200 late0@400 late1@600]"; got != want {
			t.Errorf("the old process lets %s proceed, want %s", got, want)
		}
		next.expect("new0@300", "new1@500")
	})
}

// Counters begin again where name, version or form differ; a Store that has counted takes nothing over.
func TestTakeOverOfOtherCounters(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxKeys: 100_000})
	for _, c := range perHour(t, s, 3) {
		for i := range 3000 {
			take(t, s, c, s.Now(), fmt.Sprint(i))
		}
	}
	document := s.HandOver(nil)
	next := New(Options{MaxKeys: 100})
	same := named(t, next, "W {3 1h0m0s 0 0 0 false 0s 0 0 0  }", limit.FixedWindow(), limit.Limit{N: 2, Unit: time.Hour})
	named(t, next, "TB {3 1h0m0s 0 0 0 false 0s 0 0 0  }", limit.SlidingLog(), limit.Limit{N: 2, Unit: time.Hour})
	if _, left, err := next.TakeOver(document); err != nil || len(left) != 4 {
		t.Error(left, err)
	}
	if !take(t, next, same, next.Now(), "17") || take(t, next, same, next.Now(), "17") {
		t.Error("one of two had been used")
	}
	if _, _, err := next.TakeOver(document); err == nil {
		t.Error("it takes over twice")
	}
}

// No document makes TakeOver panic or take too much memory, and one that is rejected changes nothing.
func FuzzTakeOver(f *testing.F) {
	declare := func(t testing.TB, s *Store) (all []any) {
		for _, a := range limit.Algorithms() {
			all = append(all, named(t, s, a.Name(), a, limit.Limit{N: 3, Unit: time.Hour}))
		}
		return all
	}
	s := New(Options{MaxKeys: 1000})
	for _, c := range declare(f, s) {
		for i := range 20 {
			take(f, s, c, s.Now(), fmt.Sprint(i/2))
		}
	}
	document := s.HandOver(nil)
	f.Add(document)
	f.Add(document[:len(document)-1])
	f.Add(bytes.Repeat([]byte{255}, 60))
	f.Fuzz(func(t *testing.T, document []byte) {
		next := New(Options{MaxKeys: 1000})
		all := declare(t, next)
		p, _, err := next.TakeOver(document)
		if err != nil && next.Keys() > 0 {
			t.Errorf("%v, and %d records", err, next.Keys())
		}
		if err == nil {
			p.Close()
			again := New(Options{MaxKeys: 1000})
			declare(t, again)
			if _, left, err := again.TakeOver(next.HandOver(nil)); err != nil || len(left) > 0 || again.Keys() != next.Keys() {
				t.Errorf("%v, %v, %d records of %d", left, err, again.Keys(), next.Keys())
			}
			return
		}
		take(t, next, all[1], next.Now(), "x")
	})
}
