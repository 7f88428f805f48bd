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

// correct corrects the counters before the entry of that moment, as far as the configuration has these counters.
func (c *Count) correct(at int64, corrections []correction) error {
	c.simulation.advance(at)
	for _, of := range corrections {
		if r := c.byCounters[of.counters]; r != nil {
			if err := c.simulation.correct(r, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// correct corrects one counter.
func (s *Simulation) correct(r *plan.Rule, c correction) error {
	switch c.kind {
	case charge:
		_, err := s.charge(c.at, r, c.key, c.n)
		return err
	case fill: // the bucket is full at that moment, so a request without a cost finds it so
		_, err := s.charge(c.at, r, c.key, 0)
		return err
	}
	now, err := s.charge(c.at, r, c.key, 0)
	if err != nil {
		return err
	}
	next := c.at + now.Wait + c.n
	if !now.Allowed {
		next += longestWait(r, c.at)
	}
	if c.n < 0 { // a refund would not move a scheduled time that has other requests behind it
		if err := s.reset(r, c.key); err != nil {
			return err
		}
	}
	_, err = s.charge(max(next, c.at), r, c.key, 0)
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

// reset resets a counter.
func (s *Simulation) reset(r *plan.Rule, key string) error {
	return s.limiter.Reset(context.Background(), r.Name, cmp.Or(key, rule.All.String()))
}
