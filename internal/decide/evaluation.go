// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/refusals"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/redisstore"
	"github.com/diana-limiter/diana/rule"
)

// Evaluation is the evaluation of one request. Its memory is used again for others. It belongs to
// one goroutine at a time.
type Evaluation struct {
	use        atomic.Uint64 // grows when the evaluation ends, so that a second Done finds out
	decider    *Decider
	nth        uint32 // which one it is
	limits     *Limits
	down       storeSet // stores that are not asked
	request    rule.Request
	prepared   *plan.Prepared            // finds the rules of the request; may be nil
	beforeWait func(*http.Request) error // is called once, before the request waits; may be nil

	match  plan.Match
	client plan.Client
	keys   []byte
	plain  plainCharges
	sets   []charges // by store
	debts  []charges // by store: what the local store allows while that store is down
	failed charges   // of a call that has failed

	// Memory is for the owner of the Decider. It stays when the evaluation ends.
	Memory any

	// The outcome: see diana.Decision, which has the same fields.

	Allowed    bool
	Degraded   bool
	RetryAfter time.Duration
	Delayed    time.Duration
	Verdicts   []rule.Verdict

	rules      []*plan.Rule // of each verdict
	namedRules []*plan.Rule // memory for match.Rules
	bodiless   []*plan.Rule // the same, see refuseBefore
	fields     []string     // of the request's valid credentials

	held       bool       // some charges are released at the end
	refundable bool       // some charges may be refunded when the status is known
	queues     bool       // a leaky bucket may schedule the request
	waits      bool       // a rule has a wait
	takesSlots bool       // a rule counts slots
	adapts     bool       // a rule learns from the latency of the request
	settles    bool       // a rule charges by what the response costs
	spends     []spending // of rules that learn the cost with the response
	status     int        // of the response, if the rules that do not count it have refunded; else 0
	named      bool       // the request names its rules, see findNamed
	exempt     bool       // a rule skips the request: its verdict has no Rule
	sampler    refusals.Sampler
	course     course
	turn       turn
	waited     string // Counters of the rule in whose wait queue the request was last; empty: in none

	plainly bool    // plain has evaluated the request
	Moments Moments // see diana.Decision.Moments
}

// find finds the rules of the request.
func (e *Evaluation) find() error {
	e.client = e.limits.Set.Client(&e.request)
	if e.limits.Set.Ends {
		e.client.At = e.decider.local.Now()
	}
	if len(e.request.Charges) > 0 {
		return e.findNamed()
	}
	var strange *rule.PathError
	if p := e.prepared; p != nil {
		strange = p.Find(e.limits.Set, &e.match, &e.request)
	} else {
		strange = e.limits.Set.Find(&e.match, &e.request)
	}
	if strange != nil {
		return strange
	}
	return nil
}

// Refusal returns the form of refusals of the first entry of the request that has one, and its status for calls.
func (e *Evaluation) Refusal() (form string, calls int) {
	for _, r := range e.match.Rules {
		if r.Refusal != "" {
			return r.Refusal, r.CallStatus
		}
	}
	return "", 0
}

// HTTP returns the request over HTTP, or a copy of the Native one. It is nil if there is none.
func (e *Evaluation) HTTP() *http.Request {
	if r := &e.request; r.HTTP == nil && r.Native != nil {
		r.HTTP = r.Native.HTTP()
	}
	return e.request.HTTP
}

// take decides about the request and charges it.
func (e *Evaluation) take(ctx context.Context, now int64) (err error) {
	e.fill(now)
	if e.limits.local && !e.waits && !e.queues && !e.named {
		only := -1 // the set that has charges, if there is one alone
		switch list := e.sets[0].list; {
		case len(list) > 0 && !e.adapts:
			only = 0
		case len(list) == 0 && e.adapts:
			only = e.limits.last
		}
		if only >= 0 {
			e.Allowed, err = e.takeFrom(ctx, only, now) // what ask and wait would do
			return cause(ctx, err)
		}
	}
	if e.queues {
		if err := e.prepareWait(); err != nil {
			return err
		}
	}
	if e.waits && !e.decider.options.Frozen {
		err = e.turn.take(ctx, e, now)
	} else {
		err = e.ask(ctx, now)
	}
	if err == nil && e.Allowed {
		err = e.wait(ctx, now)
	}
	if err == nil && e.Allowed && e.named {
		e.spendDebited()
		e.refundNamed(now)
	}
	return err
}

// prepareWait calls beforeWait, once.
func (e *Evaluation) prepareWait() error {
	before := e.beforeWait
	if e.beforeWait = nil; before == nil {
		return nil
	}
	return before(e.request.HTTP)
}

