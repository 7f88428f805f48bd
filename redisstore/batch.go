// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"time"
	"unique"

	"github.com/diana-limiter/diana/limit"
)

// leaseTime is for how long a gateway may be believed to live, in microseconds.
const leaseTime = 10_000_000

// testGrace is how long keys outlive their expiry when tests decide the time, in
// milliseconds.
const testGrace = 3_600_000

// batch is the requests of one call. Its lane's lock guards it until it is sent; then it
// is its sender's, and when done is closed everyone may read it.
type batch struct {
	lane *lane
	*tables
	groups []group
	born   time.Time // when the first request came
	now    int64     // the caller's moment; 0: Redis' clock decides
	urgent bool      // sent also before Redis is in use again
	leads  bool      // requests may already wait for it to end, see watcher.use

	call  int64 // its number; 0: it was not sent
	known int64 // the call that Redis must remember, see receipts.go

	done  chan struct{}
	err   error
	reply []int64 // what the script answered

	// Guarded by the lane's lock, if the call has failed.
	fate   fate
	unless []owed // debits that are owed unless it is carried out
}

// group is requests that charge the same counters by the same costs. One with requests
// that wait for a turn of their own is a group by itself.
type group struct {
	requests      int32
	first, end    int32 // its charges in tables
	granted       int32 // -1: a key holds something else
	waits         bool  // for a turn of its own, in a queue
	reserves      bool  // a turn of its own: its charges say for how long it would wait
	peeks         bool  // and takes nothing
	before, after int32 // the outcomes in reply of the first request, and of those refused
}

// tables are what only the one needs who fills or sends a batch. They are used again.
type tables struct {
	keys     []key
	keyOf    map[actor]int32 // from 1
	nodeOf   map[node]int32  // from 1
	groupAt  []int32         // of each node, from 1; 0: none
	charges  []groupCharge
	debits   []debited
	gives    []given
	resets   []reset
	renewals []renewal
	limits   []*counters
	limitOf  map[*counters]int32 // from 1
	names    []string            // of keys
	packed   []byte
}

// actor is whom a key counts, under all handles of the same counters.
type actor struct {
	name unique.Handle[string] // of the counters
	key  string
}

// key is an actor's state in Redis. The charges of it can have several handles, of which it
// has the first: the limit of each charge is its own.
type key struct {
	actor
	c *counters
}

// node is a step on the way to a group: one charge behind those of another node.
type node struct {
	behind, key int32
	c           *counters
	cost        int64 // below 0 if it is a shadow
}

type groupCharge struct {
	key, limit int32 // from 1
	cost       int64 // below 0 if it is a shadow
	longest    int64 // Charge.Longest
}

type debited struct {
	key, limit int32
	n          int64
}

type given struct {
	key, limit int32
	at         int64 // the moment of the charge, or below 0 the turn that is left
	n          int64
}

// reset is an actor's counter that is to be forgotten.
type reset struct{ key, limit int32 }

// renewal says how many slots this gateway holds.
type renewal struct {
	key, limit int32
	n          int64 // set when the batch is sent
}

// newBatch returns an empty batch, with the tables of one that has been sent, or nil.
func newBatch(l *lane, sent *batch) *batch {
	b := &batch{lane: l, done: make(chan struct{})}
	if sent == nil || sent.err != nil { // the client may still be about to write a call that it gave up
		b.tables = &tables{limitOf: map[*counters]int32{}, keyOf: map[actor]int32{}, nodeOf: map[node]int32{}}
		return b
	}
	b.tables, sent.tables = sent.tables, nil
	b.groups = make([]group, 0, len(sent.groups))
	t := b.tables
	clear(t.keys)
	clear(t.keyOf)
	clear(t.nodeOf)
	clear(t.limits)
	clear(t.limitOf)
	clear(t.names)
	t.keys, t.groupAt, t.charges = t.keys[:0], t.groupAt[:0], t.charges[:0]
	t.debits, t.gives, t.resets, t.renewals = t.debits[:0], t.gives[:0], t.resets[:0], t.renewals[:0]
	t.limits, t.names, t.packed = t.limits[:0], t.names[:0], t.packed[:0]
	return b
}

func (b *batch) empty() bool {
	return len(b.groups) == 0 && !b.changes()
}

// changes reports whether the batch holds anything but requests.
func (b *batch) changes() bool {
	return len(b.debits) > 0 || len(b.gives) > 0 || len(b.resets) > 0 || len(b.renewals) > 0
}

