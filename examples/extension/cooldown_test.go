// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/redisstore"
	"github.com/diana-limiter/diana/replay"
	"github.com/diana-limiter/diana/storetest"
	"pgregory.net/rapid"
)

// Diana's suite, with all algorithms of this program, as they are used together.
var suite = storetest.Suite{
	Algorithms: vocabulary().Algorithms,
	Scripts:    os.DirFS("testdata"),
}

func TestInMemory(t *testing.T) {
	suite.Run(t, func(*testing.T) (limit.Store, func() int64) {
		s := memstore.New(memstore.Options{})
		return s, s.Now
	})
	suite.Replay(t, func(*testing.T) limit.Store { return memstore.New(memstore.Options{}) })
}

func TestInRedis(t *testing.T) {
	r := startRedis(t)
	var stores atomic.Int64
	open := func(t *testing.T, callerClock bool) limit.Store {
		prefix := fmt.Sprint("store", stores.Add(1)) // each has counters of its own
		return openRedis(t, redisstore.Options{URL: r.url, Prefix: prefix, CallerClock: callerClock})
	}
	suite.Run(t, func(t *testing.T) (limit.Store, func() int64) {
		return open(t, false), func() int64 { return 0 } // Redis' clock decides
	})
	suite.Replay(t, func(t *testing.T) limit.Store { return open(t, true) })
}

func openRedis(t *testing.T, o redisstore.Options) *redisstore.Store {
	t.Helper()
	o.Timeout = 10 * time.Second
	s, err := redisstore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	eventually(t, s.Up)
	return s
}

// The step in Go and the step in Lua answer alike, whatever comes: the cool-down by itself,
// and in requests that charge other algorithms, too.
func TestGoAgreesWithLua(t *testing.T) {
	r := startRedis(t)
	for name, suite := range map[string]storetest.Suite{
		"alone":    {Algorithms: []limit.Algorithm{coolDown()}},
		"together": suite,
	} {
		t.Run(name, func(t *testing.T) {
			s := openRedis(t, redisstore.Options{URL: r.url, Prefix: name, CallerClock: true})
			suite.Agree(t, uint64(time.Now().UnixNano()), 4_000, memstore.New(memstore.Options{}), s)
			suite.Agree(t, uint64(time.Now().UnixNano()), 4_000, memstore.New(memstore.Options{}), &replay.Meters{})
		})
	}
}

// model is what a cool-down promises, read slowly and obviously.
type model struct {
	n, unit int64
	passed  []passed
}

type passed struct{ at, n int64 }

// run returns those that have passed since the last pause, as it is at the moment now.
func (m *model) run(now int64) (run []passed) {
	for _, p := range m.passed {
		if len(run) > 0 && p.at-run[len(run)-1].at >= m.unit {
			run = nil
		}
		run = append(run, p)
	}
	if count(run) == 0 || now-run[len(run)-1].at >= m.unit {
		return nil
	}
	return run
}

func count(run []passed) (n int64) {
	for _, p := range run {
		n += p.n
	}
	return n
}

func (m *model) take(now, n int64) (at int64) {
	if len(m.passed) > 0 {
		at = m.passed[len(m.passed)-1].at
	}
	at = max(at, now)
	m.passed = append(m.run(now), passed{at, n})
	return at
}

func (m *model) give(at, n int64) {
	run := m.passed
	if at <= run[len(run)-1].at-m.unit {
		return
	}
	for i := range run {
		if run[i].at == at {
			k := min(n, run[i].n)
			run[i].n -= k
			n -= k
		}
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := limit.Limit{
			N:    rapid.SampledFrom([]int64{1, 2, 3, 10, most}).Draw(t, "N"),
			Unit: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 744 * time.Hour}).Draw(t, "unit"),
		}
		meter, err := coolDown().New(l)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{n: l.N, unit: l.Unit.Microseconds()}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		var s limit.State
		var made, all []passed // without refunded requests; and with them
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.Int64Range(1, l.N+1).Draw(t, "cost")
				out := meter.Peek(s, now, n)
				if want := count(m.run(now))+n <= l.N; out.Allowed != want {
					t.Fatalf("%+v, want allowed: %v", out, want)
				}
				if !out.Allowed {
					then := meter.Peek(s, now+out.Wait, n)
					if n <= l.N && (!then.Allowed || meter.Peek(s, now+out.Wait-1, n).Allowed) {
						t.Fatalf("%+v: the wait is not how long it takes", out)
					}
					return
				}
				at := meter.(limit.Clamped).Moment(s, now)
				s.Head = meter.Take(s, now, n)
				if want := m.take(now, n); at != want {
					t.Fatalf("charged at %d, want %d", at, want)
				}
				made, all = append(made, passed{at, n}), append(all, passed{at, n})
			},
			"pass": func(t *rapid.T) {
				now += rapid.OneOf(
					rapid.Int64Range(0, m.unit/2),
					rapid.SampledFrom([]int64{m.unit - 1, m.unit, m.unit + 1, 3 * m.unit}),
				).Draw(t, "span")
			},
			"back": func(t *rapid.T) { now -= rapid.Int64Range(0, m.unit/10).Draw(t, "span") },
			"give": func(t *rapid.T) {
				if len(made) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(made)-1).Draw(t, "which")
				p := made[i]
				made = slices.Delete(made, i, i+1)
				s.Head = meter.Refund(s, p.at, p.n)
				m.give(p.at, p.n)
				i = slices.Index(all, p)
				all = slices.Delete(all, i, i+1)
			},
			"": func(t *rapid.T) {
				if s.Head>>63 != 0 {
					t.Fatalf("head %#x uses the store's bit", s.Head)
				}
				if out := meter.Peek(s, now, 1); out.Remaining != l.N-count(m.run(now)) {
					t.Fatalf("%+v, want %d remaining", out, l.N-count(m.run(now)))
				}
				at := max(meter.Expiry(s), now)
				if got, want := meter.Peek(s, at, 1), meter.Peek(limit.State{}, at, 1); got != want {
					t.Fatalf("expired it is %+v, want %+v", got, want)
				}
				// The promise, without a word of how it is kept.
				for i := range all {
					var within int64
					for _, p := range all {
						if all[i].at <= p.at && p.at < all[i].at+m.unit {
							within += p.n
						}
					}
					if within > l.N {
						t.Fatalf("%d have passed within a unit, want at most %d", within, l.N)
					}
				}
			},
		})
	})
}

// Earlier requests count against a changed limit.
func TestChanged(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	var s limit.State
	for _, step := range []struct {
		n, cost, remaining int64
		allowed            bool
	}{
		{n: 10, cost: 6, remaining: 10, allowed: true},
		{n: 5, cost: 1, remaining: 0},
		{n: 7, cost: 1, remaining: 1, allowed: true},
		{n: 0, cost: 1, remaining: 0},
		{n: most, cost: most - 7, remaining: most - 7, allowed: true},
	} {
		m, err := coolDown().New(limit.Limit{N: step.n, Unit: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		out := m.Peek(s, now, step.cost)
		if out.Allowed != step.allowed || out.Remaining != step.remaining {
			t.Errorf("%+v: %+v", step, out)
		}
		if out.Allowed {
			s.Head = m.Take(s, now, step.cost)
		}
	}
	for _, l := range []limit.Limit{{N: most + 1, Unit: time.Minute}, {N: -1, Unit: time.Minute}, {N: 1}} {
		if _, err := coolDown().New(l); err == nil {
			t.Errorf("%+v can be kept, want an error", l)
		}
	}
}
