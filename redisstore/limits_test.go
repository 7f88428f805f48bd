// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/race"
	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// Requests of one call that charge the same counters under several limits are evaluated as in memory, one
// after another, each by its own limit.
func TestLimitsInOneCall(t *testing.T) {
	t.Parallel()
	rounds := 400
	if testing.Short() || race.Enabled {
		rounds = 100
	}
	s := openBy(t, Options{URL: redistest.Start(t).URL(), CallerClock: true})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, seed))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	several := 0
	for round := range rounds {
		algorithms := limit.Algorithms()
		local, global := memstore.New(memstore.Options{}), s
		pairs := sameCounters(t, rnd, algorithms[rnd.IntN(len(algorithms))], fmt.Sprint("round ", round), local, global)
		if len(pairs) > 1 {
			several++
		}
		var made [2][]limit.Charge
		for range 5 {
			now += rnd.Int64N(400_000)
			br := s.batchers[0]
			br.mu.Lock()
			br.begin()
			b := br.next // as requests do, because renewals of slots count on it
			b.now = now
			local.Refund(made[0])
			for i := range made[1] {
				ch := &made[1][i]
				s.leases.hold(ch.Counters.(*counters), ch.Key, -ch.Cost)
				b.refund(ch, ch.At)
			}
			made = [2][]limit.Charge{}
			var entries []entry
			var asked [2][]limit.Charge
			type distinct struct{ pair, actor, cost int }
			seen := map[distinct]bool{} // equal ones would be one group
			for range 12 {
				d := distinct{rnd.IntN(len(pairs)), rnd.IntN(2), 1 + rnd.IntN(6)}
				if seen[d] {
					continue
				}
				seen[d] = true
				ch := limit.Charge{Key: fmt.Append(nil, d.actor), Cost: int64(d.cost), Shadow: rnd.IntN(4) == 0}
				ch.Debit = ch.Shadow && rnd.IntN(2) == 0
				ch.Counters = pairs[d.pair][1]
				asked[1] = append(asked[1], ch)
				entries = append(entries, takeIn(b, asked[1][len(asked[1])-1:]))
				ch.Counters = pairs[d.pair][0]
				asked[0] = append(asked[0], ch)
			}
			free := br.free()
			br.mu.Unlock()
			if free != nil { // otherwise the call in flight is a renewal, after which the batch is sent
				br.run(free, true)
			}
			<-b.done
			for i := range asked[0] {
				a, z := asked[0][i:i+1], asked[1][i:i+1]
				okA, errA := local.Take(context.Background(), now, a)
				okZ, errZ := entries[i].outcome(z)
				if errA != nil || errZ != nil || okA != okZ || a[0].Outcome != z[0].Outcome {
					t.Fatalf("round %d: %d for %s: in memory %v %+v %v, in Redis %v %+v %v", round, a[0].Cost, a[0].Key, okA, a[0].Outcome, errA, okZ, z[0].Outcome, errZ)
				}
				if (a[0].Outcome.Allowed || a[0].Debit) && rnd.IntN(4) == 0 {
					made[0], made[1] = append(made[0], a[0]), append(made[1], z[0])
				}
			}
		}
	}
	if several < rounds/2 {
		t.Errorf("only %d of %d rounds had several limits", several, rounds)
	}
}

// unqueued is a queue whose requests do not wait.
type unqueued struct{ limit.Scripted }

// Debit implements limit.Debtor.
func (q unqueued) Debit(s limit.State, now, n int64) (head uint64, cut int64) {
	return limit.Debit(q.Scripted, s, now, n)
}

// Used implements limit.Debtor.
func (q unqueued) Used(s limit.State, now int64) int64 { return q.Scripted.(limit.Debtor).Used(s, now) }

// sameCounters returns up to three handles of the same counters in both stores, of random limits.
func sameCounters(t *testing.T, rnd *rand.Rand, a limit.Algorithm, name string, local, global limit.Store) (pairs [][2]any) {
	t.Helper()
	l := limit.Limit{Unit: time.Duration(1+rnd.IntN(5)) * time.Second, AlignFirst: rnd.IntN(2) == 1}
	layout := ""
	for range 3 {
		l.N, l.Burst, l.Queue = 1+rnd.Int64N(30), rnd.Int64N(20), rnd.Int64N(20)
		m, err := a.New(l)
		if err != nil {
			t.Fatal(err)
		}
		if layout != "" && m.StateVersion() != layout {
			continue
		}
		layout = m.StateVersion()
		if q, ok := m.(limit.Queue); ok { // so that no request waits
			m = unqueued{q.(limit.Scripted)}
		}
		var p [2]any
		for i, s := range []limit.Store{local, global} {
			if p[i], err = s.Counters(name, m); err != nil {
				t.Fatal(err)
			}
		}
		pairs = append(pairs, p)
	}
	return pairs
}
