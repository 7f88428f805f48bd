// SPDX-License-Identifier: MIT

package rate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/limit"
)

// A Limiter bounds the rate at which work starts. Use New. A Limiter is safe for concurrent use,
// starts no goroutine, and must not be copied. Work that does not have to wait costs no
// allocation.
//
// The next work pays for a burst. Work of any size starts as soon as the work before it is paid
// for, and the work after it waits for what it costs. The Limiter stores what is not used, up to
// one second's worth or the Burst of its limit. With a Warmup it stores nothing; after idle time
// the rate begins at a third, and climbs to the whole rate over that time.
// See limit.Reservations for the largest number that can start in an interval.
//
// A Limiter without a Store begins with nothing stored, or cold. In a Store, a rate that has not
// been used for long has as much stored as it can.
type Limiter struct {
	store   limit.Store
	now     func() int64 // microseconds by the clock of the store, if it has one
	key     []byte       // the name
	own     bool         // nothing else uses the store
	part    *Limiter     // decides while the store fails; nil: none
	workers int

	inForce atomic.Pointer[inForce]
	charges sync.Pool // of *[1]limit.Charge
	closed  sync.Once

	mu      sync.Mutex     // guards pending, changes of inForce, and an own store
	pending []*Reservation // in order of scheduled time; those of the past are removed now and then
}

// inForce is the limit of a Limiter at this time.
type inForce struct {
	limit    limit.Limit
	counters any
}

// New returns a Limiter that allows l.N per l.Unit. Of the other fields of l, Burst or Warmup may
// be set. The error is for values out of range, and for a Store that cannot keep the limit.
//
// With [Options.Workers] each Limiter allows an equal part of the rate while its Store fails. It
// then does not know what is still to be paid for in the Store.
func New(l limit.Limit, o Options) (*Limiter, error) {
	lim := &Limiter{key: []byte(o.Name), own: o.Store == nil, workers: o.Workers}
	lim.charges.New = func() any { return new([1]limit.Charge) }
	var err error
	if lim.store, lim.now, err = o.open(); err != nil {
		return nil, err
	}
	if !lim.own && o.Workers > 0 {
		if lim.part, err = New(share(l, o.Workers), Options{}); err != nil {
			return nil, err
		}
	}
	if err := lim.SetLimit(l); err != nil {
		return nil, err
	}
	return lim, nil
}

// share returns the part of a limit that each of so many workers has.
func share(l limit.Limit, workers int) limit.Limit {
	n := int64(workers)
	if l.Unit <= bounds.MaxUnit/time.Duration(n) {
		l.Unit *= time.Duration(n)
	} else if l.N > 0 {
		l.N = max(l.N/n, 1)
	}
	if l.Burst > 0 {
		l.Burst = max(l.Burst/n, 1)
	}
	return l
}

// Limit returns the limit in force.
func (l *Limiter) Limit() limit.Limit { return l.inForce.Load().limit }

// SetLimit changes the limit. Waiting calls are unaffected. What is to be paid for and
// what is stored are kept as time: a limit that was half full is half full afterwards. A limit that
// gets a Warmup begins cold, and one that loses its Warmup begins with nothing stored. Of a rate
// in a Store, SetLimit changes the limit of this Limiter only. The errors are those of New; on an
// error SetLimit changes nothing.
func (l *Limiter) SetLimit(to limit.Limit) error {
	open := to
	if open.N == 0 { // reserve refuses everything; the state is kept for a later limit
		open.N = 1
	}
	meter, err := limit.Reservations().New(open)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := &inForce{limit: to}
	if next.counters, err = l.counters(meter); err != nil {
		return err
	}
	old := l.inForce.Load()
	switch {
	case l.part != nil:
		err = l.part.SetLimit(share(to, l.workers))
	case l.own && (old == nil || (old.limit.Warmup > 0) != (to.Warmup > 0)):
		err = l.empty(meter.StateVersion())
	}
	if err != nil {
		l.store.Retire(next.counters)
		return err
	}
	l.inForce.Store(next)
	if old != nil {
		l.store.Retire(old.counters)
	}
	return nil
}

// counters returns the handle of the store for the limit that m keeps.
func (l *Limiter) counters(m limit.Meter) (any, error) {
	return l.store.Counters(fmt.Sprintf("rate: %s %q", m.StateVersion(), l.key), m)
}

// empty removes what a new counter of that state version has stored. It takes all of it by a
// limit that stores no more than a microsecond's worth. A limit with a Warmup begins cold and has
// nothing stored. l.mu is held.
func (l *Limiter) empty(version string) error {
	narrow, err := limit.Reservations().New(limit.Limit{N: 1000, Unit: time.Millisecond, Burst: 1})
	if err != nil || narrow.StateVersion() != version {
		return err
	}
	counters, err := l.counters(narrow)
	if err != nil {
		return err
	}
	defer l.store.Retire(counters)
	_, err = l.store.Take(context.Background(), l.now(), []limit.Charge{{Counters: counters, Key: l.key, Cost: 1}})
	return err
}

