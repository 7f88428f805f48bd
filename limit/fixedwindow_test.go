// SPDX-License-Identifier: MIT

package limit

import (
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"pgregory.net/rapid"
)

// windows is the model of FixedWindow: all charges, each with the start of its window.
type windows struct {
	n, unit int64
	first   bool
	history
}

// current returns the start of the window of now.
func (m *windows) current(now int64) int64 {
	if len(m.history) > 0 {
		last := m.history[len(m.history)-1].at
		began := !m.first || m.since(last-1) > 0 // a refunded one begins none
		if now < last || now < last+m.unit && began {
			return last
		}
	}
	if m.first {
		return now
	}
	return now / m.unit * m.unit
}

func (m *windows) check(now, n int64, out Outcome) string {
	return compare(n, m.n-m.since(m.current(now)-1), out)
}

func (m *windows) take(now, n int64) {
	m.history = append(m.history, moment{m.current(now), n})
}

func (m *windows) refund(_ int, at, n int64) {
	last := m.history[len(m.history)-1].at
	if last <= at && at < last+m.unit {
		m.remove(n, func(at int64) bool { return at == last })
	}
}

func TestFixedWindowRandom(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for _, first := range []bool{false, true} {
		check(t, func(t *rapid.T) {
			l := drawLimit(t)
			l.AlignFirst = first
			if rapid.IntRange(0, 3).Draw(t, "wide") == 0 {
				l.N = rapid.SampledFrom([]int64{bounds.MaxN, bounds.MaxN + 1, bounds.MaxWindowN}).Draw(t, "N")
				l.Unit = rapid.SampledFrom([]time.Duration{l.Unit, bounds.MaxWindowUnit}).Draw(t, "Unit")
			}
			m := &windows{n: l.N, unit: l.Unit.Microseconds(), first: first}
			s := &sequence{meter: newMeter(t, FixedWindow(), l), model: m}
			s.play(t, l)
		})
	}
}

// If the clock goes back, a window stays current even if all its charges were refunded. So its
// state does not expire before the window ends.
func TestFixedWindowGivenBack(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		first  bool
		expiry int64
	}{
		{false, epoch2026 + 60e6}, // when the window ends
		{true, epoch2026 + 30e6},  // when it was to begin
	} {
		m := newMeter(t, FixedWindow(), Limit{N: 10, Unit: time.Minute, AlignFirst: tc.first})
		s := State{Cells: make([]uint64, m.Cells(State{}, 1))}
		s.Head = m.Take(s, epoch2026+30e6, 1)
		s.Head = m.Refund(s, epoch2026+30e6, 1)
		if got := m.Expiry(s); got != tc.expiry {
			t.Errorf("AlignFirst %v: expiry %d, want %d", tc.first, got, tc.expiry)
		}
	}
}

// Used requests count against a lowered limit, and after it is raised again.
func TestFixedWindowChanged(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{
		{Unit: time.Minute},
		{Unit: time.Minute, AlignFirst: true},
		{Unit: 100 * time.Millisecond},
	} {
		testChanged(t, FixedWindow(), l, []changed{
			{n: 10, cost: 6, allowed: true, remaining: 10},
			{n: 5, cost: 1, remaining: 0},
			{n: 7, cost: 1, allowed: true, remaining: 1},
			{n: 10, cost: 3, allowed: true, remaining: 3},
			{n: 10, cost: 1, remaining: 0},
		})
	}
}

// A limit that one word cannot hold is exact to its last request, and debt does not lower the count.
func TestFixedWindowWide(t *testing.T) {
	t.Parallel()
	m := newMeter(t, FixedWindow(), Limit{N: bounds.MaxWindowN, Unit: bounds.MaxWindowUnit})
	s := State{Cells: make([]uint64, m.Cells(State{}, 1))}
	take := func(n int64) Outcome {
		out := m.Peek(s, epoch2026, n)
		if out.Allowed {
			s.Head = m.Take(s, epoch2026, n)
		}
		return out
	}
	if out := take(bounds.MaxWindowN - 1); !out.Allowed || out.Remaining != bounds.MaxWindowN {
		t.Errorf("all but one: %+v", out)
	}
	if out := take(2); out.Allowed || out.Remaining != 1 {
		t.Errorf("one too many: %+v", out)
	}
	if out := take(1); !out.Allowed {
		t.Errorf("the last: %+v", out)
	}
	s.Head, _ = Debit(m, s, epoch2026, 5)
	s.Head = m.Refund(s, epoch2026, 5)
	if out := take(1); out.Allowed || out.Remaining != 0 {
		t.Errorf("after a debit and its refund: %+v", out)
	}
	if narrow := newMeter(t, FixedWindow(), Limit{N: bounds.MaxN, Unit: bounds.MaxWindowUnit}); narrow.StateVersion() == m.StateVersion() {
		t.Errorf("states of one and of two words have the version %q", m.StateVersion())
	}
}
