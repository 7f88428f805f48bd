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
// only for the arithmetic. A few charges under a [limit.Word] are evaluated before any lock; see
// words.go. A single one needs no lock: it replaces the head that it has evaluated, unless the
// head has changed. That is exact because no record becomes the record of another actor.
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
	"context"
	"sync"
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
	// advance. Therefore no request is held with a Clock: Wait returns at once. A scheduled
	// time has passed when the clock reaches it.
	Clock func() time.Time
}

// Store is a limit.Store in memory. Use New. A Store has no goroutines and needs no Close.
type Store struct {
	clock   clock
	records records
	resets  sync.RWMutex // read-held by Reset, which another gateway can ask for while TakeOver runs
}

var _ limit.Store = (*Store)(nil)

// New returns an empty Store.
func New(o Options) *Store {
	if o.MaxKeys <= 0 {
		o.MaxKeys = defaultMaxKeys
	}
	n := 1
	for n < maxShards && n*perShard <= o.MaxKeys {
		n *= 2
	}
	s := &Store{clock: newClock(o.Clock)}
	r := &s.records
	r.families, r.rooms, r.cells = &families{}, &rooms{}, &slab{}
	s.SetMaxKeys(o.MaxKeys)
	r.setShards(n)
	r.use(newSeed())
	r.families.init(r)
	r.queues.clock = &s.clock
	return s
}

// Now returns the moment by this store's clock: the wall clock when the store was made,
// advanced by a monotonic clock. So it does not jump when the wall clock is set.
func (s *Store) Now() int64 { return s.clock.now() }

// SetMaxKeys changes Options.MaxKeys. If there are more keys, they stay until they expire.
func (s *Store) SetMaxKeys(n int) {
	if n <= 0 {
		n = defaultMaxKeys
	}
	s.records.rooms.setMaxKeys(n)
	s.records.cells.most.Store(max(leastCells, bytesPerKey*int64(n)) / 8)
}

// Keys returns the number of records: actors, counted once for each rule. It includes
// expired records that were not replaced yet.
func (s *Store) Keys() int { return s.records.rooms.count() }

// Evictions returns the number of expired records that new ones have replaced.
func (s *Store) Evictions() int64 { return s.records.evictions.Load() }