// take adds a request.
func (b *batch) take(charges []limit.Charge) place {
	at := int32(0)
	single, waits, reserves := false, false, false
	for i := range charges {
		ch := &charges[i]
		c := ch.Counters.(*counters)
		waits = waits || c.queue
		reserves = reserves || c.reserver
		single = single || waits || reserves || c.apart && ch.Cost > 1
		n := node{at, b.key(ch), c, signedCost(ch)}
		var ok bool
		if at, ok = b.nodeOf[n]; !ok {
			b.groupAt = append(b.groupAt, 0)
			at = int32(len(b.groupAt))
			b.nodeOf[n] = at
		}
	}
	group := &b.groupAt[at-1]
	if *group == 0 || single {
		*group = b.newGroup(charges)
	}
	g := &b.groups[*group-1]
	g.requests++
	g.waits, g.reserves = waits, reserves
	return place{batch: b, group: *group - 1, nth: g.requests - 1}
}

// peek adds a request that takes nothing.
func (b *batch) peek(charges []limit.Charge) place {
	at := b.newGroup(charges) - 1
	b.groups[at].peeks = true
	return place{batch: b, group: at}
}

func (b *batch) newGroup(charges []limit.Charge) int32 {
	g := group{first: int32(len(b.charges))}
	for i := range charges {
		ch := &charges[i]
		b.charges = append(b.charges, groupCharge{b.key(ch), b.limit(ch.Counters.(*counters)), signedCost(ch), ch.Longest})
	}
	g.end = int32(len(b.charges))
	b.groups = append(b.groups, g)
	return int32(len(b.groups))
}

func signedCost(ch *limit.Charge) int64 {
	if ch.Shadow {
		return -ch.Cost
	}
	return ch.Cost
}

func (b *batch) debit(ch *limit.Charge) {
	b.debits = append(b.debits, debited{b.key(ch), b.limit(ch.Counters.(*counters)), ch.Cost})
}

func (b *batch) give(ch *limit.Charge) {
	at, c := ch.At, ch.Counters.(*counters)
	switch {
	case c.queue:
		at = -(at + ch.Outcome.Wait) // its turn, which it leaves
	case c.reserver:
		at += ch.Outcome.Wait
	}
	b.gives = append(b.gives, given{b.key(ch), b.limit(c), at, ch.Cost})
}

func (b *batch) reset(ch *limit.Charge) {
	b.resets = append(b.resets, reset{b.key(ch), b.limit(ch.Counters.(*counters))})
}

func (b *batch) renew(ch *limit.Charge) {
	b.urgent = true // renewals come before all else after an outage
	b.renewals = append(b.renewals, renewal{key: b.key(ch), limit: b.limit(ch.Counters.(*counters))})
}

// key returns the number of a charge's key.
func (b *batch) key(ch *limit.Charge) int32 {
	c := ch.Counters.(*counters)
	if n, ok := b.keyOf[actor{c.name, string(ch.Key)}]; ok {
		return n
	}
	a := actor{c.name, string(ch.Key)}
	b.keys = append(b.keys, key{a, c})
	n := int32(len(b.keys))
	b.keyOf[a] = n
	return n
}

// limit returns the number of a handle's limit.
func (b *batch) limit(c *counters) int32 {
	n, ok := b.limitOf[c]
	if !ok {
		b.limits = append(b.limits, c)
		n = int32(len(b.limits))
		b.limitOf[c] = n
	}
	return n
}

// send has Redis decide the batch, and lets everyone know.
func (b *batch) send() {
	s := b.lane.store
	for _, k := range b.keys {
		b.names = append(b.names, s.key(b.lane, k))
	}
	// The first request has waited longest, and none waits for longer than the timeout.
	most := s.patience()
	if len(b.groups) == 0 && !b.leads && !s.Up() { // no request waits
		most = max(most, doubtProbe)
	}
	ctx, cancel := context.WithDeadline(context.Background(), b.born.Add(most))
	defer cancel()
	b.names = append(b.names, b.lane.receiptsKey())
	reply, err := s.call(ctx, s.script.Load(), b.names, b.pack())
	if err == nil {
		err = b.read(reply)
	}
	if err == nil {
		s.ahead.Store(b.reply[0] - time.Now().UnixMicro())
		s.leases.holdGranted(b)
		if b.reply[1] == 1 {
			b.lane.confirm(b.call)
		}
	}
	if err != nil {
		s.link.fail(err)
	}
	b.end(err)
}

func (b *batch) end(err error) {
	if b.err = err; err != nil {
		b.lane.store.leases.lose(b.keys)
		b.lane.failed(b)
	}
	close(b.done)
}

