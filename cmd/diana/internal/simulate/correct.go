// SPDX-License-Identifier: MIT

package simulate

import (
	"cmp"
	"context"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// correct corrects a counter, if the configuration has it.
func (c *Count) correct(of correction) error {
	r, s := c.byCounters[of.counters], c.simulation
	switch {
	case r == nil:
		return nil
	case !of.moves:
		_, err := s.charge(of.at, r, of.key, of.n)
		return err
	}
	now, err := s.charge(of.at, r, of.key, 0) // only reads
	if err != nil {
		return err
	}
	next := of.at + now.Wait + of.n
	if !now.Allowed {
		next += longestWait(r, of.at)
	}
	if of.n < 0 { // a refund would not move a scheduled time that has other requests behind it
		if err := s.limiter.Reset(context.Background(), r.Name, cmp.Or(of.key, rule.All.String())); err != nil {
			return err
		}
	}
	// The state of a bucket is the moment from which on it is as if unused. A charge of 0 at a later moment makes that
	// one the state.
	_, err = s.charge(max(next, of.at), r, of.key, 0)
	return err
}

// charge charges a counter at a moment, into debt if need be, or refunds it. It returns what the counter was before.
func (s *Simulation) charge(at int64, r *plan.Rule, key string, n int64) (before limit.Outcome, err error) {
	s.now = time.UnixMicro(at)
	d, err := s.limiter.Take(context.Background(), diana.Request{Charges: []rule.Charge{{Rule: r.Name, Key: key, Cost: n, Debit: n > 0}}})
	if err != nil {
		return before, err
	}
	before = d.Verdicts[0].Outcome
	if !r.Algorithm.Held { // otherwise the end would release the slots
		d.Done()
	}
	return before, nil
}
