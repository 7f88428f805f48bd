// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"pgregory.net/rapid"
)

// fullLog is the model of SlidingLog: all charges with their moments.
type fullLog struct {
	n, unit int64
	history
	all      history // including what has left
	merges   bool    // the meter can merge moments
	refunded bool    // something was refunded
}

func (m *fullLog) check(now, n int64, out Outcome) string {
	now = m.still(now)
	left := m.n - m.since(now-m.unit)
	switch {
	case !m.merges:
		return compare(n, left, out)
	case out.Allowed && n > left, out.Remaining > left:
		return fmt.Sprintf("%d are left", left)
	case !out.Allowed && !m.refunded && m.chain(now)+n <= m.n:
		return fmt.Sprintf("only %d were taken since all had left the window", m.chain(now))
	}
	return ""
}

// chain returns how many were taken, up to the moment now, that each have another one less than
// a unit later. A merged moment can stay in the window that long.
func (m *fullLog) chain(now int64) (n int64) {
	for i := len(m.all) - 1; i >= 0 && m.all[i].at > now-m.unit; i-- {
		n += m.all[i].n
		now = m.all[i].at
	}
	return n
}

// still returns now, or the latest moment in the log if the clock went back.
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
	// Requests that have left the window are forgotten, even if the clock goes back.
	m.remove(bounds.MaxN, func(at int64) bool { return at+m.unit <= now })
	m.history, m.all = append(m.history, moment{now, n}), append(m.all, moment{now, n})
}

// refund refunds what was taken at the moment at. A charge in a merged moment may stay counted.
func (m *fullLog) refund(i int, at, n int64) {
	m.refunded = true
	if m.merges {
		if m.history[i].n > 0 {
			m.history[i].n = 0
			return
		}
		// It has left, and the clock has gone back to its moment since. The log cannot tell it from a
		// later charge.
	}
	m.remove(n, func(t int64) bool { return t == at })
}

func TestSlidingLogRandom(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	check(t, func(t *rapid.T) {
		l := drawLimit(t)
		m := &fullLog{n: l.N, unit: l.Unit.Microseconds()}
		s := &sequence{meter: newMeter(t, SlidingLog(), l), model: m}
		s.play(t, l)
	})
}

// Moments merge often when few are kept.
func TestSlidingLogMerges(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	check(t, func(t *rapid.T) {
		l := Limit{N: rapid.Int64Range(1, 30).Draw(t, "N"), Unit: bounds.MinUnit}
		most := rapid.Int64Range(1, 7).Draw(t, "most")
		m := &fullLog{n: l.N, unit: l.Unit.Microseconds(), merges: true}
		s := &sequence{meter: &slidingLog{n: l.N, unit: m.unit, most: most}, model: m}
		s.play(t, l)
	})
}

// Used requests count against a lowered limit, and after it is raised again.
func TestSlidingLogChanged(t *testing.T) {
	t.Parallel()
	testChanged(t, SlidingLog(), Limit{Unit: time.Minute}, []changed{
		{n: 10, cost: 6, allowed: true, remaining: 10},
		{n: 5, cost: 1, remaining: 0},
		{n: 7, cost: 1, allowed: true, remaining: 1},
		{n: 100, cost: 93, allowed: true, remaining: 93},
		{n: 100, cost: 1, remaining: 0},
		{n: 1_000_000, cost: 1, allowed: true, remaining: 999_900},
	})
}

// moments returns the moments of a log, and how many requests each holds.
func moments(s State) (list []moment) {
	l := openLog(s)
	for i := range l.length {
		list = append(list, moment{l.moment(i), l.between(i-1, i)})
	}
	return list
}

