// SPDX-License-Identifier: MIT

package simulate

import (
	"math"

	"github.com/diana-limiter/diana/cmd/diana/internal/accesslog"
	"github.com/diana-limiter/diana/internal/plan"
)

// dripping follows a token bucket, whose state is the moment when the bucket is full. An outcome says how many whole
// tokens there were, so that the moment is known up to a step. Each further outcome narrows that down. A refusal says
// the moment itself.
type dripping struct {
	seen        bool
	entry       int
	first       int64
	low, latest float64 // when the bucket would be full without the entries, in microseconds since first
	used        float64 // by the entries, in microseconds
}

func (d *dripping) meets(n int, at int64, r *plan.Rule, cost int64, charged bool, met accesslog.Met) ([]correction, bool) {
	if !d.seen {
		d.seen, d.entry, d.first, d.low, d.latest = true, n, at, math.Inf(-1), math.Inf(1)
	}
	capacity := r.Limit.Burst
	if capacity == 0 {
		capacity = r.Limit.N
	}
	remaining, step := met.Remaining, stepOf(r)
	if !met.Allowed && r.Wait > 0 { // the Wait may be that of others which wait already
		d.low = max(d.low, min(float64(at-d.first)+float64(capacity-cost)*step-d.used, d.latest))
		return nil, true
	}
	if charged {
		remaining += cost
	}
	lack, exactly := float64(capacity-remaining)*step, step
	switch {
	case !met.Allowed && cost > capacity:
		lack, exactly = float64(met.Wait), 1
	case !met.Allowed:
		lack, exactly = float64(met.Wait)+float64(capacity-cost)*step, 1
	case remaining >= capacity:
		lack, exactly = 0, math.Inf(1)
	}
	latest := float64(at-d.first) + lack - d.used
	if low := max(d.low, latest-exactly); low < min(d.latest, latest) {
		d.low, d.latest = low, min(d.latest, latest)
	}
	return nil, exactly == step
}

func (d *dripping) add(_ int64, r *plan.Rule, cost int64) { d.used += float64(cost) * stepOf(r) }

func (d *dripping) finish() []correction {
	full := d.latest
	if math.IsInf(full, 1) {
		full = d.low + 1
	}
	if !d.seen || full <= 0 || math.IsInf(full, 0) {
		return nil
	}
	return []correction{{entry: d.entry, kind: fill, at: d.first + int64(math.Ceil(full))}}
}

// stepOf returns how long a token takes to drip in, in microseconds.
func stepOf(r *plan.Rule) float64 {
	return float64(r.Limit.Unit.Microseconds()) / float64(r.Limit.N)
}
