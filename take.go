// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"net/http"
	"net/netip"
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
	// is down does not make it 0.
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
// is known, once, and before Done. A server that uses Handler does not need it.
func (d *Decision) SetStatus(status int) { d.handle.SetStatus(status) }

// Take evaluates a request and charges it, under all rules that cover it or, if one refuses, under
// none. Under a leaky bucket, or a rule with a wait, it blocks until the request's scheduled time.
// For global rules it waits for Redis, for redis.timeout at most, and decides without Redis if that
// is down. It never reads the body of Request.HTTP.
//
// The error is ctx's, if ctx ended while the request waited, or a rule.PathError. Then the request is
// charged nowhere, and the Decision is a refusal that has ended; Done need not be called. Otherwise the
// Decision must be ended with Done.
//
// Take does not allocate under local rules, unless the request waits, its path is spelled strangely,
// or the value of a cookie, query parameter or host is not in its canonical form.
func (l *Limiter) Take(ctx context.Context, r Request) (Decision, error) {
	d, err := l.take(ctx, r, nil)
	switch {
	case err != nil:
		d.Done()
		return Decision{}, err
	case l.options.OnDecision != nil:
		l.observe(d)
	}
	return d, nil
}

// take is Take without Options.OnDecision. Its Decision must be ended after an error too. It calls beforeWait, if it is not nil, before the
// request waits.
func (l *Limiter) take(ctx context.Context, r Request, beforeWait func(*http.Request) error) (Decision, error) {
	complete(&r)
	result, err := l.decider.Take(ctx, r, beforeWait)
	if err != nil {
		err = l.countRejected(err)
	}
	return decision(&result), err
}

func decision(r *decide.Result) Decision {
	return Decision{
		Allowed: r.Allowed, RetryAfter: r.RetryAfter, Delayed: r.Delayed, Degraded: r.Degraded,
		Verdicts: r.Verdicts, handle: r.Handle,
	}
}

// Peek evaluates a request as Take would now, and changes nothing: no counter, no count of decisions.
// It does not wait: Delayed is how long the request would wait for a leaky bucket. It does not regard
// other requests that wait. The Decision need not be ended with Done. The error is ctx's, or a
// rule.PathError.
func (l *Limiter) Peek(ctx context.Context, r Request) (Decision, error) {
	complete(&r)
	result, err := l.decider.Peek(ctx, r)
	if err != nil {
		return Decision{}, err
	}
	return decision(&result), nil
}

// Identify returns who makes the request by the identity of the configuration in force: the
// account and the device, "" where the request names none, and the client's address, whose zero
// value is none.
func (l *Limiter) Identify(r Request) (account, device string, ip netip.Addr) {
	complete(&r)
	return l.decider.Limits().Set.Identify(&r)
}

// Waiting returns how many requests wait now, in Take: under a rule with a wait, or for a leaky
// bucket. There are at most 10,000.
func (l *Limiter) Waiting() int { return l.decider.Waiting() }

// Reset forgets what the rule with that name, and its overrides, have counted for one actor: the
// actor may use the whole limit again. The actor is given as a value ("ann"), as a value for each of the
// rule's actors ("account=ann", "ip=192.0.2.1"), or as Explain, the log and Status write its key. A
// global rule is reset in Redis, and within a second in the memory of every gateway; a local rule
// is reset in this process alone. Slots that requests hold stay held. The error says which rule or
// actor was expected, or why a store could not be asked; then Reset can be repeated.
func (l *Limiter) Reset(ctx context.Context, rule string, actor ...string) error {
	set := l.decider.Limits().Set
	r, err := set.Named(rule)
	if err != nil {
		return err
	}
	keys, err := plan.ActorKeys(set, r, actor)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := l.decider.Reset(ctx, r, []byte(key)); err != nil {
			return err
		}
	}
	return nil
}
