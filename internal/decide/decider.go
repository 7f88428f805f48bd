// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/minutes"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/refusals"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/redisstore"
	"github.com/diana-limiter/diana/rule"
)

// Options configure a Decider.
type Options struct {
	Local  *memstore.Store
	Logger *slog.Logger

	// Frozen says that the clock is not the system's. Then no request is held: no timer knows when
	// that clock reaches a moment.
	Frozen bool

	// MeasureBegin says that adaptive rules measure a request to the begin of its response, where they say nothing.
	MeasureBegin bool

	// Refused gets the refusals that are worth a line in a log. May be nil.
	Refused func(refusals.Refusal)

	// Ordered reports whether the moments of local charges must be in the order of the charges, see
	// Moments. It is called for each change. Nil means that there are no moments.
	Ordered func() bool

	// Failed gets the error of each call to another store that has failed.
	Failed func(error)
}

// Decider evaluates requests by the Limits in force. It is safe for concurrent use. Close ends it.
type Decider struct {
	options     Options
	local       *memstore.Store
	order       *order // nil: without Options.Ordered
	limits      atomic.Pointer[Limits]
	pool        sync.Pool
	evaluations atomic.Uint32 // made so far
	degraded    atomic.Int64  // requests that were evaluated without a store other than the local one
	queues      waitQueues
	reserved    reserved
	room        waitRoom // of the wait queues, and of requests that wait for a leaky bucket
	refusals    *refusals.Log
	salt        maphash.Seed // of clients, for adaptive rules
	failures    failures

	mu      sync.Mutex         // guards the rest, and changes of limits
	records map[string]*record // by name of the rule
	removed []*record          // of rules that the latest change has removed; requests may still count there
	gone    minutes.Counts     // of rules that were removed before
}

// usual is how many rules an Evaluation has memory for from the start: all that plainCharges can evaluate.
const usual = 4

// New returns a Decider. Its owner calls [Decider.Use] before the first Take.
func New(o Options) *Decider {
	d := &Decider{options: o, salt: maphash.MakeSeed(), local: o.Local, order: newOrder(o.Ordered), refusals: refusals.NewLog(o.Refused, o.Local.Now)}
	d.queues.room = &d.room
	d.pool.New = func() any {
		return &Evaluation{decider: d, nth: d.evaluations.Add(1),
			Verdicts: make([]rule.Verdict, 0, usual), rules: make([]*plan.Rule, 0, usual)}
	}
	return d
}

// Close ends the reporting of refusals.
func (d *Decider) Close() { d.refusals.Close() }

// Take evaluates a request and charges it under all its rules or, if one refuses, under none. It
// finds the rules by p, calls beforeWait before the request waits, and read if rules need the body of the request.
// All three may be nil; without read rules find no body. On an error the request is charged
// nowhere, and not allowed. The Evaluation must be ended by its Handle in any case.
func (d *Decider) Take(ctx context.Context, r *rule.Request, p *plan.Prepared, beforeWait func(*http.Request) error, read BodyReader) (*Evaluation, error) {
	e := d.begin(r)
	e.prepared, e.beforeWait = p, beforeWait
	if strange := e.find(); strange != nil {
		e.Allowed = false
		return e, strange
	}
	if e.limits.Credentials != nil {
		if refused, err := e.prove(ctx, d.local.Now(), true); refused || err != nil {
			e.Allowed = false
			return e, err
		}
	}
	return e, e.decide(ctx, read)
}

// Again evaluates a request of Take that was refused once more, because its body has changed. Its credentials are not
// verified again. Both Evaluations must be ended.
func (d *Decider) Again(ctx context.Context, r *rule.Request, refused *Evaluation, read BodyReader) (*Evaluation, error) {
	e := d.begin(r)
	e.prepared, e.beforeWait = refused.prepared, nil
	e.request.Proofs, e.fields = refused.request.Proofs, refused.fields
	if strange := e.find(); strange != nil {
		e.Allowed = false
		return e, strange
	}
	return e, e.decide(ctx, read)
}

// decide evaluates a request whose rules are found, and charges it.
func (e *Evaluation) decide(ctx context.Context, read BodyReader) error {
	if len(e.match.Rules) == 0 {
		return nil
	}
	d := e.decider
	now := d.local.Now()
	if read != nil && e.needsBody() {
		if refused, err := e.readBody(ctx, now, read); refused || err != nil {
			e.Allowed = false
			return err
		}
		now = d.local.Now()
	}
	if plain, err := e.plain.take(ctx, e, now); plain {
		return err
	}
	err := e.take(ctx, now)
	if err == nil && e.Degraded {
		d.degraded.Add(1) // free of contention while the other stores answer
	}
	e.Allowed = e.Allowed && err == nil
	e.report(now, err == nil)
	if e.adapts {
		e.depart(now)
	}
	if e.Allowed && e.settles {
		e.reserve(now)
	}
	return err
}

