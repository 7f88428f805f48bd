// SPDX-License-Identifier: MIT

package plan

import (
	"math/bits"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/rule"
)

// weights are what tokens cost, in millionths, so that a sum is exact.
type weights struct{ input, output, cached uint64 }

const millionths = 1_000_000

func weightsOf(c rule.Cost) weights {
	if c.Input == 0 && c.Output == 0 && c.Cached == 0 {
		return weights{millionths, millionths, millionths}
	}
	exact := func(w float64) uint64 { return uint64(w*millionths + 0.5) }
	return weights{exact(c.Input), exact(c.Output), exact(c.Cached)}
}

// CostOfUsage returns the cost of a response under the rule, rounded up, and at most bounds.MaxSettled.
func (r *Rule) CostOfUsage(u answer.Usage) int64 {
	w := r.weights
	if !r.Source.HasParts() {
		w = weights{output: millionths}
	}
	var high, low, carry uint64
	for _, p := range [3][2]uint64{{uint64(u.Input), w.input}, {uint64(u.Output), w.output}, {uint64(u.Cached), w.cached}} {
		h, l := bits.Mul64(p[0], p[1])
		low, carry = bits.Add64(low, l, 0)
		high += h + carry
	}
	low, carry = bits.Add64(low, millionths-1, 0)
	high += carry
	if high >= millionths {
		return bounds.MaxSettled
	}
	n, _ := bits.Div64(high, low, millionths)
	return int64(min(n, bounds.MaxSettled))
}
