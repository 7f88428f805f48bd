// SPDX-License-Identifier: MIT

package redisstore

import "github.com/diana-limiter/diana/limit"

// posting is debits of one actor that go to Redis together. It is the Ticket of their charges, so that a
// refund finds a charge wherever it is, and at the moment at which Redis has made it:
//
//	kept    the debits are in an account, and a refund reduces them there
//	sent    a call has them, or their charges' own call may have made them; a refund waits for the outcome
//	passed  the process that has taken over has them under a number, and gets refunds
//	ended   Redis has made them, or they have no effect any more
//
// If a call has failed, its debits are kept again, beside others of that actor. So a posting can become
// part of another one. The lock of the debts guards it. A nil posting has no debits.
type posting struct {
	into   *posting // is part of this one; nil: of none
	stage  stage
	at     int64 // the moment of all debits; 0: of each its own, or, once they have ended, none
	refund int64 // sent: what was refunded since
	number int   // passed: in the other process
}

type stage int8

const (
	kept stage = iota
	sent
	passed
	ended
)

// root returns the posting of which p is a part.
func (p *posting) root() *posting {
	for p != nil && p.into != nil {
		p = p.into
	}
	return p
}

// send records that a call has the debits of a root.
func (p *posting) send(at int64) {
	if p != nil {
		p.stage, p.at = sent, at
	}
}

// end records that Redis has made the debits of a root at a moment; 0 means that there is nothing to refund.
func (p *posting) end(at int64) {
	if p != nil {
		p.stage, p.at = ended, at
	}
}

// post adds a posting, whose debit the account has charged at a moment, to the account's own. It returns what
// was refunded of it meanwhile.
func (o *account) post(p *posting, at int64) (refund int64) {
	switch p = p.root(); {
	case p == nil:
		return 0
	case o.posting == nil:
		o.posting = &posting{}
		fallthrough
	default:
		p.into, p.at = o.posting, at
		refund, p.refund = p.refund, 0
		return refund
	}
}

// made records that Redis has made a debit at a moment, or 0 if nobody can learn whether and when.
func (d *debts) made(n debt, at int64) {
	d.mu.Lock()
	p := n.posting.root()
	if p == nil {
		d.mu.Unlock()
		return
	}
	p.end(at)
	n.debit, n.refund, n.at, n.posting = 0, p.refund, at, nil
	d.mu.Unlock()
	if n.refund == 0 || at == 0 {
		return
	}
	if !d.store.Up() || d.sendOne(n, false, 0) == nil {
		d.add(n)
	}
}

// refund returns the moment at which a refund finds a charge in Redis. ok is false if the debts have
// settled the refund themselves, or will do so.
func (d *debts) refund(p *posting, ch *limit.Charge) (at int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at = ch.At
	for {
		if p.at != 0 {
			at = p.at
		}
		if p.into == nil {
			break
		}
		p = p.into
	}
	switch p.stage {
	case sent:
		p.refund += ch.Cost
	case passed:
		c := ch.Counters.(*counters)
		d.addLocked(debt{actor: actor{c.name, string(ch.Key)}, c: c, refund: ch.Cost, at: at, posting: p})
	case kept:
		c := ch.Counters.(*counters)
		d.addLocked(debt{actor: actor{c.name, string(ch.Key)}, c: c, undo: ch.Cost, at: at})
	default:
		return at, p.at != 0
	}
	return 0, false
}
