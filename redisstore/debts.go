// SPDX-License-Identifier: MIT

package redisstore

import (
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// debt is a debit or a refund of an actor that the gateway must still send to Redis.
type debt struct {
	actor
	c       *counters
	debit   int64
	refund  int64    // of what Redis has charged
	undo    int64    // refund of debits that the gateway still has, or Redis if they do not suffice
	at      int64    // the moment of the charge, by Redis' clock
	posting *posting // of the debit; nil if nobody refunds it
}

// account is the debts of one actor. Its state is that of a counter to which only the debits were charged,
// each at its moment. So it is known how much of them still counts when Redis receives them: since then
// tokens may have dripped in, or a window may have ended.
type account struct {
	actor
	c       *counters
	state   limit.State
	newest  int64    // the moment of the newest debt
	refunds []refund // of charges that Redis has made
	posting *posting // of the debits; nil if there are none
}

// debit charges n at a moment. Debits do not always arrive in the order of their moments, so it returns the
// moment at which a refund finds the charge.
func (o *account) debit(at, n int64) int64 {
	if c, ok := o.c.meter.(limit.Clamped); ok {
		at = c.Moment(o.state, at)
	}
	if more := o.c.meter.Cells(o.state, n) - len(o.state.Cells); more > 0 {
		o.state.Cells = append(o.state.Cells, make([]uint64, more)...)
	}
	o.state.Head, _ = limit.Debit(o.c.meter, o.state, at, n)
	return at
}

// accountOf returns an account of which n was charged at a moment.
func accountOf(c *counters, at, n int64) *account {
	o := &account{c: c}
	o.debit(at, n)
	return o
}

// undo refunds n of the debits at a moment, or else of what Redis has charged.
func (o *account) undo(at, n int64) {
	if before := o.counts(o.newest); before > 0 {
		o.state.Head = o.c.meter.Refund(o.state, at, n)
		n -= before - o.counts(o.newest)
	}
	if n > 0 {
		o.refund(at, n)
	}
}

// refund refunds n of what Redis has charged at a moment. It leaves the debits, because their own refund would find
// nothing then.
func (o *account) refund(at, n int64) {
	for i := range o.refunds {
		if o.refunds[i].at == at {
			o.refunds[i].n += n
			return
		}
	}
	o.refunds = append(o.refunds, refund{at: at, n: n})
}

// counts returns how much of the debits still counts at a moment.
func (o *account) counts(now int64) int64 {
	if d, ok := o.c.meter.(limit.Debtor); ok {
		return d.Used(o.state, now)
	}
	return o.c.meter.Peek(limit.State{}, now, 1).Remaining - o.c.meter.Peek(o.state, now, 1).Remaining
}

// maxDebts bounds the number of actors with debts, which take about 20 MB. Debts of further
// actors are dropped: each of these can use up one more limit.
const maxDebts = 100_000

// debts are the debits and refunds that Redis has not received yet, by actor.
type debts struct {
	store *Store

	mu   sync.Mutex // guards the rest
	by   map[actor]*account
	next func(note []byte) error // to the process that has taken over; nil: there is none
	last int                     // number of the newest posting that it got
}

func (d *debts) add(n debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addLocked(n)
}

func (d *debts) addLocked(n debt) {
	if d.passOnLocked(n) {
		return
	}
	o, ok := d.by[n.actor]
	switch {
	case ok:
	case len(d.by) >= maxDebts:
		n.posting.root().end(0)
		return
	default:
		if d.by == nil {
			d.by = map[actor]*account{}
		}
		o = &account{actor: n.actor}
		d.by[n.actor] = o
	}
	o.c, o.newest = n.c, max(o.newest, n.at)
	if n.debit > 0 {
		n.at = o.debit(n.at, n.debit)
		n.undo += o.post(n.posting, n.at)
	}
	if n.undo > 0 {
		o.undo(n.at, n.undo)
	}
	if n.refund > 0 {
		o.refund(n.at, n.refund)
	}
	if n.undo > 0 || n.refund > 0 {
		if len(o.refunds) == 0 && o.counts(o.newest) == 0 {
			d.deleteLocked(o)
		}
	}
}

func (d *debts) deleteLocked(o *account) {
	delete(d.by, o.actor)
	o.posting.root().end(0)
}

// some removes the debts of at most that many actors and returns them.
func (d *debts) some(most int) (all []*account) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, o := range d.by {
		if len(all) == most {
			break
		}
		all = append(all, o)
		delete(d.by, a)
		o.posting.root().send(0) // sendSome says when
	}
	return all
}