// pack returns what the script is told, see driver.lua.
func (b *batch) pack() []byte {
	s := b.lane.store
	p, count := appendHeader(b.packed, 0), 0
	number := func(n int64) {
		p = appendNumber(p, n)
		count++
	}
	grace, lease := int64(0), int64(leaseTime)
	if s.options.CallerClock { // in which years may pass between two requests
		grace, lease = testGrace, 1<<52
	}
	number(b.now)
	number(grace)
	number(s.id)
	number(lease)
	number(b.call)
	number(b.known)
	number(int64(len(b.limits)))
	for _, c := range b.limits {
		number(int64(c.script))
		number(int64(len(c.args)))
		for _, a := range c.args {
			number(a)
		}
	}
	number(int64(len(b.renewals)))
	for _, r := range b.renewals {
		number(int64(r.key))
		number(int64(r.limit))
		number(r.n)
	}
	number(int64(len(b.debits)))
	for _, d := range b.debits {
		number(int64(d.key))
		number(int64(d.limit))
		number(d.n)
	}
	number(int64(len(b.gives)))
	for _, g := range b.gives {
		number(int64(g.key))
		number(int64(g.limit))
		number(g.at)
		number(g.n)
	}
	number(int64(len(b.resets)))
	for _, r := range b.resets {
		number(int64(r.key))
		number(int64(r.limit))
	}
	number(int64(len(b.groups)))
	for _, g := range b.groups {
		switch { // one that has a turn of its own is one
		case g.peeks:
			number(-4)
		case g.waits && g.reserves:
			number(-3)
		case g.reserves:
			number(-2)
		case g.waits:
			number(-1)
		default:
			number(int64(g.requests))
		}
		number(int64(g.end - g.first))
		for _, c := range b.charges[g.first:g.end] {
			number(int64(c.key))
			number(int64(c.limit))
			number(c.cost)
			if g.reserves || g.peeks {
				number(c.longest)
			}
		}
	}
	appendHeader(p[:0], count)
	b.packed = p
	return p
}

// outcomeSize is how many numbers tell an outcome.
const outcomeSize = 4

// read finds everyone's place in the script's answer.
func (b *batch) read(reply []byte) error {
	numbers, err := unpack(reply)
	if err != nil {
		return err
	}
	at := 2 // behind the moment, and whether something has changed
	for i := range b.groups {
		g := &b.groups[i]
		if at >= len(numbers) {
			return errNoArray
		}
		g.granted = int32(numbers[at])
		at++
		size := int(g.end-g.first) * outcomeSize
		if g.granted > 0 {
			g.before = int32(at)
			at += size
		}
		if 0 <= g.granted && (g.granted < g.requests || g.peeks) {
			g.after = int32(at)
			at += size
		}
	}
	if at != len(numbers) {
		return errNoArray
	}
	b.reply = numbers
	return nil
}

// grantedOf returns how much of the kth charge of a group is taken, in all its requests.
func (b *batch) grantedOf(g *group, k int) int64 {
	o := b.reply[int(g.before)+k*outcomeSize:]
	if o[0] == 0 {
		return 0
	}
	ch := b.charges[int(g.first)+k]
	cost := max(ch.cost, -ch.cost)
	// A shadow may have room for some of them only.
	return cost * min(int64(g.granted), max(o[2]/cost, 1))
}

// outcome fills in the outcomes of a request, when its batch is done.
func (p place) outcome(charges []limit.Charge) (bool, error) {
	if p.err != nil {
		return false, p.err
	}
	g := p.groups[p.group]
	if g.granted < 0 {
		return false, errForeign
	}
	allowed := p.nth < g.granted
	at := g.after
	if allowed {
		at = g.before
	}
	for k := range charges {
		ch := &charges[k]
		n := p.reply[int(at)+k*outcomeSize:]
		o := limit.Outcome{Allowed: n[0] == 1, Wait: n[1], Remaining: n[2], Reset: n[3]}
		if allowed { // those in front of it in the group have been charged already
			nth := int64(p.nth)
			o.Allowed = o.Allowed && (nth == 0 || o.Remaining >= (nth+1)*ch.Cost)
			o.Remaining = max(o.Remaining-nth*ch.Cost, 0)
			if o.Allowed {
				o.Remaining = max(o.Remaining-ch.Cost, 0)
			}
		}
		ch.Outcome = o
		if !g.peeks {
			ch.At, ch.Ticket = p.reply[0], nil
		}
	}
	return allowed, nil
}
