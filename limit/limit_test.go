// SPDX-License-Identifier: MIT

package limit

import (
	"strings"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// changed is a request to a limit that has been changed to n.
type changed struct {
	n, cost   int64
	allowed   bool
	remaining int64 // before it is charged
}

// testChanged makes requests at one moment. Each has a meter of its own, and all have one
// state.
func testChanged(t *testing.T, a Algorithm, l Limit, rows []changed) {
	t.Helper()
	s := &sequence{}
	layout := ""
	for i, row := range rows {
		l.N = row.n
		s.meter = newMeter(t, a, l)
		if i > 0 && s.meter.StateVersion() != layout {
			t.Fatalf("row %d: layout %q, was %q", i, s.meter.StateVersion(), layout)
		}
		layout = s.meter.StateVersion()
		out := s.meter.Peek(s.state, epoch2026, row.cost)
		if out.Allowed != row.allowed || out.Remaining != row.remaining {
			t.Errorf("%+v, row %d: %+v, want %v, %d remaining", l, i, out, row.allowed, row.remaining)
		}
		if out.Allowed {
			s.room(row.cost, 0)
			s.state.Head = s.meter.Take(s.state, epoch2026, row.cost)
		}
	}
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	all := "TB W SW SL LB C"
	for _, tc := range []struct {
		algorithms string // that return the error
		l          Limit
		want       string // in the error
	}{
		{all, Limit{N: -1, Unit: time.Second}, "N is -1, expected 0 to "},
		{"TB SW SL LB C", Limit{N: bounds.MaxN + 1, Unit: time.Second}, "N is 1000000001"},
		{"W", Limit{N: 1e15, Unit: time.Second}, "N is 1000000000000000, expected 0 to 999999999999999"},
		{all, Limit{N: 1, Unit: time.Second, Burst: -1}, "burst is -1"},
		{all, Limit{N: 1, Unit: time.Second, Queue: bounds.MaxN + 1}, "queue is 1000000001"},
		{"TB SW SL LB", Limit{N: 1}, "unit is 0s, expected whole microseconds, 1ms to 744h0m0s"},
		{"W", Limit{N: 1}, "unit is 0s, expected whole microseconds, 1ms to 8784h0m0s"},
		{"TB W SW SL LB", Limit{N: 1, Unit: bounds.MinUnit - time.Microsecond}, "unit is 999µs"},
		{"TB SW SL LB", Limit{N: 1, Unit: bounds.MaxUnit + time.Microsecond}, "unit is 744h"},
		{"W", Limit{N: 1, Unit: bounds.MaxWindowUnit + time.Microsecond}, "unit is 8784h"},
		{"TB W SW SL LB", Limit{N: 1, Unit: time.Second + time.Nanosecond}, "unit is 1.000000001s"},
		{"SW", Limit{N: 1, Unit: time.Second, Slices: 1}, "slices is 1, expected 2 to 100"},
		{"SW", Limit{N: 0, Unit: time.Second, Slices: 101}, "slices is 101"},
		{all, Limit{N: 1, Unit: time.Second, Warmup: -1}, "warmup is -1ns, expected whole microseconds, 0s to 10m0s"},
		{all, Limit{N: 1, Unit: time.Second, Warmup: bounds.MaxWarmup + 1000}, "warmup is 10m0.000001s"},
		{all, Limit{N: 1, Unit: time.Second, Warmup: 1001}, "warmup is 1.001µs"},
		{"TB", Limit{N: 1, Unit: bounds.MaxUnit, Burst: 2000}, "a burst of 2000 at 1 per 744h0m0s: it takes over a hundred years to fill"},
	} {
		for name := range strings.FieldsSeq(tc.algorithms) {
			m, err := named(t, name).New(tc.l)
			if m != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s %+v: error %v, want one with %q", name, tc.l, err, tc.want)
			}
		}
	}
}

