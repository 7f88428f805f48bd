// SPDX-License-Identifier: MIT

package memstore

import "github.com/diana-limiter/diana/limit"

// States under a limit.Aging grow with use. A state is copied to a block of another size when
// it needs more cells than it has, or far fewer. That is found out when it is charged. So the
// state of an actor that stays away keeps its block until someone needs the memory: one that
// must grow at the bound first shrinks the states of a few others to what still counts. If
// that is not enough it stays as large as it is, and becomes less exact.
//
// The counters of everyone and of newcomers, of which there is one a rule, grow beyond the
// bound. So does the first block of a record, because the number of records has a bound.

// The bound of all blocks: so many bytes for each of MaxKeys, but not less than for a few
// dozen of the largest states.
const (
	bytesPerKey = 256
	leastCells  = 32 << 20
)

// inherited is how many cells a newcomer gets at most for what it inherits from the overflow:
// those of 16 moments of a sliding log.
const inherited = 25

// slack is how many times more cells than it needs a state may have.
const slack = 4

// fit gives the state of a record that is locked about as many cells as its charge needs.
func (s *Store) fit(it *item, now int64) {
	state := it.state(s)
	need, have := it.c.aging.CellsAt(state, now, it.charge.Cost), len(state.Cells)
	if need <= have && have <= slack*need {
		return
	}
	force := need < have || it.charge.Shared || len(it.charge.Key) == 0
	ref, ok := s.cells.alloc(need, force)
	if !ok && s.shrink(now) {
		ref, ok = s.cells.alloc(need, force)
	}
	if ok {
		it.head = s.move(it.c, it.head, ref, now)
	}
}

// move copies the state of one block to another, frees the first one and returns the second.
func (s *Store) move(c *counters, from, to uint64, now int64) uint64 {
	block := s.cells.block(to)
	block[0] = c.aging.Copy(s.cells.state(from), now, block[1:])
	s.cells.free(from)
	return to
}

// inherit returns a block with a copy of the overflow's state, as exact as it fits into a
// small one: many newcomers may inherit it.
func (s *Store) inherit(c *counters, overflow limit.State, now int64) uint64 {
	ref, _ := s.cells.alloc(min(c.aging.CellsAt(overflow, now, 1), inherited), true)
	block := s.cells.block(ref)
	block[0] = c.aging.Copy(overflow, now, block[1:])
	return ref
}

// shrink looks at a few records, copies states that have far more cells than they still need
// to smaller blocks, and reports whether there were any. It locks only records that nobody has
// locked, because its caller has locked others.
func (s *Store) shrink(now int64) (any bool) {
	h := &s.shards[s.shrunk.Add(1)%uint64(len(s.shards))]
	t := *h.table.Load()
	start := t.home(s.shrunk.Load() * 0x9E3779B97F4A7C15)
	for i := range min(len(t), look) {
		r := &t[(start+i)%len(t)]
		meta, head := r.meta.Load(), r.head.Load()
		if meta == empty || meta == tomb || head&locked != 0 {
			continue
		}
		c := s.slotOf(meta & slotMask).Load().last.Load()
		p := place{shard: h, meta: meta, record: r}
		if c.aging == nil || !p.lockFrom(head) {
			continue
		}
		state := s.cells.state(head)
		need := c.aging.CellsAt(state, now, 1)
		if len(state.Cells) > slack*need {
			to, _ := s.cells.alloc(need, true)
			head, any = s.move(c, head, to, now), true
		}
		p.unlock(head)
	}
	return any
}
