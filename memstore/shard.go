// SPDX-License-Identifier: MIT

package memstore

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Values of a meta that are no record.
const (
	empty = 0          // never used: a search ends here
	tomb  = idMask + 1 // removed: a search continues
)

const minRecords = 8

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
	gone bool       // all records are frozen for good, see HandOver
	_    [64 - 8 - 8 - 8 - 8 - 8]byte
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

// settle waits until a running rebuild of the shard has ended. It reports whether the Store has handed over.
func (h *shard) settle() (gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// roomy returns a table with room for one more record. h.mu is held.
func (h *shard) roomy(keep keeper) table {
	t := *h.table.Load()
	if (h.used+1)*5 > len(t)*4 {
		t = h.rebuild(keep)
	}
	return t
}

// add adds a record to the shard's table, which has room for it. h.mu is held.
func (h *shard) add(t table, meta, head uint64) *record {
	i := t.home(meta)
	for t[i].meta.Load() != empty { // not in place of a removed record; see record
		i = t.after(i)
	}
	h.used++
	t[i].head.Store(head) // before the meta, by which others find it
	t[i].meta.Store(meta)
	return &t[i]
}

// rebuild moves the records to a table that fits, except those that keep removes. It also moves
// expired records, because a client that came often is likely to return. At the bound, evict
// removes them. h.mu is held.
func (h *shard) rebuild(keep keeper) table {
	old := *h.table.Load()
	// Freeze first. Then the states do not change, and the number of live records is known.
	alive := make([]uint64, 0, 2*len(old)) // meta, head, meta, head ...
	for i := range old {
		meta := old[i].meta.Load()
		if meta == empty || meta == tomb {
			continue
		}
		head := old[i].freeze()
		if keep(h, meta, head) {
			alive = append(alive, meta, head)
		}
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

// keeper reports whether a rebuild keeps a record; see records.keep.
type keeper func(h *shard, meta, head uint64) bool

// sweep rebuilds the shard, and adds the ids of its records to left.
func (h *shard) sweep(keep keeper, left map[uint64]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := *h.table.Load()
	if !h.gone {
		t = h.rebuild(keep)
	}
	for i := range t {
		left[t[i].meta.Load()&idMask] = true // 0 for an empty record, which is no id
	}
}
