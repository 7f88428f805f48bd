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

// The short text of an algorithm, its functions and driver.lua have the same answers, and leave the same states. Nothing
// of a call tells the next one which of them has decided before.
func TestLoneTextsAgree(t *testing.T) {
	t.Parallel()
	calls := 3000
	if testing.Short() || race.Enabled {
		calls = 500
	}
	r := redistest.Start(t)
	s := openBy(t, Options{URL: r.URL(), CallerClock: true})
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for _, a := range limit.Algorithms() {
		var all []any
		for _, l := range []limit.Limit{
			{N: 7, Unit: time.Second}, {N: 50, Unit: time.Minute}, {N: 1e6, Unit: time.Hour}, {N: 10, Unit: 31 * 24 * time.Hour},
		} {
			if m, err := a.New(l); err == nil {
				c, err := s.Counters(fmt.Sprint(a.Name(), l), m)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, c)
			}
		}
		letters := map[byte]int{}
		for i, c := range all {
			now := int64(1<<50) + rnd.Int64N(1e15)
			for n := range calls / len(all) {
				switch step := c.(*counters).meter.Peek(limit.State{}, now, 1).Reset; rnd.IntN(8) {
				case 0:
				case 1:
					now -= rnd.Int64N(1 + step/10) // a clock that was set
				case 2:
					now += 40 * step
				default:
					now += rnd.Int64N(2 + step/2)
				}
				charge := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: 1 + max(rnd.Int64N(9)-5, 0)}}
				requests := 1 + max(rnd.IntN(8)-4, 0)
				if charge[0].Cost > 1 && c.(*counters).apart || c.(*counters).queue || c.(*counters).reserver {
					requests = 1
				}
				var answers []answer
				for _, variant := range []string{"short", "functions", "driver", "in turns"} {
					if variant == "in turns" {
						variant = []string{"short", "functions", "driver"}[rnd.IntN(3)]
						answers = append(answers, s.askLone(t, now, charge, requests, fmt.Sprint(a.Name(), i, "turns"), variant, int64(n+1)))
						continue
					}
					answers = append(answers, s.askLone(t, now, charge, requests, fmt.Sprint(a.Name(), i, variant), variant, int64(n+1)))
				}
				letters[answers[0].letter]++
				for k := range answers {
					answers[k].letter = 0
					if !reflect.DeepEqual(answers[k], answers[0]) {
						t.Fatalf("%s, limit %d, call %d: the short text answers %+v, and variant %d %+v", a.Name(), i, n, answers[0], k, answers[k])
					}
				}
			}
		}
		t.Logf("%s: short %d, wide %d, functions %d", a.Name(), letters['N'], letters['W'], letters['F'])
		short := slices.Contains([]string{"TB", "W", "SW", "SL", "LB"}, a.Name())
		if short && letters['N']+letters['W'] < calls/5 || letters['F'] < calls/20 && len(all) > 0 {
			t.Errorf("%s: short %d, wide %d, functions %d: too few of one", a.Name(), letters['N'], letters['W'], letters['F'])
		}
	}
}

// answer is what a variant answers to a lone call.
type answer struct {
	letter  byte
	numbers []int64
	values  []string
	uses    []int64
	left    any // the counter after it
}

// askLone lets a variant decide equal requests.
func (s *Store) askLone(t *testing.T, now int64, charge []limit.Charge, requests int, tag, variant string, number int64) (a answer) {
	t.Helper()
	b := newBatch(s.batchers[0], nil)
	b.now, b.call = now, number
	for range requests {
		takeIn(b, charge)
	}
	if !b.isLone() && !b.limits[0].reserver {
		t.Fatal("the call is not lone")
	}
	lone := variant != "driver" && b.isLone()
	script, args := s.scripts.script.Load(), [][]byte{b.pack()}
	b.packed = nil
	if lone {
		args = b.packLone()
	}
	if variant == "functions" {
		var without []source
		for _, one := range s.scripts.sources {
			without = append(without, source{text: one.text})
		}
		script = newScript(without)
	}
	names := []string{s.keys.counter(tag, b.keys[0].hash), s.keys.epoch(tag), s.keys.receipts(tag)}
	reply, err := s.link.call(context.Background(), script, names, args...)
	if err != nil {
		t.Fatal(err)
	}
	if a.numbers, a.values, a.uses, err = b.unpackAnswer(reply, lone); err != nil {
		t.Fatal(err)
	}
	if a.letter = 'D'; lone {
		a.letter = reply[0]
	}
	got, err := s.link.run(context.Background(), plainScript("return redis.call('GET', KEYS[1])"), names[:1])
	if err != nil {
		t.Fatal(err)
	}
	if a.left, err = got.ToAny(); err != nil {
		a.left = err.Error()
	}
	return a
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
