// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fullLog is the model of SlidingLog: all charges with their moments.
type fullLog struct {
	n, unit int64
	bundle  int64
	history
	last  int64 // moment in the log, also of what has been given back
	back  bool  // the clock went back
	given bool  // something has been given back
}

func (m *fullLog) check(now, n int64, out Outcome) string {
	m.back = m.back || now < m.last
	now = m.still(now)
	used := m.since(now - m.unit)
	switch {
	case m.bundle == 1:
		return compare(n, m.n-used, out)
	case m.back && m.given: // then a request may be taken for another
		return ""
	case out.Allowed && used+n > m.n:
		return fmt.Sprintf("%d were taken within a unit", used)
	case out.Remaining > m.n-used:
		return fmt.Sprintf("%d are left", m.n-used)
	case !out.Allowed && !m.given && m.bundled(now-m.unit)+n <= m.n:
		return fmt.Sprintf("only %d were taken in bundles within a unit", m.bundled(now-m.unit))
	}
	return ""
}

// bundled returns how many were taken in bundles that can have ended after the moment
// at: a request is in one with at most bundle-1 that came later.
func (m *fullLog) bundled(at int64) (n int64) {
	for i, c := range m.history {
		later, end := m.bundle-1, i
		for end+1 < len(m.history) && later > 0 {
			end++
			later -= m.history[end].n
		}
		if m.history[end].at > at {
			n += c.n
		}
	}
	return n
}

// still returns now, or the latest moment in the log: a clock that went back stands
// still.
func (m *fullLog) still(now int64) int64 {
	for _, c := range m.history {
		if c.n > 0 {
			now = max(now, c.at)
		}
	}
	return now
}

func (m *fullLog) take(now, n int64) {
	now = m.still(now)
	if m.bundle == 1 { // what has left is forgotten, even if the clock goes back
		m.remove(MaxN, func(at int64) bool { return at+m.unit <= now })
	}
	m.history = append(m.history, moment{now, n})
	m.last = max(now, m.last)
}

// give gives back what was taken at the moment at. When the clock went back, that can
// be another request. What is in a bundle may stay counted.
func (m *fullLog) give(i int, at, n int64) {
	m.given = true
	if m.bundle > 1 {
		m.history[i].n = 0
		return
	}
	m.remove(n, func(t int64) bool { return t == at })
}

func TestSlidingLogRandom(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		l := drawLimit(t)
		m := &fullLog{n: l.N, unit: l.Unit.Microseconds(), bundle: ceilDiv(l.N, maxMoments)}
		s := &sequence{meter: newMeter(t, SlidingLog(), l), model: m}
		s.play(t, l)
	})
}

// Bundles fill and leave often when they and the limit are small.
func TestSlidingLogBundles(t *testing.T) {
	t.Parallel()
	check(t, func(t *rapid.T) {
		l := Limit{N: rapid.Int64Range(1, 30).Draw(t, "N"), Unit: MinUnit}
		bundle := rapid.Int64Range(2, 7).Draw(t, "bundle")
		m := &fullLog{n: l.N, unit: l.Unit.Microseconds(), bundle: bundle}
		s := &sequence{meter: &slidingLog{n: l.N, unit: m.unit, bundle: bundle}, model: m}
		s.play(t, l)
	})
}

// What has been used counts against a limit that is lowered, or raised again.
func TestSlidingLogChanged(t *testing.T) {
	t.Parallel()
	testChanged(t, SlidingLog(), Limit{Unit: time.Minute}, []changed{
		{n: 10, cost: 6, allowed: true, remaining: 10},
		{n: 5, cost: 1, remaining: 0},
		{n: 7, cost: 1, allowed: true, remaining: 1},
		{n: 100, cost: 93, allowed: true, remaining: 93},
		{n: 100, cost: 1, remaining: 0},
	})
}

// A ring keeps its moments when it grows, wherever it begins.
func TestSlidingLogGrows(t *testing.T) {
	t.Parallel()
	g := newMeter(t, SlidingLog(), Limit{N: 100, Unit: time.Millisecond})
	for first := range int64(4) {
		s := &sequence{meter: g}
		var want []int64
		take := func(at int64) {
			s.room(1, 0)
			s.state.Head = g.Take(s.state, at, 1)
			want = append(want, at)
		}
		// 3 are in the window at a time, until the ring of 4 begins at first.
		for i := range 3 + first {
			take(epoch2026 + 400*i)
		}
		take(want[len(want)-1])
		if r := unpack(s.state.Head); r.size != 4 || r.length != 4 || r.first != first {
			t.Fatalf("%+v, want 4 of 4 that begin at %d", r, first)
		}
		for range 5 {
			take(want[len(want)-1] + 1)
		}
		r := unpack(s.state.Head)
		var got []int64
		for i := range r.length {
			got = append(got, int64(s.state.Cells[r.index(i)]))
		}
		if want := want[first:]; !slices.Equal(got, want) {
			t.Errorf("first %d: moments %v, want %v", first, got, want)
		}
	}
}

// A store may have more cells than a ring can use.
func TestSlidingLogRoom(t *testing.T) {
	t.Parallel()
	g := newMeter(t, SlidingLog(), Limit{N: maxMoments, Unit: time.Second})
	s := State{Cells: make([]uint64, 4*maxMoments)}
	for now := epoch2026; now < epoch2026+10e6; now += 1e6 {
		s.Head = g.Take(s, now, maxMoments-1)
		if out := g.Look(s, now, 1); out.Remaining != 1 {
			t.Fatalf("after %d s: %+v, want 1 remaining", (now-epoch2026)/1e6, out)
		}
	}
}

// However long a log is used, it asks for no more than its limit needs.
func TestSlidingLogMemory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		n     int64
		cells int
	}{
		{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {1000, 1024}, {65536, 65536},
		{65537, 65536}, {1_000_000, 65536}, {MaxN, 65536},
	} {
		s := &sequence{meter: newMeter(t, SlidingLog(), Limit{N: tc.n, Unit: time.Millisecond})}
		step := max(tc.n/5, 1)
		for now := epoch2026; now < epoch2026+100_000; now += 150 {
			if s.meter.Look(s.state, now, step).Allowed {
				s.room(step, 0)
				s.state.Head = s.meter.Take(s.state, now, step)
			}
		}
		if got := len(s.state.Cells); got > tc.cells {
			t.Errorf("N %d: %d cells, want at most %d", tc.n, got, tc.cells)
		}
	}
}

// A log of bundles takes back only what is in its newest one.
func TestSlidingLogGiveBundle(t *testing.T) {
	t.Parallel()
	const unit = 1000
	g := &slidingLog{n: 10, unit: unit, bundle: 3}
	s := State{Cells: make([]uint64, 4)}
	s.Head = g.Take(s, 1, 1)
	s.Head = g.Take(s, 2000, 1) // the first has left
	s.Head = g.Give(s, 1, 1)
	if left := g.Look(s, 2000, 1).Remaining; left != 9 {
		t.Errorf("%d are left after giving back what has left the window, want 9", left)
	}
	s.Head = g.Give(s, 2000, 1)
	if left := g.Look(s, 2000, 1).Remaining; left != 10 {
		t.Errorf("%d are left after giving back the newest, want 10", left)
	}
	s.Head = g.Take(s, 2001, 3)
	s.Head = g.Take(s, 2002, 2)
	s.Head = g.Give(s, 2002, 2)
	if left := g.Look(s, 2002, 1).Remaining; left != 7 {
		t.Errorf("%d are left after giving back the newest of two, want 7", left)
	}
}
