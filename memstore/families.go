// SPDX-License-Identifier: MIT

package memstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
)

const (
	idBits    = 18
	idMask    = 1<<idBits - 1
	maxID     = idMask
	chunkBits = 9
)

// family is what all counters of one name have in common. Its id is the number in its records.
// Id 0 is not used.
type family struct {
	name    string
	id      uint64
	newest  atomic.Pointer[counters] // nil when retired
	last    atomic.Pointer[counters] // newest, or the one before it was retired
	refs    int                      // handles in use; guarded by families.mu
	cells   *slab
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

// counters is the handle that Store.Counters returns.
type counters struct {
	*family
	limit.Meter

	// Copies of what family has, because the way through the pointer takes longer.
	id    uint64
	plain bool

	hashed bool // keys are hashes, see families.hashed

	word    limit.Word    // Meter, if it is one for states of one word whose requests never wait
	queue   limit.Queue   // Meter, if it is one
	clamped limit.Clamped // Meter, if it is one

	reserver limit.Reserver // Meter, if it is one
	aging    limit.Aging    // Meter, if it is one
	adaptive limit.Adaptive // Meter, if it is one
}

// evaluate returns the outcome of a charge.
func (c *counters) evaluate(state limit.State, now int64, ch *limit.Charge) limit.Outcome {
	if c.adaptive != nil {
		return c.adaptive.Admit(state, now, ch.Cost, ch.Flight)
	}
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

// unused returns the head of a state that was never used.
func (c *counters) unused() uint64 {
	if c.plain {
		return 0
	}
	ref, _ := c.cells.alloc(c.Cells(limit.State{}, 1), true)
	return ref
}

// families are the families of a Store, by name and by id. To find one by its id takes no lock.
type families struct {
	records *records
	byID    [1 << (idBits - chunkBits)]atomic.Pointer[chunk] // written under mu

	mu     sync.Mutex // guards the rest
	byName map[string]*family
	lastID uint64
	freed  []uint64 // ids of families that have no records any more
}

type chunk [1 << chunkBits]atomic.Pointer[family]

func (fs *families) init(r *records) { fs.records, fs.byName = r, map[string]*family{} }

// get returns the family with that id.
func (fs *families) get(id uint64) *family { return fs.entry(id).Load() }

func (fs *families) entry(id uint64) *atomic.Pointer[family] {
	return &fs.byID[id>>chunkBits].Load()[id&(1<<chunkBits-1)]
}

// counters is Store.Counters.
func (fs *families) counters(name string, m limit.Meter, now int64) (*counters, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.byName[name]
	if f == nil {
		id, err := fs.newID()
		if err != nil {
			return nil, err
		}
		f = &family{
			name: name, id: id, cells: fs.records.cells,
			version: m.StateVersion(), plain: m.Cells(limit.State{}, 1) == 0,
		}
		_, f.queues = m.(limit.Queue)
		f.held = f.plain && m.Expiry(limit.State{Head: m.Take(limit.State{}, now, 1) &^ locked}) == limit.Never
		if _, adaptive := m.(limit.Adaptive); adaptive {
			f.held = true
		}
		fs.byName[name] = f
		fs.entry(id).Store(f)
	}
	if f.version != m.StateVersion() {
		return nil, fmt.Errorf("memstore: counters %q have state version %q, not %q", name, f.version, m.StateVersion())
	}
	c := &counters{family: f, Meter: m, id: f.id, plain: f.plain}
	c.queue, _ = m.(limit.Queue)
	c.clamped, _ = m.(limit.Clamped)
	c.reserver, _ = m.(limit.Reserver)
	c.aging, _ = m.(limit.Aging)
	c.adaptive, _ = m.(limit.Adaptive)
	if c.plain && c.queue == nil && c.reserver == nil {
		c.word, _ = m.(limit.Word)
	}
	f.refs++
	f.newest.Store(c)
	if m.Peek(limit.State{}, now, 1).Allowed { // otherwise no actor is ever remembered
		fs.records.rooms.open(f)
	}
	f.last.Store(c)
	return c, nil
}

// hashed returns the newest handle of a name, for charges whose Key is the hash of the actor; nil if there is none.
func (fs *families) hashed(name string) *counters {
	fs.mu.Lock()
	f := fs.byName[name]
	fs.mu.Unlock()
	if f == nil || f.newest.Load() == nil {
		return nil
	}
	c := *f.newest.Load()
	c.hashed, c.word = true, nil // takeAll decides
	return &c
}

// used returns the newest handle of each family in use, by id.
func (fs *families) used() map[uint64]*counters {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	used := map[uint64]*counters{}
	for _, f := range fs.byName {
		if c := f.newest.Load(); c != nil {
			used[f.id] = c
		}
	}
	return used
}

// retire is Store.Retire.
func (fs *families) retire(f *family) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f.refs--; f.refs == 0 {
		f.newest.Store(nil) // its records now count as expired
		fs.records.rooms.close(f)
	}
}

// newID returns an id that no record has. fs.mu is held.
func (fs *families) newID() (uint64, error) {
	if fs.lastID < maxID {
		fs.lastID++
		if p := &fs.byID[fs.lastID>>chunkBits]; p.Load() == nil {
			p.Store(new(chunk))
		}
		return fs.lastID, nil
	}
	if len(fs.freed) == 0 { // after years of reloads: remove retired families
		left := fs.records.sweep()
		for name, f := range fs.byName {
			if f.refs == 0 && !left[f.id] {
				delete(fs.byName, name)
				fs.freed = append(fs.freed, f.id)
			}
		}
	}
	if len(fs.freed) == 0 {
		return 0, errors.New("memstore: more than 262,143 rules")
	}
	id := fs.freed[len(fs.freed)-1]
	fs.freed = fs.freed[:len(fs.freed)-1]
	return id, nil
}
