// SPDX-License-Identifier: MIT

package diana

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Request is what is judged: a method, a path, and who asks.
type Request = rule.Request

// Decision is what becomes of a request. It must be ended with Done.
type Decision struct {
	// Allowed tells whether the request may go on. A request that no rule covers may.
	Allowed bool

	// RetryAfter, of a refusal, is after how long the same request would be allowed
	// if no one else asked. It is 0 if no wait helps, because a rule that refuses never
	// allows the request: its limit is 0, or lower than the cost of the request. It is also 0
	// beside an error of Take. A global rule that refuses because Redis is out of reach does
	// not make it 0.
	RetryAfter time.Duration

	// Delayed is how long the request was held to wait for its turn.
	Delayed time.Duration

	// Degraded tells that a global rule was judged without Redis.
	Degraded bool

	// Verdicts are what the rules say that judged the request, in their order. They
	// must not be used after Done.
	Verdicts []Verdict

	j   *judgement
	use uint64
}

// Verdict is what one rule says of a request.
type Verdict struct {
	Rule *rule.Rule // for this actor: with the Limit of an override, if there is one
	limit.Outcome

	compiled *plan.Rule // of Rule
}

// Refused reports whether the rule is a reason for a refusal.
func (v *Verdict) Refused() bool { return !v.Allowed && v.Rule.Mode == rule.Enforce }

// Done tells that the request is finished: the places that it held under rules of
// concurrency are free again. It must be called once; further calls do nothing.
func (d *Decision) Done() {
	if j := d.j; j != nil && j.use.CompareAndSwap(d.use, d.use+1) {
		j.end()
	}
	d.j, d.Verdicts = nil, nil
}

// SetStatus tells the status that the request is answered with, as far as it was allowed.
// It is charged to none of the rules that count other statuses alone. Without it the request
// stays charged to all, as nothing is known of its outcome. It should be called as soon as
// the status is known, once, and before Done. A server that uses Handler has no need for it.
func (d *Decision) SetStatus(status int) {
	if j := d.j; j != nil && j.use.Load() == d.use && j.owed {
		j.owed = false
		j.giveBack(status)
	}
}

// judgement is the memory that judging a request takes. It is used again for others.
type judgement struct {
	use      atomic.Uint64 // goes up when it is given back, so that a second Done finds out
	limiter  *Limiter
	nth      uint32 // which one it is
	active   *active
	request  Request
	match    plan.Match
	keys     []byte
	starts   []int     // of each rule's key in keys
	here     charges   // to the counters of this process
	there    charges   // to those in Redis
	debts    charges   // to the counters in Redis, of what this process allows without it
	failed   charges   // to those in Redis, of a call that has failed
	verdicts []Verdict // of each of match.Rules
	body     []byte
	values   values
	which    []int // rules that the fields tell of
	held     bool  // a charge is to be given back at the end
	owed     bool  // a charge may be to be given back when the status is known
	queues   bool  // a leaky bucket may let the request wait
	excepted bool  // a rule does not judge the request: its verdict has no Rule
	waits    bool  // a rule has a wait
	slice    int64 // of time, in which it has noted so many refusals
	noted    int
	waiter   waiter
	waited   string // Counters of the rule in whose line the request stood last; empty: in none
}

// end gives back what the request held, and the judgement.
func (j *judgement) end() {
	if j.held {
		j.limiter.local.Refund(j.heldOf(&j.here))
		j.giveThere(j.heldOf(&j.there))
		j.giveThere(j.heldOf(&j.debts))
		for _, c := range []*charges{&j.here, &j.there, &j.debts} {
			j.freed(c, always)
		}
	}
	j.request = Request{}
	j.active = nil
	j.limiter.judgements.Put(j)
}

// giveThere gives charges back in Redis.
func (j *judgement) giveThere(list []limit.Charge) {
	if len(list) > 0 {
		j.active.global.Refund(list)
	}
}

// heldOf leaves the charges in c that are given back at the end, and returns them.
func (j *judgement) heldOf(c *charges) []limit.Charge {
	list, of := c.list[:0], c.of[:0]
	for i := range c.list {
		if c.of[i].rule.Algorithm.Held {
			list, of = append(list, c.list[i]), append(of, c.of[i])
		}
	}
	c.list, c.of = list, of
	return list
}

// giveBack gives back what the request was charged under rules that do not count the status
// of its answer.
func (j *judgement) giveBack(status int) {
	j.limiter.local.Refund(j.notCharged(&j.here, status))
	j.giveThere(j.notCharged(&j.there, status))
	j.giveThere(j.notCharged(&j.debts, status))
	back := func(r *plan.Rule) bool { return givesBack(r, status) }
	j.freed(&j.here, back)
	j.freed(&j.there, back)
}

// givesBack reports whether a rule does not count requests that are answered with a status.
func givesBack(r *plan.Rule, status int) bool {
	return len(r.Charge) > 0 && !slices.Contains(r.Charge, status)
}

// notCharged returns the charges that an answer with that status gives back. What Redis does
// not count is not counted here either.
func (j *judgement) notCharged(c *charges, status int) (back []limit.Charge) {
	for i := range c.list {
		if givesBack(c.of[i].rule, status) {
			back = append(back, c.list[i])
		}
	}
	return back
}
