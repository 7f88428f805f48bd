// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// slicedLog is the model of SlidingWindow: all charges, with their slices and moments.
type slicedLog struct {
	n, unit, slices int64
	last            int64   // latest moment of a charge, which counts if the clock went back
	inSlices        history // by slice
	exact           history // by moment
	refunded        bool
}

func (m *slicedLog) slice(at int64) int64 {
	x := new(big.Int).Mul(big.NewInt(at), big.NewInt(m.slices))
	return x.Div(x, big.NewInt(m.unit)).Int64()
}

func (m *slicedLog) check(now, n int64, out Outcome) string {
	now = max(now, m.last)
	if wrong := compare(n, m.n-m.inSlices.since(m.slice(now)-m.slices-1), out); wrong != "" {
		return wrong
	}
	// The contract's promise, in both directions.
	if used := m.exact.since(now - m.unit); out.Allowed && used+n > m.n {
		return fmt.Sprintf("%d were taken within a unit", used)
	}
	if used := m.exact.since(now - m.unit - ceilDiv(m.unit, m.slices)); !out.Allowed && !m.refunded && used+n <= m.n {
		return fmt.Sprintf("only %d were taken within a unit and a slice", used)
	}
	return ""
}

func (m *slicedLog) take(now, n int64) {
	m.last = max(now, m.last)
	m.inSlices = append(m.inSlices, moment{m.slice(m.last), n})
	m.exact = append(m.exact, moment{m.last, n})
}

// refund refunds what counts in the slice of at. If the clock went back, that can be another
// request's charge.
func (m *slicedLog) refund(i int, at, n int64) {
	m.refunded = true
	m.exact[i].n = 0
	if slice := m.slice(at); slice >= m.slice(m.last)-m.slices {
		m.inSlices.remove(n, func(at int64) bool { return at == slice })
	}
}

func TestSlidingWindowRandom(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	check(t, func(t *rapid.T) {
		l := drawLimit(t)
		l.Slices = rapid.OneOf(rapid.SampledFrom([]int64{2, 3, 10, 100}), rapid.Int64Range(2, 100)).Draw(t, "Slices")
		m := &slicedLog{n: l.N, unit: l.Unit.Microseconds(), slices: l.Slices}
		s := &sequence{meter: newMeter(t, SlidingWindow(), l), model: m}
		s.play(t, l)
	})
}

// Used requests count against a lowered limit, and after it is raised again.
func TestSlidingWindowChanged(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{10, 100_010} { // narrow and wide counters
		base := n - 10
		testChanged(t, SlidingWindow(), Limit{Unit: time.Minute}, []changed{
			{n: n, cost: base + 6, allowed: true, remaining: n},
			{n: n - 5, cost: 1, remaining: 0},
			{n: n - 3, cost: 1, allowed: true, remaining: 1},
			{n: n, cost: 3, allowed: true, remaining: 3},
			{n: n, cost: 1, remaining: 0},
		})
	}
}
