// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// plainCharges evaluate a request that a few plain rules cover, as they do most requests. They do what
// fill, take and report of an Evaluation do, without lists by store. They save a seventh of a decision.
type plainCharges [usual]limit.Charge

// countsPlainly reports whether plainCharges can evaluate a rule: the local store alone counts it, no
// request waits for it, and its charges stay.
func (b *bound) countsPlainly(r *plan.Rule) bool {
	return !b.elsewhere && b.local != nil && b.wait == 0 && !b.schedules && !r.Algorithm.Held &&
		len(r.Charge) == 0 && r.Cost.Header == "" && r.Cost.Answer == ""
}

// take decides about the request of e and charges it. It reports false, and has charged nothing, if
// there are too many rules or one of them is not plain.
func (p *plainCharges) take(ctx context.Context, e *Evaluation, now int64) (plain bool, err error) {
	if len(e.match.Rules) > usual || e.named || !p.fill(e) {
		return false, nil
	}
	charges := p[:len(e.rules)]
	if len(charges) == 0 {
		return true, nil // all rules skip the request
	}
	if o := e.decider.order; o != nil {
		e.Allowed, err = o.take(ctx, e, now, charges)
	} else {
		e.Allowed, err = e.decider.local.Take(ctx, now, charges)
	}
	if err != nil {
		e.Allowed = false
		return true, cause(ctx, err)
	}
	e.Verdicts, e.plainly = e.Verdicts[:len(charges)], true
	never := false
	for i, r := range e.rules {
		ch, v := &charges[i], &e.Verdicts[i]
		v.Rule, v.Outcome, v.Reserved = r.Declared(), ch.Outcome, false
		if ch.Shared {
			e.overflowed(r, now)
		}
		if v.Refused() {
			never = never || e.limits.bound[r.Slot].never(r, now, ch.Cost) || endless(v.Outcome)
			e.RetryAfter = max(e.RetryAfter, time.Duration(max(v.Wait, 1))*time.Microsecond)
		}
		if !v.Allowed { // before the tally counts it, see refusals.Log.Note
			e.noteRefusal(r, ch.Key, now, false)
		}
		e.count(r, v, now)
	}
	if never {
		e.RetryAfter = 0
	}
	return true, nil
}

// fill makes the charges of the rules that do not skip the request, and sets e.rules to these rules. It
// reports false if one is not plain.
func (p *plainCharges) fill(e *Evaluation) bool {
	e.keys, e.rules = e.keys[:0], e.rules[:0]
	for _, r := range e.match.Rules {
		if !e.limits.bound[r.Slot].plain {
			return false
		}
		from := len(e.keys)
		if !r.CountsAll() {
			if e.keys, r = r.AppendKey(e.keys, &e.client); r == nil {
				continue
			}
		}
		b := &e.limits.bound[r.Slot] // of the variant, if the actor has an override
		if !b.plain {
			return false
		}
		ch := &p[len(e.rules)]
		ch.Counters, ch.Key, ch.Cost, ch.Shadow = b.local, e.keys[from:], r.Cost.N, r.Shadow
		e.rules = append(e.rules, r)
	}
	return true
}
