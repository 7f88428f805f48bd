// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	"math"
	"time"
	"unique"

	"github.com/diana-limiter/diana/limit"
)

// batch is the requests of one call. The batcher's lock guards it until it is sent. Then only
// its sender may use it, and when done is closed, everyone may read it.
type batch struct {
	batcher *batcher
	*tables
	groups []group
	born   time.Time // when the first request arrived
	now    int64     // the caller's moment; 0: Redis' clock decides
	urgent bool      // sent even before Redis is in use again
	leads  bool      // requests may already wait for its end, see watcher.use

	call  int64 // its number; 0: it was not sent
	late  int64 // of its debits, the sum of those that were made without Redis
	known int64 // the call that Redis must remember, see receipts.go
	epoch int64 // that this gateway knew when it added the restores

	reminds int // counters that were added only to put them back

	done  chan struct{}
	err   error
	reply []int64 // what the script answered

	// Guarded by the lock of the receipts, if the call has failed.
	fate   fate
	made   int64  // carriedOut: the moment, by Redis' clock; 0: unknown
	unless []debt // debits to make if Redis has not carried out the call
}

// group is requests that charge the same counters by the same costs. A request with its own
// scheduled time is a group of one.
type group struct {
	requests      int32
	first, end    int32 // its charges in tables
	granted       int32 // -1: a key holds a foreign value
	whole         int32 // of these, the first ones of which no charge with Debit is refused
	waits         bool  // has its own scheduled time in a queue
	reserves      bool  // has its own scheduled time; its charges have the longest wait
	peeks         bool  // only peeks
	debits        bool  // has charges with Debit
	before, after int32 // indexes in reply: the outcomes of the first granted request, and of refused ones
}

// tables are the parts of a batch that nobody reads after it was sent. They are reused.
type tables struct {
	keys     []key
	keyOf    map[hash]int32 // from 1
	found    []int32        // the keys of the request that joins
	nodes    []node
	nodeOf   map[node]int32 // from 1; only those that are not the newest node of their key
	groupAt  []int32        // of each node, from 1; 0: none
	charges  []groupCharge
	debits   []debited
	refunds  []refund
	resets   []reset
	renewals []renewal
	restores []restore
	limits   []*counters
	limitOf  map[*counters]int32 // from 1
	names    []string            // of keys
	packed   []byte
}

// actor is the actor of a key, under all handles of the same counters.
type actor struct {
	name unique.Handle[string] // of the counters
	key  string
}

// key is an actor's state in Redis. Its charges can have several handles, and c is the first of
// them. Each charge has the limit of its own handle.
type key struct {
	actor
	c    *counters
	hash hash
	node int32 // the newest with this key, from 1; 0: none
}

// node is a step in the search for a group: one charge after those of another node.
type node struct {
	after, key int32
	c          *counters
	cost       int64 // below 0 if it is a shadow, and still less with Debit
}

type groupCharge struct {
	key, limit int32 // from 1; limit is below 0 if a refused charge becomes a debit
	cost       int64 // below 0 if it is a shadow
	longest    int64 // Charge.Longest
}

type debited struct {
	key, limit int32
	at         int64 // the moment of the debit
	n          int64
	posting    *posting // nil if nobody refunds it
}

type refund struct {
	key, limit int32
	at         int64 // the moment of the charge; below 0 the scheduled time that is left
	n          int64
}

// reset is an actor's counter to be deleted.
type reset struct{ key, limit int32 }

// renewal is the number of slots that this gateway holds.
type renewal struct {
	key, limit int32
	n          int64 // set when the batch is sent
}

