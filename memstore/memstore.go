// SPDX-License-Identifier: MIT

// Package memstore keeps counters in this process.
//
// # Structure
//
// A [Store] is a table of records of two words, 16 bytes. A record says which actor under
// which rule it counts, and has the head of the state. The store keeps a seeded 64-bit hash
// of an actor and no text. Records have no pointers, so the garbage collector does not scan
// them.
//
//	 meta                            head
//	+-----------------+----------+  +-+---------------------------------+
//	| 46 bits of hash |  18: id  |  |L| state, or a reference to cells  |
//	+-----------------+----------+  +-+---------------------------------+
//
// The id is that of the rule. More bits of the hash choose one of up to 4096 shards. A shard
// uses open addressing with linear probing. A read takes no lock. A refusal is only a read,
// so a flood on one key scales with the number of cores.
//
// An admission locks the records that it needs by the head's top bit L, in one order for all
// callers. It evaluates every state, and then writes all of them or none. It holds the locks
// only for the arithmetic. A single state of one word is evaluated once: if locking it
// succeeds, it has not changed.
//
// Three changes of a shard take its mutex: a new record, an eviction, and a rebuild. A
// rebuild moves the records to a new table one by one, and leaves each old head frozen. A
// goroutine that finds a frozen head waits for the mutex and searches again. So growth
// concerns one shard at a time and is short.
//
// A state that needs more than the head has it in a slab of words; see slab.go. Requests
// that wait for a leaky bucket are in a wait queue; see waitqueue.go.
//
// # Memory
//
// A record takes 20 to 26 bytes for each actor and rule, besides the cells. The store keeps
// at most MaxKeys records, and each rule has room for some of its own; see rooms.go. States
// that grow with use take at most 256 bytes for each of MaxKeys, or 32 MiB if that is more;
// see aging.go.
//
// Expired records go first: an insert at the bound examines a few records and replaces an
// expired one. If it finds none, the newcomer shares the rule's overflow counter with all
// other newcomers. So a flood of new actors never evicts an actor that is being limited,
// and never frees it from its limit.
//
// Rejected: a map of limiters (pointers, text, one lock). An LRU, which evicts the actors
// that it should limit, and writes at every read. A sweeper, which stops everything or
// sweeps too late.
package memstore

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// defaultMaxKeys is the MaxKeys of the zero Options.
const defaultMaxKeys = 1_000_000

// Options configure a Store.
type Options struct {
	// MaxKeys is the number of actors that the store remembers under all rules together. An
	// actor that two rules count is two. Each rule has room for at least MaxKeys / (4 * rules)
	// actors, whatever other rules' actors do. Counters with a Meter that refuses every
	// request need no room. Further newcomers share one counter for each rule. 0 means
	// 1,000,000.
	MaxKeys int

	// Clock replaces the system clock if it is not nil. Only its owner knows when it will
	// advance, so with a Clock no request is held: Wait returns at once, and a scheduled time
	// has passed when the clock reaches it.
	Clock func() time.Time
}

// Store is a limit.Store in memory. Use New. A Store has no goroutines and needs no Close.
type Store struct {
	start  time.Time
	epoch  int64            // start, as Now returns it
	clock  func() time.Time // nil: the one above
	seed   maphash.Seed
	shards []shard
	rooms  rooms
	cells  slab
	queues waitQueues

	evictions atomic.Int64
	shrunk    atomic.Uint64 // where the last shrink looked

	overflow uint64 // hash of the key of the counters that newcomers share
	everyone uint64 // hash of the empty key

	mu       sync.Mutex // guards the rest
	families map[string]*family
	byID     [1 << (idBits - chunkBits)]atomic.Pointer[chunk] // written under mu
	lastID   uint64
	freed    []uint64 // ids of families that have no records any more
}

const (
	idBits    = 18
	idMask    = 1<<idBits - 1
	maxID     = idMask
	chunkBits = 9
	maxShards = 1 << 12
	perShard  = 1024 // keys: few, so that rebuilding a shard is short
)

type chunk [1 << chunkBits]atomic.Pointer[family]

// family is what all counters of one name have in common. Its id is the number in its records.
// Id 0 is not used.
type family struct {
	name    string
	id      uint64
	newest  atomic.Pointer[counters] // nil when retired
	last    atomic.Pointer[counters] // newest, or the one before it was retired
	refs    int                      // handles in use; guarded by Store.mu
	version string
	plain   bool // states are one word
	queues  bool // its meters are limit.Queue
	held    bool // its states do not expire: a request releases what it took

	next atomic.Uint64 // shard in which to look next for one of its expired records

	// Guarded by rooms.mu.
	keys   int  // records of its actors
	roomy  bool // has a room
	listed bool // is in rooms.all
}

