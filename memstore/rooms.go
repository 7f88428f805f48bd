// SPDX-License-Identifier: MIT

package memstore

import (
	"slices"
	"sync"
)

// rooms divides MaxKeys among the families. A quarter is divided into rooms, one for each
// family in use. The rest is for all families, in order of arrival.
//
//	|<------------------------- MaxKeys ------------------------->|
//	[room][room][room][room][ actors beyond the rooms |    free   ]
//
// So a flood of one family's actors fills its own room and the rest, but no other room. Only
// an insert and a removal check the rooms; a charge to an existing record does not.
//
// The numbers change under one lock, so they are exact. An insert holds the lock for a few
// nanoseconds. When the rooms change, the next insert counts again. A record that limits an
// actor is never removed. So if a reload adds a family while the store is full, its room
// becomes free only as other records expire.
//
// Rejected: a table for each family, which costs each of thousands of rules a set of
// shards. Atomic counters, which are not exact while rooms change.
type rooms struct {
	mu sync.Mutex // guards the rest, and some fields of family

	maxKeys int
	keys    int // records of actors
	beside  int // records beside MaxKeys: the counters of everyone and of newcomers
	beyond  int // records of actors beyond their family's room
	rest    int // most records beyond the rooms
	size    int // of each room
	roomy   int // families that have a room
	changed bool
	all     []*family // families that have a record of an actor, and perhaps some that had one
}

// parts is the number of equal parts of MaxKeys. One of them is divided into rooms.
const parts = 4

func (r *rooms) setMaxKeys(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxKeys, r.changed = n, true
}

// open makes a room for a family.
func (r *rooms) open(f *family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f.roomy {
		f.roomy, r.changed = true, true
		r.roomy++
	}
}

// close removes the room of a family. Its records count as beyond it until they are removed.
func (r *rooms) close(f *family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.roomy {
		f.roomy, r.changed = false, true
		r.roomy--
	}
}

func (r *rooms) list(f *family) {
	if !f.listed {
		f.listed = true
		r.all = append(r.all, f)
	}
}

// settle counts again if the rooms have changed. It visits only families with records: a configuration
// can have 100,000 rules, and each insert while their rooms are made counts again. r.mu is held.
func (r *rooms) settle() {
	if !r.changed {
		return
	}
	r.changed = false
	r.all = slices.DeleteFunc(r.all, func(f *family) bool {
		f.listed = f.keys > 0
		return !f.listed
	})
	r.size = r.maxKeys / (parts * max(r.roomy, 1))
	r.rest = r.maxKeys - r.roomy*r.size
	r.beyond = 0
	for _, f := range r.all {
		r.beyond += max(f.keys-r.reserve(f), 0)
	}
}

// reserve returns how many records a family's own room has.
func (r *rooms) reserve(f *family) int {
	if f.roomy {
		return r.size
	}
	return 0
}

// admit takes room for one more record of a family. It reports false if there is none.
func (r *rooms) admit(f *family) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	return r.add(f)
}

// replace removes a record of old to make room for one of f, unless the record is in old's room,
// which others may not use. After MaxKeys has decreased, one removal may not make enough room.
func (r *rooms) replace(old, f *family) (removed, admitted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	if old != f && old.keys <= r.reserve(old) {
		return false, false
	}
	r.sub(old)
	return true, r.add(f)
}

// remove records that a record of a family was removed.
func (r *rooms) remove(f *family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	r.sub(f)
}

// addBeside records n more records that MaxKeys does not count.
func (r *rooms) addBeside(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beside += n
}

// full reports whether there is no room for one more record of a family.
func (r *rooms) full(f *family) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	return !r.fits(f)
}

func (r *rooms) fits(f *family) bool {
	return r.keys < r.maxKeys && (f.keys < r.reserve(f) || r.beyond < r.rest)
}

func (r *rooms) add(f *family) bool {
	if !r.fits(f) {
		return false
	}
	r.note(f)
	return true
}

// force adds a record of a family, also beyond MaxKeys.
func (r *rooms) force(f *family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	r.note(f)
}

func (r *rooms) note(f *family) {
	r.list(f)
	if f.keys >= r.reserve(f) {
		r.beyond++
	}
	f.keys++
	r.keys++
}

func (r *rooms) sub(f *family) {
	f.keys--
	r.keys--
	if f.keys >= r.reserve(f) {
		r.beyond--
	}
}

// count returns the number of records.
func (r *rooms) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys + r.beside
}

// sparse returns how many shards hold about eight of a family's records, if the family has fewer
// than eight of the records that evict examines. Otherwise it returns 0.
func (r *rooms) sparse(f *family, shards int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.keys == 0 || f.keys*(mostRecords/8) > r.keys {
		return 0
	}
	return min(1+mostRecords/8*shards/f.keys, mostShards)
}
