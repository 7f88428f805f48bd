// SPDX-License-Identifier: MIT

package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Decide of a limit.Word is Peek, followed by Take if that allows the request.
func decidesInOneStep(s *subject) {
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, seed))
	for _, a := range s.algorithms {
		for _, l := range []limit.Limit{
			{N: 0, Unit: time.Second}, {N: 1, Unit: time.Second}, {N: 3, Unit: time.Second}, {N: 7, Unit: time.Minute},
			{N: 60, Unit: time.Minute}, {N: 1000, Unit: day},
		} {
			if w, ok := s.meter(a, l).(limit.Word); ok && w.Cells(limit.State{}, 1) == 0 {
				s.decides(rnd, w, a.Name(), l)
			}
		}
	}
}

// decides compares the two in a random sequence, under a clock that is also set back.
func (s *subject) decides(rnd *rand.Rand, w limit.Word, name string, l limit.Limit) {
	s.Helper()
	var state limit.State
	now, step := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), l.Unit.Microseconds()/max(l.N, 1)
	for range 2000 {
		now += rnd.Int64N(3*step) - step/2
		n := 1 + rnd.Int64N(2)*rnd.Int64N(l.N+2)
		out, head := w.Peek(state, now, n), state.Head
		if out.Allowed {
			out.Remaining = max(out.Remaining-n, 0)
			head = w.Take(state, now, n)
		}
		if next, got := w.Decide(state.Head, now, n); next != head || got != out {
			s.Fatalf("%s, %d per %v: Decide(%#x, %d, %d) returns %#x and %+v, want %#x and %+v",
				name, l.N, l.Unit, state.Head, now, n, next, got, head, out)
		}
		if state.Head = head; rnd.IntN(10) == 0 {
			state.Head = w.Refund(state, now, n)
		}
	}
}
