// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// slots returns how many slots of 30 are held.
func slots(t *testing.T, s *Store, c any) int64 {
	t.Helper()
	charge := []limit.Charge{{Counters: c, Cost: 1}}
	if err := s.Peek(context.Background(), s.Now(), charge); err != nil {
		t.Fatal(err)
	}
	return 30 - charge[0].Outcome.Remaining
}

// A limit passes to a successor with its slots and what it has learned. The slots of requests that the old process
// still has are released there by their ends, or by that of the process.
func TestAdaptiveHandOver(t *testing.T) {
	t.Parallel()
	declare := func(s *Store) any {
		return named(t, s, "ac", limit.AdaptiveConcurrency(), limit.Limit{N: 30, Min: 30})
	}
	s := New(Options{})
	c := declare(s)
	enter := func(s *Store, c any) []limit.Charge {
		charges := []limit.Charge{{Counters: c, Cost: 1, Flight: &limit.Flight{Level: 2, Client: 9}}}
		if ok, err := s.Take(context.Background(), s.Now(), charges); !ok || err != nil {
			t.Fatal(ok, err)
		}
		return charges
	}
	leave := func(s *Store, charges []limit.Charge) {
		charges[0].Flight.Measured, charges[0].Flight.Latency = true, 1000
		s.Refund(charges)
	}
	first, second, third := enter(s, c), enter(s, c), enter(s, c)
	var of any
	next, p := successor(t, s, Options{}, func(s *Store) { of = declare(s) })
	if n := slots(t, next, of); n != 3 {
		t.Errorf("%d slots are held after the hand-over, expected 3", n)
	}
	leave(s, first)
	late := enter(s, c)
	own := enter(next, of)
	if n := slots(t, next, of); n != 4 {
		t.Errorf("%d slots are held, expected 4", n)
	}
	leave(s, late)
	leave(s, second)
	p.Close()
	if n := slots(t, next, of); n != 1 {
		t.Errorf("%d slots are held after the end of the old process, expected 1", n)
	}
	leave(next, own)
	_ = third
	if n := slots(t, next, of); n != 0 {
		t.Errorf("%d slots are held after all requests", n)
	}
}

// Counters that no handle uses keep the slots of running requests, through rebuilds of the table.
func TestAdaptiveRetired(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxKeys: 100})
	open := func() any {
		return named(t, s, "ac", limit.AdaptiveConcurrency(), limit.Limit{N: 30, Min: 30})
	}
	c := open()
	charges := []limit.Charge{{Counters: c, Cost: 1, Flight: &limit.Flight{}}}
	if ok, err := s.Take(context.Background(), s.Now(), charges); !ok || err != nil {
		t.Fatal(ok, err)
	}
	s.Retire(c)
	s.records.sweep()
	again := open()
	if n := slots(t, s, again); n != 1 {
		t.Errorf("%d slots are held, expected 1", n)
	}
	s.Refund(charges)
	if n := slots(t, s, again); n != 0 {
		t.Errorf("%d slots are held after the request", n)
	}
}

func TestAdaptiveConcurrently(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	c := named(t, s, "ac", limit.AdaptiveConcurrency(), limit.Limit{N: 30, Min: 30})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 2000 {
				charges := []limit.Charge{{Counters: c, Cost: 1, Flight: &limit.Flight{Level: int64(n % 8), Client: uint64(i + 1)}}}
				if ok, _ := s.Take(context.Background(), s.Now(), charges); ok {
					charges[0].Flight.Measured, charges[0].Flight.Latency = n%3 > 0, int64(time.Millisecond)
					s.Refund(charges)
				}
			}
		})
	}
	all.Wait()
	if n := slots(t, s, c); n != 0 {
		t.Errorf("%d slots are held after all requests", n)
	}
}
