// SPDX-License-Identifier: MIT

package memstore

import "github.com/diana-limiter/diana/limit"

// States under a limit.Aging grow with use. When a state is charged and needs more cells than
// it has, or far fewer, it is copied to a block of another size. So the state of an absent
// actor keeps its block until another state needs the memory. A state that must grow at the
// bound first shrinks a few other states to what still counts. If that does not free
// enough, the state keeps its size and becomes less exact.
//
// The counters of everyone and of newcomers may grow beyond the bound, because each rule has
// only one of each. The first block of a record may do so too, because the number of
// records has a bound.

// The bound of all blocks: bytesPerKey for each of MaxKeys, but at least leastCells, which is
// enough for a few dozen of the largest states.
const (
	bytesPerKey = 256
	leastCells  = 32 << 20
)

// inherited is the largest number of cells that a newcomer copies from the overflow: those of 16
// moments of a sliding log.
const inherited = 25

// slack is how many times more cells than it needs a state may have.
const slack = 4

// fit moves the state of a locked record to a block of about the size that its charge needs, unless
// it has one.
func (r *records) fit(it *item, now int64) {
	state := it.state()
	need, have := it.c.aging.CellsAt(state, now, it.charge.Cost), len(state.Cells)
	if need <= have && have <= slack*need {
		return
	}
	force := need < have || it.charge.Shared || len(it.charge.Key) == 0
	ref, ok := r.cells.alloc(need, force)
	if !ok && r.shrink(now) {
		ref, ok = r.cells.alloc(need, force)
	}
	if ok {
		it.head = it.c.move(it.head, ref, now)
	}
}

// move copies the state of one block to another, frees the first one and returns the second.
func (c *counters) move(from, to uint64, now int64) uint64 {
	block := c.cells.block(to)
	block[0] = c.aging.Copy(c.cells.state(from), now, block[1:])
	c.cells.free(from)
	return to
}

// inherit returns a block with a copy of the overflow's state. The block is small, so the copy can
// be less exact, because many newcomers may need one.
func (c *counters) inherit(overflow limit.State, now int64) uint64 {
	ref, _ := c.cells.alloc(min(c.aging.CellsAt(overflow, now, 1), inherited), true)
	block := c.cells.block(ref)
	block[0] = c.aging.Copy(overflow, now, block[1:])
	return ref
}

// shrink examines a few records and copies states with far too many cells to smaller blocks. It
// reports whether there were any. It skips locked records, because its caller holds locks.
func (r *records) shrink(now int64) (any bool) {
	h := &r.shards[r.shrunk.Add(1)%uint64(len(r.shards))]
	t := *h.table.Load()
	start := t.home(r.shrunk.Load() * 0x9E3779B97F4A7C15)
	for i := range min(len(t), mostRecords) {
		e := &t[(start+i)%len(t)]
		meta, head := e.meta.Load(), e.head.Load()
		if meta == empty || meta == tomb || head&locked != 0 {
			continue
		}
		c := r.families.get(meta & idMask).last.Load()
		p := location{shard: h, meta: meta, record: e}
		if c.aging == nil || !p.lockFrom(head) {
			continue
		}
		state := r.cells.state(head)
		need := c.aging.CellsAt(state, now, 1)
		if len(state.Cells) > slack*need {
			to, _ := r.cells.alloc(need, true)
			head, any = c.move(head, to, now), true
		}
		p.unlock(head)
	}
	return any
}
