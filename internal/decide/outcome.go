// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Handle returns what ends the evaluation.
func (e *Evaluation) Handle() Handle { return Handle{e, e.use.Load()} }

// Limits returns the Limits that the request was evaluated by.
func (e *Evaluation) Limits() *Limits { return e.limits }

// Key returns the key of the actor that a rule has counted, if it is still known and the Decider is
// Ordered.
func (e *Evaluation) Key(name string) (key []byte, ok bool) {
	for i := 0; e.plainly && i < len(e.rules); i++ {
		if e.rules[i].Name == name {
			return e.plain[i].Key, true
		}
	}
	return nil, false
}

// Request returns the request.
func (e *Evaluation) Request() *rule.Request { return &e.request }

// Client returns the client of the request.
func (e *Evaluation) Client() *plan.Client { return &e.client }

// Rule returns the rule of the verdict with that index.
func (e *Evaluation) Rule(i int) *plan.Rule { return e.rules[i] }

// Bandwidths returns the bandwidths of the response.
func (e *Evaluation) Bandwidths() []*plan.Bandwidth { return e.match.Bandwidths }

// NeedsStatus reports whether the status of the response decides what the request is charged.
func (e *Evaluation) NeedsStatus() bool { return e.refundable }

// ChangeBody returns the body of the request as its rules want it: with their most tokens of output, and with the
// usage of a stream. usage says that the client has not asked for that. A rule in shadow mode changes no body.
func (e *Evaluation) ChangeBody(body []byte) (changed []byte, usage bool) {
	return plan.ChangeBody(e.rules, body)
}

// Diverts returns the first rule that refuses the request and whose entry has a divert, if that changes the body. It
// returns nil if a rule refuses that does not read the body, because that rule would refuse again.
func (e *Evaluation) Diverts() (by *plan.Rule) {
	for i, r := range e.rules[:len(e.Verdicts)] {
		switch {
		case !e.Verdicts[i].Refused():
		case !r.ReadsBody():
			return nil
		case by == nil && r.Divert != nil:
			by = r
		}
	}
	if by == nil || by.Divert.Values == nil {
		return nil
	}
	return by
}

// ReadsOn returns how long the response is read on after its client has disconnected.
func (e *Evaluation) ReadsOn() (after time.Duration) {
	for _, r := range e.rules {
		if r != nil {
			after = max(after, r.Cost.After)
		}
	}
	return after
}

// ChangesBody reports whether rules may want another body.
func (e *Evaluation) ChangesBody() bool {
	return slices.ContainsFunc(e.rules, func(r *plan.Rule) bool { return r.ChangesBody() })
}

// wait holds the request until its scheduled times. If no more requests may wait, it refuses the
// request.
func (e *Evaluation) wait(ctx context.Context, now int64) (err error) {
	var longest *charges
	for s := range e.sets {
		if c := &e.sets[s]; c.longest() >= 0 && (longest == nil || c.wait() > longest.wait()) {
			longest = c
		}
	}
	if longest == nil {
		return nil
	}
	i := longest.longest()
	if e.decider.options.Frozen {
		e.Delayed = longest.wait()
		return nil
	}
	room, counters := &e.decider.room, longest.of[i].rule.Counters
	if !room.enter(counters) {
		e.undo()
		e.Allowed = false
		refuse(&longest.list[i], longest.list[i].Outcome.Wait)
		return nil
	}
	defer room.leave(counters)
	// The local store is the last, because it schedules by the clock: so the request waits for the
	// longest of these waits, and not for their sum.
	for s := len(e.sets) - 1; s >= 0 && err == nil; s-- {
		if e.sets[s].wait() > 0 {
			err = e.limits.stores[s].Wait(ctx, e.sets[s].list)
		}
	}
	if err != nil {
		e.undo()
		e.Allowed = false
		if ctx.Err() == nil { // the store has failed, so its scheduled time is unknown
			e.decider.options.Failed(err)
			return nil
		}
		return ctx.Err()
	}
	decided := e.decider.local.Now()
	e.Delayed = time.Duration(decided-now) * time.Microsecond
	if l := e.decider.options.Logger; l.Enabled(ctx, slog.LevelDebug) {
		ch := &longest.list[i]
		l.Debug("a request proceeds at its scheduled time", "rule", longest.of[i].rule.Name,
			"scheduled", time.UnixMicro(ch.At+ch.Outcome.Wait).UTC(), "decided", time.UnixMicro(decided).UTC())
	}
	return nil
}

