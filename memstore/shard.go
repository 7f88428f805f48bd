// SPDX-License-Identifier: MIT

package memstore

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// Values of a head that are no state.
const (
	locked = uint64(1) << 63 // this bit: someone is changing the record
	frozen = ^uint64(0)      // the record has moved, or is being replaced
)

// Values of a meta that are no record.
const (
	empty = 0          // never used: a search ends here
	tomb  = idMask + 1 // removed: a search continues, an insert may use it
)

const (
	minRecords  = 8
	mostRecords = 64 // how many records an insert examines to find an expired one
	mostShards  = 16 // and how many shards, if the family has few records
)

// record is one actor under one rule.
type record struct{ meta, head atomic.Uint64 }

type table []record

func newTable(records int) *table {
	t := make(table, records)
	return &t
}

// home returns where a search for meta starts: the hash as a fraction of the table, which need
// not be a power of two. It is the first of the four records of a cache line, because loading
// another line takes longer than all else of a decision.
func (t table) home(meta uint64) int {
	hi, _ := bits.Mul64(meta&^idMask, uint64(len(t)))
	return int(hi &^ 3)
}

// after returns the index behind i.
func (t table) after(i int) int {
	if i++; i < len(t) {
		return i
	}
	return 0
}

// shard is a part of the store. Its size is a multiple of a cache line.
type shard struct {
	table atomic.Pointer[table]

	mu   sync.Mutex // held to add, remove or move records, and guards the rest
	used int        // records whose meta is not empty
	hand int        // where the last search for an expired record ended
	_    [64 - 8 - 8 - 8 - 8]byte
}

// find searches the record and reports whether it exists. It takes no lock.
func (p *place) find() bool {
	p.record = p.shard.find(p.meta)
	return p.record != nil
}

func (h *shard) find(meta uint64) *record {
	t := *h.table.Load()
	for i := t.home(meta); ; i = t.after(i) {
		switch r := &t[i]; r.meta.Load() {
		case meta:
			return r
		case empty:
			return nil
		}
	}
}

// still reports whether the record still has p.meta. Another record can have replaced it
// between finding it and reading its head.
func (p *place) still() bool { return p.record.meta.Load() == p.meta }

// read returns the head of a plain record that was found, when no goroutine is changing it. It
// reports false if the record has moved or was replaced.
func (p *place) read() (uint64, bool) {
	if h := p.record.head.Load(); h&locked == 0 && p.still() {
		return h, true
	}
	return p.await()
}

// await is read for a record that a goroutine may be changing.
func (p *place) await() (uint64, bool) {
	for spin := 0; ; spin++ {
		h := p.record.head.Load()
		switch {
		case h == frozen || !p.still():
			return 0, false
		case h&locked == 0:
			return h, true
		}
		pause(spin)
	}
}

// lock locks a record that was found and returns its head. It reports false if the record has
// moved or was replaced. It checks that in each round: to wait for the lock of a record that now
// belongs to another actor would break the lock order.
func (p *place) lock() (uint64, bool) {
	for spin := 0; ; spin++ {
		h := p.record.head.Load()
		switch {
		case h == frozen || !p.still():
			return 0, false
		case h&locked == 0 && p.lockFrom(h):
			return h, true
		}
		pause(spin)
	}
}

// lockFrom locks a record whose head is h, unless the head has changed. A record that now belongs
// to another actor can have the same head. So lockFrom locks first and then checks the owner.
func (p *place) lockFrom(h uint64) bool {
	if !p.record.head.CompareAndSwap(h, h|locked) {
		return false
	}
	if !p.still() {
		p.record.head.Store(h)
		return false
	}
	return true
}

// unlock ends lock with a new head. If a meter uses the top bit, its counts are wrong, but no
// goroutine waits forever.
func (p *place) unlock(head uint64) { p.record.head.Store(head &^ locked) }

// pause passes the time while another goroutine works for a few nanoseconds, or longer if it
// has lost its processor.
func pause(spin int) {
	if spin > 30 {
		runtime.Gosched()
	}
}

// settle waits until a running rebuild of the shard has ended.
func (h *shard) settle() {
	h.mu.Lock()
	defer h.mu.Unlock()
}

