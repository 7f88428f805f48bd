// SPDX-License-Identifier: MIT

package limit

// momentLog is the State of a SlidingLog: a ring of moments with totals.
//
//	size = 4, first = 3, length = 3
//	cells   | m1 | m2 |    | m0 |   t1 t2 | -- t0 |   b    |
//	            moments              totals, two to a cell
//
// t0, t1, t2 are the totals up to the moments m0, m1, m2. b is the total before m0.
type momentLog struct {
	cells         []uint64
	first, length int64
	size          int64 // a power of two, or 0
}

// openLog returns the log of a State. Head has 16 bits for first, 17 for length, and 5 for
// the logarithm of size plus one (0: there is no ring yet).
func openLog(s State) momentLog {
	l := momentLog{
		cells:  s.Cells,
		first:  int64(s.Head & (1<<16 - 1)),
		length: int64(s.Head >> 16 & (1<<17 - 1)),
	}
	if log := s.Head >> 33 & (1<<5 - 1); log > 0 {
		l.size = 1 << (log - 1)
	}
	return l
}

func (l *momentLog) head() uint64 {
	var log uint64
	for size := l.size; size > 0; size >>= 1 {
		log++
	}
	return uint64(l.first) | uint64(l.length)<<16 | log<<33
}

// sizeFor returns the size of a ring with room for so many moments.
func sizeFor(moments int64) int64 {
	size := int64(1)
	for size < moments {
		size *= 2
	}
	return size
}

// cellsOf returns how many cells a ring of that size needs.
func cellsOf(size int64) int { return int(size + size/2 + 1) }

func (l *momentLog) index(i int64) int64 { return (l.first + i) & (l.size - 1) }

// half returns the kth total in the order of the cells.
func (l *momentLog) half(k int64) uint32 { return uint32(l.cells[l.size+k/2] >> (k % 2 * 32)) }

func (l *momentLog) setHalf(k int64, total uint32) {
	cell, shift := &l.cells[l.size+k/2], k%2*32
	*cell = *cell&^(uint64(1<<32-1)<<shift) | uint64(total)<<shift
}

func (l *momentLog) moment(i int64) int64 { return int64(l.cells[l.index(i)]) }

// latest returns the later of now and the newest moment.
func (l *momentLog) latest(now int64) int64 {
	if l.length > 0 {
		now = max(now, l.moment(l.length-1))
	}
	return now
}

// total returns the total up to moment i, or for -1 the total before the first moment.
func (l *momentLog) total(i int64) uint32 {
	switch {
	case i >= 0:
		return l.half(l.index(i))
	case l.size > 0:
		return l.half(l.size)
	}
	return 0
}

func (l *momentLog) set(i, moment int64, total uint32) {
	l.cells[l.index(i)] = uint64(moment)
	l.setHalf(l.index(i), total)
}

// between returns how many requests came after moment i, up to moment j.
func (l *momentLog) between(i, j int64) int64 { return int64(l.total(j) - l.total(i)) }

// since returns how many requests came at moment i and later.
func (l *momentLog) since(i int64) int64 { return l.between(i-1, l.length-1) }

// gone returns how many moments are not after at.
func (l *momentLog) gone(at int64) int64 {
	lo, hi := int64(0), l.length
	for lo < hi {
		if mid := (lo + hi) / 2; l.moment(mid) <= at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// holding returns the moment of the nth request, counted from moment i.
func (l *momentLog) holding(i, n int64) int64 {
	lo, hi := i, l.length-1
	for lo < hi {
		if mid := (lo + hi) / 2; l.between(i-1, mid) < n {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// drop removes the first moments.
func (l *momentLog) drop(moments int64) {
	if moments > 0 {
		l.setHalf(l.size, l.total(moments-1))
		l.first, l.length = l.index(moments), l.length-moments
	}
}

// forget removes the first requests.
func (l *momentLog) forget(n int64) {
	before := l.total(-1) + uint32(n)
	i := l.holding(0, n)
	if l.total(i) == before {
		i++
	}
	l.drop(i)
	l.setHalf(l.size, before)
}

// add adds n requests at a moment that is not before the newest one. If the log already has
// the largest allowed number of moments, add merges them.
func (l *momentLog) add(moment, n, most int64) {
	total := l.total(l.length-1) + uint32(n)
	if l.length == 0 || l.moment(l.length-1) != moment {
		if l.length == most {
			l.merge(most)
		}
		l.length++
	}
	l.set(l.length-1, moment, total)
}

// merge merges moments two by two, each pair into its later one, until there are fewer than
// most. If only one is left it is dropped, because the next moment takes its requests.
func (l *momentLog) merge(most int64) {
	kept := (l.length + 1) / 2
	for i := range kept {
		k := min(2*i+1, l.length-1)
		l.set(i, l.moment(k), l.total(k))
	}
	l.length = min(kept, most-1)
}

// grow makes the ring as large as its cells allow. The part that wrapped around to the
// front moves behind the rest. The totals move first, because moments overwrite their cells.
func (l *momentLog) grow() {
	size := max(l.size, 1)
	for cellsOf(size*2) <= len(l.cells) && size < maxMoments {
		size *= 2
	}
	if size == l.size {
		return
	}
	old := *l
	l.size = size
	wrapped := max(old.first+old.length-old.size, 0)
	for i := range old.length {
		k := old.index(i)
		if k < wrapped {
			l.setHalf(k+old.size, old.half(k))
		} else {
			l.setHalf(k, old.half(k))
		}
	}
	l.setHalf(size, old.total(-1))
	copy(l.cells[old.size:], l.cells[:wrapped])
}
