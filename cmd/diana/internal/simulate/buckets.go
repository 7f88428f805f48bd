// SPDX-License-Identifier: MIT

package simulate

import (
	"math"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// scheduled follows a leaky bucket, whose state is the next scheduled time. Each outcome says that time. It differs
// from what the entries alone would make of it, because timers are late, clients disconnect while they wait,
// and earlier requests wait too.
type scheduled struct{ next int64 }

func (s *scheduled) meet(m *meeting) correction {
	expected := max(s.next, m.at)
	s.next = m.at + m.Wait
	if !m.Allowed {
		s.next += longestWait(m.of, m.at)
	}
	return correction{entry: m.entry, at: m.at, n: s.next - expected, moves: true}
}

func (s *scheduled) add(at int64, of *plan.Rule, n int64) {
	s.next = max(s.next, at) + n*of.Meter.Peek(limit.State{}, at, 1).Reset
}

func (s *scheduled) finish() correction { return correction{} }

// longestWait returns how long a request waits at most for a leaky bucket. The Wait of a refusal is until the
// scheduled time is that near.
func longestWait(of *plan.Rule, at int64) int64 {
	unused := of.Meter.Peek(limit.State{}, at, 1)
	return (unused.Remaining - 1) * unused.Reset
}

// dripping follows a token bucket, whose state is the moment when the bucket is full. An outcome says how many whole
// tokens there were, so that the moment is known up to the step in which a token drips in. Each further outcome
// narrows that down, because requests come at different parts of a step. A refusal says the moment itself:
//
//	                 |<-- step -->|
//	3 tokens         (------------]                  the bucket is full after low, and at high at the latest
//	2 tokens later        (------------]
//	both                  (-------]
//	refused, wait             (]
//
// An outcome that contradicts the others shows that the response to an earlier request has changed its charge.
//
// Moments are in microseconds since first, and without what the entries have used. So all of them are about one
// moment: when the bucket would be full if the entries had not come.
type dripping struct {
	seen  bool
	ended bool // the bucket was full again, so start does not change any more
	entry int
	first int64
	start span // when the bucket was full, at the first entry
	now   span // and at the latest entry
	used  float64
}

// span is from after low to high.
type span struct{ low, high float64 }

// rounding is how far apart moments are that are the same, because a Wait is in whole microseconds.
const rounding = 2

func (d *dripping) meet(m *meeting) (c correction) {
	if !d.seen {
		d.seen, d.entry, d.first = true, m.entry, m.at
		d.now = span{math.Inf(-1), math.Inf(1)}
		d.start = d.now
	}
	moment := float64(m.at-d.first) - d.used
	if d.now.high < moment { // tokens that did not fit have dropped since
		d.ended, d.now = true, span{moment - 1, moment}
	}
	says := m.full().plus(moment)
	if step := stepOf(m.of); len(m.of.Charge) > 0 || m.of.Cost.Answer != "" {
		if k := d.now.steps(says, step); k != 0 {
			c = correction{entry: m.entry, at: m.at, n: k}
			d.used += float64(k) * step
			says = says.plus(-float64(k) * step)
			// The outcomes that have narrowed now may be from before the response and after it.
			if exact := d.now.high-d.now.low <= rounding; !exact && !math.IsInf(says.high-says.low, 0) {
				d.now = says
			}
		}
	}
	d.now = d.now.and(says)
	if !d.ended {
		d.start = d.now
	}
	if math.IsInf(says.low, -1) { // here too, so that the next entry finds it full at this moment at the earliest
		d.ended, d.now = true, span{says.high - 1, says.high}
	}
	return c
}

// full returns in how long an outcome says that the bucket is full.
func (m *meeting) full() span {
	capacity, remaining, step := m.of.Limit.Burst, m.Remaining, stepOf(m.of)
	if capacity == 0 {
		capacity = m.of.Limit.N
	}
	if m.charged {
		remaining += m.cost
	}
	switch wait, least, lack := float64(m.Wait), float64(capacity-m.cost)*step, float64(capacity-remaining)*step; {
	case !m.Allowed && m.of.Wait > 0: // the Wait may be that of others which wait already
		return span{least, math.Inf(1)}
	case !m.Allowed && m.Wait > 0: // the Wait for a cost over the capacity is until the bucket is full
		return span{wait - 1, wait}.plus(max(least, 0))
	case remaining >= capacity:
		return span{math.Inf(-1), 0}
	default:
		return span{lack - step, lack}
	}
}

func (s span) plus(d float64) span { return span{s.low + d, s.high + d} }

// steps returns by how many steps a span must move to touch another one.
func (s span) steps(to span, step float64) int64 {
	switch {
	case to.low-s.high > rounding:
		return int64((to.low-s.high)/step) + 1
	case s.low-to.high > rounding:
		return -int64((s.low-to.high)/step) - 1
	}
	return 0
}

// and returns what two spans have in common; s if that is nothing.
func (s span) and(t span) span {
	if both := (span{max(s.low, t.low), min(s.high, t.high)}); both.low < both.high {
		return both
	}
	return s
}

func (d *dripping) add(_ int64, of *plan.Rule, n int64) { d.used += float64(n) * stepOf(of) }

func (d *dripping) finish() correction {
	full := d.start.high
	if math.IsInf(full, 1) { // refusals under wait say only after which moment
		full = d.start.low + 1
	}
	if full <= 0 || math.IsInf(full, 0) {
		return correction{}
	}
	return correction{entry: d.entry, at: d.first, n: int64(math.Ceil(full)), moves: true}
}

// stepOf returns how long a token takes to drip in, in microseconds.
func stepOf(of *plan.Rule) float64 {
	return float64(of.Limit.Unit.Microseconds()) / float64(of.Limit.N)
}