// newBatch returns an empty batch, with the tables of a batch that was sent, or nil.
func newBatch(br *batcher, sent *batch) *batch {
	b := &batch{batcher: br, done: make(chan struct{})}
	if sent == nil || sent.err != nil { // the client may still write a call that has timed out
		b.tables = &tables{limitOf: map[*counters]int32{}, keyOf: map[hash]int32{}, nodeOf: map[node]int32{}}
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
	t.keys, t.nodes, t.groupAt, t.charges = t.keys[:0], t.nodes[:0], t.groupAt[:0], t.charges[:0]
	clear(t.restores)
	t.debits, t.refunds, t.resets, t.renewals = t.debits[:0], t.refunds[:0], t.resets[:0], t.renewals[:0]
	t.restores = t.restores[:0]
	t.limits, t.names, t.packed = t.limits[:0], t.names[:0], t.packed[:0]
	return b
}

func (b *batch) empty() bool {
	return len(b.groups) == 0 && !b.changes()
}

// changes reports whether the batch holds anything but requests.
func (b *batch) changes() bool {
	return len(b.debits) > 0 || len(b.refunds) > 0 || len(b.resets) > 0 || len(b.renewals) > 0 || b.reminds > 0
}

// join adds a request. hashes are those of the charges.
func (b *batch) join(charges []limit.Charge, hashes []hash, v verb) entry {
	b.found = b.found[:0]
	for i := range charges {
		b.found = append(b.found, b.keyAt(&charges[i], hashes[i]))
	}
	if v == peeks {
		at := b.newGroup(charges) - 1
		b.groups[at].peeks = true
		return entry{batch: b, group: at}
	}
	return b.take(charges)
}

// take adds a request whose keys were found.
func (b *batch) take(charges []limit.Charge) entry {
	at := int32(0)
	single, waits, reserves := false, false, false
	for i := range charges {
		ch := &charges[i]
		c := ch.Counters.(*counters)
		waits = waits || c.queue
		reserves = reserves || c.reserver
		single = single || waits || reserves || c.apart && ch.Cost > 1
		cost := signedCost(ch)
		if ch.Debit {
			cost += math.MinInt64 / 2
		}
		at = b.node(node{at, b.found[i], c, cost})
	}
	group := &b.groupAt[at-1]
	if *group == 0 || single {
		*group = b.newGroup(charges)
	}
	g := &b.groups[*group-1]
	g.requests++
	g.waits, g.reserves = waits, reserves
	return entry{batch: b, group: *group - 1, nth: g.requests - 1}
}

// node returns the number of a node. Most keys have one node, for which the map is not needed.
func (b *batch) node(n node) int32 {
	k := &b.keys[n.key-1]
	if k.node != 0 {
		newest := b.nodes[k.node-1]
		if newest == n {
			return k.node
		}
		if at, ok := b.nodeOf[n]; ok {
			return at
		}
		b.nodeOf[newest] = k.node
	}
	b.nodes, b.groupAt = append(b.nodes, n), append(b.groupAt, 0)
	k.node = int32(len(b.nodes))
	return k.node
}

// newGroup adds a group for a request whose keys were found.
func (b *batch) newGroup(charges []limit.Charge) int32 {
	g := group{first: int32(len(b.charges))}
	for i := range charges {
		ch := &charges[i]
		l := b.limit(ch.Counters.(*counters))
		if ch.Debit {
			l, g.debits = -l, true
		}
		b.charges = append(b.charges, groupCharge{b.found[i], l, signedCost(ch), ch.Longest})
	}
	g.end = int32(len(b.charges))
	b.groups = append(b.groups, g)
	return int32(len(b.groups))
}

// signedCost returns the cost of a charge, or a number below 0 for a shadow. A cost of 0 differs from its
// shadow too.
func signedCost(ch *limit.Charge) int64 {
	if ch.Shadow {
		return ^ch.Cost
	}
	return ch.Cost
}

func (b *batch) debit(ch *limit.Charge, p *posting) {
	b.debits = append(b.debits, debited{b.key(ch), b.limit(ch.Counters.(*counters)), ch.At, ch.Cost, p})
}

// debt returns a debit of the batch as a debt.
func (b *batch) debt(d debited) debt {
	k := b.keys[d.key-1]
	return debt{actor: k.actor, c: k.c, debit: d.n, at: d.at, posting: d.posting}
}

// refund refunds a charge that was made at a moment.
func (b *batch) refund(ch *limit.Charge, at int64) {
	c := ch.Counters.(*counters)
	if (c.queue || c.reserver) && ch.Outcome.Allowed { // a debit has no wait
		at += ch.Outcome.Wait
	}
	if c.queue {
		at = -at // the scheduled time that it leaves
	}
	b.refunds = append(b.refunds, refund{b.key(ch), b.limit(c), at, ch.Cost})
}

func (b *batch) reset(ch *limit.Charge) {
	b.resets = append(b.resets, reset{b.key(ch), b.limit(ch.Counters.(*counters))})
}

func (b *batch) renew(ch *limit.Charge) {
	b.urgent = true // after an outage renewals go first
	b.renewals = append(b.renewals, renewal{key: b.key(ch), limit: b.limit(ch.Counters.(*counters))})
}

// key returns the number of a charge's key.
func (b *batch) key(ch *limit.Charge) int32 { return b.keyAt(ch, hashOf(ch)) }

// keyAt returns the number of the key with that hash, which is that of the charge.
func (b *batch) keyAt(ch *limit.Charge, h hash) int32 {
	n, ok := b.keyOf[h]
	if !ok {
		c := ch.Counters.(*counters)
		b.keys = append(b.keys, key{actor: actor{c.name, string(ch.Key)}, c: c, hash: h})
		n = int32(len(b.keys))
		b.keyOf[h] = n
	}
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

// wait returns when the batch is decided, or when ctx ends.
func (b *batch) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return nil
	default:
	}
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
