// SPDX-License-Identifier: MIT

package limit

import (
	"testing"

	"pgregory.net/rapid"
)

// held is the model of Concurrency: what was taken and not refunded.
type held struct {
	n int64
	history
}

func (m *held) check(_, n int64, out Outcome) string {
	return compare(n, m.n-m.since(0), out)
}

func (m *held) take(now, n int64) { m.history = append(m.history, moment{now, n}) }

func (m *held) refund(i int, _, _ int64) { m.history[i].n = 0 }

func TestConcurrencyRandom(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		l := drawLimit(t)
		s := &sequence{meter: newMeter(t, Concurrency(), l), model: &held{n: l.N}, timeless: true}
		s.play(t, l)
	})
}

// A refund of more than was taken frees no more than all slots.
func TestConcurrencyGiveTooMuch(t *testing.T) {
	t.Parallel()
	m := newMeter(t, Concurrency(), Limit{N: 3})
	s := State{}
	s.Head = m.Take(s, epoch2026, 1)
	if e := m.Expiry(s); e != Never {
		t.Errorf("one is held, and forgotten at %d", e)
	}
	s.Head = m.Refund(s, epoch2026, 2)
	if out := m.Peek(s, epoch2026, 1); out.Remaining != 3 {
		t.Errorf("%+v, want 3 remaining", out)
	}
	if e := m.Expiry(s); e > epoch2026 {
		t.Errorf("none is held, and that is remembered until %d", e)
	}
}

// Held slots count against a limit that is lowered, and when it is raised again.
func TestConcurrencyChanged(t *testing.T) {
	t.Parallel()
	testChanged(t, Concurrency(), Limit{}, []changed{
		{n: 10, cost: 6, allowed: true, remaining: 10},
		{n: 5, cost: 1, remaining: 0},
		{n: 7, cost: 1, allowed: true, remaining: 1},
		{n: 10, cost: 3, allowed: true, remaining: 3},
		{n: 10, cost: 1, remaining: 0},
	})
}
