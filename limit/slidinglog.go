// SPDX-License-Identifier: MIT

package limit

import "fmt"

// SlidingLog allows N requests in any interval of length Unit, and admits every
// request that keeps this promise: it remembers when each one was.
//
//	N = 3, now = 12                       |<------ Unit = 10 ------>|
//	log   1     4        9     11             4        9     11    now
//	      gone  '--------'-----'  3 of 3: refused, until 4 + 10 = 14
//
// The log is a ring of moments in order. Judging a request is a binary search for
// the first moment still in the window; the ones before it are dropped when a
// request is admitted.
//
// Memory grows with what an actor used within one Unit: 8 bytes a request, up to N.
// So that it has a bound, a log holds at most 65,536 moments. For a larger N each
// of them stands for a bundle of ceil(N / 65536) requests that followed one
// another, and is the moment of the last. The promise holds all the same; a
// request may be refused for as long as the bundle that is leaving lasted. Where
// N is large and the last request does not matter, a sliding window is cheaper.
//
// State: Head packs the ring (first, length, size) and the requests in the newest
// bundle; the cells are the moments. Expiry: when the newest has left the window.
// Cost: a binary search. Source: source 003 keeps such a log in a Redis sorted set.
func SlidingLog() Algorithm {
	return Algorithm{
		Names: []string{"SL", "sliding log"},
		Keys:  []string{"unit", "charge", "wait"},
		New:   newSlidingLog,
	}
}

const maxMoments = 1 << 16

type slidingLog struct {
	n, unit int64
	bundle  int64 // requests to a moment
}

func newSlidingLog(l Limit) (Meter, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.N == 0 {
		return closed(l.Unit.Microseconds()), nil
	}
	return &slidingLog{n: l.N, unit: l.Unit.Microseconds(), bundle: ceilDiv(l.N, maxMoments)}, nil
}

// Layout names the bundle: how many a moment stands for is part of its meaning.
func (g *slidingLog) Layout() string { return fmt.Sprintf("%d", g.bundle) }

// A ring of moments, as Head packs it: 16 bits for the first, 17 for the length, 5
// for the size's logarithm plus one (0: no ring yet), 15 for the newest bundle.
type ring struct {
	first, length int64
	size          int64 // a power of two, or 0
	newest        int64 // requests in the newest bundle, 1 or more unless length is 0
}

func unpack(head uint64) ring {
	r := ring{
		first:  int64(head & (1<<16 - 1)),
		length: int64(head >> 16 & (1<<17 - 1)),
		newest: int64(head >> 38 & (1<<15 - 1)),
	}
	if log := head >> 33 & (1<<5 - 1); log > 0 {
		r.size = 1 << (log - 1)
	}
	return r
}

func (r ring) pack() uint64 {
	var log uint64
	for size := r.size; size > 0; size >>= 1 {
		log++
	}
	return uint64(r.first) | uint64(r.length)<<16 | log<<33 | uint64(r.newest)<<38
}

func (r ring) index(i int64) int64 { return (r.first + i) & (r.size - 1) }

func (g *slidingLog) Cells(s State, n int64) int {
	r := unpack(s.Head)
	need := r.length
	if room := g.bundle - r.newest; r.length == 0 || n > room {
		need += ceilDiv(n, g.bundle)
	}
	need = min(need, ceilDiv(g.n, g.bundle)) // Take first drops what has left the window
	size := max(r.size, 1)
	for size < need {
		size *= 2
	}
	return int(size)
}

