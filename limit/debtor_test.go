// SPDX-License-Identifier: MIT

package limit

import (
	"testing"

	"pgregory.net/rapid"
)

// debtors are the algorithms whose states can be in debt, by what they can say of a debit.
var debtors = []struct {
	algorithm Algorithm
	most      func(l Limit) int64 // what counts at most of one debit; nil: all but what is cut off
}{
	{TokenBucket(), nil},
	{FixedWindow(), nil},
	{SlidingWindow(), nil},
	{SlidingLog(), func(l Limit) int64 { return l.N }},
	{LeakyBucket(), nil},
	{Concurrency(), nil},
	{Reservations(), nil},
}

// Used grows by what a debit does not cut off, and never with time. It is 0 at the expiry of a state.
func TestDebtorsUsed(t *testing.T) {
	t.Parallel()
	for _, d := range debtors {
		t.Run(d.algorithm.Name(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				l := drawLimit(t)
				m := newMeter(t, d.algorithm, l).(Debtor)
				now, state := epoch2026, State{}
				for range rapid.IntRange(1, 30).Draw(t, "steps") {
					before := m.Used(state, now)
					now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*l.Unit.Microseconds())).Draw(t, "pause")
					used := m.Used(state, now)
					if used > before || used < 0 {
						t.Fatalf("%d used, and %d later", before, used)
					}
					n := rapid.OneOf(rapid.Int64Range(1, 2*l.N), rapid.Int64Range(1, 1e9)).Draw(t, "n")
					state = withRoom(m, state, n, 0)
					var cut int64
					state.Head, cut = m.Debit(state, now, n)
					if cut < 0 || cut > n {
						t.Fatalf("a debit of %d has cut off %d", n, cut)
					}
					want := used + n - cut
					if d.most != nil {
						want = min(want, d.most(l))
					}
					rounded := int64(0) // a part of a step can be cut off
					if cut > 0 {
						rounded = 1
					}
					if got := m.Used(state, now); got < want || got > want+rounded {
						t.Fatalf("%d used, and %d after a debit of %d that has cut off %d", used, got, n, cut)
					}
				}
				if end := m.Expiry(state); end != Never && m.Used(state, max(now, end)) != 0 {
					t.Fatalf("%d used at the expiry", m.Used(state, max(now, end)))
				}
			})
		})
	}
}

// Without debt, Used is what is missing of the limit.
func TestDebtorsUsedWithoutDebt(t *testing.T) {
	t.Parallel()
	for _, a := range []Algorithm{TokenBucket(), FixedWindow(), SlidingWindow(), SlidingLog(), Concurrency()} {
		t.Run(a.Name(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				l := drawLimit(t)
				m := newMeter(t, a, l).(Debtor)
				now, state := epoch2026, State{}
				for range rapid.IntRange(1, 30).Draw(t, "steps") {
					now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, l.Unit.Microseconds())).Draw(t, "pause")
					n := rapid.Int64Range(1, l.N).Draw(t, "n")
					if out := m.Peek(state, now, n); !out.Allowed {
						continue
					}
					state = withRoom(m, state, n, 0)
					state.Head = m.Take(state, now, n)
					if used, left := m.Used(state, now), m.Peek(state, now, l.N).Remaining; used != l.N-left {
						t.Fatalf("%d used, and %d remaining of %d", used, left, l.N)
					}
				}
			})
		})
	}
}
