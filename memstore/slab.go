// SPDX-License-Identifier: MIT

package memstore

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
)

// slab is the memory of states that are more than one word. It is divided into pages of words
// without pointers, and the pages into blocks. A block has the state's head first, and then
// its cells. The record's head is a reference to the block:
//
//	| 1: lock | 7: class | 40: page | 16: offset |
//
// A class is a size of block. Each number of cells up to 64 has its own class; above that
// there are four for each power of two. All blocks of a page have one class. A larger block
// has a page of its own size. Pages without blocks in use are returned to the process,
// except one of each class. So states of one size can use the memory of other sizes.
//
// The pages have a bound. Beyond it alloc fails, unless it is forced.
type slab struct {
	pages atomic.Pointer[[][]uint64] // by number; a reader reads only the pages of its own blocks
	most  atomic.Int64               // words of all pages

	mu    sync.Mutex // guards the rest, and changes of pages
	words int64      // of all pages
	uses  []pageUse  // of each page
	spare []int      // numbers of pages that were returned
	open  [classes][]int
}

// pageUse records which blocks of a page are in use.
type pageUse struct {
	class int
	live  int    // blocks in use
	cut   int    // where the part starts that was never used
	freed uint64 // the block that was freed last; it refers to the one before
	index int    // in the list of its class of pages with room
}

const (
	pageWords  = 1 << 12
	blockWords = pageWords / 8 // larger blocks have a page to themselves
	smallCells = 64
	offsetBits = 16
	classShift = 56
	whole      = 1<<7 - 1 // the class of blocks that have a page to themselves
	classes    = smallCells + 4*3 + 1
)

// classOf returns the smallest class with room for that many cells, at least 1, or whole.
func classOf(cells int) int {
	switch {
	case cells <= smallCells:
		return cells
	case 1+cells > blockWords:
		return whole
	}
	shift := bits.Len(uint(cells-1)) - 3 // of a quarter of the power of two below
	return smallCells + 4*(shift-4) + (cells-1)>>shift - 3
}

func cellsOf(class int) int {
	if class <= smallCells {
		return class
	}
	k := class - smallCells - 1
	return (5 + k%4) << (4 + k/4)
}

// page returns the page of a reference.
func page(ref uint64) int { return int(ref >> offsetBits & (1<<(classShift-offsetBits) - 1)) }

// block returns the words that ref refers to.
func (b *slab) block(ref uint64) []uint64 {
	words := (*b.pages.Load())[page(ref)]
	if class := int(ref >> classShift); class != whole {
		words = words[ref&(1<<offsetBits-1):][:1+cellsOf(class)]
	}
	return words
}

// state returns the state in the block of ref.
func (b *slab) state(ref uint64) limit.State {
	words := b.block(ref)
	return limit.State{Head: words[0], Cells: words[1:]}
}

// alloc returns a block of zeros with room for that many cells. Beyond the bound it returns
// false, unless force is set.
func (b *slab) alloc(cells int, force bool) (ref uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	class := classOf(cells)
	if class == whole {
		n, ok := b.addPage(1+cells, class, force)
		return uint64(class)<<classShift | uint64(n)<<offsetBits, ok
	}
	if len(b.open[class]) == 0 {
		n, ok := b.addPage(pageWords, class, force)
		if !ok {
			return 0, false
		}
		b.list(n)
	}
	n := b.open[class][len(b.open[class])-1]
	u := &b.uses[n]
	words := 1 + cellsOf(class)
	if ref = u.freed; ref != 0 {
		block := b.block(ref)
		u.freed = block[0]
		clear(block)
	} else {
		ref = uint64(class)<<classShift | uint64(n)<<offsetBits | uint64(u.cut)
		u.cut += words
	}
	u.live++
	if u.freed == 0 && u.cut+words > pageWords {
		b.unlist(n)
	}
	return ref, true
}

// addPage adds a page and returns its number. b.mu is held.
func (b *slab) addPage(words, class int, force bool) (n int, ok bool) {
	if b.words+int64(words) > b.most.Load() && !force {
		return 0, false
	}
	b.words += int64(words)
	var pages [][]uint64
	if p := b.pages.Load(); p != nil {
		pages = *p
	}
	if last := len(b.spare) - 1; last >= 0 {
		n, b.spare = b.spare[last], b.spare[:last]
		pages[n], b.uses[n] = make([]uint64, words), pageUse{class: class}
		return n, true
	}
	n = len(pages)
	pages = append(pages, make([]uint64, words)) // readers of the old list do not see so far
	b.uses = append(b.uses, pageUse{class: class})
	b.pages.Store(&pages)
	return n, true
}

// list adds a page to those of its class with room. b.mu is held.
func (b *slab) list(n int) {
	u := &b.uses[n]
	u.index = len(b.open[u.class])
	b.open[u.class] = append(b.open[u.class], n)
}

// unlist takes a page from those of its class with room. b.mu is held.
func (b *slab) unlist(n int) {
	u := &b.uses[n]
	list := b.open[u.class]
	last := list[len(list)-1]
	list[u.index], b.uses[last].index = last, u.index
	b.open[u.class] = list[:len(list)-1]
}

// free returns a block to its page.
func (b *slab) free(ref uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, class := page(ref), int(ref>>classShift)
	u := &b.uses[n]
	if class == whole {
		b.dropPage(n)
		return
	}
	if u.freed == 0 && u.cut+1+cellsOf(class) > pageWords { // it was full
		b.list(n)
	}
	b.block(ref)[0], u.freed = u.freed, ref
	if u.live--; u.live == 0 && len(b.open[class]) > 1 { // one is kept for the next block
		b.unlist(n)
		b.dropPage(n)
	}
}

// dropPage returns a page to the process. b.mu is held.
func (b *slab) dropPage(n int) {
	pages := *b.pages.Load()
	b.words -= int64(len(pages[n]))
	pages[n] = nil
	b.spare = append(b.spare, n)
}
