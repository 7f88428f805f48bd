// SPDX-License-Identifier: MIT

package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/limit"
)

// Agree makes n random operations on both stores, one after another, and fails at the first
// different result. Both stores must use the moment that a call gets, and no clock of their
// own. No request waits: the meters of queues only compute scheduled times.
func (s Suite) Agree(t *testing.T, seed uint64, n int, a, b limit.Store) {
	t.Helper()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, seed))
	const round = 500 // operations under the same limits
	for done := 0; done < n; done += round {
		s.agreeRound(t, rnd, done, min(round, n-done), a, b)
		if t.Failed() {
			return
		}
	}
}

// longestJump keeps moments in the range of the meters, also after the largest debts.
const longestJump = 365 * 24 * 3600 * 1e6

// pair is the counters of one limit in both stores.
type pair struct {
	a, b  any
	limit string
	unit  time.Duration
	n     int64
}

func (s Suite) agreeRound(t *testing.T, rnd *rand.Rand, first, n int, a, b limit.Store) {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	var pairs []pair
	for i := range 1 + rnd.IntN(4) {
		p := s.randomPair(t, rnd, fmt.Sprintf("%d.%d", first, i), a, b)
		defer a.Retire(p.a)
		defer b.Retire(p.b)
		pairs = append(pairs, p)
	}
	var made [][2][]limit.Charge  // and not refunded
	latest, wait := now, int64(0) // of the last refusal
	for op := range n {
		switch unit := pairs[0].unit.Microseconds(); rnd.IntN(8) {
		case 0, 1: // at the same moment
		case 2:
			now += rnd.Int64N(2*unit + 1)
		case 3:
			now -= rnd.Int64N(unit/10 + 1)
		case 4: // at an edge, or just beside it
			now += []int64{unit, min(wait, longestJump)}[rnd.IntN(2)] + rnd.Int64N(3) - 1
		default:
			now += rnd.Int64N(unit/max(pairs[0].n, 1) + 2)
		}
		if len(made) > 0 && rnd.IntN(8) == 0 {
			i := rnd.IntN(len(made))
			a.Refund(made[i][0])
			b.Refund(made[i][1])
			made[i] = made[len(made)-1]
			made = made[:len(made)-1]
			continue
		}
		if rnd.IntN(16) == 0 {
			i := rnd.IntN(len(pairs))
			ch := limit.Charge{Key: fmt.Append(nil, rnd.IntN(3)), Cost: 1 + rnd.Int64N(2*pairs[i].n+2)}
			if rnd.IntN(8) == 0 {
				ch.Cost = bounds.MaxN
			}
			latest = max(latest, now)
			ch.Counters = pairs[i].a
			a.Debit(now, []limit.Charge{ch})
			ch.Counters = pairs[i].b
			b.Debit(now, []limit.Charge{ch})
			continue
		}
		if rnd.IntN(32) == 0 {
			i, key := rnd.IntN(len(pairs)), fmt.Append(nil, rnd.IntN(3))
			errA := a.Reset(context.Background(), pairs[i].a, key)
			errB := b.Reset(context.Background(), pairs[i].b, key)
			if errA != nil || errB != nil {
				t.Fatalf("operation %d: %v, %v", first+op, errA, errB)
			}
			continue
		}
		var ca, cb []limit.Charge
		for _, i := range rnd.Perm(len(pairs))[:1+rnd.IntN(len(pairs))] {
			ch := limit.Charge{Key: fmt.Append(nil, rnd.IntN(3)), Cost: 1, Shadow: rnd.IntN(8) == 0}
			if rnd.IntN(3) == 0 {
				ch.Cost = 1 + rnd.Int64N(pairs[i].n+2)
			}
			if rnd.IntN(2) == 0 { // only a limit.Reserver uses it
				ch.Longest = []int64{1, rnd.Int64N(3 * pairs[i].unit.Microseconds()), 1 << 52}[rnd.IntN(3)]
			}
			ch.Counters = pairs[i].a
			ca = append(ca, ch)
			ch.Counters = pairs[i].b
			cb = append(cb, ch)
		}
		allowed := false
		peeked := rnd.IntN(2) == 0
		if peeked {
			allowed = agreePeek(t, first+op, now, a, b, ca, cb)
		}
		okA, errA := a.Take(context.Background(), now, ca)
		okB, errB := b.Take(context.Background(), now, cb)
		if errA != nil || errB != nil {
			t.Fatalf("operation %d: %v, %v", first+op, errA, errB)
		}
		if got, want := tell(okB, cb), tell(okA, ca); got != want {
			t.Fatalf("operation %d at %d, of %v:\n%sand the other:\n%s", first+op, now, pairs, want, got)
		}
		if peeked && allowed != okA {
			t.Fatalf("operation %d at %d, of %v: Peek says allowed %v, and Take %v", first+op, now, pairs, allowed, okA)
		}
		for _, ch := range ca {
			if !ch.Outcome.Allowed {
				wait = ch.Outcome.Wait
			}
		}
		if latest = max(latest, now); okA && now == latest { // otherwise the stores differ in the moment of the charge
			made = append(made, [2][]limit.Charge{ca, cb})
		}
	}
}

