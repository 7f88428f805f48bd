// SPDX-License-Identifier: MIT

package redisstore

import (
	"encoding/binary"
	"strconv"

	"github.com/diana-limiter/diana/limit"
)

// leaseTime is for how long a gateway may be believed to live, in microseconds.
const leaseTime = 10_000_000

// testGrace is how long keys outlive their expiry when tests decide the time, in
// milliseconds.
const testGrace = 3_600_000

// batch is the requests of one call. Store.mu guards it until it is sent; then it is
// its sender's, and when done is closed everyone may read it.
type batch struct {
	done chan struct{}
	err  error

	limits   []*counters
	limitOf  map[*counters]int // from 1
	keys     []string
	keyOf    map[keyID]int // from 1
	limitsOf []int         // by key
	groups   []*group
	groupOf  map[string]*group
	gives    []given
	renewals []renewal

	now   int64 // the caller's moment; 0: Redis' clock decides
	at    int64 // when Redis decided
	scrap []byte
}

type keyID struct {
	c     *counters
	actor string
}

// group is requests that charge the same counters by the same costs.
type group struct {
	requests int
	charges  []groupCharge
	granted  int // -1: a key holds something else
	before   []limit.Outcome
	after    []limit.Outcome
}

type groupCharge struct {
	key    int // from 1
	cost   int64
	shadow bool
}

type given struct {
	key   int
	at, n int64
}

func newBatch() *batch {
	return &batch{
		done:    make(chan struct{}),
		limitOf: map[*counters]int{}, keyOf: map[keyID]int{}, groupOf: map[string]*group{},
	}
}

func (b *batch) empty() bool {
	return len(b.groups) == 0 && len(b.gives) == 0 && len(b.renewals) == 0
}

// add adds a request and returns its group, and which one in it it is.
func (b *batch) add(s *Store, charges []limit.Charge) (*group, int) {
	id := b.scrap[:0]
	single := false
	for i := range charges {
		c := charges[i].Counters.(*counters)
		single = single || c.single
		id = binary.AppendUvarint(id, uint64(b.limit(c)))
		id = binary.AppendVarint(id, charges[i].Cost)
		if charges[i].Shadow {
			id = append(id, 1)
		} else {
			id = append(id, 0)
		}
		id = binary.AppendUvarint(id, uint64(len(charges[i].Key)))
		id = append(id, charges[i].Key...)
	}
	b.scrap = id
	if g := b.groupOf[string(id)]; g != nil && !single {
		g.requests++
		return g, g.requests - 1
	}
	g := &group{requests: 1, charges: make([]groupCharge, len(charges))}
	for i := range charges {
		g.charges[i] = groupCharge{b.key(s, &charges[i]), charges[i].Cost, charges[i].Shadow}
	}
	b.groups = append(b.groups, g)
	b.groupOf[string(id)] = g
	return g, 0
}

func (b *batch) give(s *Store, ch *limit.Charge) {
	b.gives = append(b.gives, given{b.key(s, ch), ch.At, ch.Cost})
}

// renewal says how many this gateway has inside.
type renewal struct {
	key int
	n   int64
}

func (b *batch) renew(s *Store, k heldKey, n int64) {
	ch := limit.Charge{Counters: k.c, Key: []byte(k.actor)}
	b.renewals = append(b.renewals, renewal{b.key(s, &ch), n})
}

func (b *batch) limit(c *counters) int {
	n, ok := b.limitOf[c]
	if !ok {
		b.limits = append(b.limits, c)
		n = len(b.limits)
		b.limitOf[c] = n
	}
	return n
}

func (b *batch) key(s *Store, ch *limit.Charge) int {
	c := ch.Counters.(*counters)
	if n, ok := b.keyOf[keyID{c, string(ch.Key)}]; ok {
		return n
	}
	b.keys = append(b.keys, s.key(c, ch.Key))
	b.limitsOf = append(b.limitsOf, b.limit(c))
	n := len(b.keys)
	b.keyOf[keyID{c, string(ch.Key)}] = n
	return n
}

// send has Redis decide the batch, and lets everyone know.
func (b *batch) send(s *Store, script script) {
	defer close(b.done)
	reply, err := s.call(script, b.keys, b.args(s))
	if err == nil {
		err = b.read(reply)
	}
	if b.err = err; err != nil {
		s.link.fail(err)
	}
}

// args returns what the script is told, see driver.lua.
func (b *batch) args(s *Store) []string {
	var args []string
	number := func(n int64) { args = append(args, strconv.FormatInt(n, 10)) }
	grace, lease := int64(0), int64(leaseTime)
	if s.callerClock { // in which years may pass between two requests
		grace, lease = testGrace, 1<<52
	}
	number(b.now)
	number(grace)
	number(s.gateway)
	number(lease)
	number(int64(len(b.limits)))
	for _, c := range b.limits {
		number(int64(c.script))
		number(int64(len(c.args)))
		for _, a := range c.args {
			number(a)
		}
	}
	for _, l := range b.limitsOf {
		number(int64(l))
	}
	number(int64(len(b.gives)))
	for _, g := range b.gives {
		number(int64(g.key))
		number(g.at)
		number(g.n)
	}
	number(int64(len(b.groups)))
	for _, g := range b.groups {
		number(int64(g.requests))
		number(int64(len(g.charges)))
		for _, c := range g.charges {
			number(int64(c.key))
			number(c.cost)
			if c.shadow {
				number(1)
			} else {
				number(0)
			}
		}
	}
	number(int64(len(b.renewals)))
	for _, r := range b.renewals {
		number(int64(r.key))
		number(r.n)
	}
	return args
}

// read takes the script's answer apart.
func (b *batch) read(reply []int64) error {
	next := func() (n int64) {
		if len(reply) > 0 {
			n, reply = reply[0], reply[1:]
		}
		return n
	}
	outcomes := func(n int) []limit.Outcome {
		list := make([]limit.Outcome, n)
		for i := range list {
			list[i] = limit.Outcome{Allowed: next() == 1, Wait: next(), Remaining: next(), Reset: next()}
		}
		return list
	}
	b.at = next()
	for _, g := range b.groups {
		if len(reply) == 0 {
			return ErrUnavailable
		}
		g.granted = int(next())
		if g.granted < 0 {
			continue
		}
		if g.granted > 0 {
			g.before = outcomes(len(g.charges))
		}
		if g.granted < g.requests {
			g.after = outcomes(len(g.charges))
		}
	}
	return nil
}

// outcome fills in the outcomes of request i of a group, when the batch is done.
func (g *group) outcome(b *batch, i int, charges []limit.Charge) (bool, error) {
	switch {
	case b.err != nil:
		return false, b.err
	case g.granted < 0:
		return false, errForeign
	}
	allowed := i < g.granted
	for k := range charges {
		ch := &charges[k]
		ch.At, ch.Ticket = b.at, nil
		if !allowed {
			ch.Outcome = g.after[k]
			continue
		}
		// Those in front of it in the group have been charged already.
		o := g.before[k]
		o.Allowed = o.Allowed && (i == 0 || o.Remaining >= int64(i+1)*ch.Cost)
		o.Remaining = max(o.Remaining-int64(i)*ch.Cost, 0)
		if o.Allowed {
			o.Remaining = max(o.Remaining-ch.Cost, 0)
		}
		ch.Outcome = o
	}
	return allowed, nil
}
