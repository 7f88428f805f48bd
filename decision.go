// SPDX-License-Identifier: MIT

package diana

import (
	"sync/atomic"
	"time"

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
	// if no one else asked.
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
	Rule *rule.Rule
	limit.Outcome
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

// judgement is the memory that judging a request takes. It is used again for others.
type judgement struct {
	use      atomic.Uint64 // goes up when it is given back, so that a second Done finds out
	limiter  *Limiter
	active   *active
	request  Request
	match    rule.Match
	keys     []byte
	starts   []int     // of each rule's key in keys
	here     charges   // to the counters of this process
	there    charges   // to those in Redis
	verdicts []Verdict // of each of match.Rules
	body     []byte
	which    []int // rules that the fields tell of
	held     bool  // a charge is to be given back at the end
	queues   bool  // a leaky bucket may let the request wait
	waits    bool  // a rule has a wait
	waiter   waiter
	waited   string // Counters of the rule in whose line the request stood last; empty: in none
}

// end gives back what the request held, and the judgement.
func (j *judgement) end() {
	if j.held {
		j.limiter.local.Give(j.heldOf(&j.here))
		if held := j.heldOf(&j.there); len(held) > 0 {
			j.active.global.Give(held)
		}
	}
	j.request = Request{}
	j.active = nil
	j.limiter.judgements.Put(j)
}

// heldOf returns the charges that are given back at the end.
func (j *judgement) heldOf(c *charges) []limit.Charge {
	held := c.list[:0]
	for i := range c.list {
		if !c.silent[i] && j.match.Rules[c.rule[i]].Algorithm.Held {
			held = append(held, c.list[i])
		}
	}
	return held
}
