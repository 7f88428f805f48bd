// SPDX-License-Identifier: MIT

package envoy

import (
	"context"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/diana-limiter/diana"
	algorithms "github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// taken is what the limiters have decided about the charges of a question.
type taken struct {
	diana.Decision
	parts []diana.Decision // of several limiters; then Decision has no end of its own
}

// Done ends the decisions.
func (t *taken) Done() {
	if t.parts == nil {
		t.Decision.Done()
	}
	for i := range t.parts {
		t.parts[i].Done()
	}
}

// take charges a question. If limits per second are counted apart, their limiter decides first: it refuses most often.
func (s *RateLimit) take(ctx context.Context, q *question, path string) (t taken, err error) {
	if s.seconds == nil {
		t.Decision, err = s.limiter.Take(ctx, diana.Request{Path: path, Charges: q.charges})
		return t, err
	}
	q.divide()
	t.Allowed, t.Verdicts = true, make([]diana.Verdict, len(q.charges))
	for i := range t.Verdicts { // of a charge that is not asked
		t.Verdicts[i].Allowed, t.Verdicts[i].Remaining = true, algorithms.Unknown
	}
	var first []rule.Charge // what the first limiter has charged
	for _, seconds := range []bool{true, false} {
		var charges []rule.Charge
		var indexes []int
		for i := range q.charges {
			if q.apart[i] == seconds {
				charges, indexes = append(charges, q.charges[i]), append(indexes, i)
			}
		}
		if len(charges) == 0 || !t.Allowed {
			continue
		}
		d, err := s.limiterOf(seconds).Take(ctx, diana.Request{Path: path, Charges: charges})
		if err != nil {
			s.refund(ctx, path, true, undo(first, true))
			t.Done()
			return t, err
		}
		t.parts = append(t.parts, d)
		for k, i := range indexes {
			t.Verdicts[i] = d.Verdicts[k]
		}
		if t.Allowed = d.Allowed; !t.Allowed {
			s.refund(ctx, path, true, undo(first, false))
		}
		first = charges
	}
	return t, nil
}

// divide notes which charges are under limits per second.
func (q *question) divide() {
	q.apart = append(q.apart[:0], make([]bool, len(q.charges))...)
	for i := range q.items {
		if it := &q.items[i]; it.charge >= 0 {
			q.apart[it.charge] = it.limit.current.GetUnit() == rls.RateLimitResponse_RateLimit_SECOND
		}
	}
}

func (s *RateLimit) limiterOf(seconds bool) *diana.Limiter {
	if seconds {
		return s.seconds
	}
	return s.limiter
}

// undo returns the refunds of charges: of all, or of those without Debit, which a refusal leaves.
func undo(charges []rule.Charge, all bool) (refunds []rule.Charge) {
	for _, c := range charges {
		if c.Cost > 0 && (all || !c.Debit) {
			refunds = append(refunds, rule.Charge{Rule: c.Rule, Key: c.Key, Cost: -c.Cost})
		}
	}
	return refunds
}

// refund undoes charges of one limiter. If the limits have just been replaced, the charges stay: that refuses too much
// rather than too little.
func (s *RateLimit) refund(ctx context.Context, path string, seconds bool, refunds []rule.Charge) {
	if len(refunds) == 0 {
		return
	}
	d, _ := s.limiterOf(seconds).Take(context.WithoutCancel(ctx), diana.Request{Path: path, Charges: refunds})
	d.Done()
}

// refundSpent undoes charges of a question at the limiters that have them.
func (s *RateLimit) refundSpent(ctx context.Context, q *question, path string, refunds []rule.Charge) {
	if s.seconds == nil {
		s.refund(ctx, path, false, refunds)
		return
	}
	var parts [2][]rule.Charge
	for _, c := range refunds {
		part := 0
		if i := q.charged(&c); i >= 0 && q.apart[i] {
			part = 1
		}
		parts[part] = append(parts[part], c)
	}
	s.refund(ctx, path, false, parts[0])
	s.refund(ctx, path, true, parts[1])
}
