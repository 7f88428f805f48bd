// SPDX-License-Identifier: MIT

package redisstore

import (
	"sync"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// Debit implements limit.Store. While Redis cannot be asked, the Store keeps the debit, and
// tells Redis before requests ask it again. A lease tells how many slots the gateway holds.
//
// If a Take has failed, Debit makes its charges only if Redis has not carried out the call.
func (s *Store) Debit(now int64, charges []limit.Charge) {
	at := time.Now().UnixMicro() + s.ahead.Load()
	if s.options.CallerClock {
		at = now
		s.calls.wait(nil) // a call has one moment
	}
	for i := range charges {
		ch := &charges[i]
		call, _ := ch.Ticket.(*batch)
		ch.At, ch.Ticket, ch.Outcome = at, nil, limit.Outcome{Allowed: true, Remaining: limit.Unknown}
		c := ch.Counters.(*counters)
		o := owed{actor: actor{c.name, string(ch.Key)}, c: c, debit: ch.Cost, at: at}
		switch {
		case c.held && !s.Up():
			s.leases.hold(c, ch.Key, ch.Cost)
			s.leases.loseOne(o.actor, c) // the exact number is told
		case call != nil && !c.held && call.owesUnless(o):
		case s.Up():
			if b := s.tell(o, true); b != nil && s.options.CallerClock {
				<-b.done // a later request has another moment
			}
		default:
			s.debts.add(o)
		}
	}
}

// owed is what the gateway must still tell Redis of an actor.
type owed struct {
	actor
	c      *counters
	debit  int64
	refund int64
	at     int64 // the moment of the newest charge among them
}

// mostOwed bounds the number of actors with debts, which take about 20 MB. Debts of further
// actors are dropped: each of these can use up one more limit.
const mostOwed = 100_000

// debts are what Redis could not be told yet, by actor.
type debts struct {
	mu sync.Mutex
	by map[actor]owed
}

func (d *debts) add(o owed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum, ok := d.by[o.actor]
	if !ok && len(d.by) >= mostOwed {
		return
	}
	sum.actor, sum.c = o.actor, o.c
	sum.debit, sum.refund, sum.at = sum.debit+o.debit, sum.refund+o.refund, max(sum.at, o.at)
	if both := min(sum.debit, sum.refund); both > 0 { // made and refunded without Redis
		sum.debit, sum.refund = sum.debit-both, sum.refund-both
	}
	if sum.debit == 0 && sum.refund == 0 {
		delete(d.by, o.actor)
		return
	}
	if d.by == nil {
		d.by = map[actor]owed{}
	}
	d.by[o.actor] = sum
}

// some removes up to most debts and returns them.
func (d *debts) some(most int) (all []owed) {
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

// drop forgets what an actor owes, if it is of charges up to that moment.
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

// fewDebts is how many actors' debts go ahead of the first requests when Redis is in use
// again: Redis makes them in a few milliseconds. Requests make new debts all the time until
// then, so on a busy gateway there are never none.
const fewDebts = 512

// tellDebts tells Redis what is owed, in calls of a bounded size, until that moment or until
// debts of at most so many actors remain. What a call that fails had to tell is owed again.
// The error is that of a call.
func (s *Store) tellDebts(until time.Time, remain int) error {
	for n := s.debts.len(); n > remain && time.Now().Before(until); n = s.debts.len() {
		if err := wait(s.tellSome(min(max(n/2, renewAtOnce), 4*renewAtOnce), false)); err != nil {
			return err
		}
	}
	return nil
}

// tellSome has the next calls tell what is owed of at most so many actors. It returns these
// calls, and does not wait for them. If leads is true, requests may wait for the calls to end.
func (s *Store) tellSome(most int, leads bool) map[*batch]bool {
	batches := map[*batch]bool{}
	for _, o := range s.debts.some(most) {
		if counts := s.options.StillCounts; counts != nil && o.debit > 0 {
			o.debit = counts(o.name.Value(), []byte(o.key), o.debit)
		}
		if o.debit == 0 && o.refund == 0 {
			continue
		}
		if b := s.tell(o, leads); b != nil {
			batches[b] = true
		}
	}
	return batches
}

// wait waits for batches, and returns the error of one that has failed.
func wait(batches map[*batch]bool) (err error) {
	for b := range batches {
		if <-b.done; b.err != nil {
			err = b.err
		}
	}
	return err
}

// tell has the next call make a debit or a refund. It returns nil if the store is closed.
func (s *Store) tell(o owed, leads bool) *batch {
	ch := limit.Charge{Counters: o.c, Key: []byte(o.key), At: o.at}
	return s.lanes[s.laneOf(&ch)].add(func(b *batch) {
		b.urgent, b.leads = true, leads
		if s.options.CallerClock {
			b.now = o.at
		}
		if ch.Cost = o.debit; ch.Cost > 0 {
			s.leases.hold(o.c, ch.Key, ch.Cost)
			b.debit(&ch)
		}
		if ch.Cost = o.refund; ch.Cost > 0 {
			b.give(&ch)
		}
	})
}