// A ring keeps its moments when it grows, wherever it starts.
func TestSlidingLogGrows(t *testing.T) {
	t.Parallel()
	g := newMeter(t, SlidingLog(), Limit{N: 100, Unit: time.Millisecond})
	for first := range int64(4) {
		s := &sequence{meter: g}
		var want []moment
		take := func(at, n int64) {
			s.room(n, 0)
			s.state.Head = g.Take(s.state, at, n)
			want = append(want, moment{at, n})
		}
		// 3 are in the window at a time, until the ring of 4 begins at first.
		for i := range 3 + first {
			take(epoch2026+400*i, i+1)
		}
		take(want[len(want)-1].at+1, 2)
		if l := openLog(s.state); l.size != 4 || l.length != 4 || l.first != first {
			t.Fatalf("%+v, want 4 of 4 that begin at %d", l, first)
		}
		for i := range int64(5) {
			take(want[len(want)-1].at+1, i+1)
		}
		if got, want := moments(s.state), want[first:]; !slices.Equal(got, want) {
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
		if out := g.Peek(s, now, 1); out.Remaining != 1 {
			t.Fatalf("after %d s: %+v, want 1 remaining", (now-epoch2026)/1e6, out)
		}
	}
}

// A request of any cost takes one moment, and a log never asks for more moments than its limit.
func TestSlidingLogMemory(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1, 2, 1000, 65536, 65537, 1_000_000, bounds.MaxN} {
		g := newMeter(t, SlidingLog(), Limit{N: n, Unit: time.Hour})
		s := &sequence{meter: g}
		s.room(n, 0)
		s.state.Head = g.Take(s.state, epoch2026, n)
		if got := len(s.state.Cells); got != cellsOf(1) {
			t.Errorf("N %d: %d cells for a request of that cost, want %d", n, got, cellsOf(1))
		}
	}
	for _, tc := range []struct{ n, moments int64 }{
		{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {1000, 1024}, {65536, 65536}, {65537, 65536}, {bounds.MaxN, 65536},
	} {
		g := newMeter(t, SlidingLog(), Limit{N: tc.n, Unit: bounds.MaxUnit})
		s := &sequence{meter: g}
		for i := range min(tc.n, 100_000) {
			if g.Peek(s.state, epoch2026+i, 1).Allowed {
				s.room(1, 0)
				s.state.Head = g.Take(s.state, epoch2026+i, 1)
			}
		}
		if got := len(s.state.Cells); got != cellsOf(tc.moments) {
			t.Errorf("N %d: %d cells after as many moments, want %d", tc.n, got, cellsOf(tc.moments))
		}
	}
}

// A log that cannot grow merges its moments two by two, each pair into its later one.
func TestSlidingLogMerge(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		most int64
		want []moment
	}{
		{5, []moment{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}}},
		{4, []moment{{2, 3}, {4, 7}, {5, 5}}},
		{3, []moment{{3, 6}, {4, 4}, {5, 5}}},
		{2, []moment{{4, 10}, {5, 5}}},
		{1, []moment{{5, 15}}},
	} {
		g := &slidingLog{n: 100, unit: 1000, most: tc.most}
		s := State{Cells: make([]uint64, cellsOf(8))}
		for i := range int64(5) {
			s.Head = g.Take(s, i+1, i+1)
		}
		if got := moments(s); !slices.Equal(got, tc.want) {
			t.Errorf("at most %d moments: %v, want %v", tc.most, got, tc.want)
		}
	}
}

// A charge whose moment has left the log, or was merged, is not confused with the charge of
// another request.
func TestSlidingLogRefund(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		at, n int64
		want  []moment
	}{
		{5, 1, []moment{{10, 3}, {20, 2}, {30, 4}}},
		{10, 1, []moment{{10, 2}, {20, 2}, {30, 4}}},
		{10, 3, []moment{{20, 2}, {30, 4}}},
		{20, 1, []moment{{10, 3}, {20, 1}, {30, 4}}},
		{20, 2, []moment{{10, 3}, {30, 4}}},
		{20, 9, []moment{{10, 3}, {30, 4}}},
		{15, 1, []moment{{10, 3}, {20, 2}, {30, 4}}},
		{30, 4, []moment{{10, 3}, {20, 2}}},
		{31, 1, []moment{{10, 3}, {20, 2}, {30, 4}}},
	} {
		g := &slidingLog{n: 100, unit: 1000, most: 4}
		s := State{Cells: make([]uint64, cellsOf(4))}
		for _, m := range []moment{{10, 3}, {20, 2}, {30, 4}} {
			s.Head = g.Take(s, m.at, m.n)
		}
		s.Head = g.Refund(s, tc.at, tc.n)
		if got := moments(s); !slices.Equal(got, tc.want) {
			t.Errorf("refund %d at %d: %v, want %v", tc.n, tc.at, got, tc.want)
		}
	}
}

// A copy holds what still counts, and in fewer cells never allows more.
func TestSlidingLogCopy(t *testing.T) {
	t.Parallel()
	g := &slidingLog{n: 100, unit: 1000, most: 100}
	s := State{Cells: make([]uint64, cellsOf(8))}
	for i := range int64(7) {
		s.Head = g.Take(s, 300*i, i+1)
	}
	before := slices.Clone(s.Cells)
	now := int64(1900) // 900 has just left
	if got, want := g.CellsAt(s, now, 1), cellsOf(4); got != want {
		t.Errorf("%d cells, want %d", got, want)
	}
	for _, tc := range []struct {
		size int64
		want []moment
	}{
		{8, []moment{{1200, 5}, {1500, 6}, {1800, 7}}},
		{4, []moment{{1200, 5}, {1500, 6}, {1800, 7}}},
		{2, []moment{{1500, 11}, {1800, 7}}},
		{1, []moment{{1800, 18}}},
	} {
		c := State{Cells: make([]uint64, cellsOf(tc.size))}
		c.Head = g.Copy(s, now, c.Cells)
		got := moments(c)
		if !slices.Equal(got, tc.want) {
			t.Errorf("size %d: %v, want %v", tc.size, got, tc.want)
		}
		if used := g.n - g.Peek(c, now, 1).Remaining; used != 18 {
			t.Errorf("size %d: %d are used, want 18", tc.size, used)
		}
		c.Head = g.Take(c, now, 3)
		if left := g.Peek(c, now, 1).Remaining; left != 79 {
			t.Errorf("size %d: %d are left after one more, want 79", tc.size, left)
		}
	}
	if !slices.Equal(s.Cells, before) {
		t.Error("copying has changed the original")
	}
}
