// SPDX-License-Identifier: MIT

package limit

import (
	"fmt"

	"github.com/diana-limiter/diana/internal/bounds"
)

// SlidingWindow allows N requests in any interval of length Unit, wherever it starts. Its
// memory does not grow with N.
//
// Time is divided into slices, Slices to the Unit. The counters of the last slices are in
// a ring, and their sum is beside them. When time enters a new slice, the counters that
// leave the window are subtracted from the sum and reused. This costs one step for each
// slice that has passed; evaluating a request costs none. A request is allowed if
// sum + n <= N.
//
// The window spans Slices + 1 slices: the current one, which has only begun, and Slices
// whole ones before it. With one slice less, take a request at the end of a slice, and one at
// the start of the slice a Unit later. They would be less than a Unit apart, but only one of
// them would be counted. Up to 2 N could then pass in a little less than a Unit:
//
//	Slices = 4        |-------- Unit --------|
//	slice     0     1     2     3     4     5
//	       |    o|     |     |     |o    |          o and o: less than a Unit apart
//	       |<--------- counted --------->|
//
// The cost of this choice: an allowed request is forgotten only when its slice is, at the
// latest Unit + Unit/Slices later.
//
// State: Head is the current slice's number. The cells hold the sum and the Slices + 1
// counters, in 16 bits each if N fits, otherwise in 32. Expiry: when the last slice has
// left the window. Cost: one division, and a loop over the slices that have passed since
// the last request.
func SlidingWindow() Algorithm {
	return Algorithm{
		Names: []string{"SW", "sliding window"},
		Keys:  []string{"unit", "slices", "charge", "wait"},
		New:   newSlidingWindow,
	}
}

type slidingWindow struct {
	n, unit, slices int64
	width           uint // bits of a counter: 16 or 32
}

func newSlidingWindow(l Limit) (Meter, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	w := &slidingWindow{n: l.N, unit: l.Unit.Microseconds(), slices: l.Slices, width: 32}
	switch {
	case l.Slices == 0:
		w.slices = bounds.DefaultSlices
	case l.Slices < bounds.MinSlices || l.Slices > bounds.MaxSlices:
		return nil, fmt.Errorf("limit: slices is %d, expected %d to %d", l.Slices, bounds.MinSlices, bounds.MaxSlices)
	}
	if l.N == 0 {
		return closed(w.unit), nil
	}
	if l.N < 1<<16 {
		w.width = 16
	}
	return w, nil
}

func (w *slidingWindow) StateVersion() string { return fmt.Sprintf("%dx%d", w.slices, w.width) }

func (w *slidingWindow) Cells(State, int64) int {
	perCell := int64(64 / w.width)
	return int(ceilDiv(w.slices+2, perCell)) // the sum and slices+1 counters
}

// get returns counter i of the cells: 0 is the sum, slice j is at 1 + j mod (slices+1).
func (w *slidingWindow) get(cells []uint64, i int64) int64 {
	bit := uint(i) * w.width
	return int64(cells[bit/64] >> (bit % 64) & (1<<w.width - 1))
}

func (w *slidingWindow) set(cells []uint64, i, v int64) {
	bit := uint(i) * w.width
	mask := uint64(1<<w.width-1) << (bit % 64)
	cells[bit/64] = cells[bit/64]&^mask | uint64(v)<<(bit%64)
}

func (w *slidingWindow) ring(slice int64) int64 { return 1 + slice%(w.slices+1) }

// slice returns the number of the slice of now. That is now * slices / unit, without the
// overflow.
func (w *slidingWindow) slice(now int64) int64 {
	return now/w.unit*w.slices + now%w.unit*w.slices/w.unit
}

// start returns the first moment of a slice.
func (w *slidingWindow) start(slice int64) int64 {
	return slice/w.slices*w.unit + ceilDiv(slice%w.slices*w.unit, w.slices)
}

// at returns the current slice and the sum of its window. It changes nothing.
func (w *slidingWindow) at(s State, now int64) (current, sum int64) {
	current = w.slice(now)
	if len(s.Cells) == 0 {
		return current, 0
	}
	last := int64(s.Head)
	current = max(current, last) // if the clock went back, the last slice stays current
	if current-last > w.slices {
		return current, 0
	}
	sum = w.get(s.Cells, 0)
	for gone := last - w.slices; gone < current-w.slices; gone++ {
		sum -= w.count(s, gone)
	}
	return current, sum
}

// count returns how many requests were taken in a slice that is in the window of s.
func (w *slidingWindow) count(s State, slice int64) int64 {
	if slice < 0 {
		return 0
	}
	return w.get(s.Cells, w.ring(slice))
}

func (w *slidingWindow) Peek(s State, now, n int64) Outcome {
	current, sum := w.at(s, now)
	var first int64 // when the first requests are forgotten; without any, when one of now would be
	if sum > 0 {
		first = w.freed(s, current, 1)
	} else {
		first = w.start(w.slice(now) + w.slices + 1)
	}
	out := Outcome{Remaining: max(w.n-sum, 0), Reset: first - now}
	switch {
	case sum+n <= w.n:
		out.Allowed = true
	case n > w.n: // never allowed; wait until the window is empty
		if sum > 0 {
			out.Wait = w.freed(s, current, sum) - now
		}
	default:
		out.Wait = w.freed(s, current, sum+n-w.n) - now
	}
	return out
}

// freed returns the moment at which enough slices have left the window that at least n
// of its sum are free again.
func (w *slidingWindow) freed(s State, current, n int64) int64 {
	last := int64(s.Head)
	slice := current - w.slices
	for ; slice < last; slice++ {
		if n -= w.count(s, slice); n <= 0 {
			break
		}
	}
	return w.start(slice + w.slices + 1)
}

func (w *slidingWindow) Take(s State, now, n int64) uint64 {
	current, sum := w.at(s, now)
	last := int64(s.Head)
	for entered := max(last+1, current-w.slices); entered <= current; entered++ {
		w.set(s.Cells, w.ring(entered), 0)
	}
	w.set(s.Cells, 0, sum+n)
	w.set(s.Cells, w.ring(current), w.get(s.Cells, w.ring(current))+n)
	return uint64(current)
}

// Debit implements Debtor.
func (w *slidingWindow) Debit(s State, now, n int64) (head uint64, cut int64) {
	_, sum := w.at(s, now)
	if cut = max(sum+n-(1<<w.width-1), 0); cut >= n {
		return s.Head, n
	}
	return w.Take(s, now, n-cut), cut
}

// Used implements Debtor.
func (w *slidingWindow) Used(s State, now int64) int64 {
	_, sum := w.at(s, now)
	return sum
}

func (w *slidingWindow) Refund(s State, at, n int64) uint64 {
	slice := w.slice(at)
	if last := int64(s.Head); slice > last || slice < last-w.slices {
		return s.Head
	}
	n = min(n, w.count(s, slice))
	w.set(s.Cells, 0, w.get(s.Cells, 0)-n)
	w.set(s.Cells, w.ring(slice), w.count(s, slice)-n)
	return s.Head
}

func (w *slidingWindow) Expiry(s State) int64 {
	if len(s.Cells) == 0 || w.get(s.Cells, 0) == 0 {
		return 0
	}
	return w.start(int64(s.Head) + w.slices + 1)
}

// Moment implements Clamped.
func (w *slidingWindow) Moment(s State, now int64) int64 {
	return max(now, w.start(int64(s.Head)))
}
