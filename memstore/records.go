// SPDX-License-Identifier: MIT

package memstore

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
)

// records are all records of a Store, with what they share: the memory of their states, their
// rooms, and the wait queues of their actors.
type records struct {
	seed     seed
	shards   []shard
	families *families
	rooms    *rooms
	cells    *slab
	queues   waitQueues

	evictions atomic.Int64
	away      atomic.Pointer[away] // set by HandOver
	shrunk    atomic.Uint64        // where the last shrink looked

	overflow uint64 // hash of the key of the counters that newcomers share
	everyone uint64 // hash of the empty key
}

const (
	maxShards   = 1 << 12
	perShard    = 1024 // keys: few, so that rebuilding a shard is short
	mostRecords = 64   // how many records an insert examines to find an expired one
	mostShards  = 16   // and how many shards, if the family has few records
)

// use sets the seed of an empty table.
func (r *records) use(s seed) {
	r.seed, r.overflow, r.everyone = s, s.hash([]byte(limit.Overflow)), s.hash(nil)
}

// setShards gives an empty table that many shards, a power of two.
func (r *records) setShards(n int) {
	r.shards = make([]shard, n)
	for i := range r.shards {
		r.shards[i].table.Store(newTable(minRecords))
	}
}

func (r *records) hash(key []byte) uint64 {
	if len(key) == 0 { // of every request under a rule for all clients
		return r.everyone
	}
	return r.seed.hash(key)
}

// hashOf returns the hash of the actor of a charge.
func (r *records) hashOf(ch *limit.Charge) uint64 {
	if ch.Counters.(*counters).hashed {
		return binary.BigEndian.Uint64(ch.Key)
	}
	return r.hash(ch.Key)
}

const spread = 0x9E3779B97F4A7C15 // otherwise all rules' empty keys would be neighbours

// locate returns the location of the actor with that hash.
func (r *records) locate(id, hash uint64) location {
	hash ^= id * spread
	i := int(hash & uint64(len(r.shards)-1))
	return location{shard: &r.shards[i], index: i, meta: hash&^idMask | id}
}

// split returns the id of the family, and the hash of the actor without the bits that locate does not use.
func split(index int, meta uint64) (id, hash uint64) {
	id = meta & idMask
	return id, (meta&^idMask | uint64(index)) ^ id*spread
}

// findOrInsert finds or makes the record of a charge, unless it is known already.
func (r *records) findOrInsert(it *item, now int64) {
	if it.record != nil {
		return
	}
	it.location = r.locate(it.c.id, it.hash)
	if it.charge.Shared = false; it.find() {
		return
	}
	beside := it.hash == r.everyone || it.hash == r.overflow // each rule has one of both
	if r.insert(&it.location, it.c, now, beside) {
		return
	}
	it.charge.Shared = true
	it.location = r.locate(it.c.id, r.overflow)
	if !it.find() {
		r.insert(&it.location, it.c, now, true)
	}
}

// insert adds the record of p with an unused state, if it does not exist and there is room. It
// reports false if there is no room. With beside there always is room. beside is for the
// counters of everyone and of newcomers, of which each rule has one.
func (r *records) insert(p *location, c *counters, now int64, beside bool) bool {
	h := p.shard
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		p.record = &goneRecord
		return true
	}
	if p.find() {
		return true
	}
	switch {
	case beside:
		r.rooms.addBeside(1)
	case !r.rooms.admit(c.family) && !r.evict(h, c.family, now) && !r.evictSparse(h, c.family, now):
		return false
	}
	t := h.roomy(r.keep)
	p.record = h.add(t, p.meta, r.initial(c, now, beside))
	return true
}

// initial returns the head of a new record. An actor starts with the state of the overflow
// counter if newcomers have used that, because it may be one of them. A rule of concurrency
// is an exception. Slots are released in the counter that they were taken from, so an actor
// could never release the slots of the others.
func (r *records) initial(c *counters, now int64, fresh bool) uint64 {
	from := item{c: c, location: r.locate(c.id, r.overflow)}
	if fresh || c.held || !from.acquireInShard() {
		return c.unused()
	}
	defer func() { from.unlock(from.head) }()
	state := from.state()
	switch {
	case c.Expiry(state) <= now:
		return c.unused()
	case c.plain:
		return from.head
	case c.aging != nil:
		return c.inherit(state, now)
	}
	ref, _ := r.cells.alloc(len(state.Cells), true)
	copy(r.cells.block(ref), r.cells.block(from.head))
	return ref
}

