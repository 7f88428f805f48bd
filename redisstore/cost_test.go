// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
	"github.com/diana-limiter/diana/limit"
)

// These tests count the cost of decisions and do not time it, so that it cannot grow unnoticed on any
// machine. The bounds leave room for small changes.

// costs is what Redis and the connection to it have counted.
type costs struct {
	calls, commands int // of scripts, and in them
	up, down        int64
}

// costOf returns the cost of f without the gateway's heartbeats, of which there are more the longer f
// takes. p may be nil.
func costOf(r *redistest.Server, p *redistest.Proxy, f func()) (c costs) {
	var before, after redistest.Traffic
	calls := r.Calls()
	if p != nil {
		before = p.Traffic()
	}
	f()
	if p != nil {
		after = p.Traffic()
	}
	for name, n := range r.Calls() {
		calls[name] = n - calls[name]
	}
	lives := calls["zadd"] // the number of heartbeats
	c.calls = calls["evalsha"] + calls["eval"] - lives
	for name, n := range calls {
		switch name {
		case "evalsha", "eval", "info", "ping", "zadd", "zremrangebyscore", "pexpire", "zcard", "zrange":
		case "time", "get": // a heartbeat has one of each
			c.commands += n - lives
		default:
			c.commands += n
		}
	}
	c.up, c.down = after.Up-before.Up-200*int64(lives), after.Down-before.Down-20*int64(lives)
	return c
}

// openThrough returns a Store whose traffic is counted.
func openThrough(t *testing.T, p *redistest.Proxy) *Store {
	t.Helper()
	s, err := Open(Options{URL: "redis://" + p.Addr(), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	testproc.Eventually(t, s.Up)
	return s
}

// A single request is one call, whatever its rules, and each rule is a few commands.
func TestCostAlone(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := redistest.StartProxy(t, r.Addr())
	s := openThrough(t, p)
	const requests = 200
	for _, tc := range []struct {
		algorithms []limit.Algorithm
		commands   int // of a request: TIME, GET of the epoch, and GET and SET for each rule and for the receipts
		up, down   int64
	}{
		{[]limit.Algorithm{limit.TokenBucket()}, 6, 250, 60},
		{[]limit.Algorithm{limit.FixedWindow()}, 6, 250, 60},
		{[]limit.Algorithm{limit.SlidingWindow()}, 6, 250, 110},
		{[]limit.Algorithm{limit.SlidingLog()}, 6, 250, 70},
		{[]limit.Algorithm{limit.TokenBucket(), limit.FixedWindow(), limit.SlidingWindow()}, 10, 400, 190},
	} {
		var charges []limit.Charge
		name := ""
		for _, a := range tc.algorithms {
			charges = append(charges, limit.Charge{Counters: s.at(t, a, limit.Limit{N: 100, Unit: time.Minute}), Cost: 1})
			name += " " + a.Name()
		}
		take := func(i int) {
			for k := range charges {
				charges[k].Key = fmt.Appendf(nil, "actor-%d", i%100)
			}
			if ok, err := s.Take(context.Background(), 0, charges); err != nil || !ok {
				t.Errorf("%v, %v", ok, err)
			}
		}
		take(0) // Redis gets the script
		c := costOf(r, p, func() {
			for i := range requests {
				take(i)
			}
		})
		t.Logf("%s: %.2f calls, %.2f commands, %d bytes there, %d back for a request", name,
			float64(c.calls)/requests, float64(c.commands)/requests, c.up/requests, c.down/requests)
		if c.calls != requests {
			t.Errorf("%s: %d calls for %d requests", name, c.calls, requests)
		}
		if c.commands > requests*tc.commands {
			t.Errorf("%s: %d commands for %d requests, want at most %d for each", name, c.commands, requests, tc.commands)
		}
		if c.up > requests*tc.up || c.down > requests*tc.down {
			t.Errorf("%s: %d bytes there and %d back for %d requests, want at most %d and %d for each", name, c.up, c.down, requests, tc.up, tc.down)
		}
	}
}

// Requests that arrive while a call is in flight are one call together. Its cost grows with the counters
// that they use, not with their number.
func TestCostTogether(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	p := redistest.StartProxy(t, r.Addr())
	s := openThrough(t, p)
	all := s.at(t, limit.TokenBucket(), limit.Limit{N: 100_000, Unit: time.Minute})
	each := s.at(t, limit.FixedWindow(), limit.Limit{N: 100_000, Unit: time.Minute})
	const requests, actors = 1000, 10
	take := func(i int) {
		ch := []limit.Charge{{Counters: all, Key: []byte("all"), Cost: 1}, {Counters: each, Key: fmt.Appendf(nil, "actor-%d", i%actors), Cost: 1}}
		if ok, err := s.Take(context.Background(), 0, ch); err != nil || !ok {
			t.Errorf("%v, %v", ok, err)
		}
	}
	take(0)
	c := costOf(r, p, func() {
		l := s.batchers[0]
		gathered := func() (n int32, busy bool) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, g := range l.next.groups {
				n += g.requests
			}
			return n, l.busy > 0
		}
		var wg sync.WaitGroup
		p.Freeze()
		wg.Go(func() { take(0) })
		testproc.Eventually(t, func() bool { _, busy := gathered(); return busy })
		for i := range requests {
			wg.Go(func() { take(i) })
		}
		testproc.Eventually(t, func() bool { n, _ := gathered(); return n >= requests })
		p.Resume()
		wg.Wait()
	})
	t.Logf("%d calls, %d commands, %d bytes there, %d back", c.calls, c.commands, c.up, c.down)
	if c.calls > 2 {
		t.Errorf("%d requests that came together took %d calls", requests, c.calls)
	}
	if most := 2 * (5 + 2*actors); c.commands > most {
		t.Errorf("%d requests of %d actors took %d commands, want at most %d", requests, actors, c.commands, most)
	}
	if c.up > 2000 || c.down > 1000 {
		t.Errorf("%d requests of %d actors took %d bytes there and %d back", requests, actors, c.up, c.down)
	}
}