// insert adds the record of p with an unused state, if it does not exist and there is room. It
// reports false if there is no room. With beside there always is room. beside is for the
// counters of everyone and of newcomers, of which each rule has one.
func (p *place) insert(s *Store, c *counters, now int64, beside bool) bool {
	h := p.shard
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.find() {
		return true
	}
	switch {
	case beside:
		s.rooms.addBeside(1)
	case !s.rooms.admit(c.family) && !h.evict(s, c.family, now) && !s.evictSparse(h, c.family, now):
		return false
	}
	t := *h.table.Load()
	if (h.used+1)*5 > len(t)*4 {
		t = h.rebuild(s)
	}
	i := t.home(p.meta)
	for m := t[i].meta.Load(); m != empty && m != tomb; m = t[i].meta.Load() {
		i = t.after(i)
	}
	if t[i].meta.Load() == empty {
		h.used++
	}
	t[i].head.Store(s.initial(c, now, beside)) // before the meta, by which others find it
	t[i].meta.Store(p.meta)
	p.record = &t[i]
	return true
}

// evict makes room for a record of f: it removes an expired record if it finds one near the hand.
// h.mu is held.
func (h *shard) evict(s *Store, f *family, now int64) bool {
	t := *h.table.Load()
	for range min(len(t), mostRecords) {
		h.hand = t.after(h.hand)
		if h.replace(s, &t[h.hand], f, now) {
			return true
		}
	}
	return false
}

// evictSparse is evict for a family with few records: it removes one of those. It searches some
// shards, and the next call searches the shards after them. own.mu is held.
func (s *Store) evictSparse(own *shard, f *family, now int64) bool {
	for range s.rooms.sparse(f, len(s.shards)) {
		h := &s.shards[f.next.Add(1)%uint64(len(s.shards))]
		if h != own && !h.mu.TryLock() { // its holder may be waiting for own
			continue
		}
		found := h.evictOf(s, f, now)
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
func (h *shard) evictOf(s *Store, f *family, now int64) bool {
	t := *h.table.Load()
	for i := range t {
		if t[i].meta.Load()&idMask == f.id && h.replace(s, &t[i], f, now) {
			return true
		}
	}
	return false
}

// replace removes an expired record that takes the room of one of f. It reports whether there is
// room now. h.mu is held.
func (h *shard) replace(s *Store, r *record, f *family, now int64) (admitted bool) {
	meta, head := r.meta.Load(), r.head.Load()
	if meta == empty || meta == tomb || head&locked != 0 || !r.head.CompareAndSwap(head, head|locked) {
		return false
	}
	old := s.familyOf(meta & idMask).Load()
	removed := false
	if s.expired(h, meta, head, now) && !s.beside(old, meta) {
		removed, admitted = s.rooms.replace(old, f)
	}
	if !removed {
		r.head.Store(head)
		return false
	}
	r.meta.Store(tomb)
	r.head.Store(frozen)
	if !old.plain {
		s.cells.free(head)
	}
	s.evictions.Add(1)
	return admitted
}

// drop frees the memory and the room of a record that is being removed.
func (s *Store) drop(meta, head uint64) {
	f := s.familyOf(meta & idMask).Load()
	if s.beside(f, meta) {
		s.rooms.addBeside(-1)
	} else {
		s.rooms.remove(f)
	}
	if !f.plain {
		s.cells.free(head)
	}
}

// rebuild moves the records to a table that fits, except those of retired counters. It also moves
// expired records, because a client that came often is likely to return. At the bound, evict
// removes them. h.mu is held.
func (h *shard) rebuild(s *Store) table {
	old := *h.table.Load()
	// Freeze first. Then the states do not change, and the number of live records is known.
	alive := make([]uint64, 0, 2*len(old)) // meta, head, meta, head ...
	for i := range old {
		meta := old[i].meta.Load()
		if meta == empty || meta == tomb {
			continue
		}
		head := old[i].freeze()
		if s.retired(h, meta, head) {
			s.drop(meta, head)
			continue
		}
		alive = append(alive, meta, head)
	}
	// Five eighths are used now; the next rebuild is due at four fifths.
	h.used = len(alive) / 2
	t := newTable(max(minRecords, (h.used+1)*8/5+1))
	for k := 0; k < len(alive); k += 2 {
		meta, head := alive[k], alive[k+1]
		i := t.home(meta)
		for (*t)[i].meta.Load() != empty {
			i = t.after(i)
		}
		(*t)[i].head.Store(head)
		(*t)[i].meta.Store(meta)
	}
	h.hand = h.hand * len(*t) / len(old) // at the same actors, which keep their order
	h.table.Store(t)
	return *t
}

// freeze waits until no goroutine is changing the record, and freezes it.
func (r *record) freeze() uint64 {
	for spin := 0; ; spin++ {
		if h := r.head.Load(); h&locked == 0 && r.head.CompareAndSwap(h, frozen) {
			return h
		}
		pause(spin)
	}
}

// sweep removes the records of retired counters, and adds the ids of the other records to left.
func (h *shard) sweep(s *Store, left map[uint64]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.rebuild(s)
	for i := range t {
		left[t[i].meta.Load()&idMask] = true // 0 for an empty record, which is no id
	}
}
