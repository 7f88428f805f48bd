// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/race"
	"pgregory.net/rapid"
)

// oneGoroutine skips a long test of one goroutine under the race detector, which finds nothing there.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("it has one goroutine, and runs without the race detector")
	}
}

// model is what an algorithm promises, in slow and obvious code. It gets every change of a
// state.
type model interface {
	// check returns the error in the meter's outcome for a request, or "".
	check(now, n int64, out Outcome) string

	take(now, n int64)

	// refund refunds n of the i-th take, which was made at the moment at.
	refund(i int, at, n int64)
}

// sequence is a random sequence of takes and refunds, on a meter and on its model.
type sequence struct {
	meter Meter
	model model
	unit  int64 // microseconds
	n     int64

	timeless  bool             // time frees nothing
	mayRefund func(i int) bool // which take may be refunded now; nil: any

	start, now int64
	state      State
	wait       int64    // of the last refusal
	taken      []charge // and not refunded
	count      int      // of takes
}

type charge struct {
	i     int
	at, n int64
}

var epoch2026 = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// drawLimit draws N and Unit, preferring those at the edges.
func drawLimit(t *rapid.T) Limit {
	return Limit{
		N: rapid.OneOf(
			rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 60, 1000, 65535, 65536, 65537, 1_000_000, 999_999_937, bounds.MaxN}),
			rapid.Int64Range(1, 20),
			rapid.Int64Range(1, bounds.MaxN),
		).Draw(t, "N"),
		Unit: rapid.OneOf(
			rapid.SampledFrom([]time.Duration{bounds.MinUnit, time.Second, time.Minute, time.Hour, 24 * time.Hour, bounds.MaxUnit}),
			rapid.Map(rapid.Int64Range(1000, 1e7), func(us int64) time.Duration { return time.Duration(us) * time.Microsecond }),
		).Draw(t, "Unit"),
	}
}

// check plays random sequences.
func check(t *testing.T, sequence func(*rapid.T)) {
	t.Helper()
	for range 10 { // with the default of rapid, 1,000 sequences
		rapid.Check(t, sequence)
		if testing.Short() {
			return
		}
	}
}

// newMeter returns the meter of l.
func newMeter(t interface {
	Helper()
	Fatal(...any)
}, a Algorithm, l Limit) Meter {
	t.Helper()
	m, err := a.New(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// play draws a sequence and plays it.
func (s *sequence) play(t *rapid.T, l Limit) {
	s.n, s.unit = l.N, l.Unit.Microseconds()
	s.start = epoch2026 + rapid.Int64Range(0, 2*s.unit).Draw(t, "start")
	s.now = s.start
	t.Repeat(map[string]func(*rapid.T){
		"take":   s.take,
		"take 1": func(t *rapid.T) { s.charge(t, 1) },
		"pass":   s.pass,
		"back":   s.back,
		"refund": s.refund,
		"":       s.invariants,
	})
}

// pass lets time pass.
func (s *sequence) pass(t *rapid.T) {
	d := rapid.OneOf(
		rapid.SampledFrom([]int64{1, s.wait, max(s.wait-1, 0), s.unit - 1, s.unit, s.unit + 1}),
		rapid.Int64Range(0, 2*(s.unit/s.n+1)),
		rapid.Int64Range(0, 3*s.unit),
	).Draw(t, "span")
	if now := s.now + d; now < s.start+50*365*24*time.Hour.Microseconds() {
		s.now = now
	}
}

// back sets the clock back, once in a while.
func (s *sequence) back(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
		s.now = max(s.now-rapid.Int64Range(0, 2*s.unit).Draw(t, "span"), s.start)
	}
}

func (s *sequence) take(t *rapid.T) {
	left := s.meter.Peek(s.state, s.now, 1).Remaining
	s.charge(t, rapid.OneOf(
		rapid.SampledFrom([]int64{1, 2, max(left, 1), min(left+1, bounds.MaxN), s.n, min(s.n+1, bounds.MaxN), bounds.MaxN}),
		rapid.Int64Range(1, min(s.n+s.n/2+1, bounds.MaxN)),
	).Draw(t, "cost"))
}

// charge makes a request, and compares the outcomes of the meter and the model.
func (s *sequence) charge(t *rapid.T, n int64) {
	out := s.meter.Peek(s.state, s.now, n)
	if wrong := s.model.check(s.now, n, out); wrong != "" {
		t.Fatalf("at %d, cost %d: %+v, but %s", s.now-s.start, n, out, wrong)
	}
	s.checkReset(t, n, out)
	checkDecide(t, s.meter, s.state, s.now, n)
	if !out.Allowed {
		s.checkWait(t, n, out)
		s.wait = min(out.Wait, 3*s.unit)
		return
	}
	if s.meter.Cells(s.state, n) > 0 {
		// As long as necessary, and sometimes longer.
		s.room(n, rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "more"))
	}
	at := s.now
	if c, ok := s.meter.(Clamped); ok {
		at = c.Moment(s.state, s.now)
	}
	s.state.Head = s.meter.Take(s.state, s.now, n)
	s.taken = append(s.taken, charge{s.count, at, n})
	s.count++
	s.model.take(s.now, n)
}