// Peek evaluates a request as Take would now, and changes nothing. It does not wait: Delayed is how
// long the request would wait for a leaky bucket. The Evaluation must be ended as that of Take.
func (d *Decider) Peek(ctx context.Context, r *rule.Request) (*Evaluation, error) {
	e := d.begin(r)
	if strange := e.find(); strange != nil {
		e.Allowed = false
		return e, strange
	}
	now := d.local.Now()
	if refused, err := e.prove(ctx, now, false); refused || err != nil {
		e.Allowed = false
		return e, err
	}
	err := e.peek(ctx, now)
	e.Allowed = e.Allowed && err == nil
	e.report(now, false)
	return e, err
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
		if b.remote != nil { // first, because the local counters decide in its place
			errs = append(errs, limits.stores[b.store].Reset(ctx, b.remote, key))
		}
		errs = append(errs, d.forget(ctx, b, key))
		b.record.fullest.forget(key)
		d.queues.wake(r.Counters, key)
	}
	return errors.Join(errs...)
}

// Forget forgets the local counters of an actor whose counter another store has reset, for this
// gateway or for another one. Before the first limits are bound there are none.
func (d *Decider) Forget(counters string, key []byte) {
	limits := d.Limits()
	if limits == nil {
		return
	}
	for _, r := range slices.Concat(limits.Set.Rules, limits.Set.Variants) {
		if b := &limits.bound[r.Slot]; r.Counters == counters && b.remote != nil {
			if err := d.forget(context.Background(), b, key); err != nil {
				d.options.Logger.Error("the local counter of an actor is not reset", "rule", r.Name, "error", err)
			}
			b.record.fullest.forget(key)
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

// begin returns an Evaluation of a request by the Limits in force.
func (d *Decider) begin(r *rule.Request) *Evaluation {
	e := d.pool.Get().(*Evaluation)
	e.limits, e.down = d.inForce()
	e.request, e.fields = *r, nil
	e.held, e.refundable, e.named, e.settles, e.adapts, e.waited, e.status = false, false, false, false, false, "", 0
	e.Allowed, e.Degraded, e.RetryAfter, e.Delayed, e.Verdicts = true, false, 0, 0, e.Verdicts[:0]
	e.Moments, e.plainly = Moments{}, false
	return e
}

// inForce returns the Limits in force, and the stores that cannot be asked. When Redis comes back,
// Limits by which both stores decide are put in force before a request sees that Redis is up. So
// the Limits from before must not be used together with a Redis that is up.
func (d *Decider) inForce() (*Limits, storeSet) {
	for {
		limits := d.limits.Load()
		if limits.redis == 0 {
			return limits, 0
		}
		if !limits.stores[limits.redis].(*redisstore.Store).Up() {
			return limits, 1 << limits.redis
		}
		if limits == d.limits.Load() {
			return limits, 0
		}
	}
}

// Limits returns the Limits in force.
func (d *Decider) Limits() *Limits { return d.limits.Load() }

// Degraded returns how many requests were evaluated without a store other than the local one.
func (d *Decider) Degraded() int64 { return d.degraded.Load() }

// Waiting returns how many requests wait now.
func (d *Decider) Waiting() int { return d.room.occupied() }

// Counts returns the decisions of the rule with that index of the Limits.
func (d *Decider) Counts(l *Limits, index int) (c Counts, overflow int64, top []refusals.Top) {
	r := l.bound[index].record
	return r.tally.counts(), r.tally.overflow(), d.refusals.Top(&r.refused)
}

// Tally returns the counts of a rule of l, by its index, without the rest of what Counts returns.
func (d *Decider) Tally(l *Limits, index int) Counts { return l.bound[index].record.tally.counts() }

// Totals returns the decisions of all rules since the start, those of removed rules included. It misses a
// request that waits under a rule while two changes remove it.
func (d *Decider) Totals() minutes.Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := d.gone
	for _, r := range d.removed {
		sum = sum.Plus(r.tally.decisions())
	}
	limits := d.limits.Load()
	if limits == nil { // a store in Redis asks already
		return sum
	}
	for i := range limits.Set.Rules { // with 100,000 rules a tenth of the time that d.records takes
		sum = sum.Plus(limits.bound[i].record.tally.decisions())
	}
	return sum
}

// WakeAll lets the head of each queue ask again, because another process may have released slots.
func (d *Decider) WakeAll() { d.queues.wakeAll() }

// Idle reports whether no request waits in a queue. A request that waits for a leaky bucket does
// not count.
func (d *Decider) Idle() bool {
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	return d.queues.empty() && len(d.queues.by) == 0
}