// Close says that the Limiter is no longer used. The Store can then forget the rate if
// no other Limiter of that name is in use. A Limiter without a Store needs no Close. Further calls
// do nothing.
func (l *Limiter) Close() { l.closed.Do(func() { l.store.Retire(l.inForce.Load().counters) }) }

// Wait waits until work that costs n may start, and returns how long that was scheduled to take. If
// ctx ends first, Wait refunds what it can, see [Reservation.Cancel], and returns the error of ctx.
// If the work cannot start before the deadline of ctx, Wait consumes nothing and returns at once
// an error that is both ErrTooLong and context.DeadlineExceeded.
func (l *Limiter) Wait(ctx context.Context, n int64) (time.Duration, error) {
	r, err := l.try(ctx, n, longest)
	if err != nil || r == nil {
		return 0, err
	}
	if err := r.sleep(ctx); err != nil {
		return 0, err
	}
	return r.wait, nil
}

// TryWait waits like Wait, but for at most that long. If the work cannot start by then, or before
// the deadline of ctx, TryWait consumes nothing and returns false at once. The error is that of ctx
// or of the Store.
func (l *Limiter) TryWait(ctx context.Context, n int64, most time.Duration) (bool, error) {
	switch r, wait, err := l.reserve(ctx, n, min(most, longest)); {
	case err != nil || wait > 0:
		return false, err
	case r != nil:
		err := r.sleep(ctx)
		return err == nil, err
	}
	return true, nil
}

// Reserve consumes n, for work that the caller starts after the Delay of the Reservation, or
// cancels. It does not wait, except for an answer of the Store. If the work cannot start before the
// deadline of ctx, Reserve fails as Wait does. The end of ctx does not cancel a Reservation.
func (l *Limiter) Reserve(ctx context.Context, n int64) (*Reservation, error) {
	r, err := l.try(ctx, n, longest)
	if r == nil && err == nil {
		r = &Reservation{limiter: l}
	}
	return r, err
}

// longest is the longest wait, a hundred years. A longer one fails with ErrTooLong.
const longest = 100 * 365 * 24 * time.Hour

// try is reserve with an error if n is refused.
func (l *Limiter) try(ctx context.Context, n int64, most time.Duration) (*Reservation, error) {
	r, wait, err := l.reserve(ctx, n, most)
	if err != nil || wait == 0 {
		return r, err
	}
	if end, ok := ctx.Deadline(); ok && l.Limit().N > 0 {
		return nil, fmt.Errorf("%w: %d would have to wait for %v, and the context ends in %v: %w",
			ErrTooLong, n, wait, time.Until(end), context.DeadlineExceeded)
	}
	return nil, fmt.Errorf("%w: %d, at %d per %v, could never start", ErrTooLong, n, l.Limit().N, l.Limit().Unit)
}

// reserve consumes n if the work may start within most, and before the deadline of ctx. It returns
// a Reservation if the work has to wait. If it has consumed nothing, refused is how long the work
// would have to wait, which is not 0.
func (l *Limiter) reserve(ctx context.Context, n int64, most time.Duration) (r *Reservation, refused time.Duration, err error) {
	if n < 1 || n > bounds.MaxN {
		return nil, 0, fmt.Errorf("rate: n is %d, expected 1 to %d", n, bounds.MaxN)
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)-time.Microsecond) // so that the wait ends before ctx
	}
	most = max(most, 0)
	if l.own { // so that Cancel sees all reservations
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	f := l.inForce.Load()
	if f.limit.N == 0 {
		return nil, f.limit.Unit, nil
	}
	charges := l.charges.Get().(*[1]limit.Charge)
	defer l.charges.Put(charges)
	ch := &charges[0]
	*ch = limit.Charge{Counters: f.counters, Key: l.key, Cost: n, Longest: most.Microseconds()}
	allowed, err := l.store.Take(ctx, l.now(), charges[:])
	wait := time.Duration(ch.Outcome.Wait) * time.Microsecond
	switch {
	case err != nil && l.part != nil && ctx.Err() == nil:
		return l.part.reserve(ctx, n, most)
	case err != nil && ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case err != nil:
		return nil, 0, fmt.Errorf("rate: %w", err)
	case !allowed:
		return nil, max(wait+most, 1), nil // the sum is 0 if n is never allowed
	case wait == 0:
		return nil, 0, nil
	}
	r = &Reservation{limiter: l, charge: *ch, wait: wait, at: ch.At + ch.Outcome.Wait}
	if !l.own { // ch.At is by a clock of the store
		r.at = l.now() + ch.Outcome.Wait
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	l.add(r)
	return r, 0, nil
}
