// SPDX-License-Identifier: MIT

package limit

import (
	"testing"

	"pgregory.net/rapid"
)

// checkDecide compares Decide with Peek and Take, for a state of one word.
func checkDecide(t *rapid.T, m Meter, s State, now, n int64) {
	w, ok := m.(Word)
	if !ok || m.Cells(s, n) > 0 {
		return
	}
	next, out := w.Decide(s.Head, now, n)
	if wantNext, want := decide(m, s.Head, now, n); next != wantNext || out != want {
		t.Fatalf("head %#x, now %d, cost %d: Decide returns %#x and %+v, want %#x and %+v", s.Head, now, n, next, out, wantNext, want)
	}
}

// Decide is Peek and Take also for a state that another limit of the same unit has made.
func TestDecideAfterANewLimit(t *testing.T) {
	t.Parallel()
	for _, a := range Algorithms() {
		t.Run(a.Name(), func(t *testing.T) {
			t.Parallel()
			check(t, func(t *rapid.T) {
				l := drawLimit(t)
				old := newMeter(t, a, l)
				l.N = drawLimit(t).N
				m := newMeter(t, a, l)
				if old.StateVersion() != m.StateVersion() || m.Cells(State{}, 1) > 0 {
					return
				}
				s, now := State{}, epoch2026
				cost := rapid.OneOf(rapid.Just[int64](1), rapid.Int64Range(1, 20), rapid.Int64Range(1, 2e9))
				for range rapid.IntRange(0, 5).Draw(t, "charges") {
					now += rapid.Int64Range(-1e6, 1e7).Draw(t, "span")
					s.Head, _ = Debit(old, s, now, cost.Draw(t, "cost"))
				}
				for range 5 {
					now += rapid.OneOf(rapid.Int64Range(-1e6, 1e6), rapid.Int64Range(-1e9, 1e9)).Draw(t, "span")
					n := cost.Draw(t, "cost")
					checkDecide(t, m, s, now, n)
					if m.Peek(s, now, n).Allowed {
						s.Head = m.Take(s, now, n)
					}
				}
			})
		})
	}
}

// The algorithms whose states usually are one word decide in one step.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, a := range []Algorithm{TokenBucket(), FixedWindow(), Concurrency()} {
		if m := newMeter(t, a, Limit{N: 100, Unit: 60e9}); m.Cells(State{}, 1) > 0 {
			t.Errorf("%s: the state is more than a word", a.Name())
		} else if _, ok := m.(Word); !ok {
			t.Errorf("%s: the Meter is no Word", a.Name())
		}
	}
}
