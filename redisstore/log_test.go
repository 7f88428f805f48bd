// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// storeLog stores a log of that many requests for an actor, one in each microsecond from start on, in the
// format of slidinglog.lua.
func storeLog(s *Store, r *redistest.Server, c any, name string, start int64, requests int) {
	log := []byte("T\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for i := range requests {
		var moment [8]byte
		binary.LittleEndian.PutUint64(moment[:], uint64(start+int64(i)))
		log = binary.LittleEndian.AppendUint32(append(log, moment[:7]...), uint32(i+1))
	}
	own := c.(*counters)
	r.Must("SET", s.keys.counter(s.batchers[0].tag, hashOf(&limit.Charge{Counters: own, Key: []byte(name)})), string(log))
}

// A log with the largest number of moments merges them in Redis as in the process.
func TestLongestLogsAgree(t *testing.T) {
	t.Parallel()
	const filled = 65_530
	r := redistest.Start(t)
	there, here := openBy(t, Options{URL: r.URL(), CallerClock: true}), memstore.New(memstore.Options{})
	m, err := limit.SlidingLog().New(limit.Limit{N: 100_000, Unit: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var counters [2]any
	for i, s := range []limit.Store{there, here} {
		if counters[i], err = s.Counters("log", m); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	charge := func(s limit.Store, c any, cost int64) limit.Charge {
		ch := []limit.Charge{{Counters: c, Key: []byte("x"), Cost: cost}}
		if _, err := s.Take(context.Background(), now, ch); err != nil {
			t.Fatal(err)
		}
		return ch[0]
	}
	storeLog(there, r, counters[0], "x", now, filled)
	for range filled {
		charge(here, counters[1], 1)
		now++
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	var made [][2]limit.Charge
	for i := range 300 {
		now += []int64{0, 1, 1, 1, 10_000_000}[rnd.IntN(5)] * rnd.Int64N(2)
		cost := 1 + rnd.Int64N(300)
		a, b := charge(there, counters[0], cost), charge(here, counters[1], cost)
		if a.Outcome != b.Outcome {
			t.Fatalf("request %d of cost %d: %+v in Redis, %+v in the process", i, cost, a.Outcome, b.Outcome)
		}
		if a.Outcome.Allowed {
			made = append(made, [2]limit.Charge{a, b})
		}
		if rnd.IntN(4) == 0 && len(made) > 0 {
			k := rnd.IntN(len(made))
			there.Refund(made[k][:1])
			here.Refund(made[k][1:])
			made = append(made[:k], made[k+1:]...)
		}
	}
}
