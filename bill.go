// SPDX-License-Identifier: MIT

package diana

import (
	"slices"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/respond"
)

// bill returns the bill of the response to an allowed request, by which its rules settle their costs.
func (l *Limiter) bill(h decide.Handle) *respond.Bill {
	var rules []*plan.Rule
	var sources []answer.Source
	e := h.Evaluation()
	for i := range e.Verdicts {
		if r := e.Rule(i); r.Cost.Answer != "" {
			rules, sources = append(rules, r), append(sources, r.Source)
		}
	}
	began := l.local.Now()
	return &respond.Bill{
		Sources:  sources,
		Decoders: l.options.Decoders,
		Settle: func(read *answer.Reader, complete, last bool) bool {
			return h.Settle(func(r *plan.Rule) (n int64, known, concerned bool) {
				switch {
				case r.Source == answer.Duration:
					return (l.local.Now() - began + 999) / 1000, true, true
				case read == nil:
					return 0, false, true
				}
				i := slices.Index(rules, r)
				u, ok := read.Usage(i)
				cost := r.CostOfUsage(u)
				if !ok {
					cost = max(cost, read.Unread())
				}
				return cost, ok && (complete || read.Over(i)), true
			}, last)
		},
	}
}