// gone returns how many moments at the front of the ring have left the window.
func (g *slidingLog) gone(s State, r ring, now int64) int64 {
	lo, hi := int64(0), r.length
	for lo < hi {
		mid := (lo + hi) / 2
		if int64(s.Cells[r.index(mid)])+g.unit <= now {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// used returns how many requests the last length moments stand for.
func (g *slidingLog) used(length, newest int64) int64 {
	if length == 0 {
		return 0
	}
	return (length-1)*g.bundle + newest
}

func (g *slidingLog) Look(s State, now, n int64) Outcome {
	r := unpack(s.Head)
	gone := g.gone(s, r, now)
	used := g.used(r.length-gone, r.newest)
	out := Outcome{Remaining: max(g.n-used, 0), Reset: g.unit}
	leaves := func(i int64) int64 { return int64(s.Cells[r.index(i)]) + g.unit - now }
	if used > 0 {
		out.Reset = leaves(gone)
	}
	if used+n <= g.n {
		out.Allowed = true
		return out
	}
	// Enough is free when so many bundles have left, or all have.
	free := min(ceilDiv(used+n-g.n, g.bundle), r.length-gone)
	if free > 0 {
		out.Wait = leaves(gone + free - 1)
	} else { // a cost over the whole limit meets an empty log
		out.Wait = g.unit
	}
	return out
}

func (g *slidingLog) Take(s State, now, n int64) uint64 {
	r := unpack(s.Head)
	if size := int64(len(s.Cells)); size > r.size {
		r = r.grow(s.Cells)
	}
	gone := g.gone(s, r, now)
	r.first, r.length = r.index(gone), r.length-gone
	if r.length == 0 {
		r.newest = 0
	} else { // a clock that went back counts as standing still
		now = max(now, int64(s.Cells[r.index(r.length-1)]))
	}
	for n > 0 {
		if r.length == 0 || r.newest == g.bundle {
			r.length, r.newest = r.length+1, 0
		}
		s.Cells[r.index(r.length-1)] = uint64(now)
		k := min(n, g.bundle-r.newest)
		r.newest += k
		n -= k
	}
	return r.pack()
}

// grow makes the ring as large as its cells allow, and it needs. The part that had
// wrapped around to the front goes behind the rest.
func (r ring) grow(cells []uint64) ring {
	size := int64(1)
	for size*2 <= int64(len(cells)) && size < maxMoments {
		size *= 2
	}
	if wrapped := r.first + r.length - r.size; r.size > 0 && wrapped > 0 {
		copy(cells[r.size:], cells[:wrapped])
	}
	r.size = size
	return r
}

// Debit implements Debtor. A full log drops its oldest bundles for the new ones. That forgets
// no debt: a request is judged by the newest moments, as many as the limit.
func (g *slidingLog) Debit(s State, now, n int64) uint64 {
	n = min(n, g.n)
	r := unpack(s.Head)
	if r.size == 0 {
		return g.Take(s, now, n)
	}
	gone := g.gone(s, r, now)
	most := ceilDiv(g.n, g.bundle)
	add := ceilDiv(n, g.bundle)
	if keep := max(most-add, 0); r.length-gone > keep {
		gone = r.length - keep
	}
	r.first, r.length = r.index(gone), r.length-gone
	if r.length == 0 {
		r.newest = 0
	}
	return g.Take(State{Head: r.pack(), Cells: s.Cells}, now, n)
}

func (g *slidingLog) Give(s State, at, n int64) uint64 {
	r := unpack(s.Head)
	i := r.length // the first moment not before at
	for i > 0 && int64(s.Cells[r.index(i-1)]) >= at {
		i--
	}
	switch {
	case g.bundle == 1:
		end := i
		for end < r.length && end < i+n && int64(s.Cells[r.index(end)]) == at {
			end++
		}
		for j := end; j < r.length; j++ {
			s.Cells[r.index(i+j-end)] = s.Cells[r.index(j)]
		}
		r.length -= end - i
	case i == r.length-1 && at > int64(s.Cells[r.index(i)])-g.unit: // in the newest bundle
		if r.newest -= min(n, r.newest); r.newest == 0 {
			r.length, r.newest = r.length-1, g.bundle
		}
	}
	// One that is in an older bundle stays counted: the bundle's moment is that
	// of its last request, and the others are not told apart. One that has left the
	// window must not be mistaken for one in the newest bundle.
	return r.pack()
}

func (g *slidingLog) Expiry(s State) int64 {
	r := unpack(s.Head)
	if r.length == 0 {
		return 0
	}
	return int64(s.Cells[r.index(r.length-1)]) + g.unit
}

// Moment implements Clamped.
func (g *slidingLog) Moment(s State, now int64) int64 {
	if r := unpack(s.Head); r.length > 0 {
		now = max(now, int64(s.Cells[r.index(r.length-1)]))
	}
	return now
}
