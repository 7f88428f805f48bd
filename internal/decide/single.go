// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// single evaluates a request that one plain rule covers, as most requests are. It does what fill, take
// and report of an Evaluation do, without lists of charges. It saves a seventh of a decision.
type single struct{ charge [1]limit.Charge }

// plain reports whether a single can evaluate a rule: the local store alone counts it, no request
// waits for it, and its charges stay.
func (b *bound) plain(r *plan.Rule) bool {
	return !b.elsewhere && b.local != nil && b.wait == 0 && !b.schedules && !r.Algorithm.Held &&
		len(r.Charge) == 0 && r.Cost.Header == ""
}

// take decides about the request of e and charges it. It reports false, and has charged nothing, if the
// rule is not plain.
func (s *single) take(ctx context.Context, e *Evaluation, now int64) (plain bool, err error) {
	r := e.match.Rules[0]
	if !e.limits.bound[r.Slot].single {
		return false, nil
	}
	e.keys = e.keys[:0]
	if !r.CountsAll() {
		if e.keys, r = r.AppendKey(e.keys, &e.client); r == nil {
			return true, nil // the rule skips the request
		}
	}
	b := &e.limits.bound[r.Slot] // of the variant, if the actor has an override
	if !b.single {
		return false, nil
	}
	ch := &s.charge[0]
	ch.Counters, ch.Key, ch.Cost, ch.Shadow = b.local, e.keys, r.Cost.N, r.Shadow
	e.Allowed, err = e.decider.local.Take(ctx, now, s.charge[:])
	e.Verdicts, e.rules = e.Verdicts[:1], e.rules[:1]
	v := &e.Verdicts[0]
	v.Rule, v.Outcome, e.rules[0] = r.Rule, ch.Outcome, r
	if err != nil {
		e.Allowed = false
		return true, cause(ctx, err)
	}
	if ch.Shared {
		e.overflowed(r, now)
	}
	if !v.Allowed {
		s.refused(e, b, r, now)
	}
	e.count(r, v)
	return true, nil
}

// refused records a refusal. It does so before the tally counts it, see [refusals.Log.Note].
func (s *single) refused(e *Evaluation, b *bound, r *plan.Rule, now int64) {
	ch := &s.charge[0]
	if !r.Shadow && !b.never(r, now, ch.Cost) {
		e.RetryAfter = time.Duration(max(ch.Outcome.Wait, 1)) * time.Microsecond
	}
	e.noteRefusal(r, ch.Key, now)
}
