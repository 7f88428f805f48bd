// SPDX-License-Identifier: MIT

// Package memstore counts in this process.
//
// # How it is built
//
// A [Store] is a table of records of two words, 16 bytes: which actor under which
// rule, and the state's head. An actor is kept as a seeded 64-bit hash, never as
// text, and there are no pointers, so the garbage collector does not look inside.
//
//	 meta                            head
//	+-----------------+----------+  +-+---------------------------------+
//	| 46 bits of hash | 18: slot |  |L| state, or a reference to cells  |
//	+-----------------+----------+  +-+---------------------------------+
//
// The table is cut into up to 4096 shards by more bits of the hash. Within a shard it is
// open addressing with linear probing. Reading takes no lock. A refusal is a read
// and nothing else; so a flood on one key scales with the cores.
//
// An admission locks the records involved, by the head's top bit L, in one order for
// all: looks at every state, and then writes all of them or none. The lock is held for
// the arithmetic only. A single state of one word needs no second look: that it is
// unchanged is what locking it has shown.
//
// Only what changes the shape of a shard takes its mutex: a new record, an
// eviction, a rebuild. A rebuild moves the records to a new table one by one,
// leaving each old head frozen; whoever meets a frozen head waits for the mutex and
// looks again. Growing so concerns one shard at a time and is short.
//
// States that need more than the head have it in a slab of words; see slab.go.
// Requests that must wait for a leaky bucket join a wait queue; see waitqueue.go.
//
// # Memory
//
// 20 to 26 bytes an actor and rule, and the cells. At most MaxKeys records are
// kept, and each rule has room for some of its own; see rooms.go. States that grow with use take
// at most 256 bytes for each of MaxKeys, or 32 MiB if that is more; see aging.go. What has expired
// goes first: an insert at the bound looks at a few records and takes the place of one that
// has. When none is found, the newcomer shares the rule's overflow counter with all other
// newcomers: an actor that is being limited is never pushed out, and so not forgiven, by
// a flood of others.
//
// Rejected: a map of limiters (pointers, text, a lock around all), an LRU (pushes
// out whom it should limit, and writes on every read), a sweeper (a thread that
// stops the world, or comes late).
package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/limit"
)

// DefaultMaxKeys is the MaxKeys of the zero Options.
const DefaultMaxKeys = 1_000_000

// Options configure a Store.
type Options struct {
	// MaxKeys is how many actors are remembered, all rules together: one that is
	// counted under two rules is two. Each rule has room for at least MaxKeys / (4 * rules)
	// actors, whatever other rules' actors do; Counters with a Meter that refuses everyone
	// need none. Beyond that newcomers share one counter a rule. 0 means DefaultMaxKeys.
	MaxKeys int

	// Clock takes the place of the system's, if it is not nil. When it gets somewhere only
	// its owner knows, so with one nobody is held: Wait returns at once, and who is told
	// to wait has had its turn when the clock gets there.
	Clock func() time.Time
}

// Store is a limit.Store in memory. Use New. It starts nothing and needs no closing.
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
	slots    [1 << (slotBits - chunkBits)]atomic.Pointer[chunk] // written under mu
	lastSlot uint64
	freed    []uint64 // slots of families that no record is left of
}

const (
	slotBits  = 18
	slotMask  = 1<<slotBits - 1
	maxSlot   = slotMask
	chunkBits = 9
	maxShards = 1 << 12
	perShard  = 1024 // keys: few, so that rebuilding a shard is short
)

type chunk [1 << chunkBits]atomic.Pointer[family]

// family is what the counters of one name have in common. It has a slot, the number
// that stands in its records. Slot 0 is not used.
type family struct {
	name   string
	slot   uint64
	newest atomic.Pointer[counters] // nil when retired
	last   atomic.Pointer[counters] // newest, or what it was before that
	refs   int                      // handles in use; guarded by Store.mu
	layout string
	plain  bool // states are one word
	queues bool // its meters are limit.Queue
	held   bool // its states have no expiry: what is taken is given back

	next atomic.Uint64 // shard in which to look next for one of its expired records

	// Guarded by rooms.mu.
	keys   int  // records of its actors
	roomy  bool // has a room
	listed bool // is in rooms.all
}

// counters is the limit.Counters of this store.
type counters struct {
	*family
	limit.Meter
	queue   limit.Queue   // Meter, if it is one
	clamped limit.Clamped // Meter, if it is one

	reserver limit.Reserver // Meter, if it is one
	aging    limit.Aging    // Meter, if it is one
}

// look judges a charge.
func (c *counters) look(state limit.State, now int64, ch *limit.Charge) limit.Outcome {
	if c.reserver != nil {
		return c.reserver.PeekWithin(state, now, ch.Cost, ch.Longest)
	}
	return c.Peek(state, now, ch.Cost)
}

