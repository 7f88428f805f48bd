// SPDX-License-Identifier: MIT

package accesslog

import (
	"slices"
	"time"
)

// order puts entries in order of their time. Servers write a line when a request is
// finished, so lines are slightly out of order; they are held back until everything that is
// up to window older has been read, or heldText of text after them.
//
// It is a heap: lines that come in order cost nothing to put in.
type order struct {
	heap  []*Entry
	bar   int64 // what is not later may go
	high  int64 // the latest that has come since the last sweep
	sweep int64 // the text that had been read at the last sweep
	old   int64 // and at the one before
}

const (
	window   = int64(time.Minute / time.Microsecond)
	heldText = 4 << 20 // bytes; an Entry keeps the block of its text alive
)

// before tells the order. What came at the same time keeps the order of the files.
func before(a, b *Entry) bool {
	if a.Start != b.Start {
		return a.Start < b.Start
	}
	return a.File < b.File || a.File == b.File && a.Line < b.Line
}

// put takes an entry in.
func (o *order) put(e *Entry) {
	o.heap = append(o.heap, e)
	i := len(o.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !before(e, o.heap[up]) {
			break
		}
		o.heap[i] = o.heap[up]
		i = up
	}
	o.heap[i] = e
	o.bar, o.high = max(o.bar, e.Start-window), max(o.high, e.Start)
	if e.read-o.sweep >= heldText {
		o.clear()
		o.old, o.sweep, o.high = o.sweep, e.read, 0
	}
}

// clear lets go what was there at the sweep before, and all in front of it. What nothing has
// come near to since was written by a clock that was wrong: it goes as one that is late, as
// its time would be that of all who come after it.
func (o *order) clear() {
	bar, wrong := o.high-window, false
	for _, held := range o.heap {
		switch {
		case held.read > o.old:
		case held.Start > o.high+window:
			held.Start, wrong = earliest, true
		default:
			bar = max(bar, held.Start)
		}
	}
	if !wrong {
		o.bar = max(o.bar, bar)
		return
	}
	o.bar = bar
	slices.SortFunc(o.heap, func(a, b *Entry) int { // which is a heap
		if before(a, b) {
			return -1
		}
		return 1
	})
}

// get returns the earliest entry that may go, or nil. All may, when nothing comes any more.
func (o *order) get(all bool) *Entry {
	if len(o.heap) == 0 || !all && o.heap[0].Start > o.bar {
		return nil
	}
	first := o.heap[0]
	last := len(o.heap) - 1
	e := o.heap[last]
	o.heap[last] = nil
	o.heap = o.heap[:last]
	if last == 0 {
		return first
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && before(o.heap[down+1], o.heap[down]) {
			down++
		}
		if !before(o.heap[down], e) {
			break
		}
		o.heap[i] = o.heap[down]
		i = down
	}
	o.heap[i] = e
	return first
}