// undo refunds all charges of the request, which then is not allowed.
func (e *Evaluation) undo() {
	for s := range e.sets {
		e.refundTo(s, e.sets[s].list)
		e.refundTo(s, e.debts[s].list)
		e.released(&e.sets[s], always)
		e.sets[s].restore()
	}
}

// refundTo refunds charges in a store.
func (e *Evaluation) refundTo(s int, list []limit.Charge) {
	if len(list) > 0 {
		e.limits.stores[s].Refund(list)
	}
}

// refund refunds the request under rules that do not count that status of its response.
func (e *Evaluation) refund(status int) {
	refunded := func(r *plan.Rule) bool { return refunds(r, status) }
	for s := range e.sets {
		e.decider.order.change(e, s, &e.Moments.Status, func() {
			e.refundTo(s, e.sets[s].refundable(status))
			e.refundTo(s, e.debts[s].refundable(status))
		})
		e.released(&e.sets[s], refunded)
	}
}

// end releases the slots that the request holds, and the evaluation.
func (e *Evaluation) end() {
	e.countCosts()
	e.Release()
	e.request, e.prepared = rule.Request{}, nil // so that the pool does not keep them
	e.decider.pool.Put(e)
}

// Release releases the slots that the request holds. Later calls do nothing.
func (e *Evaluation) Release() {
	if !e.held {
		return
	}
	e.held = false
	if e.adapts {
		e.landAll()
	}
	for s := range e.sets {
		if ordered := s == 0 && e.decider.order != nil; !ordered && len(e.sets[s].list)+len(e.debts[s].list) == 0 {
			continue // which saves an adaptive rule 15 ns
		}
		e.decider.order.change(e, s, &e.Moments.Released, func() {
			e.refundTo(s, e.sets[s].keepHeld())
			e.refundTo(s, e.debts[s].keepHeld())
		})
		e.released(&e.sets[s], always)
		e.released(&e.debts[s], always)
	}
}

// released wakes the heads of the wait queues for which charges of the request were refunded: those
// of the rules that refunded reports.
func (e *Evaluation) released(c *charges, refunded func(*plan.Rule) bool) {
	q := &e.decider.queues
	if q.empty() {
		return
	}
	for i := range c.list {
		r := c.of[i].rule
		if !c.of[i].silent && c.made(i) && refunded(r) {
			q.wake(r.Counters, c.list[i].Key)
		}
	}
}

// always is for released: all charges were refunded.
func always(*plan.Rule) bool { return true }

