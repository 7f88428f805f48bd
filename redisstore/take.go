// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"errors"
	"sync"

	"github.com/diana-limiter/diana/limit"
)

// Take implements limit.Store. The error is ErrUnavailable, or ctx's. If ctx ends while the
// request waits for another request's call, Take returns, and the charges are refunded when
// Redis has answered. Take does not abort a call that it makes itself.
//
// After ErrUnavailable it is not known whether Redis has made the charges. A caller that
// allows the request by itself passes the same charges to Debit, which finds that out.
func (s *Store) Take(ctx context.Context, now int64, charges []limit.Charge) (bool, error) {
	if !s.Up() || s.gateway.closing.Load() {
		for i := range charges {
			charges[i].Ticket = nil
		}
		return false, s.link.unavailable()
	}
	if s.refused.certain(now, charges) {
		return false, nil
	}
	parts := s.batchers.divide(charges)
	if parts != nil {
		return s.takeParts(ctx, now, charges, parts)
	}
	p, err := s.batchers.batcher(&charges[0]).submit(now, charges, true, takes)
	if err != nil {
		return false, err
	}
	if err := p.wait(ctx); err != nil {
		s.refundLater(p, charges)
		return false, err
	}
	allowed, err := s.conclude(p, now, charges)
	if allowed {
		s.schedule.join(charges)
	}
	return allowed, err
}

// takeParts is Take for a request with several batchers.
func (s *Store) takeParts(ctx context.Context, now int64, charges []limit.Charge, parts []*part) (allowed bool, err error) {
	for _, p := range parts {
		if p.entry, err = s.batchers[p.batcher].submit(now, p.charges, false, takes); err != nil {
			break
		}
	}
	allowed = err == nil
	var granted []*part
	for _, p := range parts {
		if p.entry.batch == nil {
			continue // not submitted
		}
		if waitErr := p.entry.wait(ctx); waitErr != nil {
			s.refundLater(p.entry, p.charges)
			allowed, err = false, waitErr
			continue
		}
		ok, partErr := s.conclude(p.entry, now, p.charges)
		if partErr != nil && err == nil {
			err = partErr
		}
		allowed = allowed && ok
		if ok {
			granted = append(granted, p)
		}
	}
	if !allowed {
		for _, p := range granted {
			s.Refund(p.charges)
			for i := range p.charges {
				if o := &p.charges[i].Outcome; o.Allowed {
					o.Remaining += p.charges[i].Cost
				}
			}
		}
	}
	for _, p := range parts {
		p.merge(charges)
	}
	if allowed {
		s.schedule.join(charges)
	}
	return allowed, err
}

// Peek implements limit.Store. Redis evaluates the charges; remembered refusals do not count.
// The error is ErrUnavailable, or ctx's.
func (s *Store) Peek(ctx context.Context, now int64, charges []limit.Charge) error {
	if s.gateway.closing.Load() {
		return ErrUnavailable
	}
	parts := s.batchers.divide(charges)
	if parts == nil {
		return s.peek(ctx, now, s.batchers.batcher(&charges[0]), charges)
	}
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { errs[i] = s.peek(ctx, now, s.batchers[p.batcher], p.charges) })
	}
	all.Wait()
	for _, p := range parts {
		p.merge(charges)
	}
	return errors.Join(errs...)
}

// peek evaluates charges of one batcher.
func (s *Store) peek(ctx context.Context, now int64, br *batcher, charges []limit.Charge) error {
	p, err := br.submit(now, charges, true, peeks)
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	_, err = p.outcome(charges)
	return err
}

// conclude sets the outcomes of a request.
func (s *Store) conclude(p entry, now int64, charges []limit.Charge) (bool, error) {
	allowed, err := p.outcome(charges)
	switch {
	case err != nil:
		for i := range charges {
			charges[i].Ticket = p.batch // for Debit
		}
	case !allowed && !s.options.CallerClock:
		s.refused.remember(now, p.generation, charges)
		for i := range charges {
			if ch := &charges[i]; s.memory.on() && !ch.Outcome.Allowed && !ch.Counters.(*counters).fleeting() {
				s.memory.refused(p.batch, ch)
			}
		}
	}
	return allowed, err
}

