// SPDX-License-Identifier: MIT

// Package rate paces a program's own work: calls to somebody else's API, jobs, writes to a
// disk. It is for who asks itself to be slow; what limits others are the rules of a
// configuration.
//
//   - Most programs call [Limiter.Wait]: it sleeps until it is their turn, and fails at once
//     if that cannot be before the context's deadline.
//   - What is worth little when it is late calls [Limiter.TryWait], with the longest wait that
//     it is worth. With 0 that asks whether it may go on now.
//   - Who has something better to do than to sleep calls [Limiter.Reserve], and comes back.
//
// A burst is paid for by the next caller: a request of any size goes on as soon as those
// before it are paid, and who comes next waits for what it has cost. What is not used is
// stored, a second's worth unless the limit has a Burst. If it has a Warmup nothing is stored,
// and the rate climbs from a third to the whole over that time after it has not been used.
// See limit.Reservations for how much is let in at most.
//
// A Limiter counts in this process, and begins with nothing stored or wholly cold. With
// [Options.Store] it shares its rate with every other Limiter of that name, also of other
// processes: a hundred workers with a redisstore.Store and one name are one caller.
package rate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
)

// ErrTooLong says that a request would have had to wait for longer than it may, or for ever:
// under a limit of 0, or one that takes over a hundred years to let it be paid. It has taken
// nothing.
var ErrTooLong = errors.New("rate: the wait would be too long")

// Options say where a Limiter counts. The zero value is a Limiter by itself in this process,
// which takes about 40 KB; those of many Limiters can be a memstore.Store for all of them.
type Options struct {
	// Store is where the rate is counted; nil: in this process, for this Limiter alone. What
	// is in a Store that has not been used for long is as much stored as can be.
	Store limit.Store

	// Name tells this rate from others in the Store, where it is required.
	Name string

	// Workers is how many share the rate, at most. While the Store cannot be asked, each takes
	// its part, counted in its process, with nothing owed from before. 0: requests fail
	// meanwhile with the Store's error, at once.
	Workers int
}

// Limiter lets work go on at a rate. Use New. It is safe for concurrent use, and starts no
// goroutine. A request that does not have to wait does not allocate.
type Limiter struct {
	store   limit.Store
	now     func() int64 // the moment, by the store's clock if it tells
	key     []byte       // the name
	own     bool         // nobody else uses the store
	part    *Limiter     // counts while the store cannot be asked; nil: nobody does
	workers int

	force   atomic.Pointer[force]
	charges sync.Pool // of *[1]limit.Charge
	closed  sync.Once

	mu    sync.Mutex     // guards the rest, changes of force, and an own store
	ahead []*Reservation // those whose turn has not come when last looked, in its order
}

// force is the limit in force.
type force struct {
	limit    limit.Limit
	counters limit.Counters
}

// New returns a Limiter that lets l.N go on per l.Unit. Of the other fields Burst or Warmup can
// be given. The error is for values out of range, and for a
// Store that cannot keep the limit.
func New(l limit.Limit, o Options) (*Limiter, error) {
	if o.Workers < 0 {
		return nil, fmt.Errorf("rate: Workers is %d, expected 0 or more", o.Workers)
	}
	lim := &Limiter{store: o.Store, key: []byte(o.Name), own: o.Store == nil, workers: o.Workers}
	lim.charges.New = func() any { return new([1]limit.Charge) }
	switch clock, tells := o.Store.(interface{ Now() int64 }); {
	case lim.own:
		own := memstore.New(memstore.Options{MaxKeys: 1})
		lim.store, lim.now = own, own.Now
	case o.Name == "":
		return nil, errors.New("rate: a Store needs a Name")
	case tells:
		lim.now = clock.Now
	default:
		start := time.Now()
		lim.now = func() int64 { return start.UnixMicro() + time.Since(start).Microseconds() }
	}
	if !lim.own && o.Workers > 0 {
		part, err := New(share(l, o.Workers), Options{})
		if err != nil {
			return nil, err
		}
		lim.part = part
	}
	if err := lim.SetLimit(l); err != nil {
		return nil, err
	}
	return lim, nil
}