// Counters implements limit.Store. It returns an error if counters of that name have another
// StateVersion, or if more than 262,143 names are in use.
func (s *Store) Counters(name string, m limit.Meter) (any, error) {
	c, err := s.records.families.counters(name, m, s.Now())
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Retire implements limit.Store.
func (s *Store) Retire(h any) { s.records.families.retire(h.(*counters).family) }

// Peek implements limit.Store. It takes no lock for a state of one word, unless the state is
// that of a queue. It makes no record for a newcomer, but evaluates the state that a new
// record would have. It does not search for an expired record to replace.
func (s *Store) Peek(ctx context.Context, now int64, charges []limit.Charge) error {
	for i := range charges {
		if !s.peek(now, &charges[i]) {
			return s.records.away.Load().peek(ctx, now, charges[i:])
		}
	}
	return nil
}

// peek evaluates one charge. It reports false if the Store has handed over.
func (s *Store) peek(now int64, ch *limit.Charge) bool {
	r := &s.records
	it := item{c: ch.Counters.(*counters), charge: ch, hash: r.hashOf(ch)}
	it.location = r.locate(it.c.id, it.hash)
	ch.Shared = false
	if it.peek(r, now) {
		return true
	}
	if r.away.Load() != nil {
		return false
	}
	unused := it.c.evaluate(limit.State{}, now, ch)
	full := r.rooms.full(it.c.family)
	if it.hash != r.everyone && (full || !it.c.held) {
		it.location = r.locate(it.c.id, r.overflow)
		if it.peek(r, now) { // otherwise no newcomer has used it
			ch.Shared = full && ch.Outcome != unused
			return true
		}
	}
	ch.Outcome = unused
	return r.away.Load() == nil
}

// Debit implements limit.Store. It makes each charge separately. A debit to a queue takes
// scheduled times at which no request waits.
func (s *Store) Debit(now int64, charges []limit.Charge) {
	r := &s.records
	for i := range charges {
		ch := &charges[i]
		it := item{c: ch.Counters.(*counters), charge: ch, hash: r.hashOf(ch), debit: true}
		for {
			r.findOrInsert(&it, now)
			if head, ok := it.lock(); ok {
				it.head = head
				break
			}
			if it.shard.settle() {
				r.away.Load().debit(now, charges[i:])
				return
			}
			it.record = nil
		}
		ch.Outcome = limit.Outcome{Allowed: true, Remaining: limit.Unknown}
		it.apply(r, now)
		it.unlock(it.head)
	}
}

// Refund implements limit.Store.
func (s *Store) Refund(charges []limit.Charge) {
	r := &s.records
	for i := range charges {
		ch := &charges[i]
		if !ch.Outcome.Allowed && !ch.Debit {
			continue
		}
		if w, ok := ch.Ticket.(*waiter); ok {
			r.queues.leave(w, ch.At, ch.Cost)
			continue
		}
		hash := r.hashOf(ch)
		if ch.Shared {
			hash = r.overflow
		}
		it := item{c: ch.Counters.(*counters)}
		it.location = r.locate(it.c.id, hash)
		if it.acquire() {
			scheduled := ch.At
			if ch.Outcome.Allowed { // a debit has no wait
				scheduled += ch.Outcome.Wait
			}
			switch {
			case it.c.adaptive != nil:
				it.leave(r, ch)
			case it.c.queue != nil:
				r.queues.refundUnwaited(&it, scheduled, ch.Cost)
			case it.c.reserver != nil:
				it.refund(scheduled, ch.Cost)
			default:
				it.refund(ch.At, ch.Cost)
			}
			it.unlock(it.head)
		} else if a := r.away.Load(); a != nil {
			a.refund(charges[i:])
			return
		}
	}
}

// Wait implements limit.Store. A request in several wait queues stays in all of them until it
// proceeds.
func (s *Store) Wait(ctx context.Context, charges []limit.Charge) error {
	queues := &s.records.queues
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			if err := queues.await(ctx, w); err != nil {
				return err
			}
		}
	}
	for i := range charges {
		if w, ok := charges[i].Ticket.(*waiter); ok {
			queues.proceed(w)
		}
	}
	if a := s.records.away.Load(); a != nil {
		return a.wait(ctx, charges)
	}
	return nil
}

// Reset implements limit.Store. It keeps the record, because a new record would begin with
// what newcomers have used.
func (s *Store) Reset(ctx context.Context, h any, key []byte) error {
	s.resets.RLock()
	defer s.resets.RUnlock()
	it := item{c: h.(*counters)}
	it.location = s.records.locate(it.c.id, s.records.hashOf(&limit.Charge{Counters: h, Key: key}))
	if !it.acquire() {
		if a := s.records.away.Load(); a != nil {
			return a.reset(ctx, it.c, key)
		}
		return nil
	}
	defer func() { it.unlock(it.head) }()
	if it.c.Expiry(it.state()) == limit.Never {
		return nil // slots that are held
	}
	if !it.c.plain {
		clear(s.records.cells.block(it.head))
		return nil
	}
	it.head = 0
	if waiting := s.records.queues.get(&it.location); waiting != nil {
		// Waiters keep their scheduled times, and a later request has a later time.
		all := waiting.Waiters()
		last := all[len(all)-1]
		it.head = it.c.Take(limit.State{}, last.at, last.cost)
	}
	return nil
}

// clock is the clock of a Store.
type clock struct {
	start  time.Time
	epoch  int64            // start in microseconds
	custom func() time.Time // Options.Clock
}

func newClock(custom func() time.Time) clock {
	start := time.Now()
	return clock{start, start.UnixMicro(), custom}
}

// now is Store.Now.
func (c *clock) now() int64 {
	if c.custom != nil {
		return c.custom().UnixMicro()
	}
	return c.epoch + time.Since(c.start).Microseconds()
}