// fill makes the charges of the request, by store.
//
// A charge to another store goes with a local one: see limits.go. A charge that the local store
// allows while another store is down becomes a debt of that store.
func (e *Evaluation) fill(now int64) {
	e.resize(len(e.limits.stores))
	n := len(e.match.Rules)
	e.Verdicts, e.rules = slices.Grow(e.Verdicts[:0], n)[:n], slices.Grow(e.rules[:0], n)[:n]
	e.keys = e.keys[:0]
	e.queues, e.waits, e.exempt, e.takesSlots, e.adapts, e.Degraded = false, false, false, false, false, false
	if e.limits.last > 0 {
		e.course.flights = slices.Grow(e.course.flights[:0], n) // so that it does not move while charges refer to it
	}
	for i, r := range e.match.Rules {
		from := len(e.keys)
		r = e.appendKey(i, r)
		v := &e.Verdicts[i]
		if e.rules[i] = r; r == nil {
			v.Rule, e.exempt = nil, true
			continue
		}
		*v = rule.Verdict{Rule: r.Declared(), Outcome: limit.Outcome{Allowed: true, Remaining: limit.Unknown}}
		b := &e.limits.bound[r.Slot]
		e.waits = e.waits || b.wait > 0
		e.queues = e.queues || b.schedules
		e.takesSlots = e.takesSlots || r.Algorithm.Held
		e.settles = e.settles || r.Cost.Answer != ""
		cost := e.cost(i, r)
		key := e.keys[from:] // stays as it is, also if e.keys moves to a larger array
		o := origin{rule: r, index: i, shadow: r.Shadow}
		if e.named {
			if cost < 0 {
				continue // see refundNamed
			}
			o.debit = e.request.Charges[i].Debit
			o.shadow = o.shadow || o.debit
		}
		if b.adapts {
			c := e.adaptive()
			c.add(b.local, key, cost, o.shadow, o)
			c.list[len(c.list)-1].Flight, e.adapts = e.flightOf(r, now), true
			continue
		}
		if b.elsewhere {
			e.chargeElsewhere(b, key, cost, now, o)
		} else {
			e.sets[0].add(b.local, key, cost, o.shadow, o)
		}
	}
}

// appendKey appends the key of the actor that the rule with that index counts the request by. It returns
// the rule for this actor, or nil if it skips the request.
func (e *Evaluation) appendKey(i int, r *plan.Rule) *plan.Rule {
	switch {
	case e.named:
		e.keys = plan.AppendGiven(e.keys, e.request.Charges[i].Key)
	case !r.CountsAll():
		e.keys, r = r.AppendKey(e.keys, &e.client)
	}
	return r
}

// cost returns what the request costs under the rule with that index.
func (e *Evaluation) cost(i int, r *plan.Rule) int64 {
	switch {
	case e.named:
		return e.request.Charges[i].Cost
	case r.Cost.Header != "" || r.Cost.Reserve != "" || r.Cost.Reservation != nil:
		return e.limits.Set.CostOf(r, &e.request)
	}
	return r.Cost.N
}

// resize gives the evaluation empty charges for so many stores.
func (e *Evaluation) resize(stores int) {
	for len(e.sets) < stores {
		e.sets, e.debts = append(e.sets, charges{}), append(e.debts, charges{})
	}
	e.sets, e.debts = e.sets[:stores], e.debts[:stores]
	for s := range e.sets {
		e.sets[s].reset()
		e.debts[s].reset()
	}
}

// chargeElsewhere adds the charges of a rule that another store than the local one counts.
func (e *Evaluation) chargeElsewhere(b *bound, key []byte, cost, now int64, o origin) {
	local, shadow := &e.sets[0], o.shadow
	silent := o
	silent.silent = true
	if b.store > 0 && !e.down.has(b.store) {
		e.sets[b.store].add(b.remote, key, cost, shadow, o)
		if now > b.both {
			local.add(b.known, key, cost, true, silent)
			return
		}
		share := b.local
		if b.fresh != nil {
			local.add(b.known, key, cost, true, silent)
			share, silent.fresh = b.fresh, true
		}
		if b.lowers {
			e.limits.lowerShare(e.decider.local, b, share, key, now)
		}
		local.add(share, key, cost, shadow, silent)
		return
	}
	e.Degraded = true
	held := o.rule.Algorithm.Held
	switch {
	case b.local != nil:
		if b.lowers {
			e.limits.lowerShare(e.decider.local, b, b.local, key, now)
		}
		local.add(b.local, key, cost, shadow, o)
		if next := b.next.counters(); next != nil {
			local.add(next, key, cost, true, silent)
		}
	case b.known != nil && held: // on_error is open: the store still learns of the slots
		local.add(b.known, key, cost, true, silent)
	}
	if b.store > 0 && (b.local != nil || held) {
		e.debts[b.store].add(b.remote, key, cost, shadow, o)
	}
}

