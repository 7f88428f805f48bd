// SPDX-License-Identifier: MIT

package limit

// SlidingLog allows N requests in any interval of length Unit. It refuses no request that
// would keep this promise, because it remembers the moment of each request.
//
//	N = 9, now = 12                 |<------ Unit = 10 ------>|
//	moment   1     4        9     11             4        9     11    now
//	count    3     2        6      1
//	total    3     5       11     12             gone: 3, used: 12 - 3 = 9 of 9
//	         gone  '--------'-----'  refused, until 4 + 10 = 14
//
// The log is a ring of moments in order. Requests of the same moment share one entry, so a
// request of any cost takes one. Each entry also has the total of all requests up to it.
// One binary search finds the first moment that is still in the window. Another one finds
// when enough requests will have left. Take drops the entries that have left.
//
// Memory grows with the moments at which an actor made requests within one Unit: 12 bytes
// for each, and up to as much again as spare room. A log holds at most 65,536 moments and
// at most N. That is 768 KiB, and 704 KiB in Redis.
//
// If a log of that length must grow, it merges its moments two by two. A merged moment is
// the later of the two. So the promise still holds, but a request may be refused for as
// long as the two were apart, and a charge at the earlier moment cannot be refunded. If N
// is at most 65,536, this happens only when the store has no memory for a longer log. A
// sliding window is cheaper if N is large and the last request does not matter.
//
// State: Head packs the ring: first, length and size. The cells are size moments, and then,
// two to a cell, their totals and the total of the dropped requests. Totals are numbers
// modulo 2 to the 32nd, of which only differences count. Expiry: when the newest moment
// has left the window. Cost: two binary searches, and for a refund one step for each later
// moment. Source: the log of moments that is often kept in a Redis sorted set.
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
	most    int64 // moments
}

func newSlidingLog(l Limit) (Meter, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if l.N == 0 {
		return closed(l.Unit.Microseconds()), nil
	}
	return &slidingLog{n: l.N, unit: l.Unit.Microseconds(), most: min(l.N, maxMoments)}, nil
}

// StateVersion differs from that of earlier releases, which was a number: their states had
// no totals.
func (g *slidingLog) StateVersion() string { return "totals" }

func (g *slidingLog) Cells(s State, _ int64) int {
	l := openLog(s)
	return cellsOf(max(sizeFor(min(l.length+1, g.most)), l.size))
}

// CellsAt implements Aging.
func (g *slidingLog) CellsAt(s State, now, _ int64) int {
	l := openLog(s)
	return cellsOf(sizeFor(min(l.length-l.gone(now-g.unit)+1, g.most)))
}

func (g *slidingLog) Peek(s State, now, n int64) Outcome {
	l := openLog(s)
	gone := l.gone(now - g.unit)
	used := l.since(gone)
	out := Outcome{Remaining: max(g.n-used, 0), Reset: g.unit}
	leaves := func(i int64) int64 { return l.moment(i) + g.unit - now }
	if gone < l.length {
		out.Reset = leaves(gone)
	}
	switch {
	case used+n <= g.n:
		out.Allowed = true
	case gone < l.length:
		// Enough requests are free when that many have left, or all have.
		out.Wait = leaves(l.holding(gone, min(used+n-g.n, used)))
	default: // a cost over the whole limit, and an empty log
		out.Wait = g.unit
	}
	return out
}

func (g *slidingLog) Take(s State, now, n int64) uint64 {
	l := openLog(s)
	l.grow()
	l.drop(l.gone(now - g.unit))
	l.add(l.latest(now), n, min(l.size, g.most))
	return l.head()
}

// Debit implements Debtor. A full log drops its oldest requests for the new ones. That
// forgets no debt, because only the newest N requests decide.
func (g *slidingLog) Debit(s State, now, n int64) (head uint64, cut int64) {
	n = min(n, g.n)
	l := openLog(s)
	l.grow()
	l.drop(l.gone(now - g.unit))
	if over := l.since(0) + n - g.n; over > 0 {
		l.forget(over)
	}
	l.add(l.latest(now), n, min(l.size, g.most))
	return l.head(), 0
}

// Used implements Debtor.
func (g *slidingLog) Used(s State, now int64) int64 {
	l := openLog(s)
	return l.since(l.gone(now - g.unit))
}

// Refund undoes what was charged at a moment. If that moment was dropped or merged, Refund
// changes nothing, because the charge of another request could be in its place.
func (g *slidingLog) Refund(s State, at, n int64) uint64 {
	l := openLog(s)
	i := l.gone(at - 1)
	if i == l.length || l.moment(i) != at {
		return s.Head
	}
	n = min(n, l.between(i-1, i))
	emptied := int64(0)
	if n == l.between(i-1, i) {
		emptied = 1
	}
	for j := i + emptied; j < l.length; j++ {
		l.set(j-emptied, l.moment(j), l.total(j)-uint32(n))
	}
	l.length -= emptied
	return l.head()
}

func (g *slidingLog) Expiry(s State) int64 {
	l := openLog(s)
	if l.length == 0 {
		return 0
	}
	return l.moment(l.length-1) + g.unit
}

// Moment implements Clamped.
func (g *slidingLog) Moment(s State, now int64) int64 {
	l := openLog(s)
	return l.latest(now)
}

// Copy implements Aging. If there are too few cells, it merges neighbours into the latest
// moment of each group.
func (g *slidingLog) Copy(s State, now int64, cells []uint64) uint64 {
	from, to := openLog(s), momentLog{cells: cells}
	to.grow()
	gone := from.gone(now - g.unit)
	step := max(ceilDiv(from.length-gone, to.size), 1)
	for i := gone; i < from.length; i += step {
		last := min(i+step, from.length) - 1
		to.length++
		to.set(to.length-1, from.moment(last), from.total(last)-from.total(gone-1))
	}
	return to.head()
}
