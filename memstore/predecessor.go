// SPDX-License-Identifier: MIT

package memstore

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/diana-limiter/diana/internal/takeover"
	"github.com/diana-limiter/diana/limit"
)

// predecessor is a [takeover.Predecessor].
type predecessor struct {
	store *Store

	mu      sync.Mutex         // guards the rest
	held    map[position]int64 // slots of its requests
	last    uint64             // number of the newest waiting request
	waiting map[uint64]*waitingCall
}

// position is the position of a record, which its hash and its family's id make up.
type position struct {
	index int
	meta  uint64
}

// waitingCall is a request of the predecessor that waits in this process.
type waitingCall struct {
	charges []limit.Charge // those that have a Ticket
	ended   context.Context
	end     context.CancelFunc
}

var errInvalid = errors.New("memstore: an invalid call")

// Call implements [takeover.Predecessor]. Charges to counters that this Store does not have are
// allowed, and counted nowhere, because no rule in force needs them.
func (p *predecessor) Call(ctx context.Context, op takeover.Op, charges []limit.Charge) (allowed bool, err error) {
	var own []limit.Charge
	var of []int // index of each in charges
	for i := range charges {
		ch := charges[i]
		name, ok := ch.Counters.(string)
		if !ok || len(ch.Key) != 8 {
			return false, errInvalid
		}
		c := p.store.records.families.hashed(name)
		if c == nil {
			charges[i].Outcome = limit.Outcome{Allowed: true, Remaining: limit.Unknown}
			continue
		}
		ch.Counters = c
		if number, waits := ch.Ticket.(uint64); waits && op != takeover.Wait {
			if ch.Ticket, ok = p.leave(number, &ch); !ok {
				continue // it has proceeded
			}
		}
		own, of = append(own, ch), append(of, i)
	}
	if allowed, err = p.make(ctx, op, own); err != nil {
		return false, err
	}
	for k, i := range of {
		ch, n := &charges[i], &own[k]
		ch.Outcome, ch.At, ch.Cut, ch.Shared = n.Outcome, n.At, n.Cut, n.Shared
		if op == takeover.Take { // the Ticket of another call is of this process only
			ch.Ticket = n.Ticket
		}
	}
	return allowed, nil
}

func (p *predecessor) make(ctx context.Context, op takeover.Op, charges []limit.Charge) (allowed bool, err error) {
	s := p.store
	if len(charges) == 0 {
		return true, nil
	}
	switch op {
	case takeover.Take:
		if allowed, err = s.Take(ctx, s.Now(), charges); allowed && err == nil {
			p.hold(charges, 1)
			p.enter(charges)
		}
	case takeover.Peek:
		err = s.Peek(ctx, s.Now(), charges)
	case takeover.Debit:
		s.Debit(s.Now(), charges)
		p.hold(charges, 1)
	case takeover.Refund:
		s.Refund(charges)
		p.hold(charges, -1)
	case takeover.Wait:
		err = p.await(ctx, charges[0].Ticket)
	case takeover.Reset:
		c := charges[0].Counters.(*counters)
		err = s.Reset(ctx, c, charges[0].Key)
	default:
		err = errInvalid
	}
	return allowed, err
}

// hold counts slots that the predecessor takes or releases.
func (p *predecessor) hold(charges []limit.Charge, sign int64) {
	for i := range charges {
		ch := &charges[i]
		c, r := ch.Counters.(*counters), &p.store.records
		if !c.held || !ch.Outcome.Allowed && !ch.Debit {
			continue
		}
		hash := r.hashOf(ch)
		if ch.Shared {
			hash = r.overflow
		}
		l := r.locate(c.id, hash)
		p.mu.Lock()
		if at := (position{l.index, l.meta}); p.held[at]+sign*ch.Cost > 0 {
			p.held[at] += sign * ch.Cost
		} else {
			delete(p.held, at)
		}
		p.mu.Unlock()
	}
}

// enter gives a number to a request that must wait. The number becomes the Ticket of its charges.
func (p *predecessor) enter(charges []limit.Charge) {
	none := func(ch limit.Charge) bool { return ch.Ticket == nil }
	w := &waitingCall{charges: slices.DeleteFunc(slices.Clone(charges), none)}
	if len(w.charges) == 0 {
		return
	}
	w.ended, w.end = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.waiting[p.last] = w
	for i := range charges {
		if charges[i].Ticket != nil {
			charges[i].Ticket = p.last
		}
	}
}

// await waits for the scheduled time of a request.
func (p *predecessor) await(ctx context.Context, ticket any) error {
	number, _ := ticket.(uint64)
	p.mu.Lock()
	w := p.waiting[number]
	if w == nil {
		p.mu.Unlock()
		return nil
	}
	charges := slices.Clone(w.charges)
	p.mu.Unlock()
	defer context.AfterFunc(ctx, w.end)()
	err := p.store.Wait(w.ended, charges)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.waiting, number)
	}
	return err
}

// leave returns the Ticket by which a charge of a waiting request can be refunded. It reports false if the request has
// proceeded.
func (p *predecessor) leave(number uint64, ch *limit.Charge) (ticket any, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waiting[number]
	if w == nil {
		return nil, false
	}
	w.end()
	i := slices.IndexFunc(w.charges, func(own limit.Charge) bool {
		return own.Counters.(*counters).family == ch.Counters.(*counters).family && slices.Equal(own.Key, ch.Key)
	})
	if i < 0 {
		return nil, false
	}
	ticket = w.charges[i].Ticket
	if w.charges = slices.Delete(w.charges, i, i+1); len(w.charges) == 0 {
		delete(p.waiting, number)
	}
	return ticket, true
}

// Close implements [takeover.Predecessor].
func (p *predecessor) Close() {
	for _, w := range p.waiting {
		w.end()
		p.store.Refund(w.charges)
	}
	fs := p.store.records.families
	for at, n := range p.held {
		id, hash := split(at.index, at.meta)
		if c := fs.hashed(fs.get(id).name); c != nil {
			p.store.Refund([]limit.Charge{{Counters: c, Key: binary.BigEndian.AppendUint64(nil, hash), Cost: n, Outcome: limit.Outcome{Allowed: true}}})
		}
	}
}
