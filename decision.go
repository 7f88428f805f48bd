// SPDX-License-Identifier: MIT

package diana

import (
	"net/http"
	"slices"
	"time"

	"github.com/diana-limiter/diana/internal/decide"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// Request is a request to evaluate: a method, a path, and its actors.
type Request = rule.Request

// Verdict is what one rule decides about a request.
type Verdict = rule.Verdict

// Decision is what a Limiter decides about a request. It must be ended with Done.
type Decision struct {
	// Allowed reports whether the request may proceed. A request that no rule covers may.
	Allowed bool

	// RetryAfter, of a refusal, is after how long the same request would be allowed if no other
	// request came. It is 0 if no wait helps, because a rule that refuses never allows the request:
	// its limit is 0, or lower than the cost of the request. A global rule that refuses because Redis
	// is down does not make it 0. When a local rule refuses, Take does not ask the other stores, so a
	// rule that they count may then refuse for longer. Peek asks all of them.
	RetryAfter time.Duration

	// Delayed is how long the request waited.
	Delayed time.Duration

	// Degraded reports whether a rule was evaluated without the store that it is counted in.
	Degraded bool

	// Verdicts are what the rules of the request decide, in their order. They must not be used
	// after Done.
	Verdicts []Verdict

	handle decide.Handle
}

// Done ends the request: it releases the slots that the request holds under rules of concurrency. It
// must be called once; further calls do nothing.
func (d *Decision) Done() {
	d.handle.Done()
	d.Verdicts = nil
}

// SetStatus sets the status of the response, as far as the request was allowed. It refunds the
// request under the rules that count other statuses alone. Without it the request stays charged
// to all rules, because nothing is known of its outcome. It should be called as soon as the status
// is known, once, and before Done. The status 0 means that there is no response: the request stays
// charged, and rules of adaptive concurrency do not take its latency for that of an answer. A server that uses Handler does not need it.
func (d *Decision) SetStatus(status int) { d.handle.SetStatus(status) }

// Settle tells what the request has cost, once that is known, from 0 to 999,999,999,999,999. It is for
// programs without Handler, and concerns the rules whose cost has an Answer: all of them, or those with the
// given names, if their costs differ. Each is charged n in place of
// what it has reserved: the difference is debited, into debt if need be, or refunded. Without it the
// reservation stays charged. For global rules it waits for Redis, for redis.timeout at most. Redis receives
// the others later, each once. It must be called before Done. A later call
// replaces n.
func (d *Decision) Settle(n int64, rules ...string) {
	d.handle.Settle(func(r *plan.Rule) (cost int64, known, concerned bool) {
		return n, true, len(rules) == 0 || slices.Contains(rules, r.Name)
	}, true)
}

// Request returns the request that was evaluated, with what filters have established about it. It must
// not be changed or kept. After Done, and for a Decision of Peek, it is nil.
func (d *Decision) Request() *Request {
	if e := d.handle.Evaluation(); e != nil {
		return e.Request()
	}
	return nil
}

// Key returns the key of the actor by which the rule with that name has counted the request. It must not
// be changed or kept. ok is false if the Limiter does not have it at hand, and without Options.OnDone.
func (d *Decision) Key(rule string) (key []byte, ok bool) {
	if e := d.handle.Evaluation(); e != nil {
		return e.Key(rule)
	}
	return nil, false
}

// Writer returns the ResponseWriter that Handler has got. It is nil for a Decision of Take, without
// Options.OnDone, and after Done.
func (d *Decision) Writer() http.ResponseWriter {
	if e := d.handle.Evaluation(); e != nil {
		return memoryOf(e).writer
	}
	return nil
}

// Moments returns when local rules have charged or refused the request, and when they have changed their
// charges. They refund it because of the status of the response, settle its cost, and release its slots. A
// moment is in microseconds since the Unix epoch, by the clock of the Limiter. It is 0 if the change has not
// happened. Below a million changes a second no two moments are equal, unless Options.InOrder reports false.
// Without Options.OnDone, and after Done, all are 0.
func (d *Decision) Moments() (charged, status, settled, released int64) {
	if e := d.handle.Evaluation(); e != nil {
		m := &e.Moments
		return m.Charged, m.Status, m.Settled, m.Released
	}
	return 0, 0, 0, 0
}

// Settled returns what the first rule whose cost has an Answer was charged by, or 0 before that. known is false
// if the response has not said it.
func (d *Decision) Settled() (n int64, known bool) {
	if e := d.handle.Evaluation(); e != nil {
		return e.Moments.Cost, e.Moments.Known
	}
	return 0, false
}

// set makes d the Decision of an evaluation.
func (d *Decision) set(e *decide.Evaluation) {
	d.Allowed, d.RetryAfter, d.Delayed, d.Degraded, d.Verdicts = e.Allowed, e.RetryAfter, e.Delayed, e.Degraded, e.Verdicts
	d.handle = e.Handle()
}

// Explanation says how one rule would evaluate a request.
type Explanation struct {
	Rule     *rule.Rule   // for this actor: with the Limit of an override or a class, if there is one
	URL      rule.Pattern // of the rule's entry
	Key      string       // of the actor; empty if the rule counts all clients together
	Cost     int64        // of the request
	Excepted bool         // whether the rule skips the request
	By       rule.Who     // the member of Except or Overrides that matches; its zero value means none
	Class    string       // the class of the client whose limit counts; empty means none
	Reserved int64        // of PeekActor: what requests in flight of this process have reserved for the actor
	Until    time.Time    // when the override of By ends; its zero value means never
}

// observe calls Options.OnDecision with a copy of d, which the evaluation has memory for. If that panics,
// the request releases what it holds.
func observe(on func(*Decision), d *Decision) {
	returned := false
	defer func() {
		if !returned {
			d.Done()
		}
	}()
	on(d.copied())
	returned = true
}

// finish ends the request of Handler, and calls Options.OnDone in between.
func finish(on func(*Decision), d *Decision) {
	defer d.Done()
	e := d.handle.Evaluation()
	if e == nil {
		return
	}
	e.Release()
	on(d.copied())
	memory := memoryOf(e)
	memory.writer, memory.decision = nil, Decision{}
}

// copied returns a copy of d in the memory of its evaluation.
func (d *Decision) copied() *Decision {
	memory := memoryOf(d.handle.Evaluation())
	memory.decision = *d
	return &memory.decision
}
