// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// calls records the calls of Options.Reset.
type calls struct {
	mu  sync.Mutex
	all []string
}

func (c *calls) note(counters string, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, fmt.Sprintf("%s for %s", counters, key))
}

func (c *calls) get() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// A reset by one gateway reaches the others: those that remember a refusal ask Redis again, and each calls
// Options.Reset once.
func TestResetReachesGateways(t *testing.T) {
	t.Parallel()
	testReset(t, Options{URL: redistest.Start(t).URL()})
}

func TestClusterReset(t *testing.T) {
	t.Parallel()
	testReset(t, Options{Addresses: redistest.StartCluster(t, 3).Addrs()})
}

func testReset(t *testing.T, o Options) {
	l := limit.Limit{N: 2, Unit: 24 * time.Hour}
	name := fmt.Sprintf("TB %v", l)
	var told [2]calls
	var stores [2]*Store
	var counters [2]any
	for i := range stores {
		o.Reset = told[i].note
		stores[i] = openBy(t, o)
		counters[i] = stores[i].at(t, limit.TokenBucket(), l)
	}
	take := func(i int, key string) bool {
		ok, err := stores[i].Take(context.Background(), 0, []limit.Charge{{Counters: counters[i], Key: []byte(key), Cost: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	peek := func(i int, key string) limit.Outcome {
		ch := []limit.Charge{{Counters: counters[i], Key: []byte(key), Cost: 1}}
		if err := stores[i].Peek(context.Background(), 0, ch); err != nil {
			t.Fatal(err)
		}
		return ch[0].Outcome
	}
	var want []string
	for _, key := range []string{"ann", "", "\x00\xff"} { // each in another batcher of a Cluster, perhaps
		for range 2 {
			take(0, key)
		}
		for i := range stores { // and now both remember
			if take(i, key) || !stores[i].refused.certain(0, []limit.Charge{{Counters: counters[i], Key: []byte(key), Cost: 1}}) {
				t.Fatalf("gateway %d does not remember a refusal", i)
			}
		}
		if err := stores[0].Reset(context.Background(), counters[0], []byte(key)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if o := peek(1, key); !o.Allowed || o.Remaining != 2 {
			t.Errorf("a gateway that remembers a refusal peeks after a reset: %+v", o)
		}
		if !take(0, key) {
			t.Error("the gateway that has reset an actor refuses it")
		}
		testproc.Eventually(t, func() bool { return take(1, key) })
		t.Logf("the other gateway knew after %v", time.Since(start))
		want = append(want, name+" for "+key)
	}
	for i := range told {
		testproc.Eventually(t, func() bool { return len(told[i].get()) >= len(want) })
		if got := told[i].get(); !slices.Equal(got, want) {
			t.Errorf("gateway %d learned of %q, want %q", i, got, want)
		}
	}
}

// A gateway that could not reach Redis during a reset learns of it later, and does not debit what the actor
// used before.
func TestResetDuringOutage(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := open(t, r)
	p := redistest.StartProxy(t, r.Addr())
	away := openBy(t, Options{URL: "redis://" + p.Addr()})
	hour := limit.Limit{N: 5, Unit: time.Hour}
	c, d := s.at(t, limit.TokenBucket(), hour), away.at(t, limit.TokenBucket(), hour)

	p.Refuse()
	ch := []limit.Charge{{Counters: d, Key: []byte("x"), Cost: 4}}
	testproc.Eventually(t, func() bool { return !away.Up() })
	away.Debit(0, ch)
	if err := away.Reset(context.Background(), d, []byte("x")); err == nil {
		t.Error("a reset without Redis has no error")
	}
	if err := away.Peek(context.Background(), 0, ch); err == nil {
		t.Error("a peek without Redis has no error")
	}
	if err := s.Reset(context.Background(), c, []byte("x")); err != nil {
		t.Fatal(err)
	}
	p.Resume()
	testproc.Eventually(t, func() bool { return away.Up() && away.debts.len() == 0 })
	ch[0].Counters = c
	if err := s.Peek(context.Background(), 0, ch); err != nil {
		t.Fatal(err)
	}
	if o := ch[0].Outcome; o.Remaining != 5 {
		t.Errorf("after a reset and a late debit: %+v", o)
	}
}

// The set of resets has a bound. A Redis that has lost the set is believed.
func TestResetsAreForgotten(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := open(t, r)
	c := s.at(t, limit.FixedWindow(), limit.Limit{N: 5, Unit: time.Hour})
	for i := range 3 {
		if err := s.Reset(context.Background(), c, fmt.Append(nil, i%2)); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.Must("ZCARD", "diana:resets"); n != int64(2) {
		t.Errorf("the set has %v resets, want 2", n)
	}
	if ttl := r.Must("PTTL", "diana:resets").(int64); ttl <= 0 {
		t.Errorf("the set lives for %d ms", ttl)
	}
	r.Must("ZADD", "diana:resets", "17", "long ago")
	n, err := s.gateway.announce(context.Background(), 0)
	if err != nil || len(n.resets) != 2 {
		t.Fatalf("%+v, %v, want 2 resets", n, err)
	}
	if again, err := s.gateway.announce(context.Background(), n.newest); err != nil || len(again.resets) != 0 || again.newest != n.newest {
		t.Errorf("%+v, %v, want none that is new", again, err)
	}
	if after, err := s.gateway.announce(context.Background(), n.newest+1e15); err != nil || len(after.resets) != 2 {
		t.Errorf("%+v, %v, want both: Redis has lost newer ones", after, err)
	}
}
