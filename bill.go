// SPDX-License-Identifier: MIT

package diana

import (
	"net/http"
	"slices"
	"time"

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
		Settle: func(read *answer.Reader, status int, complete, last bool) bool {
			return h.Settle(func(r *plan.Rule) (n int64, known, concerned bool) {
				if r.Source == answer.Duration {
					return (l.local.Now() - began + 999) / 1000, true, true
				}
				free := r.Free(status)
				if read == nil {
					return 0, free, true
				}
				u, ok := read.Usage(slices.Index(rules, r))
				n, known = r.CostOfUsage(e.Request(), u), ok && (complete || read.Over(slices.Index(rules, r)))
				switch {
				case known:
				case free && n == 0:
					known = true
				default:
					n = max(n, read.Unread(), r.CostOfUnknown(e.Request(), read.Content()))
				}
				return n, known, true
			}, last)
		},
	}
}

// leave returns how the response to a request is read on after its client has disconnected.
func (l *Limiter) leave(e *decide.Evaluation, r *http.Request, after time.Duration) *respond.Leave {
	account, _, ip := e.Limits().Set.Identify(e.Request())
	if account == "" {
		account = ip.String()
	}
	return &respond.Leave{
		After: after, Among: &l.left, Account: account, Until: l.closing,
		Gone: func() { l.bodies.Release(r.Body) },
	}
}
