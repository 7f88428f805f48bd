// SPDX-License-Identifier: MIT

package redisstore

import (
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// debt is the charges and refunds of an actor that the gateway must still send to Redis.
type debt struct {
	actor
	c      *counters
	debit  int64
	refund int64
	at     int64 // the moment of the newest charge among them
}

// maxDebts bounds the number of actors with debts, which take about 20 MB. Debts of further
// actors are dropped: each of these can use up one more limit.
const maxDebts = 100_000

// mostDebt is more than any state holds. It bounds sums of debts.
const mostDebt = 1 << 53

// debts are the debits and refunds that Redis has not received yet, by actor.
type debts struct {
	store *Store

	mu sync.Mutex // guards the rest
	by map[actor]debt
}

func (d *debts) add(o debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum, ok := d.by[o.actor]
	if !ok && len(d.by) >= maxDebts {
		return
	}
	sum.actor, sum.c = o.actor, o.c
	sum.debit, sum.refund, sum.at = min(sum.debit+o.debit, mostDebt), min(sum.refund+o.refund, mostDebt), max(sum.at, o.at)
	if both := min(sum.debit, sum.refund); both > 0 { // made and refunded without Redis
		sum.debit, sum.refund = sum.debit-both, sum.refund-both
	}
	if sum.debit == 0 && sum.refund == 0 {
		delete(d.by, o.actor)
		return
	}
	if d.by == nil {
		d.by = map[actor]debt{}
	}
	d.by[o.actor] = sum
}

// some removes at most that many debts and returns them.
func (d *debts) some(most int) (all []debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a, o := range d.by {
		if len(all) == most {
			break
		}
		all = append(all, o)
		delete(d.by, a)
	}
	return all
}

// drop removes the debts of an actor if all of them are of charges up to that moment.
func (d *debts) drop(a actor, until int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by[a].at <= until {
		delete(d.by, a)
	}
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
		if counts := d.store.options.StillCounts; counts != nil && o.debit > 0 {
			o.debit = counts(o.name.Value(), []byte(o.key), o.debit)
		}
		if o.debit == 0 && o.refund == 0 {
			continue
		}
		if b := d.sendOne(o, leads); b != nil {
			batches[b] = true
		}
	}
	return batches
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

// sendOne adds a debit or a refund to the next call. It returns nil if the store is closed.
func (d *debts) sendOne(o debt, leads bool) *batch {
	s := d.store
	ch := limit.Charge{Counters: o.c, Key: []byte(o.key), At: o.at}
	return s.batchers.batcher(&ch).add(func(b *batch) {
		b.urgent, b.leads = true, leads
		if s.options.CallerClock {
			b.now = o.at
		}
		if ch.Cost = o.debit; ch.Cost > 0 {
			s.leases.hold(o.c, ch.Key, ch.Cost)
			b.debit(&ch)
		}
		if ch.Cost = o.refund; ch.Cost > 0 {
			b.refund(&ch)
		}
	})
}