// ask asks the stores: the local one first, and the others only for what it allows. When
// one of them refuses, ask refunds the charges of its predecessors. When one cannot be asked, ask
// decides once more, without it.
func (e *Evaluation) ask(ctx context.Context, now int64) (err error) {
	e.Allowed = true
	for s := range e.sets {
		if len(e.sets[s].list) == 0 {
			continue
		}
		if s > 0 {
			e.useOverflow(&e.sets[s])
		}
		if e.Allowed, err = e.takeFrom(ctx, s, now); err == nil && e.Allowed {
			continue
		}
		e.refundBefore(s, now)
		if err == nil || s == 0 || !unavailable(ctx, err) {
			e.refuseAt(s)
			return cause(ctx, err)
		}
		e.decider.options.Failed(err)
		e.without(s, now)
		return e.ask(ctx, now)
	}
	e.debit(now)
	return nil
}

// refundBefore refunds the charges to the stores before the one that has not allowed the request. It refunds no local
// charge whose share was lowered after the request had begun, at now. The share had been reduced by the charge then, so
// a refund would raise it above this gateway's part.
func (e *Evaluation) refundBefore(s int, now int64) {
	for before := range e.sets[:s] {
		c := &e.sets[before]
		for i := range c.list {
			refund := func() { e.limits.stores[before].Refund(c.list[i : i+1]) }
			if b := &e.limits.bound[c.of[i].rule.Slot]; before == 0 && b.lowers {
				e.limits.counts.Store.Unreduced(b.remote, c.list[i].Key, now, refund)
			} else {
				refund()
			}
		}
	}
}

// takeFrom makes the charges to one store.
func (e *Evaluation) takeFrom(ctx context.Context, s int, now int64) (bool, error) {
	if o := e.decider.order; o != nil && s == 0 {
		return o.take(ctx, e, now, e.sets[0].list)
	}
	return e.limits.stores[s].Take(ctx, now, e.sets[s].list)
}

// unavailable reports whether a store could not be asked, and not only ctx has ended.
func unavailable(ctx context.Context, err error) bool {
	return errors.Is(err, redisstore.ErrUnavailable) || ctx.Err() == nil
}

// cause returns the error of ctx, if that has ended, in place of what a store has returned.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// refuseAt ends the asking at a store that has refused: its predecessors have refunded, and its
// successors are not asked.
func (e *Evaluation) refuseAt(s int) {
	for i := range e.sets {
		switch {
		case i < s:
			e.released(&e.sets[i], always)
			e.sets[i].restore()
		case i > s:
			e.sets[i].reset()
		}
		e.debts[i].reset()
	}
}

// without makes the charges again, without a store that has failed.
func (e *Evaluation) without(s int, now int64) {
	e.failed, e.sets[s] = e.sets[s], e.failed
	e.down |= 1 << s
	e.fill(now)
	debts := &e.debts[s]
	for i, o := range debts.of { // the failed call knows whether the store has made these charges
		for k, failed := range e.failed.of {
			if failed.index == o.index {
				debts.list[i].Ticket = e.failed.list[k].Ticket
			}
		}
	}
	e.failed.reset()
}

// debit debits what the local store has allowed to the stores that are down.
func (e *Evaluation) debit(now int64) {
	for s := range e.debts {
		c := &e.debts[s]
		if len(c.list) == 0 {
			continue
		}
		if c.keepAllowed(&e.sets[0]); len(c.list) > 0 {
			e.useOverflow(c)
			e.limits.stores[s].Debit(now, c.list)
		}
	}
}

// peek asks all stores for the outcomes of the request.
func (e *Evaluation) peek(ctx context.Context, now int64) error {
	e.fill(now)
	e.Allowed, e.Delayed = true, 0
	for s := range e.sets {
		c := &e.sets[s]
		if len(c.list) == 0 {
			continue
		}
		if s > 0 {
			e.useOverflow(c)
		}
		err := e.limits.stores[s].Peek(ctx, now, c.list)
		switch {
		case err == nil:
		case s > 0 && unavailable(ctx, err):
			e.decider.options.Failed(err)
			e.without(s, now)
			return e.peek(ctx, now)
		default:
			return cause(ctx, err)
		}
		for i := range c.list {
			e.Allowed = e.Allowed && (c.list[i].Outcome.Allowed || c.list[i].Shadow)
		}
		e.Delayed = max(e.Delayed, c.wait())
	}
	if !e.Allowed {
		e.Delayed = 0
	}
	return nil
}

// useOverflow gives charges to another store the key of the overflow counter, where the local store
// has charged its own.
func (e *Evaluation) useOverflow(c *charges) {
	local := &e.sets[0]
	for i := range local.list {
		if !local.list[i].Shared || i > 0 && local.of[i-1].index == local.of[i].index {
			continue // the first charge of a rule tells
		}
		for k, o := range c.of {
			if o.index == local.of[i].index {
				c.list[k].Key = overflowKey
			}
		}
	}
}

var overflowKey = []byte(limit.Overflow)