// evict makes room for a record of f: it removes an expired record if it finds one near the hand.
// h.mu is held.
func (r *records) evict(h *shard, f *family, now int64) bool {
	t := *h.table.Load()
	for range min(len(t), mostRecords) {
		h.hand = t.after(h.hand)
		if r.replace(h, &t[h.hand], f, now) {
			return true
		}
	}
	return false
}

// evictSparse is evict for a family with few records: it removes one of those. It searches some
// shards, and the next call searches the shards after them. own.mu is held.
func (r *records) evictSparse(own *shard, f *family, now int64) bool {
	for range r.rooms.sparse(f, len(r.shards)) {
		h := &r.shards[f.next.Add(1)%uint64(len(r.shards))]
		if h != own && !h.mu.TryLock() { // its holder may be waiting for own
			continue
		}
		found := r.evictOf(h, f, now)
		if h != own {
			h.mu.Unlock()
		}
		if found {
			return true
		}
	}
	return false
}

// evictOf makes room for a record of f: it removes an expired one of f, if there is one. h.mu is
// held.
func (r *records) evictOf(h *shard, f *family, now int64) bool {
	t := *h.table.Load()
	for i := range t {
		if t[i].meta.Load()&idMask == f.id && r.replace(h, &t[i], f, now) {
			return true
		}
	}
	return false
}

// replace removes an expired record that takes the room of one of f. It reports whether there is
// room now. h.mu is held.
func (r *records) replace(h *shard, e *record, f *family, now int64) (admitted bool) {
	meta, head := e.meta.Load(), e.head.Load()
	if meta == empty || meta == tomb || head&locked != 0 || !e.head.CompareAndSwap(head, head|locked) {
		return false
	}
	old := r.families.get(meta & idMask)
	removed := false
	if r.expired(h, meta, head, now) && !r.beside(old, meta) {
		removed, admitted = r.rooms.replace(old, f)
	}
	if !removed {
		e.head.Store(head)
		return false
	}
	e.meta.Store(tomb)
	e.head.Store(frozen)
	if !old.plain {
		r.cells.free(head)
	}
	r.evictions.Add(1)
	return admitted
}

// expired reports whether a record has no effect any more. The record is locked.
func (r *records) expired(shard *shard, meta, head uint64, now int64) bool {
	f := r.families.get(meta & idMask)
	c := f.newest.Load()
	switch {
	case f.queues && r.queues.exists(shard, meta):
		return false
	case c == nil:
		return !r.holds(f, head)
	case r.beside(f, meta):
		return false
	case f.plain:
		return c.Expiry(limit.State{Head: head}) <= now
	}
	return c.Expiry(r.cells.state(head)) <= now
}

// retired reports whether a record's counters are no longer in use, no request waits, and no
// slot is held. The counters can come back before those requests have ended.
func (r *records) retired(shard *shard, meta, head uint64) bool {
	f := r.families.get(meta & idMask)
	return f.newest.Load() == nil && !r.holds(f, head) && (!f.queues || !r.queues.exists(shard, meta))
}

// holds reports whether requests hold slots of a record.
func (r *records) holds(f *family, head uint64) bool {
	if f.held && !f.plain {
		head = r.cells.state(head).Head
	}
	return f.held && head != 0
}

// beside reports whether a record is the counter of everyone or that of newcomers. Each rule
// has one of each, which MaxKeys does not count.
func (r *records) beside(f *family, meta uint64) bool {
	return meta == r.locate(f.id, r.overflow).meta || meta == r.locate(f.id, r.everyone).meta
}

// keep reports whether a rebuild keeps a record. If not, keep frees its memory and its room. h.mu is
// held, and the record is frozen.
func (r *records) keep(h *shard, meta, head uint64) bool {
	if !r.retired(h, meta, head) {
		return true
	}
	f := r.families.get(meta & idMask)
	if r.beside(f, meta) {
		r.rooms.addBeside(-1)
	} else {
		r.rooms.remove(f)
	}
	if !f.plain {
		r.cells.free(head)
	}
	return false
}

// sweep removes the records of retired counters, and returns the ids of all other records.
func (r *records) sweep() map[uint64]bool {
	left := map[uint64]bool{}
	for i := range r.shards {
		r.shards[i].sweep(r.keep, left)
	}
	return left
}
