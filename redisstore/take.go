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
	if !s.Up() || s.closing.Load() {
		for i := range charges {
			charges[i].Ticket = nil
		}
		return false, ErrUnavailable
	}
	if s.refused.certain(now, charges) {
		return false, nil
	}
	parts := s.part(charges)
	if parts != nil {
		return s.takeParts(ctx, now, charges, parts)
	}
	p, err := s.batcher(charges).submit(now, charges, true, (*batch).take)
	if err != nil {
		return false, err
	}
	if err := p.wait(ctx); err != nil {
		s.refundLater(p, charges)
		return false, err
	}
	allowed, err := s.settle(p, now, charges)
	if allowed {
		s.schedule.join(charges)
	}
	return allowed, err
}

// Peek implements limit.Store. Redis evaluates the charges; remembered refusals do not count.
// The error is ErrUnavailable, or ctx's.
func (s *Store) Peek(ctx context.Context, now int64, charges []limit.Charge) error {
	if s.closing.Load() {
		return ErrUnavailable
	}
	parts := s.part(charges)
	if parts == nil {
		return s.peek(ctx, now, s.batcher(charges), charges)
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
	p, err := br.submit(now, charges, true, (*batch).peek)
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return err
	}
	_, err = p.outcome(charges)
	return err
}

// settle sets the outcomes of a request.
func (s *Store) settle(p entry, now int64, charges []limit.Charge) (bool, error) {
	allowed, err := p.outcome(charges)
	switch {
	case err != nil:
		for i := range charges {
			charges[i].Ticket = p.batch // for Debit
		}
	case !allowed && !s.options.CallerClock:
		s.refused.remember(now, p.generation, charges)
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
func (s *Store) Refund(charges []limit.Charge) {
	s.schedule.leave(charges)
	for i := range charges {
		ch := &charges[i]
		if !ch.Outcome.Allowed {
			continue
		}
		c := ch.Counters.(*counters)
		if s.batcher(charges[i:]).add(func(b *batch) {
			s.leases.hold(c, ch.Key, -ch.Cost)
			b.refund(ch)
		}) == nil {
			s.leases.hold(c, ch.Key, -ch.Cost) // a closed batcher sends nothing
		}
		if !c.fleeting() {
			s.refused.forget(actor{c.name, string(ch.Key)}) // now that each later request is evaluated after it
		}
	}
}