// counters is the any of this store.
type counters struct {
	*family
	limit.Meter
	queue   limit.Queue   // Meter, if it is one
	clamped limit.Clamped // Meter, if it is one

	reserver limit.Reserver // Meter, if it is one
	aging    limit.Aging    // Meter, if it is one
}

// evaluate returns the outcome of a charge.
func (c *counters) evaluate(state limit.State, now int64, ch *limit.Charge) limit.Outcome {
	if c.reserver != nil {
		return c.reserver.PeekWithin(state, now, ch.Cost, ch.Longest)
	}
	return c.Peek(state, now, ch.Cost)
}

// moment returns the moment of a charge to a state.
func (c *counters) moment(state limit.State, now int64) int64 {
	if c.clamped != nil {
		return c.clamped.Moment(state, now)
	}
	return now
}

// New returns an empty Store.
func New(o Options) *Store {
	if o.MaxKeys <= 0 {
		o.MaxKeys = defaultMaxKeys
	}
	n := 1
	for n < maxShards && n*perShard <= o.MaxKeys {
		n *= 2
	}
	now := time.Now()
	s := &Store{
		start:    now,
		epoch:    now.UnixMicro(),
		clock:    o.Clock,
		seed:     maphash.MakeSeed(),
		shards:   make([]shard, n),
		families: map[string]*family{},
	}
	s.SetMaxKeys(o.MaxKeys)
	s.overflow = s.hash([]byte(limit.Overflow))
	s.everyone = s.hash(nil)
	for i := range s.shards {
		s.shards[i].table.Store(newTable(minRecords))
	}
	return s
}

// Now returns the moment by this store's clock: the wall clock when the store was made,
// advanced by a monotonic clock. So it does not jump when the wall clock is set.
func (s *Store) Now() int64 {
	if s.clock != nil {
		return s.clock().UnixMicro()
	}
	return s.epoch + time.Since(s.start).Microseconds()
}

// SetMaxKeys changes Options.MaxKeys. If there are more keys, they stay until they expire.
func (s *Store) SetMaxKeys(n int) {
	if n <= 0 {
		n = defaultMaxKeys
	}
	s.rooms.setMaxKeys(n)
	s.cells.most.Store(max(leastCells, bytesPerKey*int64(n)) / 8)
}

// Keys returns the number of records: actors, counted once for each rule. It includes
// expired records that were not replaced yet.
func (s *Store) Keys() int { return s.rooms.count() }

// Evictions returns the number of expired records that new ones have replaced.
func (s *Store) Evictions() int64 { return s.evictions.Load() }

// Counters implements limit.Store. It returns an error if counters of that name have another
// StateVersion, or if more than 262,143 names are in use.
func (s *Store) Counters(name string, m limit.Meter) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.families[name]
	if f == nil {
		id, err := s.newID()
		if err != nil {
			return nil, err
		}
		f = &family{name: name, id: id, version: m.StateVersion(), plain: m.Cells(limit.State{}, 1) == 0}
		_, f.queues = m.(limit.Queue)
		f.held = f.plain && m.Expiry(limit.State{Head: m.Take(limit.State{}, s.Now(), 1) &^ locked}) == limit.Never
		s.families[name] = f
		s.familyOf(id).Store(f)
	}
	if f.version != m.StateVersion() {
		return nil, fmt.Errorf("memstore: counters %q have state version %q, not %q", name, f.version, m.StateVersion())
	}
	c := &counters{family: f, Meter: m}
	c.queue, _ = m.(limit.Queue)
	c.clamped, _ = m.(limit.Clamped)
	c.reserver, _ = m.(limit.Reserver)
	c.aging, _ = m.(limit.Aging)
	f.refs++
	f.newest.Store(c)
	if m.Peek(limit.State{}, s.Now(), 1).Allowed { // otherwise no actor is ever remembered
		s.rooms.open(f)
	}
	f.last.Store(c)
	return c, nil
}

// Retire implements limit.Store.
func (s *Store) Retire(h any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := h.(*counters).family
	if f.refs--; f.refs == 0 {
		f.newest.Store(nil) // its records now count as expired
		s.rooms.close(f)
	}
}

