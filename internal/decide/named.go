// SPDX-License-Identifier: MIT

package decide

import (
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// A request can name its rules, see rule.Charge. Then nothing is looked for in it.

// findNamed finds the rules that the request names.
func (e *Evaluation) findNamed() error {
	e.named = true
	m := &e.match
	m.Bandwidths, e.namedRules = nil, e.namedRules[:0]
	for i := range e.request.Charges {
		r, err := e.limits.Set.Named(e.request.Charges[i].Rule)
		if err != nil {
			return err
		}
		e.namedRules = append(e.namedRules, r)
	}
	m.Rules = e.namedRules
	return nil
}

// spendDebited sets to 0 what remains under the rules that refused a charge and debited it.
func (e *Evaluation) spendDebited() {
	for s := range e.sets {
		c := &e.sets[s]
		for i, o := range c.of {
			if out := &c.list[i].Outcome; o.debit && !out.Allowed {
				out.Remaining = 0
			}
		}
	}
}

// refundNamed refunds the charges with a negative cost, in the store that counts and in the local one.
func (e *Evaluation) refundNamed(now int64) {
	for i := range e.request.Charges {
		ch := &e.request.Charges[i]
		if ch.Cost >= 0 {
			continue
		}
		from := len(e.keys)
		e.keys = plan.AppendGiven(e.keys, ch.Key)
		key := e.keys[from:]
		b := &e.limits.bound[e.rules[i].Slot]
		refund := [1]limit.Charge{{Key: key, Cost: -ch.Cost, At: now, Outcome: limit.Outcome{Allowed: true}}}
		local := b.known
		if local == nil {
			local = b.local
		}
		if refund[0].Counters = local; local != nil {
			e.decider.local.Refund(refund[:])
		}
		if refund[0].Counters = b.remote; b.remote != nil {
			e.limits.stores[b.store].Refund(refund[:])
		}
	}
}