// drop removes the debts of an actor if all of them are of charges up to that moment.
func (d *debts) drop(a actor, until int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o, ok := d.by[a]; ok && o.newest <= until {
		d.deleteLocked(o)
	}
}

// unsent is how many actors have debits that still count, and their sum.
type unsent struct {
	actors int
	sum    int64
}

// left returns the unsent debits, by the name of the counters.
func (d *debts) left() map[string]unsent {
	now := d.store.now()
	left := map[string]unsent{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.by {
		if n := o.counts(now); n > 0 {
			all := left[o.name.Value()]
			left[o.name.Value()] = unsent{all.actors + 1, all.sum + n}
		}
	}
	return left
}

func (d *debts) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.by)
}

// fewDebts is how many actors' debts go ahead of the first requests when Redis is in use again. Redis
// makes them in a few milliseconds. On a busy gateway requests make new debts until then, so the
// number is never 0.
const fewDebts = 512

// send sends debts to Redis in calls of a bounded size, until the given moment or until
// only remain actors have debts. The debts of a failed call are kept. The error is that of a
// call.
func (d *debts) send(until time.Time, remain int) error {
	for n := d.len(); n > remain && time.Now().Before(until); n = d.len() {
		if err := wait(d.sendSome(min(max(n/2, renewAtOnce), 4*renewAtOnce), false)); err != nil {
			return err
		}
	}
	return nil
}

// sendSome adds the debts of at most that many actors to the next calls. It returns these calls and
// does not wait for them. If leads is true, requests may wait for the calls to end.
func (d *debts) sendSome(most int, leads bool) map[*batch]bool {
	batches := map[*batch]bool{}
	for _, o := range d.some(most) {
		now := o.newest
		if !d.store.options.CallerClock {
			now = max(now, d.store.now()) // the estimate of Redis' clock can go back
		}
		var all []debt
		n := o.counts(now)
		d.sent(o.posting, n, now)
		if n > 0 {
			all = append(all, debt{actor: o.actor, c: o.c, debit: n, at: now, posting: o.posting})
		}
		for _, r := range o.refunds {
			all = append(all, debt{actor: o.actor, c: o.c, refund: r.n, at: r.at})
		}
		for _, n := range all {
			if b := d.sendOne(n, leads, n.debit); b != nil {
				batches[b] = true
			} else {
				d.add(n) // for Options.Lost
			}
		}
	}
	return batches
}

// sent records the moment of debits that a call gets, or that none of them counts any more.
func (d *debts) sent(p *posting, n, now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n > 0 {
		p.root().send(now)
	} else {
		p.root().end(0)
	}
}

// wait waits for batches, and returns an error if one has failed.
func wait(batches map[*batch]bool) (err error) {
	for b := range batches {
		if <-b.done; b.err != nil {
			err = b.err
		}
	}
	return err
}

// sendOne adds a debit or a refund to the next call. late is how much of it was made without Redis. It
// returns nil if the store is closed.
func (d *debts) sendOne(o debt, leads bool, late int64) *batch {
	s := d.store
	ch := limit.Charge{Counters: o.c, Key: []byte(o.key), At: o.at}
	return s.batchers.batcher(&ch).add(func(b *batch) {
		b.urgent, b.leads = true, leads
		b.late += late
		if s.options.CallerClock {
			b.now = o.at
		}
		if ch.Cost = o.debit; ch.Cost > 0 {
			s.leases.hold(o.c, ch.Key, ch.Cost)
			b.debit(&ch, o.posting)
		}
		if ch.Cost = o.refund; ch.Cost > 0 {
			b.refund(&ch, o.at)
		}
	})
}
