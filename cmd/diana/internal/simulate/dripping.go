// SPDX-License-Identifier: MIT

package simulate

import (
	"math"

	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/plan"
)

// dripping follows a token bucket, whose state is the moment when the bucket is full. An outcome says how many whole
// tokens there were, so that the moment is known up to a step. Each further outcome narrows that down. A refusal says
// the moment itself. An outcome that contradicts the others shows that the response to an earlier request has
// changed its charge.
//
// Moments are in microseconds since first, and without what the entries have used.
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

func (d *dripping) meets(n int, at int64, r *plan.Rule, cost int64, charged bool, met weblog.Met) (found []correction, more bool) {
	if !d.seen {
		d.seen, d.entry, d.first = true, n, at
		d.now = span{math.Inf(-1), math.Inf(1)}
		d.start = d.now
	}
	moment := float64(at-d.first) - d.used
	if d.ended && d.now.high < moment {
		d.now = span{moment - 1, moment}
	}
	says, exact := outcome(r, cost, charged, met)
	says = span{says.low + moment, says.high + moment}
	step, changes := stepOf(r), len(r.Charge) > 0 || r.Cost.Answer != ""
	if k := d.now.steps(says, step); k != 0 && changes {
		found = append(found, correction{entry: n, kind: charge, at: at, n: k})
		d.used += float64(k) * step
		says = span{says.low - float64(k)*step, says.high - float64(k)*step}
	}
	d.now = d.now.and(says)
	if !d.ended {
		d.start = d.now
	}
	full := math.IsInf(says.low, -1)
	d.ended = d.ended || full
	return found, changes || !full && !exact
}

// outcome returns when an outcome says that the bucket is full, since the request, and whether it says so exactly.
func outcome(r *plan.Rule, cost int64, charged bool, met weblog.Met) (says span, exact bool) {
	capacity, remaining, step := r.Limit.Burst, met.Remaining, stepOf(r)
	if capacity == 0 {
		capacity = r.Limit.N
	}
	if charged {
		remaining += cost
	}
	wait, least := float64(met.Wait), float64(capacity-cost)*step
	switch lack := float64(capacity-remaining) * step; {
	case !met.Allowed && r.Wait > 0: // the Wait may be that of others which wait already
		return span{least, math.Inf(1)}, false
	case !met.Allowed && cost > capacity:
		return span{wait - 1, wait}, true
	case !met.Allowed:
		return span{wait + least - 1, wait + least}, true
	case remaining >= capacity:
		return span{math.Inf(-1), 0}, false
	default:
		return span{lack - step, lack}, false
	}
}

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

func (d *dripping) add(_ int64, r *plan.Rule, cost int64) { d.used += float64(cost) * stepOf(r) }

func (d *dripping) finish() []correction {
	full := d.start.high
	if math.IsInf(full, 1) {
		full = d.start.low + 1
	}
	if full <= 0 || math.IsInf(full, 0) {
		return nil
	}
	return []correction{{entry: d.entry, kind: fill, at: d.first + int64(math.Ceil(full))}}
}

// stepOf returns how long a token takes to drip in, in microseconds.
func stepOf(r *plan.Rule) float64 {
	return float64(r.Limit.Unit.Microseconds()) / float64(r.Limit.N)
}
