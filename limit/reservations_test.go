// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"pgregory.net/rapid"
)

// newBursts is the model of Reservations without a Warmup, Guava's SmoothBursty: stored
// permits cost nothing.
func newBursts(l Limit) *permits {
	m := newPermits(Limit{N: l.N, Unit: l.Unit, Warmup: time.Second})
	m.slope, m.threshold = rat(0), rat(0)
	m.free = true
	m.most = rat(l.Burst)
	if l.Burst == 0 {
		m.most = new(big.Rat).Quo(rat(1e6), m.step)
		if m.most.Cmp(rat(bounds.MaxN)) > 0 {
			m.most = rat(bounds.MaxN)
		}
	}
	m.stored = m.most
	return m
}

func drawReservations(t *rapid.T) (Limit, *permits) {
	l := drawLimit(t)
	if rapid.Bool().Draw(t, "warm") {
		l.Warmup = drawWarmup(t)
		return l, newPermits(l)
	}
	l.Burst = rapid.OneOf(rapid.Just(int64(0)), rapid.SampledFrom([]int64{1, 2, l.N}), rapid.Int64Range(1, 100)).Draw(t, "Burst")
	return l, newBursts(l)
}

// For a caller that does not wait, a Reserver is a Meter like any other.
func TestReservationsRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { // a hundred: fractions are slow
		l, m := drawReservations(t)
		s := &sequence{meter: newMeter(t, Reservations(), l), model: m}
		s.mayRefund = func(int) bool { return false } // below
		s.play(t, l)
	})
}

// reserved is an allowed request.
type reserved struct {
	i            int
	scheduled, n int64
}

// A caller that waits gets the scheduled time that Guava would give. A refund before that time
// leaves no trace if nobody has reserved since. Otherwise it changes nothing.
func TestReservationsAhead(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	rapid.Check(t, func(t *rapid.T) { // a hundred: fractions are slow
		l, m := drawReservations(t)
		r := newMeter(t, Reservations(), l).(Reserver)
		now, unit := epoch2026, l.Unit.Microseconds()
		var s State
		var all []reserved // and not refunded
		span := rapid.OneOf(rapid.Int64Range(0, 2*(unit/l.N+1)), rapid.Int64Range(0, 3*unit), rapid.SampledFrom([]int64{0, 1, maxFill}))
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) { now = min(now+span.Draw(t, "span"), epoch2026+maxFill/2) },
			"reserve": func(t *rapid.T) {
				n := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 2*l.N)).Draw(t, "n")
				n = min(n, bounds.MaxN)
				longest := span.Draw(t, "longest")
				out := r.PeekWithin(s, now, n, longest)
				next, _ := m.resync(now)
				slack := int64(0)
				if l.Warmup > 0 {
					slack = 3 + 9*m.idle
				}
				wait := until(next, now)
				got := out.Wait
				if !out.Allowed {
					got += longest
				}
				if got < wait-slack || got > wait+slack || out.Allowed != (got <= longest) {
					t.Fatalf("at %d, %d of %+v within %d: %+v, want a wait of %d", now-epoch2026, n, l, longest, out, wait)
				}
				if !out.Allowed {
					return
				}
				if s.Cells == nil {
					s.Cells = make([]uint64, r.Cells(s, n))
				}
				all = append(all, reserved{m.count, now + out.Wait, n})
				s.Head = r.Take(s, now, n)
				m.take(now, n)
			},
			"refund": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				k := rapid.IntRange(max(len(all)-3, 0), len(all)-1).Draw(t, "which")
				if all[k].scheduled <= now || l.N > unit {
					return // it has passed, or another request can have the same microsecond
				}
				s.Head = r.Refund(s, all[k].scheduled, all[k].n)
				if m.mayRefund(all[k].i) {
					m.refund(0, 0, 0)
				}
				all = slices.Delete(all, k, k+1)
			},
			"": func(t *rapid.T) {
				if wrong := most(all, l, m.most); l.Warmup == 0 && wrong != "" {
					t.Fatal(wrong)
				}
			},
		})
	})
}

// most finds an interval in which more than Burst + N*t/Unit and one request proceed.
func most(all []reserved, l Limit, burst *big.Rat) string {
	slices.SortStableFunc(all, func(a, b reserved) int { return int(min(max(a.scheduled-b.scheduled, -1), 1)) })
	for i := range all {
		sum := int64(0) // of the requests before the last
		for j := i; j < len(all); j++ {
			in := new(big.Rat).Mul(rat(all[j].scheduled-all[i].scheduled+1), big.NewRat(l.N, l.Unit.Microseconds())) // scheduled times are rounded up
			if in.Add(in, burst).Cmp(rat(sum)) < 0 {
				return fmt.Sprintf("%d and one more were let in within %d µs", sum, all[j].scheduled-all[i].scheduled)
			}
			sum += all[j].n
		}
	}
	return ""
}