// agreePeek calls Peek of both stores, and reports whether a Take at this moment is allowed.
func agreePeek(t *testing.T, op int, now int64, a, b limit.Store, ca, cb []limit.Charge) (allowed bool) {
	t.Helper()
	ca, cb = slices.Clone(ca), slices.Clone(cb)
	errA := a.Peek(context.Background(), now, ca)
	errB := b.Peek(context.Background(), now, cb)
	if errA != nil || errB != nil {
		t.Fatalf("operation %d: %v, %v", op, errA, errB)
	}
	allowed = !slices.ContainsFunc(ca, func(ch limit.Charge) bool { return !ch.Outcome.Allowed && !ch.Shadow })
	if got, want := tell(allowed, cb), tell(allowed, ca); got != want {
		t.Fatalf("operation %d at %d, peek:\n%sand the other:\n%s", op, now, want, got)
	}
	return allowed
}

// tell returns the result of a request as text.
func tell(ok bool, charges []limit.Charge) string {
	text := fmt.Sprintln("allowed:", ok)
	for _, ch := range charges {
		text += fmt.Sprintf("%d by %s, shadow %v: %+v\n", ch.Cost, ch.Key, ch.Shadow, ch.Outcome)
	}
	return text
}

func (p pair) String() string { return p.limit }

// randomPair makes counters of a random limit. An algorithm can reject a limit, such as a burst that
// takes a century to fill. Then randomPair draws again.
func (s Suite) randomPair(t *testing.T, rnd *rand.Rand, name string, a, b limit.Store) pair {
	t.Helper()
	algorithms := append(s.algorithms(), limit.Reservations())
	var err error
	for range 1000 {
		algorithm, l := algorithms[rnd.IntN(len(algorithms))], randomLimit(rnd)
		var m limit.Meter
		if m, err = algorithm.New(l); err != nil {
			continue
		}
		if q, ok := m.(limit.Queue); ok { // so that no request waits
			m = schedule{q.(limit.Scripted)}
		}
		p := pair{limit: fmt.Sprintf("%s %+v", algorithm.Name(), l), unit: l.Unit, n: l.N}
		if p.a, err = a.Counters(name, m); err != nil {
			t.Fatal(err)
		}
		if p.b, err = b.Counters(name, m); err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatalf("of 1,000 limits none can be kept; the last: %v", err)
	return pair{}
}

// schedule is a queue whose requests do not wait.
type schedule struct{ limit.Scripted }

// Debit implements limit.Debtor.
func (q schedule) Debit(s limit.State, now, n int64) uint64 {
	return limit.Debit(q.Scripted, s, now, n)
}

func randomLimit(rnd *rand.Rand) limit.Limit {
	pick := func(from ...int64) int64 { return from[rnd.IntN(len(from))] }
	l := limit.Limit{
		N:          pick(0, 1, 2, 3, 7, 10, 100, 65535, 65536, 70000, 999_999_937, bounds.MaxN, 1+rnd.Int64N(50)),
		Unit:       time.Duration(pick(1e3, 7e3, 1e6, 6e7, 36e8, 864e8, 744*36e8, 1e3+rnd.Int64N(1e7))) * time.Microsecond,
		AlignFirst: rnd.IntN(2) == 1,
	}
	if rnd.IntN(3) == 0 {
		l.Warmup = time.Duration(pick(1, 2, 999_999, 1e6, 6e8, 1+rnd.Int64N(1e7))) * time.Microsecond
	}
	if rnd.IntN(2) == 0 {
		l.Burst, l.Queue, l.Slices = 1+rnd.Int64N(20), 1+rnd.Int64N(20), 2+rnd.Int64N(99)
	}
	return l
}
