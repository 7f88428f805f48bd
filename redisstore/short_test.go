// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
)

// The short texts of the algorithms, their functions and driver.lua have the same answers, and leave the same states. Nothing
// of a call tells the next one which of them has decided before. Some calls have one algorithm alone, and others mix them.
func TestShortTextsAgree(t *testing.T) {
	t.Parallel()
	calls := 2000
	if testing.Short() || race.Enabled {
		calls = 500
	}
	r := redistest.Start(t)
	s := openBy(t, Options{URL: r.URL(), CallerClock: true})
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	by, mixed := map[string][]*counters{}, []*counters(nil)
	for _, a := range limit.Algorithms() {
		for _, l := range []limit.Limit{
			{N: 7, Unit: time.Second}, {N: 50, Unit: time.Minute}, {N: 1e6, Unit: time.Hour}, {N: 10, Unit: 31 * 24 * time.Hour},
		} {
			if m, err := a.New(l); err == nil {
				c, err := s.Counters(fmt.Sprint(a.Name(), l), m)
				if err != nil {
					t.Fatal(err)
				}
				by[a.Name()] = append(by[a.Name()], c.(*counters))
				mixed = append(mixed, c.(*counters))
			}
		}
	}
	variants := s.scripts.variants()
	for _, a := range limit.Algorithms() { // in order, so that a seed makes the same calls again
		name, all, brief, whole := a.Name(), by[a.Name()], 0, 0
		for i := range all {
			x, y := s.compareTexts(t, rnd, variants, all[i:i+1], calls/len(all), fmt.Sprint(name, i))
			brief, whole = brief+x, whole+y
		}
		t.Logf("%s: %d calls by the short text, %d by the functions", name, brief, whole)
		hasShort := slices.Contains([]string{"TB", "W", "SW", "SL", "LB"}, name)
		if hasShort && brief < calls/5 || whole < calls/20 {
			t.Errorf("%s: %d calls by the short text, %d by the functions: too few of one", name, brief, whole)
		}
	}
	for k := range 10 {
		rnd.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		s.compareTexts(t, rnd, variants, mixed[:2+k%5], calls/20, fmt.Sprint("mixed", k))
	}
}

// variants returns the script, and what is left of it without the short texts or without the functions.
func (s *scripts) variants() map[string]*script {
	var functions, alone []source
	for _, one := range s.sources {
		functions = append(functions, source{text: one.text})
		alone = append(alone, source{text: "error('the functions are needed')", short: one.short})
	}
	whole := s.script.Load()
	return map[string]*script{"short": whole, "driver": whole, "functions": newScript(functions), "short alone": newScript(alone)}
}

// compareTexts makes calls that charge some of the counters. It returns how many of them the short texts decide alone.
func (s *Store) compareTexts(t *testing.T, rnd *rand.Rand, variants map[string]*script, of []*counters, calls int, tag string) (brief, whole int) {
	t.Helper()
	now := int64(1<<50) + rnd.Int64N(1e15)
	for n := range calls {
		switch step := of[rnd.IntN(len(of))].meter.Peek(limit.State{}, now, 1).Reset; rnd.IntN(8) {
		case 0:
		case 1:
			now -= rnd.Int64N(1 + step/10) // a clock that was set
		case 2:
			now += 40 * step
		default:
			now += rnd.Int64N(2 + step/2)
		}
		b := newBatch(s.batchers[0], nil)
		b.now, b.call = now, int64(n+1)
		for i, c := range of {
			if len(of) > 1 && rnd.IntN(3) == 0 {
				continue
			}
			charge := []limit.Charge{{Counters: c, Key: []byte{byte(i)}, Cost: 1 + max(rnd.Int64N(9)-5, 0)}}
			requests := 1 + max(rnd.IntN(8)-4, 0)
			if charge[0].Cost > 1 && c.apart || c.queue || c.reserver {
				requests = 1
			}
			for range requests {
				takeIn(b, charge)
			}
		}
		if len(b.groups) == 0 {
			continue
		}
		if s.askBy(t, variants, b, tag+"short alone", "short alone") == nil {
			whole++
		} else {
			brief++
		}
		want := s.askBy(t, variants, b, tag+"driver", "driver")
		turn := []string{"short", "functions", "driver"}[rnd.IntN(3)]
		for counters, variant := range map[string]string{"short": "short", "functions": "functions", "in turns": turn} {
			if got := s.askBy(t, variants, b, tag+counters, variant); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, call %d: driver.lua answers %+v, and %s, %s, %+v", tag, n, want, counters, variant, got)
			}
		}
	}
	return brief, whole
}

