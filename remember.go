// SPDX-License-Identifier: MIT

package diana

import (
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// A gateway remembers each actor that it counts in Redis, so max_keys bounds the counters that it
// makes there too. Every charge to Redis goes with a charge here, which comes first and refuses
// nothing. Where the store here has no room for the actor, its overflow counter gets the charge,
// and so does the overflow counter in Redis:
//
//	actor      here              Redis
//	known      its own counter   its own counter
//	no room    overflow          overflow, which all gateways share
//
// The record here lives about as long as the state that this gateway's charges make in Redis,
// because the same algorithm keeps both:
//
//	on_error share, local    the counter that decides without Redis, and so is kept warm
//	on_error closed, open    a counter of the whole limit, which decides nothing
//	concurrency              the counter of the slots that this gateway holds, without a limit
//
// Refunds and releases find the counter that was charged by the key and by Charge.Shared, also
// after the actor has a record of its own.

// warmName returns the name of the counters that a Meter of a global rule has here.
func warmName(r *plan.Rule, m limit.Meter) string {
	return "global " + m.StateVersion() + " " + r.Counters
}

// known returns the counters here that remember the actors of a global rule. m is the Meter that
// decides without Redis, or nil.
func (l *Limiter) known(r *plan.Rule, m limit.Meter) (limit.Counters, error) {
	switch {
	case r.Algorithm.Held:
		whole := r.Limit
		whole.N = limit.MaxN
		var err error
		if m, err = r.Algorithm.New(whole); err != nil {
			return nil, err
		}
	case r.OnError == rule.Closed || r.OnError == rule.Open:
		m = r.Meter
	}
	return l.local.Counters(warmName(r, m), m)
}

// remember gives charges to Redis the key of the overflow counter, where this process has charged
// its own.
func (j *judgement) remember(c *charges) {
	for i := range j.here.list {
		if !j.here.list[i].Shared {
			continue
		}
		for k, o := range c.of {
			if o.index == j.here.of[i].index {
				c.list[k].Key = overflowKey
			}
		}
	}
}

var overflowKey = []byte(limit.Overflow)
