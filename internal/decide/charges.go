// SPDX-License-Identifier: MIT

package decide

import (
	"slices"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// charges are the charges of a request to one store.
type charges struct {
	list []limit.Charge
	of   []origin // of each
}

// origin tells which rule a charge is for.
type origin struct {
	rule  *plan.Rule // as it holds for the actor
	index int        // of its verdict, and in match.Rules

	// silent marks a local charge beside one to another store. It only remembers the actor, see
	// limits.go. For a while after Redis has lost its memory it decides as well.
	silent bool

	fresh  bool // a silent charge to bound.fresh, beside one to bound.known
	shadow bool // a refusal has no effect, see Charge.Shadow
	debit  bool // a refused charge becomes a debit, see Charge.Debit
}

func (c *charges) reset() { c.list, c.of = c.list[:0], c.of[:0] }

// add adds a charge. It sets the fields in place, because appending would copy a large Charge.
func (c *charges) add(counters any, key []byte, cost int64, shadow bool, o origin) {
	n := len(c.list)
	c.list, c.of = slices.Grow(c.list, 1)[:n+1], append(c.of, o)
	ch := &c.list[n]
	ch.Counters, ch.Key, ch.Cost, ch.Shadow, ch.Debit = counters, key, cost, shadow, o.debit
	ch.Longest, ch.Outcome, ch.At, ch.Shared = 0, limit.Outcome{}, 0, false
	if ch.Ticket != nil {
		ch.Ticket = nil
	}
	if ch.Flight != nil {
		ch.Flight = nil
	}
}

// keepAllowed drops the charges whose rule, by the evaluated charges, has refused the request in
// shadow mode. It keeps those that become debits.
func (c *charges) keepAllowed(evaluated *charges) {
	list, of := c.list[:0], c.of[:0]
	for i, o := range c.of {
		if o.debit || !evaluated.refused(o.index) {
			list, of = append(list, c.list[i]), append(of, o)
		}
	}
	c.list, c.of = list, of
}

// refused reports whether the rule with that index has refused. Its first charge decides that.
func (c *charges) refused(index int) bool {
	for i, o := range c.of {
		if o.index == index {
			return !c.list[i].Outcome.Allowed
		}
	}
	return false
}

// restore adds refunded costs to the outcomes.
func (c *charges) restore() {
	for i := range c.list {
		if ch := &c.list[i]; ch.Outcome.Allowed && ch.Outcome.Remaining != limit.Unknown {
			ch.Outcome.Remaining += ch.Cost
		}
	}
}

// longest returns the index of the charge that was allowed with the longest wait, or -1.
func (c *charges) longest() int {
	longest := -1
	for i := range c.list {
		o := &c.list[i].Outcome
		if o.Allowed && !c.list[i].Shadow && o.Wait > 0 && (longest < 0 || o.Wait > c.list[longest].Outcome.Wait) {
			longest = i
		}
	}
	return longest
}

// wait returns the longest wait of an allowed charge.
func (c *charges) wait() time.Duration {
	if i := c.longest(); i >= 0 {
		return time.Duration(c.list[i].Outcome.Wait) * time.Microsecond
	}
	return 0
}

// keepHeld drops the charges that stay when the request is finished, and returns the others.
func (c *charges) keepHeld() []limit.Charge {
	if !slices.ContainsFunc(c.of, func(o origin) bool { return !o.rule.Algorithm.Held }) {
		return c.list // copying each to its own place would take 10 ns
	}
	list, of := c.list[:0], c.of[:0]
	for i := range c.list {
		if c.of[i].rule.Algorithm.Held {
			list, of = append(list, c.list[i]), append(of, c.of[i])
		}
	}
	c.list, c.of = list, of
	return list
}

// refundable returns the charges that a response with that status refunds.
func (c *charges) refundable(status int) (refund []limit.Charge) {
	for i := range c.list {
		if refunds(c.of[i].rule, status) {
			refund = append(refund, c.list[i])
		}
	}
	return refund
}

// refunds reports whether a rule does not count requests that are answered with that status.
func refunds(r *plan.Rule, status int) bool {
	return len(r.Charge) > 0 && !slices.Contains(r.Charge, status)
}
