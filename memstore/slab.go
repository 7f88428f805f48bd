// SPDX-License-Identifier: MIT

package memstore

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
)

// slab is the memory of states that are more than one word. It is cut into pages of
// words without pointers, and the pages into blocks: first the state's head, then
// its cells. A record's head then is a reference to its block:
//
//	| 1: lock | 7: class | 40: page | 16: offset |
//
// A class is a size of block: each number of cells up to 64 has its own, above that
// each power of two. Blocks that come back are kept in a list for each class, and
// used again before new ones are cut.
type slab struct {
	pages atomic.Pointer[[][]uint64] // only ever grows

	mu    sync.Mutex              // guards the rest
	open  int                     // the page that small blocks are cut from
	next  int                     // where its free words begin
	lists [smallCells + 32]uint64 // last block of that class that came back; it refers to the one before
}

const (
	pageWords  = 1 << 12 // larger blocks have a page to themselves
	smallCells = 64
	offsetBits = 16
	classShift = 56
)

// classOf returns the smallest class with room for so many cells, which are at least 1.
func classOf(cells int) int {
	if cells <= smallCells {
		return cells
	}
	return smallCells + bits.Len(uint(cells-1))
}

func (b *slab) cellsOf(class int) int {
	if class <= smallCells {
		return class
	}
	return 1 << (class - smallCells)
}

// block returns the words that ref refers to.
func (b *slab) block(ref uint64) []uint64 {
	page := (*b.pages.Load())[ref>>offsetBits&(1<<(classShift-offsetBits)-1)]
	offset := ref & (1<<offsetBits - 1)
	return page[offset:][:1+b.cellsOf(int(ref>>classShift))]
}

// state returns the state in the block of ref.
func (b *slab) state(ref uint64) limit.State {
	words := b.block(ref)
	return limit.State{Head: words[0], Cells: words[1:]}
}

// alloc returns a block of zeros with room for so many cells.
func (b *slab) alloc(cells int) uint64 {
	class := classOf(cells)
	b.mu.Lock()
	defer b.mu.Unlock()
	if ref := b.lists[class]; ref != 0 {
		words := b.block(ref)
		b.lists[class] = words[0]
		clear(words)
		return ref
	}
	words := 1 + b.cellsOf(class)
	page, offset := b.open, b.next
	switch {
	case words > pageWords/8:
		page, offset = b.addPage(words), 0
	case b.next == 0 || b.next+words > pageWords:
		page, offset = b.addPage(pageWords), 0
		b.open, b.next = page, words
	default:
		b.next += words
	}
	return uint64(class)<<classShift | uint64(page)<<offsetBits | uint64(offset)
}

// addPage adds a page and returns its number. b.mu is held.
func (b *slab) addPage(words int) int {
	var pages [][]uint64
	if p := b.pages.Load(); p != nil {
		pages = *p
	}
	n := len(pages)
	pages = append(pages, make([]uint64, words)) // readers of the old list do not see so far
	b.pages.Store(&pages)
	return n
}

// grow returns a block with room for so many cells that begins with the words of
// ref, and frees that.
func (b *slab) grow(ref uint64, cells int) uint64 {
	larger := b.alloc(cells)
	copy(b.block(larger), b.block(ref))
	b.free(ref)
	return larger
}

// free takes a block back.
func (b *slab) free(ref uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	class := int(ref >> classShift)
	b.block(ref)[0] = b.lists[class]
	b.lists[class] = ref
}