// answer is what a variant answers to a short call.
type answer struct {
	numbers []int64
	values  []string
	uses    []int64
	left    []any // the counters after it
}

// askBy lets a variant of the script decide a batch, with the counters of a tag. It returns nil if a variant without
// functions needs them.
func (s *Store) askBy(t *testing.T, variants map[string]*script, b *batch, tag, variant string) *answer {
	t.Helper()
	reserves := slices.ContainsFunc(b.limits, func(c *counters) bool { return c.reserver })
	if !b.isShort() && !reserves {
		t.Fatal("the call is not short")
	}
	b.packed = nil
	isShort := variant != "driver" && !reserves
	var args [][]byte
	if isShort {
		args = b.packShort()
	} else {
		args = [][]byte{b.pack()}
	}
	var names []string
	for _, k := range b.keys {
		names = append(names, s.keys.counter(tag, k.hash))
	}
	names = append(names, s.keys.epoch(tag), s.keys.receipts(tag))
	reply, err := s.link.call(context.Background(), variants[variant], names, args...)
	if err != nil {
		if variant == "short alone" {
			return nil
		}
		t.Fatal(err)
	}
	var a answer
	if a.numbers, a.values, a.uses, err = b.unpackAnswer(reply, isShort); err != nil {
		t.Fatalf("%s: %v", variant, err)
	}
	for i := range b.keys {
		got, err := s.link.run(context.Background(), plainScript("return redis.call('GET', KEYS[1])"), names[i:i+1])
		if err != nil {
			t.Fatal(err)
		}
		left, err := got.ToAny()
		if err != nil {
			left = err.Error()
		}
		a.left = append(a.left, left)
	}
	return &a
}

// manyArgs is a window whose script has more numbers than a byte counts.
type manyArgs struct{ limit.Scripted }

// Script adds numbers that the algorithm does not read.
func (m manyArgs) Script() limit.Script {
	script := m.Scripted.Script()
	script.Args = append(slices.Clip(script.Args), make([]int64, 300)...)
	return script
}

func TestManyArgs(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t))
	m, err := limit.FixedWindow().New(limit.Limit{N: 2, Unit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Counters("many", manyArgs{m.(limit.Scripted)})
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch(s.batchers[0], nil)
	b.born = time.Now()
	for i := range 3 {
		for range 3 {
			takeIn(b, []limit.Charge{{Counters: c, Key: []byte{byte(i)}, Cost: 1}})
		}
	}
	b.call, b.known, _ = s.batchers[0].receipts.next()
	if b.send(); b.err != nil {
		t.Fatal(b.err)
	}
	for i := range b.groups {
		if n := b.groups[i].granted; n != 2 {
			t.Errorf("counter %d allows %d requests, want 2", i, n)
		}
	}
}

// The receipts of a busy gateway are written from their beginning only, and yet live as long.
func TestReceiptsLive(t *testing.T) {
	t.Parallel()
	r := redistest.Start(t)
	s := open(t, r)
	charge := []limit.Charge{{Counters: s.at(t, limit.FixedWindow(), limit.Limit{N: 1000, Unit: time.Hour}), Key: []byte("x"), Cost: 1}}
	take := func() {
		t.Helper()
		if ok, err := s.Take(context.Background(), 0, charge); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	take()
	calls := r.Calls()["setrange"]
	receipts := s.keys.receipts(s.batchers[0].tag)
	for range 10 {
		r.Must("PEXPIRE", receipts, "100000")
		for range momentsSeen {
			take()
		}
		if ttl, _ := r.Must("PTTL", receipts).(int64); ttl < receiptsLive.Milliseconds()-100_000 {
			t.Fatalf("after %d calls the receipts have %d ms to live", momentsSeen, ttl)
		}
	}
	if calls = r.Calls()["setrange"] - calls; calls < 60 {
		t.Errorf("%d of 80 calls have written the beginning only, want 70", calls)
	}
}