// When the limit changes, debt and stored time remain the same amount of time.
func TestReservationsChanged(t *testing.T) {
	t.Parallel()
	at := func(n int64, warmup time.Duration) Reserver {
		return newMeter(t, Reservations(), Limit{N: n, Unit: time.Second, Warmup: warmup}).(Reserver)
	}
	now := epoch2026
	for _, warmup := range []time.Duration{0, time.Second} {
		s := State{Cells: make([]uint64, 2)}
		s.Head = at(3, warmup).Take(s, now, 7) // of which 3 are stored
		owed := at(3, warmup).PeekWithin(s, now, 1, maxFill).Wait
		if got := at(7, warmup).PeekWithin(s, now, 1, maxFill).Wait; got != owed && got != owed+1 {
			t.Errorf("warm-up %v: %d are owed under another limit, were %d", warmup, got, owed)
		}
	}
	s := State{Cells: make([]uint64, 1)}
	s.Head = at(10, 0).Take(s, now, 5)
	if got := at(20, 0).Peek(s, now, 1).Remaining; got != 11 {
		t.Errorf("of 10 a second 5 are stored, and of 20 a second %d and one more, want 10", got-1)
	}
	// As cold, in proportion, as it was.
	s = State{Cells: make([]uint64, 2)}
	s.Head = at(5, time.Second).Take(s, now, 1) // of 5 stored there are 4
	if got := at(10, time.Second).PeekWithin(s, now, 1, maxFill).Wait; got != 520_000 {
		t.Errorf("the first of 5 a second is paid after %d", got)
	}
	s.Head = at(10, time.Second).Take(s, now, 2) // of 8 there are 6: 0.2 s, and 0.18 - 0.02 s
	if got := at(10, time.Second).PeekWithin(s, now, 1, maxFill).Wait; got != 880_000 {
		t.Errorf("two more of 10 a second are paid after %d", got)
	}
}

// A cost that takes over a hundred years to pay for is never allowed, and no wait is longer.
func TestReservationsTooMuch(t *testing.T) {
	t.Parallel()
	for _, warmup := range []time.Duration{0, time.Second} {
		r := newMeter(t, Reservations(), Limit{N: 1, Unit: bounds.MaxUnit, Warmup: warmup}).(Reserver)
		s := State{Cells: make([]uint64, 2)}
		if out := r.PeekWithin(s, epoch2026, 1178, maxFill); out.Allowed {
			t.Errorf("%+v", out)
		}
		s.Head = r.Take(s, epoch2026, 1177)
		if out := r.PeekWithin(s, epoch2026, 1, 1<<62); !out.Allowed {
			t.Errorf("%+v", out)
		}
		s.Head = r.Take(s, epoch2026, 1)
		if out := r.PeekWithin(s, epoch2026, 1, 1<<62); out.Allowed {
			t.Errorf("%+v", out)
		}
	}
}

// A fraction of a microsecond that another limit cannot express is rounded once and does not
// grow.
func TestReservationsFraction(t *testing.T) {
	t.Parallel()
	now := epoch2026
	for _, warmup := range []time.Duration{0, time.Second} {
		at := func(n int64) Reserver {
			return newMeter(t, Reservations(), Limit{N: n, Unit: time.Second, Warmup: warmup}).(Reserver)
		}
		s := State{Cells: make([]uint64, 2)}
		for range 4 {
			s.Head = at(999_999_937).Take(s, now, bounds.MaxN-1)
		}
		r := at(3)
		wait := func() int64 { return r.PeekWithin(s, now, 1, maxFill).Wait }
		owed := at(999_999_937).PeekWithin(s, now, 1, maxFill).Wait
		if got := wait(); got != owed && got != owed+1 {
			t.Errorf("warm-up %v: %d are owed under another limit, were %d", warmup, got, owed)
		}
		owed = wait()
		s.Head = r.Take(s, now, 2)
		if got := wait() - owed; got < 666_666 || got > 666_667 {
			t.Errorf("warm-up %v: two of three a second take %d", warmup, got)
		}
		s.Head = r.Refund(s, now+owed, 2)
		if got := wait(); got != owed {
			t.Errorf("warm-up %v: %d are owed after two were refunded, before it were %d", warmup, got, owed)
		}
		s.Head = r.Take(s, now, 2)
		if got := wait() - owed; got < 666_666 || got > 666_667 {
			t.Errorf("warm-up %v: after that two of three a second take %d", warmup, got)
		}
	}
}
