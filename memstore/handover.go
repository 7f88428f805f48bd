// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/diana-limiter/diana/internal/takeover"
	"github.com/diana-limiter/diana/limit"
)

// A Store can hand its counters over to the Store of another process. HandOver freezes all records, as a rebuild does
// with those of one shard. So a charge is in the document, or it finds a frozen record and goes to the other
// process. No decision without a hand-over pays for this.
//
// Frozen records stay frozen. If the other process cannot be asked, a second Store decides in place of this one. It has
// the same families and memory, and the counters as they were at the freeze.
//
// Requests that waited for a leaky bucket keep their scheduled times, which are in the bucket's state. If such a client
// disconnects, its time passes unused.

// away is where the counters of a Store are after HandOver.
type away struct {
	next takeover.Next
	own  *Store // decides while next fails
}

// HandOver freezes all counters and returns them as a document for [Store.TakeOver]. From then on this Store asks
// next. If next returns an error, the Store decides by its counters as they were at the freeze. After
// HandOver a waiting request can proceed later, but never earlier, than it would have.
func (s *Store) HandOver(next takeover.Next) (document []byte) {
	r := &s.records
	if a := r.away.Load(); a != nil { // to a process that has failed
		return a.own.HandOver(next)
	}
	own := &Store{clock: s.clock}
	own.records = records{seed: r.seed, shards: make([]shard, len(r.shards)), families: r.families, rooms: r.rooms,
		cells: r.cells, overflow: r.overflow, everyone: r.everyone}
	own.records.queues.clock = &own.clock
	for i := range r.shards {
		r.shards[i].mu.Lock()
	}
	for i := range r.shards {
		r.shards[i].freeze(&own.records.shards[i])
	}
	document = own.records.document()
	r.away.Store(&away{next, own})
	for i := range r.shards {
		r.shards[i].mu.Unlock()
	}
	r.queues.wakeAll()
	return document
}

// HandedOver reports whether HandOver was called.
func (s *Store) HandedOver() bool { return s.records.away.Load() != nil }

// freeze freezes all records for good, and copies them to another shard. h.mu is held.
func (h *shard) freeze(to *shard) {
	old := *h.table.Load()
	t := newTable(len(old))
	for i := range old {
		meta, head := old[i].meta.Load(), frozen
		if meta != empty && meta != tomb {
			head = old[i].freeze()
		}
		(*t)[i].head.Store(head)
		(*t)[i].meta.Store(meta)
	}
	to.table.Store(t)
	to.used, to.hand = h.used, h.hand
	h.gone = true
}

// madeHere is the Ticket of a charge that away.own has made, in place of that of away.own.
type madeHere struct{ ticket any }

// ask makes a call to the other process, and sets the results of the charges.
func (a *away) ask(ctx context.Context, op takeover.Op, charges []limit.Charge) (allowed bool, err error) {
	named := make([]limit.Charge, len(charges))
	for i := range charges {
		ch := &charges[i]
		c := ch.Counters.(*counters)
		named[i] = limit.Charge{Counters: c.name, Key: binary.BigEndian.AppendUint64(nil, a.own.records.hashOf(ch)),
			Cost: ch.Cost, Shadow: ch.Shadow, Debit: ch.Debit, Longest: ch.Longest, Flight: ch.Flight, Outcome: ch.Outcome, At: ch.At, Shared: ch.Shared}
		named[i].Ticket, _ = ch.Ticket.(uint64)
		if named[i].Ticket == uint64(0) {
			named[i].Ticket = nil
		}
	}
	if allowed, err = a.next(ctx, op, named); err != nil {
		return false, err
	}
	for i := range charges {
		ch, n := &charges[i], &named[i]
		ch.Outcome, ch.At, ch.Ticket, ch.Cut, ch.Shared = n.Outcome, n.At, n.Ticket, n.Cut, n.Shared
	}
	return allowed, nil
}

func (a *away) take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	allowed, err := a.ask(ctx, takeover.Take, charges)
	if err == nil {
		return allowed, nil
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	allowed, err = a.own.Take(ctx, now, charges)
	mark(charges)
	return allowed, err
}

// mark marks charges that away.own has made.
func mark(charges []limit.Charge) {
	for i := range charges {
		charges[i].Ticket = madeHere{charges[i].Ticket}
	}
}

func (a *away) peek(ctx context.Context, now int64, charges []limit.Charge) error {
	if _, err := a.ask(ctx, takeover.Peek, charges); err != nil {
		return a.own.Peek(ctx, now, charges)
	}
	return nil
}

func (a *away) debit(now int64, charges []limit.Charge) {
	if _, err := a.ask(context.Background(), takeover.Debit, charges); err != nil {
		a.own.Debit(now, charges)
		mark(charges)
	}
}

func (a *away) refund(charges []limit.Charge) {
	for i := range charges {
		one := [1]limit.Charge{charges[i]}
		t, here := one[0].Ticket.(madeHere)
		if here {
			one[0].Ticket = t.ticket
		} else if _, err := a.ask(context.Background(), takeover.Refund, one[:]); err == nil {
			continue
		}
		a.own.Refund(one[:])
	}
}

// wait waits for the scheduled time of charges that were made after the hand-over.
func (a *away) wait(ctx context.Context, charges []limit.Charge) error {
	for i := range charges {
		switch t := charges[i].Ticket.(type) {
		case madeHere:
			if err := a.own.Wait(ctx, []limit.Charge{{Ticket: t.ticket}}); err != nil {
				return err
			}
		case uint64: // one for all charges of the request
			if _, err := a.ask(ctx, takeover.Wait, charges[i:i+1]); err == nil || ctx.Err() != nil {
				return ctx.Err()
			}
			timer := time.NewTimer(time.Duration(charges[i].At+charges[i].Outcome.Wait-a.own.Now()) * time.Microsecond)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
	}
	return nil
}

func (a *away) reset(ctx context.Context, c *counters, key []byte) error {
	if _, err := a.ask(ctx, takeover.Reset, []limit.Charge{{Counters: c, Key: key}}); err != nil {
		return a.own.Reset(ctx, c, key)
	}
	return nil
}
