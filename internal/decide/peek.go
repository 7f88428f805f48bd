// SPDX-License-Identifier: MIT

package decide

import (
	"context"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// PeekKey returns what a rule of these Limits, or a variant of it, would decide about a request of cost 1 under a
// key. It changes nothing. The store that counts the rule answers: if that is Redis and it is unavailable, the error says so.
func (d *Decider) PeekKey(ctx context.Context, limits *Limits, r *plan.Rule, key []byte) (limit.Outcome, error) {
	now := d.local.Now()
	b := &limits.bound[r.Slot]
	charge := [1]limit.Charge{{Counters: b.local, Key: key, Cost: 1}}
	var err error
	switch {
	case b.remote != nil:
		charge[0].Counters = b.remote
		err = limits.stores[b.store].Peek(ctx, now, charge[:])
	case b.local != nil:
		err = d.local.Peek(ctx, now, charge[:])
	default: // Redis has not answered yet, and on_error says open
		return limit.Outcome{Allowed: true, Remaining: limit.Unknown}, nil
	}
	return charge[0].Outcome, err
}
