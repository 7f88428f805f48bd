// SPDX-License-Identifier: MIT

package redisstore

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/diana-limiter/diana/limit"
)

// A Store can hand its debts over to the Store of another process: first those that it has, and then each one as it
// arises. It does so by notes, in their order. The number of a posting lets a refund find its debit in the other process.
//
// A call whose fate is unknown stays here, because only this Store can ask for its receipt. If Redis has not carried
// the call out, its debts follow.

// note is what a Store passes to its successor.
type note struct {
	Accounts []passedAccount
	More     bool // other notes with accounts follow
	Debts    []passedDebt
}

// passedActor is an actor of counters, which the successor has if their version is the same.
type passedActor struct {
	Counters, Version string
	Key               []byte
}

// passedAccount is an account. Refunds are pairs of a moment and a cost.
type passedAccount struct {
	passedActor
	State   limit.State
	Newest  int64
	Refunds [][2]int64
	Posting int
}

// passedDebt is a debit, or a refund of a posting, or a refund of what Redis has charged if Posting is 0.
type passedDebt struct {
	passedActor
	Debit, Refund, At int64
	Posting           int
}

func (c *counters) pass(a actor) passedActor {
	return passedActor{a.name.Value(), c.meter.StateVersion(), []byte(a.key)}
}

// accountsAtOnce is the number of accounts in a note.
const accountsAtOnce = 1000

// HandOver passes all debts to the Store of another process, in notes for [Store.TakeOver], and then each later debt.
// Debts stay here if send returns an error.
func (s *Store) HandOver(send func(note []byte) error) error {
	d := &s.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = send
	all := slices.Collect(maps.Values(d.by))
	for more := true; more; {
		some := all[:min(len(all), accountsAtOnce)]
		all = all[len(some):]
		n := note{More: len(all) > 0}
		for _, o := range some {
			p := passedAccount{passedActor: o.c.pass(o.actor), State: o.state, Newest: o.newest, Posting: d.numberLocked(o.posting)}
			for _, r := range o.refunds {
				p.Refunds = append(p.Refunds, [2]int64{r.at, r.n})
			}
			n.Accounts = append(n.Accounts, p)
		}
		if err := d.passLocked(n); err != nil {
			return err
		}
		for _, o := range some {
			delete(d.by, o.actor)
			if o.posting != nil {
				o.posting.stage = passed
			}
		}
		more = n.More
	}
	return nil
}

// numberLocked returns the number of a root in the successor.
func (d *debts) numberLocked(p *posting) int {
	if p == nil {
		return 0
	}
	if p.number == 0 {
		d.last++
		p.number = d.last
	}
	return p.number
}

func (d *debts) passLocked(n note) error {
	text, err := json.Marshal(n)
	if err == nil {
		err = d.next(text)
	}
	return err
}

// passOnLocked passes a debt to the successor. It reports false if the debt stays here.
func (d *debts) passOnLocked(n debt) bool {
	if d.next == nil {
		return false
	}
	p := n.posting.root()
	number := d.numberLocked(p)
	all := []passedDebt{{n.c.pass(n.actor), n.debit, n.refund, n.at, number}}
	if p != nil && p.stage == sent && p.refund > 0 { // meanwhile
		all = append(all, passedDebt{n.c.pass(n.actor), 0, p.refund, n.at, number})
	}
	if d.passLocked(note{Debts: all}) != nil {
		return false
	}
	if p != nil {
		p.stage, p.refund = passed, 0
	}
	return true
}

// predecessor is the process whose debts a Store takes over.
type predecessor struct {
	store    *Store
	postings map[int]*posting
}

// TakeOver returns a function that gets the notes of a process that hands over, one after another. It reports whether
// the Store has all debts up to the hand-over. Debts of counters that the Store does not have are dropped.
// Until Redis has answered, Health reports as many gateways as that process saw.
func (s *Store) TakeOver(gateways int) (receive func(note []byte) (all bool, err error)) {
	s.gateway.before.Store(int64(gateways))
	return (&predecessor{s, map[int]*posting{}}).receive
}

func (p *predecessor) receive(text []byte) (all bool, err error) {
	var n note
	if err := json.Unmarshal(text, &n); err != nil {
		return false, err
	}
	for _, o := range n.Accounts {
		if c := p.store.countersOf(o.passedActor); c != nil && len(o.State.Cells) >= c.meter.Cells(limit.State{}, 1) {
			p.account(c, o)
		}
	}
	for _, o := range n.Debts {
		if c := p.store.countersOf(o.passedActor); c != nil {
			p.debt(c, o)
		}
	}
	return !n.More, nil
}

// countersOf returns the newest counters with a name, if their states have the same version.
func (s *Store) countersOf(a passedActor) *counters {
	h, _ := s.named.Load(a.Counters)
	if c, ok := h.(*counters); ok && c.meter.StateVersion() == a.Version {
		return c
	}
	return nil
}

func (p *predecessor) account(c *counters, o passedAccount) {
	d := &p.store.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	a := actor{c.name, string(o.Key)}
	if d.by[a] != nil || len(d.by) >= maxDebts {
		return // impossible: the process does not serve yet
	}
	own := &account{actor: a, c: c, state: o.State, newest: o.Newest}
	for _, r := range o.Refunds {
		own.refund(r[0], r[1])
	}
	if o.Posting != 0 {
		own.posting = &posting{}
		p.postings[o.Posting] = own.posting
	}
	if d.by == nil {
		d.by = map[actor]*account{}
	}
	d.by[a] = own
}

func (p *predecessor) debt(c *counters, o passedDebt) {
	s := p.store
	if o.Debit > 0 {
		n := debt{actor: actor{c.name, string(o.Key)}, c: c, debit: o.Debit, at: o.At, posting: &posting{stage: sent, at: o.At}}
		p.postings[o.Posting] = n.posting
		if !s.Up() || s.debts.sendOne(n, true, n.debit) == nil {
			s.debts.add(n)
		}
	}
	if o.Refund > 0 {
		ch := limit.Charge{Counters: c, Key: o.Key, Cost: o.Refund, At: o.At, Outcome: limit.Outcome{Allowed: true}}
		if known := p.postings[o.Posting]; known != nil {
			ch.Ticket = known
		} else if o.Posting != 0 {
			return // an earlier process had its debit, and has failed
		}
		s.Refund([]limit.Charge{ch})
	}
}