// refundLater refunds what Redis allows of a request that no longer waits.
func (s *Store) refundLater(p entry, charges []limit.Charge) {
	own := append([]limit.Charge(nil), charges...)
	for i := range own { // the caller may reuse the memory
		own[i].Key = append([]byte(nil), own[i].Key...)
	}
	s.calls.begin()
	go func() { // ends with the batch, which has a deadline
		defer s.calls.end()
		<-p.done
		if allowed, err := p.outcome(own); err == nil && allowed {
			s.Refund(own)
		}
	}()
}

// Refund implements limit.Store. It does not wait for Redis.
func (s *Store) Refund(charges []limit.Charge) { s.refund(charges) }

// refund is Refund. It returns the calls that refund.
func (s *Store) refund(charges []limit.Charge) (calls []*batch) {
	s.schedule.leave(charges)
	for i := range charges {
		ch := &charges[i]
		if !ch.Outcome.Allowed && !ch.Debit {
			continue
		}
		c, at := ch.Counters.(*counters), ch.At
		if p, ok := ch.Ticket.(*posting); ok {
			if at, ok = s.debts.refund(p, ch); !ok {
				continue
			}
		}
		call := s.batchers.batcher(ch).add(func(b *batch) {
			s.leases.hold(c, ch.Key, -ch.Cost)
			b.refund(ch, at)
		})
		if call == nil {
			s.leases.hold(c, ch.Key, -ch.Cost) // a closed batcher sends nothing
		} else {
			calls = append(calls, call)
		}
		if !c.fleeting() {
			s.refused.forget(actor{c.name, string(ch.Key)}) // now that each later request is evaluated after it
		}
	}
	return calls
}

// Debit implements limit.Store. While Redis cannot be reached, the Store keeps the debit, and sends
// it before requests ask Redis again. The number of a lease includes slots.
//
// After a failed Take, Debit makes its charges only if Redis has not carried out the call.
func (s *Store) Debit(now int64, charges []limit.Charge) { s.debit(now, charges) }

// Settle makes debits and refunds as Debit and Refund do, and then waits until Redis has made them, for
// Options.Timeout at most. Redis makes the others later.
func (s *Store) Settle(now int64, debits, refunds []limit.Charge) {
	calls := append(s.debit(now, debits), s.refund(refunds)...)
	if len(calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.requestTimeout())
	defer cancel()
	for _, b := range calls {
		if b.wait(ctx) != nil {
			return
		}
	}
}

// debit is Debit. It returns the calls that debit.
func (s *Store) debit(now int64, charges []limit.Charge) (calls []*batch) {
	at := s.now()
	if s.options.CallerClock {
		at = now
		s.calls.wait(nil) // a call has one moment
	}
	for i := range charges {
		ch := &charges[i]
		call, _ := ch.Ticket.(*batch)
		ch.At, ch.Ticket, ch.Outcome = at, nil, limit.Outcome{Allowed: true, Remaining: limit.Unknown}
		c := ch.Counters.(*counters)
		o := debt{actor: actor{c.name, string(ch.Key)}, c: c, debit: ch.Cost, at: at}
		if !c.held {
			o.posting = &posting{stage: sent, at: at}
			ch.Ticket = o.posting
		}
		switch {
		case c.held && !s.Up():
			s.leases.hold(c, ch.Key, ch.Cost)
			s.leases.loseOne(o.actor, c) // the renewal sends the exact number
		case call != nil && !c.held && call.batcher.receipts.debitUnless(call, o):
		case s.Up():
			b := s.debts.sendOne(o, true, 0)
			if b == nil { // the Store is closed
				s.debts.add(o)
				continue
			}
			if calls = append(calls, b); s.options.CallerClock {
				<-b.done // a later request has another moment
			}
		default:
			s.debts.add(o)
		}
	}
	return calls
}

// Wait implements limit.Store. When a request stops waiting and Refund follows, its scheduled time is
// free again if no request has a later one. Otherwise the time passes unused, because the later
// requests wait for their own times, in whichever gateway.
func (s *Store) Wait(ctx context.Context, charges []limit.Charge) error {
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			return s.schedule.await(ctx, w) // the same in all charges
		}
	}
	return nil
}