// share returns the part of a limit that one of so many workers has.
func share(l limit.Limit, workers int) limit.Limit {
	n := int64(workers)
	if l.Unit <= limit.MaxUnit/time.Duration(n) {
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
func (l *Limiter) Limit() limit.Limit { return l.force.Load().limit }

// SetLimit changes the limit, also while others wait: they keep their turns. What is owed and
// what is stored stay as much time as they were; by default a second's worth is stored, so
// that a limit is as full, in proportion, as before. One that gets a Warmup begins wholly cold,
// one that loses it with nothing stored. Of a rate that is shared, this changes what this
// Limiter says it is. The error is as New's; then nothing has changed.
func (l *Limiter) SetLimit(to limit.Limit) error {
	open := to
	if open.N == 0 { // is not asked for; what is stored and owed is for later
		open.N = 1
	}
	meter, err := limit.Reservations().New(open)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := &force{limit: to}
	if next.counters, err = l.counters(meter); err != nil {
		return err
	}
	old := l.force.Load()
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
	l.force.Store(next)
	if old != nil {
		l.store.Retire(old.counters)
	}
	return nil
}

// counters returns the store's handle for the limit that m keeps.
func (l *Limiter) counters(m limit.Meter) (limit.Counters, error) {
	return l.store.Counters(fmt.Sprintf("rate: %s %q", m.StateVersion(), l.key), m)
}

// empty sees that nothing is stored: it takes all that a limit stores which stores no more
// than a microsecond's worth. One with a Warmup stores nothing, and begins wholly cold. l.mu is
// held.
func (l *Limiter) empty(layout string) error {
	narrow, err := limit.Reservations().New(limit.Limit{N: 1000, Unit: time.Millisecond, Burst: 1})
	if err != nil || narrow.StateVersion() != layout {
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

// Close tells that the Limiter is no longer used, so that its Store may forget the rate when
// no other Limiter uses it. One without a Store needs no closing. Further calls do nothing.
func (l *Limiter) Close() { l.closed.Do(func() { l.store.Retire(l.force.Load().counters) }) }

// Wait waits until n may go on, and returns for how long it was told to. If ctx ends
// meanwhile it gives back what it can, see [Reservation.Cancel], and returns ctx's error. A
// wait that cannot end before ctx's deadline fails at once with ErrTooLong, and
// context.DeadlineExceeded beside it, and takes nothing.
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

// TryWait waits like Wait, but only if it is not for longer than most; otherwise it returns
// false at once and takes nothing, also where ctx's deadline is in the way. The error is
// ctx's, or that of the Store.
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

// Reserve takes n for the caller, who goes on after the Reservation's Delay by itself, or
// cancels it. It does not wait, but for the Store. It reserves no further ahead than
// ctx's deadline, beyond which it fails as Wait does; ctx ends nothing that is reserved.
func (l *Limiter) Reserve(ctx context.Context, n int64) (*Reservation, error) {
	r, err := l.try(ctx, n, longest)
	if r == nil && err == nil {
		r = &Reservation{limiter: l}
	}
	return r, err
}

// longest is the longest wait, a hundred years; who asks for more hears ErrTooLong.
const longest = 100 * 365 * 24 * time.Hour

// try is reserve for who expects to be let in.
func (l *Limiter) try(ctx context.Context, n int64, most time.Duration) (*Reservation, error) {
	r, wait, err := l.reserve(ctx, n, most)
	if err != nil || wait == 0 {
		return r, err
	}
	if end, ok := ctx.Deadline(); ok && l.Limit().N > 0 {
		return nil, fmt.Errorf("%w: %d would have to wait for %v, and the context ends in %v: %w",
			ErrTooLong, n, wait, time.Until(end), context.DeadlineExceeded)
	}
	return nil, fmt.Errorf("%w: %d, at %d per %v, would never go on", ErrTooLong, n, l.Limit().N, l.Limit().Unit)
}

// reserve takes n if they may go on within most, and before ctx's deadline. It returns a
// Reservation if they must wait; or, if they have not been taken, how long they would have to,
// which is not 0.
func (l *Limiter) reserve(ctx context.Context, n int64, most time.Duration) (r *Reservation, refused time.Duration, err error) {
	if n < 1 || n > limit.MaxN {
		return nil, 0, fmt.Errorf("rate: n is %d, expected 1 to %d", n, limit.MaxN)
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)-time.Microsecond) // to be there before it
	}
	most = max(most, 0)
	if l.own { // so that whoever cancels knows of all who have reserved
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	f := l.force.Load()
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
		return nil, max(wait+most, 1), nil // 0 if it would be so for ever
	case wait == 0:
		return nil, 0, nil
	}
	r = &Reservation{limiter: l, charge: *ch, wait: wait, turn: ch.At + ch.Outcome.Wait}
	if !l.own { // whose clock is another
		r.turn = l.now() + ch.Outcome.Wait
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	l.add(r)
	return r, 0, nil
}
