// SPDX-License-Identifier: MIT

package memstore

import (
	"slices"
	"sync"
)

// rooms divides MaxKeys among the families. A quarter is divided into rooms, one for each
// family in use; the rest is for all, first come, first served.
//
//	|<------------------------- MaxKeys ------------------------->|
//	[room][room][room][room][ actors beyond the rooms |    free   ]
//
// So a flood of one family's actors fills its own room and the rest, and no other room. Only an
// insert and a removal ask for a room; a charge to a record that exists does not.
//
// The numbers change under one lock, so they are exact: an insert takes the lock for a few
// nanoseconds. When the rooms themselves change, the next insert counts anew. If a reload
// brings a new family while the store is full, the new room is free only as others' records
// expire, because a record that limits someone is never removed.
//
// Rejected: a table for each family, which costs each of thousands of rules a set of shards;
// atomic counters, which are not exact while rooms change.
type rooms struct {
	mu sync.Mutex // guards the rest, and the fields of family that say so

	maxKeys int
	keys    int // records of actors
	beside  int // records beside MaxKeys: the counters of everyone and of newcomers
	beyond  int // records of actors beyond their family's room
	rest    int // most records beyond the rooms
	size    int // of each room
	changed bool
	all     []*family // that have a room or a record of an actor
}

// parts is how many parts MaxKeys has; one is divided into rooms.
const parts = 4

func (r *rooms) setMaxKeys(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxKeys, r.changed = n, true
}

// open gives a family a room.
func (r *rooms) open(f *family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f.roomy {
		f.roomy, r.changed = true, true
		r.list(f)
	}
}

// close takes the room of a family back. Its records count as beyond it until they are removed.
func (r *rooms) close(f *family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.roomy {
		f.roomy, r.changed = false, true
	}
}

func (r *rooms) list(f *family) {
	if !f.listed {
		f.listed = true
		r.all = append(r.all, f)
	}
}

// settle counts anew if the rooms have changed. r.mu is held.
func (r *rooms) settle() {
	if !r.changed {
		return
	}
	r.changed = false
	n := 0
	r.all = slices.DeleteFunc(r.all, func(f *family) bool {
		if f.roomy {
			n++
		}
		f.listed = f.roomy || f.keys > 0
		return !f.listed
	})
	r.size = r.maxKeys / (parts * max(n, 1))
	r.rest = r.maxKeys - n*r.size
	r.beyond = 0
	for _, f := range r.all {
		r.beyond += max(f.keys-r.of(f), 0)
	}
}

// of returns the size of a family's room.
func (r *rooms) of(f *family) int {
	if f.roomy {
		return r.size
	}
	return 0
}

// admit makes room for one more record of a family. It reports false if there is none.
func (r *rooms) admit(f *family) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	return r.add(f)
}

// replace removes a record of old for one of f, unless it stands in old's room, which is not for
// others. That can be too few: if MaxKeys has become less, several must go for one that comes.
func (r *rooms) replace(old, f *family) (removed, admitted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	if old != f && old.keys <= r.of(old) {
		return false, false
	}
	r.sub(old)
	return true, r.add(f)
}

// remove takes note that a record of a family is removed.
func (r *rooms) remove(f *family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	r.sub(f)
}

// addBeside takes note of n more records beside MaxKeys.
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
	return r.keys < r.maxKeys && (f.keys < r.of(f) || r.beyond < r.rest)
}

func (r *rooms) add(f *family) bool {
	if !r.fits(f) {
		return false
	}
	r.list(f)
	if f.keys >= r.of(f) {
		r.beyond++
	}
	f.keys++
	r.keys++
	return true
}

func (r *rooms) sub(f *family) {
	f.keys--
	r.keys--
	if f.keys >= r.of(f) {
		r.beyond--
	}
}

// count returns how many records there are.
func (r *rooms) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys + r.beside
}

// sparse returns how many shards hold about eight of a family's records, if these are few among
// all: fewer than eight among those that evict looks at. Otherwise it returns 0.
func (r *rooms) sparse(f *family, shards int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.keys == 0 || f.keys*(look/8) > r.keys {
		return 0
	}
	return min(1+look/8*shards/f.keys, mostShards)
}
