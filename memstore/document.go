// SPDX-License-Identifier: MIT

package memstore

import (
	"encoding/binary"
	"errors"

	"github.com/diana-limiter/diana/internal/takeover"
	"github.com/diana-limiter/diana/limit"
)

// A document has the counters of a Store:
//
//	seed       32 bytes
//	shards     number
//	families   for each: id, name, state version, form; then 0
//	records    for each: id of the family, hash of the actor, head, number of cells, cells; then 0
//
// A number has the form of package binary's varints. A hash has 8 bytes. Those of its bits are missing that choose
// neither the shard nor the record.

// Forms of a state.
const (
	plainForm = iota + 1 // one word
	cellsForm
)

var errDocument = errors.New("memstore: an invalid document")

// document returns the counters. No record changes meanwhile.
func (r *records) document() []byte {
	b := r.seed.append(nil)
	b = binary.AppendUvarint(b, uint64(len(r.shards)))
	used := r.families.used()
	for _, c := range used {
		b = binary.AppendUvarint(b, c.id)
		b = appendText(appendText(b, c.name), c.version)
		b = binary.AppendUvarint(b, c.form())
	}
	b = append(b, 0)
	for i := range r.shards {
		for k := range *r.shards[i].table.Load() {
			e := &(*r.shards[i].table.Load())[k]
			meta := e.meta.Load()
			if meta == empty || meta == tomb || used[meta&idMask] == nil {
				continue
			}
			id, hash := split(i, meta)
			b = binary.AppendUvarint(b, id)
			b = binary.LittleEndian.AppendUint64(b, hash)
			state := limit.State{Head: e.head.Load()}
			if !used[id].plain {
				state = r.cells.state(state.Head)
			}
			b = binary.AppendUvarint(b, state.Head)
			b = binary.AppendUvarint(b, uint64(len(state.Cells)))
			for _, cell := range state.Cells {
				b = binary.AppendUvarint(b, cell)
			}
		}
	}
	return append(b, 0)
}

func (f *family) form() uint64 {
	if f.plain {
		return plainForm
	}
	return cellsForm
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// reader reads a document. After an error, bad is true, and it returns zeros.
type reader struct {
	rest []byte
	bad  bool
}

func (d *reader) bytes(n uint64) (b []byte) {
	if d.bad = d.bad || n > uint64(len(d.rest)); d.bad {
		return nil
	}
	b, d.rest = d.rest[:n], d.rest[n:]
	return b
}

func (d *reader) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.bad = d.bad || size <= 0; d.bad {
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// entry is a record of a document.
type entry struct {
	id, hash uint64
	state    limit.State
}

// entry returns the next record, or false after the last one. It puts the cells into room.
func (d *reader) entry(room []uint64) (e entry, ok bool) {
	if e.id = d.number(); e.id == 0 {
		return e, false
	}
	if b := d.bytes(8); b != nil {
		e.hash = binary.LittleEndian.Uint64(b)
	}
	e.state.Head = d.number()
	n := d.number()
	if d.bad = d.bad || n > uint64(len(d.rest)); d.bad { // a cell takes a byte at least
		return e, false
	}
	e.state.Cells = room[:0]
	for range n {
		e.state.Cells = append(e.state.Cells, d.number())
	}
	return e, !d.bad
}

// TakeOver takes the counters of a document, which [Store.HandOver] of another process has written. Counters begin again
// if no counters of this Store have their name, state version and form; left has their names. The Store must not
// have counted anything yet. An error means that nothing has changed.
func (s *Store) TakeOver(document []byte) (old takeover.Predecessor, left []string, err error) {
	s.resets.Lock() // the only calls that can already come
	defer s.resets.Unlock()
	r := &s.records
	d := &reader{rest: document}
	key := d.bytes(seedBytes)
	shards := d.number()
	known := map[uint64]*counters{}
	ids := map[uint64]bool{}
	for id := d.number(); id != 0; id = d.number() {
		name, version, form := string(d.bytes(d.number())), string(d.bytes(d.number())), d.number()
		if c := r.families.hashed(name); c != nil && c.version == version && c.form() == form {
			known[id] = c
		} else {
			left = append(left, name)
		}
		ids[id] = true
	}
	check := *d
	var room []uint64
	for e, ok := check.entry(room); ok; e, ok = check.entry(room) {
		c := known[e.id]
		check.bad = check.bad || !ids[e.id] || c != nil && !c.accepts(e.state)
		room = e.state.Cells
	}
	if check.bad || len(check.rest) > 0 || shards == 0 || shards > maxShards || shards&(shards-1) != 0 {
		return nil, nil, errDocument
	}
	if r.rooms.count() > 0 || r.away.Load() != nil {
		return nil, nil, errors.New("memstore: the Store has counted already")
	}
	r.use(seedOf(key))
	r.setShards(int(shards))
	p := &predecessor{store: s, held: map[position]int64{}, waiting: map[uint64]*waitingCall{}}
	for e, ok := d.entry(room); ok; e, ok = d.entry(room) {
		if c := known[e.id]; c != nil {
			p.load(c, e)
		}
	}
	return p, left, nil
}

// accepts reports whether a state has the form of those of c.
func (c *counters) accepts(s limit.State) bool {
	if c.plain {
		return s.Head&locked == 0 && len(s.Cells) == 0
	}
	return len(s.Cells) >= c.Cells(limit.State{}, 1)
}

// load adds a record, also if there is no room for it.
func (p *predecessor) load(c *counters, e entry) {
	r := &p.store.records
	l := r.locate(c.id, e.hash)
	h := l.shard
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.find() {
		return // not in a document of HandOver
	}
	if r.beside(c.family, l.meta) {
		r.rooms.addBeside(1)
	} else {
		r.rooms.force(c.family)
	}
	head := e.state.Head
	if !c.plain {
		head, _ = r.cells.alloc(len(e.state.Cells), true)
		block := r.cells.block(head)
		block[0] = e.state.Head
		copy(block[1:], e.state.Cells)
	}
	h.add(h.roomy(r.keep), l.meta, head)
	if d, ok := c.Meter.(limit.Debtor); ok && c.held {
		p.held[position{l.index, l.meta}] = d.Used(e.state, 0)
	}
}
