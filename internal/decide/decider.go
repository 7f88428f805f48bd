// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/refusals"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
)

// Options configure a Decider.
type Options struct {
	Local  *memstore.Store
	Logger *slog.Logger

	// Frozen says that the clock is not the system's. Then no request is held: no timer knows when
	// that clock reaches a moment.
	Frozen bool

	// Refused gets the refusals that are worth a line in a log. May be nil.
	Refused func(refusals.Refusal)

	// Failed gets the error of each call to another store that has failed.
	Failed func(error)
}

// Decider evaluates requests by the Limits in force. It is safe for concurrent use. Close ends it.
type Decider struct {
	options     Options
	local       *memstore.Store
	limits      atomic.Pointer[Limits]
	pool        sync.Pool
	evaluations atomic.Uint32 // made so far
	degraded    atomic.Int64  // requests that were evaluated without a store other than the local one
	queues      waitQueues
	room        waitRoom // of the wait queues, and of requests that wait for a leaky bucket
	refusals    *refusals.Log

	mu      sync.Mutex         // guards records, and changes of limits
	records map[string]*record // by name of the rule
}

// New returns a Decider. Its owner calls [Decider.Use] before the first Take.
func New(o Options) *Decider {
	d := &Decider{options: o, local: o.Local, refusals: refusals.NewLog(o.Refused, o.Local.Now)}
	d.queues.room = &d.room
	d.pool.New = func() any { return &Evaluation{decider: d, nth: d.evaluations.Add(1)} }
	return d
}

// Close ends the reporting of refusals.
func (d *Decider) Close() { d.refusals.Close() }

// Result is the decision about one request.
type Result struct {
	Allowed    bool
	Degraded   bool
	RetryAfter time.Duration
	Delayed    time.Duration
	Verdicts   []rule.Verdict // until Done
	Handle
}

// Handle refers to the Evaluation behind a Result until Done. The zero value refers to none.
type Handle struct {
	e   *Evaluation
	use uint64
}

// Evaluation returns the evaluation, or nil after Done.
func (h *Handle) Evaluation() *Evaluation {
	if h.e == nil || h.e.use.Load() != h.use {
		return nil
	}
	return h.e
}

// Done releases the slots that the request holds. Later calls do nothing, those of copies of h too.
func (h *Handle) Done() {
	if e := h.e; e != nil && e.use.CompareAndSwap(h.use, h.use+1) {
		e.end()
	}
	h.e = nil
}

// SetStatus refunds the request under rules that do not count that status of its response.
func (h *Handle) SetStatus(status int) {
	if e := h.Evaluation(); e != nil && e.refundable {
		e.refundable = false
		e.refund(status)
	}
}

// Take evaluates a request and charges it under all its rules or, if one refuses, under none. It
// calls beforeWait, which may be nil, before the request waits. On an error the request is charged
// nowhere, and the Result is a refusal. Every Result must be ended with Done.
func (d *Decider) Take(ctx context.Context, r rule.Request, beforeWait func(*http.Request) error) (Result, error) {
	e := d.begin(r)
	e.beforeWait = beforeWait
	result := Result{Handle: Handle{e, e.use.Load()}}
	if strange := e.find(); strange != nil {
		return result, strange
	}
	if len(e.match.Rules) == 0 {
		result.Allowed = true
		return result, nil
	}
	now := d.local.Now()
	err := e.take(ctx, now)
	if err == nil && e.degraded {
		d.degraded.Add(1) // free of contention while the other stores answer
	}
	e.allowed = e.allowed && err == nil
	e.report(now, err == nil)
	e.fillIn(&result)
	return result, err
}

// begin returns an Evaluation of a request by the Limits in force.
func (d *Decider) begin(r rule.Request) *Evaluation {
	e := d.pool.Get().(*Evaluation)
	e.limits, e.down = d.inForce()
	e.request = r
	e.held, e.refundable, e.waited = false, false, ""
	e.allowed, e.degraded, e.retryAfter, e.delayed = true, false, 0, 0
	return e
}

// inForce returns the Limits in force, and the stores that cannot be asked. When Redis comes back,
// Limits by which both stores decide are put in force before a request sees that Redis is up. So
// the Limits from before must not be used together with a Redis that is up.
func (d *Decider) inForce() (*Limits, storeSet) {
	for {
		limits := d.limits.Load()
		down := limits.down()
		if !limits.redisUp(down) || limits == d.limits.Load() {
			return limits, down
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

// StillCounts returns how much of n still counts that an actor was allowed without Redis: as much
// as the local counter says that has evaluated it.
func (d *Decider) StillCounts(counters string, key []byte, n int64) int64 {
	limits := d.Limits()
	slot, ok := limits.byName[counters]
	if !ok || limits.bound[slot].local == nil {
		return 0
	}
	b, now := &limits.bound[slot], d.local.Now()
	charge := []limit.Charge{{Counters: b.local, Key: key, Cost: 1}}
	if err := d.local.Peek(context.Background(), now, charge); err != nil {
		return n
	}
	unused := b.meter.Peek(limit.State{}, now, 1).Remaining
	return min(n, unused-charge[0].Outcome.Remaining)
}

// Idle reports whether no request waits in a queue. A request that waits for a leaky bucket does
// not count.
func (d *Decider) Idle() bool {
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	return d.queues.empty() && len(d.queues.by) == 0
}