// moment returns when a charge to a state counts as made.
func (c *counters) moment(state limit.State, now int64) int64 {
	if c.clamped != nil {
		return c.clamped.Moment(state, now)
	}
	return now
}

// New returns an empty Store.
func New(o Options) *Store {
	if o.MaxKeys <= 0 {
		o.MaxKeys = DefaultMaxKeys
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

// Now returns the moment by this store's clock: the wall clock when the store was
// made, and since then a monotonic one, which does not jump when the wall clock is set.
func (s *Store) Now() int64 {
	if s.clock != nil {
		return s.clock().UnixMicro()
	}
	return s.epoch + time.Since(s.start).Microseconds()
}

// SetMaxKeys changes Options.MaxKeys. If there are more, they stay until they expire.
func (s *Store) SetMaxKeys(n int) {
	if n <= 0 {
		n = DefaultMaxKeys
	}
	s.rooms.setMaxKeys(n)
	s.cells.most.Store(max(leastCells, bytesPerKey*int64(n)) / 8)
}

// Keys returns how many actors are remembered, counted once a rule, including those
// that have expired and not been replaced yet.
func (s *Store) Keys() int { return s.rooms.count() }

// Evictions returns how many expired records have made room for new ones.
func (s *Store) Evictions() int64 { return s.evictions.Load() }

// Counters implements limit.Store. It fails for a name that counters of another
// layout had, or when more than 262,143 names are in use.
func (s *Store) Counters(name string, m limit.Meter) (limit.Counters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.families[name]
	if f == nil {
		slot, err := s.newSlot()
		if err != nil {
			return nil, err
		}
		f = &family{name: name, slot: slot, layout: m.StateVersion(), plain: m.Cells(limit.State{}, 1) == 0}
		_, f.queues = m.(limit.Queue)
		f.held = f.plain && m.Expiry(limit.State{Head: m.Take(limit.State{}, s.Now(), 1) &^ locked}) == limit.Never
		s.families[name] = f
		s.slotOf(slot).Store(f)
	}
	if f.layout != m.StateVersion() {
		return nil, fmt.Errorf("memstore: counters %q have layout %q, not %q", name, f.layout, m.StateVersion())
	}
	c := &counters{family: f, Meter: m}
	c.queue, _ = m.(limit.Queue)
	c.clamped, _ = m.(limit.Clamped)
	c.reserver, _ = m.(limit.Reserver)
	c.aging, _ = m.(limit.Aging)
	f.refs++
	f.newest.Store(c)
	if m.Peek(limit.State{}, s.Now(), 1).Allowed { // or no actor is ever remembered
		s.rooms.open(f)
	}
	f.last.Store(c)
	return c, nil
}

// Retire implements limit.Store.
func (s *Store) Retire(h limit.Counters) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := h.(*counters).family
	if f.refs--; f.refs == 0 {
		f.newest.Store(nil) // its records now count as expired
		s.rooms.close(f)
	}
}

// newSlot returns a slot that is in no record. s.mu is held.
func (s *Store) newSlot() (uint64, error) {
	if s.lastSlot < maxSlot {
		s.lastSlot++
		if p := &s.slots[s.lastSlot>>chunkBits]; p.Load() == nil {
			p.Store(new(chunk))
		}
		return s.lastSlot, nil
	}
	if len(s.freed) == 0 { // after years of reloads: forget the retired for good
		left := map[uint64]bool{} // slots that are in a record
		for i := range s.shards {
			s.shards[i].sweep(s, left)
		}
		for name, f := range s.families {
			if f.refs == 0 && !left[f.slot] {
				delete(s.families, name)
				s.freed = append(s.freed, f.slot)
			}
		}
	}
	if len(s.freed) == 0 {
		return 0, errors.New("memstore: more than 262,143 rules")
	}
	slot := s.freed[len(s.freed)-1]
	s.freed = s.freed[:len(s.freed)-1]
	return slot, nil
}

func (s *Store) slotOf(slot uint64) *atomic.Pointer[family] {
	return &s.slots[slot>>chunkBits].Load()[slot&(1<<chunkBits-1)]
}

// retired reports whether a record is of counters that are no longer in use, and no
// one waits by it or holds a place: the counters can come back before those have gone.
func (s *Store) retired(shard *shard, meta, head uint64) bool {
	f := s.slotOf(meta & slotMask).Load()
	return f.newest.Load() == nil && (!f.held || head == 0) && (!f.queues || !s.queues.exists(shard, meta))
}

// expired reports whether a record means nothing any more. The record is locked.
func (s *Store) expired(shard *shard, meta, head uint64, now int64) bool {
	f := s.slotOf(meta & slotMask).Load()
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

// beside reports whether a record is the counter of everyone or that of newcomers. There is
// one of each a rule, beside MaxKeys.
func (s *Store) beside(f *family, meta uint64) bool {
	return meta == s.locate(f, s.overflow).meta || meta == s.locate(f, s.everyone).meta
}

// initial returns the head of a new record. An actor's begins as the overflow is, if
// newcomers have used that: it may be one of them. Not so where places are held: they
// are given back to where they were taken, so what others hold would never be free.
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

// unused returns the head of a state never used.
func (s *Store) unused(c *counters) uint64 {
	if c.plain {
		return 0
	}
	ref, _ := s.cells.alloc(c.Cells(limit.State{}, 1), true)
	return ref
}

// lockInsert is acquire for who holds a shard's mutex, and so must not wait for another
// shard's: whoever holds that may be waiting for this one.
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

// compare orders places, the same for everyone.
func (p *place) compare(q *place) int {
	return cmp.Or(cmp.Compare(p.index, q.index), cmp.Compare(p.meta, q.meta))
}

func (s *Store) hash(key []byte) uint64 { return maphash.Bytes(s.seed, key) }

// locate returns the place of the actor with that hash, or of the overflow.
func (s *Store) locate(f *family, hash uint64) place {
	hash ^= f.slot * 0x9E3779B97F4A7C15 // or all rules' empty keys would stand in one row
	i := int(hash & uint64(len(s.shards)-1))
	return place{shard: &s.shards[i], index: i, meta: hash&^slotMask | f.slot}
}

// Take implements limit.Store. It does not allocate for up to 8 charges, unless one
// must wait. The error is for two charges of the same Counters and Key.
func (s *Store) Take(_ context.Context, now int64, charges []limit.Charge) (bool, error) {
	if len(charges) == 1 {
		ch := &charges[0]
		c := ch.Counters.(*counters)
		if c.plain && c.queue == nil && c.reserver == nil {
			if ok := s.takeWord(ch, c, now); ok {
				return ch.Outcome.Allowed || ch.Shadow, nil
			}
		}
	}
	return s.takeAll(now, charges)
}

// takeWord decides a charge whose record exists and whose state is one word.
func (s *Store) takeWord(ch *limit.Charge, c *counters, now int64) bool {
	p := s.locate(c.family, s.hash(ch.Key))
	if !p.find() {
		return false
	}
	for {
		head, ok := p.read()
		if !ok {
			return false
		}
		state := limit.State{Head: head}
		ch.Shared = false
		ch.Outcome = c.Peek(state, now, ch.Cost)
		if !ch.Outcome.Allowed {
			return true
		}
		if p.lockFrom(head) {
			p.unlock(c.Take(state, now, ch.Cost))
			ch.Outcome.Remaining = max(ch.Outcome.Remaining-ch.Cost, 0)
			ch.At, ch.Ticket = c.moment(state, now), nil
			return true
		}
	}
}

// Debit implements limit.Store. Each charge is made by itself. A debit to a queue reserves
// turns that nobody waits for.
func (s *Store) Debit(now int64, charges []limit.Charge) {
	for i := range charges {
		ch := &charges[i]
		it := item{c: ch.Counters.(*counters), charge: ch, hash: s.hash(ch.Key), debit: true}
		for {
			s.prepare(now, &it)
			if head, ok := it.lock(); ok {
				it.head = head
				break
			}
			it.shard.settle()
			it.record = nil
		}
		ch.Outcome = limit.Outcome{Allowed: true, Remaining: limit.Unknown}
		s.apply(&it, now)
		it.unlock(it.head)
	}
}

// Refund implements limit.Store.
func (s *Store) Refund(charges []limit.Charge) {
	for i := range charges {
		ch := &charges[i]
		if !ch.Outcome.Allowed {
			continue
		}
		if w, ok := ch.Ticket.(*waiter); ok {
			s.leave(w, ch.At, ch.Cost)
			continue
		}
		hash := s.hash(ch.Key)
		if ch.Shared {
			hash = s.overflow
		}
		it := item{c: ch.Counters.(*counters)}
		it.place = s.locate(it.c.family, hash)
		if s.acquire(&it) {
			switch turn := ch.At + ch.Outcome.Wait; {
			case it.c.queue != nil:
				s.refundUnwaited(&it, turn, ch.Cost)
			case it.c.reserver != nil:
				s.giveBack(&it, turn, ch.Cost)
			default:
				s.giveBack(&it, ch.At, ch.Cost)
			}
			it.unlock(it.head)
		}
	}
}

var _ limit.Store = (*Store)(nil)