// report makes the verdicts of the charges and, where counted says so, counts them.
func (e *Evaluation) report(now int64, counted bool) {
	never := false
	for s := range e.sets {
		c := &e.sets[s]
		for i := range c.list {
			r := c.of[i].rule
			if c.list[i].Shared && counted {
				e.overflowed(r, now)
			}
			if c.of[i].silent && (c.list[i].Shadow || c.list[i].Outcome.Allowed) {
				continue // the other store's outcome counts
			}
			v := &e.Verdicts[c.of[i].index]
			if !v.Allowed {
				continue // the local share has refused already
			}
			v.Outcome = c.list[i].Outcome
			if v.Refused() {
				b := &e.limits.bound[r.Slot]
				if v.Reserved = e.busy(s, r, &c.list[i], now) && !b.never(r, now, c.list[i].Cost); v.Reserved {
					v.Wait = busyWait(now)
					if counted {
						e.part(r).reserved.Add(1)
					}
				}
				wait := v.Wait
				ends := !endless(v.Outcome)
				if !ends && s == 0 && b.elsewhere {
					ends, wait = true, time.Second.Microseconds() // Redis may be back soon
				}
				never = never || !ends || b.never(r, now, c.list[i].Cost)
				e.RetryAfter = max(e.RetryAfter, time.Duration(max(wait, 1))*time.Microsecond)
			}
			if !counted {
				continue
			}
			if !v.Allowed {
				e.noteRefusal(r, c.list[i].Key, now, s == 0 && e.limits.bound[r.Slot].elsewhere)
			}
			e.count(r, v, now)
			if e.Allowed && (v.Allowed || c.of[i].debit) {
				e.refundable = e.refundable || len(r.Charge) > 0
			}
		}
	}
	// Also where no verdict was counted: with on_error: open a store that is down gets a debit.
	e.held = counted && e.Allowed && e.takesSlots
	if never {
		e.RetryAfter = 0
	}
	if e.exempt {
		e.Verdicts = slices.DeleteFunc(e.Verdicts, func(v rule.Verdict) bool { return v.Rule == nil })
		e.rules = slices.DeleteFunc(e.rules, func(r *plan.Rule) bool { return r == nil })
	}
}

// endless reports whether no time ends the wait of a refusal, because its limit is a total.
func endless(o limit.Outcome) bool { return o.Wait > bounds.Forever/2 }

// noteRefusal records an actor that a rule has refused, or would have refused, if it is in the sample. degraded says that
// the local store has refused in place of another.
func (e *Evaluation) noteRefusal(r *plan.Rule, key []byte, now int64, degraded bool) {
	if !e.sampler.Allow(now) {
		return
	}
	request := &e.request
	if len(request.OtherPaths) > 0 || len(request.OtherMethods) > 0 {
		request = new(rule.Request)
		request.Method, request.Path = e.limits.Set.Reading(r, &e.request)
	}
	e.decider.refusals.Note(now, &e.limits.bound[r.Index].record.refused, len(e.limits.Set.Rules), key, request, r.Shadow, degraded)
}

// count adds a verdict to the tally of its rule.
func (e *Evaluation) count(r *plan.Rule, v *rule.Verdict, now int64) {
	t := e.part(r)
	if !v.Allowed && e.adapts && e.limits.bound[r.Slot].adapts {
		record := e.limits.bound[r.Index].record
		record.shed[e.limits.Set.LevelOf(r, &e.client)].Add(1)
		record.shedAt.Store(now)
	}
	switch {
	case v.Refused():
		t.refused.Add(1)
	case !v.Allowed:
		t.shadowRefused.Add(1)
	case !e.Allowed: // another rule refused: this one was not charged
	case v.Wait > 0 && !r.Shadow, e.waited != "" && e.waited == r.Counters:
		t.delayed.Add(1)
	default:
		t.allowed.Add(1)
	}
}

// part returns the part of a rule's tally in which this evaluation counts.
func (e *Evaluation) part(r *plan.Rule) *part {
	return e.limits.bound[r.Index].record.tally.part(e.nth)
}

// warnEvery is how often at most the overflow of a rule is logged.
const warnEvery = time.Minute

// overflowed counts a request that the overflow counter of a rule has evaluated. It logs that now
// and then, because that counter can refuse clients that have done nothing wrong.
func (e *Evaluation) overflowed(r *plan.Rule, now int64) {
	e.part(r).overflow.Add(1)
	if !due(&e.limits.bound[r.Index].record.warned, now) {
		return
	}
	e.decider.options.Logger.Warn("new actors of a rule share one counter, because max_keys leaves no room for them: "+
		"raise max_keys, or use an actor that clients cannot invent, such as ip",
		"rule", r.Name, "max_keys", e.limits.MaxKeys)
}

// due reports whether it is time for another warning, to one caller alone.
func due(last *atomic.Int64, now int64) bool {
	before := last.Load()
	return (before == 0 || now-before >= warnEvery.Microseconds()) && last.CompareAndSwap(before, now)
}