// named returns the algorithm of that name.
func named(t *testing.T, name string) Algorithm {
	t.Helper()
	for _, a := range Algorithms() {
		if a.Called(name) {
			return a
		}
	}
	t.Fatalf("no algorithm is called %q", name)
	return Algorithm{}
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		names string
		uses  string
	}{
		{"TB, token bucket, tb, Token Bucket", "unit burst warmup"},
		{"W, window, WINDOW", "unit align"},
		{"SW, sliding window", "unit slices"},
		{"SL, sliding log", "unit"},
		{"LB, leaky bucket", "unit queue"},
		{"C, concurrency", ""},
	} {
		names := strings.Split(tc.names, ", ")
		for _, name := range names {
			a := named(t, name)
			if a.Name() != names[0] {
				t.Errorf("%s: name %s, want %s", name, a.Name(), names[0])
			}
			for _, key := range []string{"unit", "burst", "queue", "slices", "align", "warmup"} {
				if want := strings.Contains(tc.uses, key); a.Uses(key) != want {
					t.Errorf("%s: uses %s: %v, want %v", name, key, !want, want)
				}
			}
			if want := names[0] == "C"; a.Held != want {
				t.Errorf("%s: held %v, want %v", name, a.Held, want)
			}
		}
	}
	if name := Algorithms()[0].Name(); name != "TB" {
		t.Errorf("the default is %s, want TB", name)
	}
}

// A limit of 0 refuses all requests at all times.
func TestClosed(t *testing.T) {
	t.Parallel()
	for _, a := range Algorithms() {
		m := newMeter(t, a, Limit{N: 0, Unit: time.Second})
		if m.Cells(State{}, 1) != 0 {
			t.Errorf("%s: a limit of nothing needs cells", a.Name())
		}
		for _, now := range []int64{0, epoch2026, epoch2026 - 1} {
			want := Outcome{Wait: 1e6, Reset: 1e6}
			if out := m.Peek(State{}, now, 1); out != want {
				t.Errorf("%s: %+v, want %+v", a.Name(), out, want)
			}
		}
		if m.Refund(State{}, epoch2026, 1) != 0 || m.Expiry(State{}) != 0 {
			t.Errorf("%s: something is left of a limit of nothing", a.Name())
		}
	}
}

// Peek, Take and Refund do not allocate.
func TestAllocs(t *testing.T) {
	for _, tc := range []struct {
		algorithm string
		l         Limit
	}{
		{"TB", Limit{N: 10}},
		{"TB", Limit{N: 999_999_937}}, // with a cell
		{"TB", Limit{N: 10, Warmup: time.Second}},
		{"W", Limit{N: 10}},
		{"W", Limit{N: 10, AlignFirst: true}},
		{"SW", Limit{N: 10}},
		{"SL", Limit{N: 10}},
		{"SL", Limit{N: 1_000_000}},
		{"LB", Limit{N: 10}},
		{"C", Limit{N: 10}},
	} {
		tc.l.Unit = time.Second
		m := newMeter(t, named(t, tc.algorithm), tc.l)
		s := State{Cells: make([]uint64, m.Cells(State{}, 1)+4)} // with room for a log of two moments
		now := epoch2026
		allocs := testing.AllocsPerRun(100, func() {
			for range 12 { // two are refused
				if need := m.Cells(s, 1); need > len(s.Cells) {
					t.Fatal("the requests of one moment need more cells")
				}
				if m.Peek(s, now, 1).Allowed {
					s.Head = m.Take(s, now, 1)
				}
			}
			s.Head = m.Refund(s, now, 1)
			now = max(m.Expiry(s), now) + 1
			if now == Never {
				now = epoch2026
			}
		})
		if allocs != 0 {
			t.Errorf("%s %+v: %v allocations", tc.algorithm, tc.l, allocs)
		}
	}
}

// A charge that was made when the clock had gone back can be refunded, at its Moment.
func TestMoment(t *testing.T) {
	t.Parallel()
	for _, a := range []Algorithm{FixedWindow(), SlidingWindow(), SlidingLog()} {
		for _, l := range []Limit{
			{N: 9, Unit: time.Minute},
			{N: 9, Unit: time.Minute, AlignFirst: true},
			{N: 9, Unit: 7 * time.Millisecond},
			{N: 65_536, Unit: time.Minute},
		} {
			m := newMeter(t, a, l).(Clamped)
			s := State{Cells: make([]uint64, 16)}
			later := epoch2026 + 3*l.Unit.Microseconds()
			s.Head = m.Take(s, later, 1)
			at := m.Moment(s, epoch2026)
			s.Head = m.Take(s, epoch2026, 2)
			if left := m.Peek(s, later, 1).Remaining; left != l.N-3 {
				t.Errorf("%s %+v: %d are left, want all but 3", a.Name(), l, left)
			}
			s.Head = m.Refund(s, at, 2)
			if left := m.Peek(s, later, 1).Remaining; left != l.N-1 {
				t.Errorf("%s %+v: %d are left when 2 are refunded, want all but 1", a.Name(), l, left)
			}
		}
	}
}
