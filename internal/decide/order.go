// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// order makes the changes of local counters one after the other, each at a moment of its own. Then the
// moments say in which order the store has made the changes, and a program can play them back exactly.
// Without an order the moments of parallel requests do not say which was first.
type order struct {
	wanted func() bool

	held atomic.Bool // during a change, which takes well under a microsecond
	last int64       // the latest moment; guarded by held
}

// mostAhead is how far the moments may be ahead of the clock, in microseconds. Above a million changes a
// second some therefore have the same moment.
const mostAhead = 1000

// mostSpins is how often lock tries before it lets other goroutines run.
//
// Rejected: a sync.Mutex. When its holder loses the processor for a millisecond, it is handed from waiter to
// waiter, each of which the scheduler must wake.
const mostSpins = 30

// newOrder returns an order that is kept while wanted reports true; nil for a nil wanted.
func newOrder(wanted func() bool) *order {
	if wanted == nil {
		return nil
	}
	return &order{wanted: wanted}
}

// lock starts a change and returns its moment.
func (o *order) lock(now int64, local *memstore.Store) int64 {
	for spin := 0; !o.held.CompareAndSwap(false, true); spin++ {
		if spin > mostSpins { // the holder has lost its processor
			runtime.Gosched()
		}
	}
	if o.last >= now+mostAhead { // or now is old, because the goroutine had to wait
		now = local.Now()
	}
	if o.last++; o.last < now || o.last > now+mostAhead {
		o.last = max(now, o.last-1)
	}
	return o.last
}

// kept reports whether there must be an order. Another process that has taken over gives none, and takes too long.
func (o *order) kept(e *Evaluation) bool { return o.wanted() && !e.decider.local.HandedOver() }

func (o *order) unlock() { o.held.Store(false) }

// take makes the charges of a request to the local store.
func (o *order) take(ctx context.Context, e *Evaluation, now int64, list []limit.Charge) (bool, error) {
	if o.kept(e) {
		now = o.lock(now, e.decider.local)
		defer o.unlock()
	}
	e.Moments.Charged = now
	return e.decider.local.Take(ctx, now, list)
}

// change makes a later change of a request's charges to a store. If that is the local one, change sets at to the
// moment. o may be nil.
func (o *order) change(e *Evaluation, store int, at *int64, do func()) {
	if o == nil || store > 0 {
		do()
		return
	}
	*at = e.decider.local.Now()
	if o.kept(e) {
		*at = o.lock(*at, e.decider.local)
		defer o.unlock()
	}
	do()
}

// Moments are when the local charges of a request were made and changed, in microseconds since the Unix
// epoch; 0 means never. A Decider without Options.Ordered leaves them 0.
type Moments struct {
	Charged  int64 // or refused
	Status   int64 // refunded because of the status of the response
	Settled  int64 // by the cost of the response
	Released int64 // the end of the request
	Cost     int64 // by which the first rule was settled
	Known    bool  // Cost is known
}