// room gives the state at least the cells that it needs for n more.
func (s *sequence) room(n int64, more int) {
	s.state = withRoom(s.meter, s.state, n, more)
}

// withRoom returns a state with the cells that it needs for n more. If it must grow, it gets more beside them.
func withRoom(m Meter, s State, n int64, more int) State {
	if need := m.Cells(s, n); need > len(s.Cells) {
		s.Cells = slices.Clip(append(s.Cells, make([]uint64, need+more-len(s.Cells))...))
	}
	return s
}

// checkWait checks the wait of a refusal.
func (s *sequence) checkWait(t *rapid.T, n int64, out Outcome) {
	if s.timeless {
		return
	}
	then := s.meter.Peek(s.state, s.now+out.Wait, n)
	if fresh := s.meter.Peek(State{}, s.now, n); !fresh.Allowed {
		if then.Allowed || then.Remaining != fresh.Remaining {
			t.Fatalf("at %d, cost %d is never allowed: %+v, then %+v", s.now-s.start, n, out, then)
		}
		return
	}
	if !then.Allowed {
		t.Fatalf("at %d, cost %d: %+v, then still %+v", s.now-s.start, n, out, then)
	}
	if out.Wait < 1 || s.meter.Peek(s.state, s.now+out.Wait-1, n).Allowed {
		t.Fatalf("at %d, cost %d: %+v, which is too long", s.now-s.start, n, out)
	}
}

// checkReset checks that within the Reset no more become available than remain, or one if
// none remain.
func (s *sequence) checkReset(t *rapid.T, n int64, out Outcome) {
	if out.Reset <= 0 {
		return
	}
	then := s.meter.Peek(s.state, s.now+out.Reset-1, 1)
	if then.Remaining > out.Remaining+max(out.Remaining, 1) {
		t.Fatalf("at %d, cost %d: %+v, and within the Reset %+v", s.now-s.start, n, out, then)
	}
}

// refund refunds one of the charges.
func (s *sequence) refund(t *rapid.T) {
	if len(s.taken) == 0 || rapid.IntRange(0, 2).Draw(t, "refund") > 0 {
		return
	}
	k := rapid.IntRange(0, len(s.taken)-1).Draw(t, "which")
	c := s.taken[k]
	if s.mayRefund != nil && !s.mayRefund(c.i) {
		return
	}
	s.taken = slices.Delete(s.taken, k, k+1)
	s.state.Head = s.meter.Refund(s.state, c.at, c.n)
	s.model.refund(c.i, c.at, c.n)
}

// invariants checks what is true at all times.
func (s *sequence) invariants(t *rapid.T) {
	if s.state.Head>>63 != 0 {
		t.Fatalf("head %#x uses the store's bit", s.state.Head)
	}
	s.checkExpiry(t)
	out := s.meter.Peek(s.state, s.now, 1)
	if wrong := s.model.check(s.now, 1, out); wrong != "" {
		t.Fatalf("at %d: %+v, but %s", s.now-s.start, out, wrong)
	}
	if out.Remaining > 5 {
		return
	}
	// That many more are allowed, and not one more.
	rest := *s
	rest.state.Cells = slices.Clone(s.state.Cells)
	for range out.Remaining {
		if out := rest.meter.Peek(rest.state, s.now, 1); !out.Allowed {
			t.Fatalf("at %d: not all that remain are allowed", s.now-s.start)
		}
		rest.room(1, 0)
		rest.state.Head = rest.meter.Take(rest.state, s.now, 1)
	}
	if rest.meter.Peek(rest.state, s.now, 1).Allowed {
		t.Fatalf("at %d: more than the remaining %d are allowed", s.now-s.start, out.Remaining)
	}
}

// checkExpiry checks that an expired state is as good as new.
func (s *sequence) checkExpiry(t *rapid.T) {
	e := s.meter.Expiry(s.state)
	if e == Never {
		return
	}
	e = max(e, s.now)
	for _, at := range []int64{e, e + 1, e + s.unit/2, e + 2*s.unit} {
		for _, n := range []int64{1, s.n, min(s.n+1, bounds.MaxN)} {
			if got, want := s.meter.Peek(s.state, at, n), s.meter.Peek(State{}, at, n); got != want {
				t.Fatalf("at %d: expired, at %d cost %d is %+v, want %+v", s.now-s.start, at-s.start, n, got, want)
			}
		}
	}
}

// history is a list of what was taken and not refunded.
type history []moment

type moment struct{ at, n int64 }

// since returns how many were taken after the moment at.
func (h history) since(at int64) (n int64) {
	for _, m := range h {
		if m.at > at {
			n += m.n
		}
	}
	return n
}

// remove removes up to n of those whose moments are chosen.
func (h history) remove(n int64, chosen func(at int64) bool) {
	for i := range h {
		if m := &h[i]; chosen(m.at) {
			k := min(n, m.n)
			m.n -= k
			n -= k
		}
	}
}

// compare returns the error in an outcome, if that many remain and the largest allowed cost
// is given.
func compare(n, left int64, out Outcome) string {
	if out.Allowed != (n <= left) || out.Remaining != left {
		return fmt.Sprintf("%d are left", left)
	}
	return ""
}
