// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"errors"
	"slices"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// Peek evaluates a request as Take would now, and changes nothing. It does not wait: Result.Delayed
// is how long the request would wait for a leaky bucket. The Result has ended.
func (d *Decider) Peek(ctx context.Context, r rule.Request) (Result, error) {
	e := d.begin(r)
	var result Result
	h := Handle{e, e.use.Load()}
	defer h.Done()
	if strange := e.find(); strange != nil {
		return result, strange
	}
	now := d.local.Now()
	if err := e.peek(ctx, now); err != nil {
		return result, err
	}
	e.report(now, false)
	e.fillIn(&result)
	result.Verdicts = slices.Clone(e.verdicts)
	return result, nil
}

// peek asks all stores for the outcomes of the request.
func (e *Evaluation) peek(ctx context.Context, now int64) error {
	e.fill(now)
	for s := range e.sets {
		c := &e.sets[s]
		if len(c.list) == 0 {
			continue
		}
		err := e.limits.stores[s].Peek(ctx, now, c.list)
		switch {
		case err == nil:
		case s > 0 && unavailable(ctx, err):
			e.decider.options.Failed(err)
			e.without(s, now)
			return e.peek(ctx, now)
		default:
			return err
		}
		for i := range c.list {
			e.allowed = e.allowed && (c.list[i].Outcome.Allowed || c.list[i].Shadow)
		}
		e.delayed = max(e.delayed, c.wait())
	}
	return nil
}

// Reset forgets the counters of one actor under a rule and under its variants, in every store.
// Requests that wait for the actor ask again at once.
func (d *Decider) Reset(ctx context.Context, of *plan.Rule, key []byte) error {
	limits := d.Limits()
	var errs []error
	for _, r := range slices.Concat(limits.Set.Rules, limits.Set.Variants) {
		if r.Name != of.Name {
			continue
		}
		b := &limits.bound[r.Slot]
		if b.remote != nil { // first, because the local counters stand in for it
			errs = append(errs, limits.stores[b.store].Reset(ctx, b.remote, key))
		}
		errs = append(errs, d.forget(ctx, b, key))
		d.queues.wake(r.Counters, key)
	}
	return errors.Join(errs...)
}

// Forget forgets the local counters of an actor that another store has reset, because a gateway
// was told to.
func (d *Decider) Forget(counters string, key []byte) {
	limits := d.Limits()
	for _, r := range slices.Concat(limits.Set.Rules, limits.Set.Variants) {
		if b := &limits.bound[r.Slot]; r.Counters == counters && b.remote != nil {
			if err := d.forget(context.Background(), b, key); err != nil {
				d.options.Logger.Error("the local counter of an actor is not reset", "rule", r.Name, "error", err)
			}
			d.queues.wake(counters, key)
		}
	}
}

// forget forgets the local counters of an actor.
func (d *Decider) forget(ctx context.Context, b *bound, key []byte) error {
	var errs []error
	for _, c := range []any{b.local, b.known} {
		if c != nil {
			errs = append(errs, d.local.Reset(ctx, c, key))
		}
	}
	return errors.Join(errs...)
}