// newID returns an id that no record has. s.mu is held.
func (s *Store) newID() (uint64, error) {
	if s.lastID < maxID {
		s.lastID++
		if p := &s.byID[s.lastID>>chunkBits]; p.Load() == nil {
			p.Store(new(chunk))
		}
		return s.lastID, nil
	}
	if len(s.freed) == 0 { // after years of reloads: remove retired families
		left := map[uint64]bool{} // ids that a record has
		for i := range s.shards {
			s.shards[i].sweep(s, left)
		}
		for name, f := range s.families {
			if f.refs == 0 && !left[f.id] {
				delete(s.families, name)
				s.freed = append(s.freed, f.id)
			}
		}
	}
	if len(s.freed) == 0 {
		return 0, errors.New("memstore: more than 262,143 rules")
	}
	id := s.freed[len(s.freed)-1]
	s.freed = s.freed[:len(s.freed)-1]
	return id, nil
}

func (s *Store) familyOf(id uint64) *atomic.Pointer[family] {
	return &s.byID[id>>chunkBits].Load()[id&(1<<chunkBits-1)]
}

// retired reports whether a record's counters are no longer in use, no request waits, and no
// slot is held. The counters can come back before those requests have ended.
func (s *Store) retired(shard *shard, meta, head uint64) bool {
	f := s.familyOf(meta & idMask).Load()
	return f.newest.Load() == nil && (!f.held || head == 0) && (!f.queues || !s.queues.exists(shard, meta))
}

// expired reports whether a record has no effect any more. The record is locked.
func (s *Store) expired(shard *shard, meta, head uint64, now int64) bool {
	f := s.familyOf(meta & idMask).Load()
	c := f.newest.Load()
	switch {
	case f.queues && s.queues.exists(shard, meta):
		return false
	case c == nil:
		return !f.held || head == 0
	case s.beside(f, meta):
		return false
	case f.plain:
		return c.Expiry(limit.State{Head: head}) <= now
	}
	return c.Expiry(s.cells.state(head)) <= now
}

// beside reports whether a record is the counter of everyone or that of newcomers. Each rule
// has one of each, which MaxKeys does not count.
func (s *Store) beside(f *family, meta uint64) bool {
	return meta == s.locate(f, s.overflow).meta || meta == s.locate(f, s.everyone).meta
}

// initial returns the head of a new record. An actor starts with the state of the overflow
// counter if newcomers have used that, because it may be one of them. A rule of concurrency
// is an exception. Slots are released in the counter that they were taken from, so an actor
// could never release the slots of the others.
func (s *Store) initial(c *counters, now int64, fresh bool) uint64 {
	from := item{c: c, place: s.locate(c.family, s.overflow)}
	if fresh || c.held || !from.lockInsert() {
		return s.unused(c)
	}
	defer func() { from.unlock(from.head) }()
	state := from.state(s)
	switch {
	case c.Expiry(state) <= now:
		return s.unused(c)
	case c.plain:
		return from.head
	case c.aging != nil:
		return s.inherit(c, state, now)
	}
	ref, _ := s.cells.alloc(len(state.Cells), true)
	copy(s.cells.block(ref), s.cells.block(from.head))
	return ref
}

// unused returns the head of a state that was never used.
func (s *Store) unused(c *counters) uint64 {
	if c.plain {
		return 0
	}
	ref, _ := s.cells.alloc(c.Cells(limit.State{}, 1), true)
	return ref
}

// lockInsert is acquire for a goroutine that holds a shard's mutex. It must not wait for another
// shard's mutex, because the holder of that may be waiting for this one.
func (it *item) lockInsert() bool {
	for spin := 0; it.find(); spin++ {
		if head, ok := it.lock(); ok {
			it.head = head
			return true
		}
		pause(spin)
	}
	return false
}

// place is where a charge is counted.
type place struct {
	shard  *shard
	index  int // of the shard
	meta   uint64
	record *record // set by find and insert
}

// compare orders places in the same way for all callers.
func (p *place) compare(q *place) int {
	return cmp.Or(cmp.Compare(p.index, q.index), cmp.Compare(p.meta, q.meta))
}

func (s *Store) hash(key []byte) uint64 { return maphash.Bytes(s.seed, key) }

// locate returns the place of the actor with that hash.
func (s *Store) locate(f *family, hash uint64) place {
	hash ^= f.id * 0x9E3779B97F4A7C15 // otherwise all rules' empty keys would be neighbours
	i := int(hash & uint64(len(s.shards)-1))
	return place{shard: &s.shards[i], index: i, meta: hash&^idMask | f.id}
}

var _ limit.Store = (*Store)(nil)
