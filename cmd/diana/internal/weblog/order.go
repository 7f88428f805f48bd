// SPDX-License-Identifier: MIT

package weblog

import (
	"slices"
	"time"
)

// order sorts entries by time. Servers write a line when a request ends, so lines are slightly out
// of order. order holds an entry back until all entries that are up to window older have been read,
// or until heldText of text has been read after it.
//
// It is a heap, to which lines in order are added at no cost.
type order struct {
	heap  []*Entry
	bar   int64 // get returns entries that are not later
	high  int64 // the latest time since the last sweep
	sweep int64 // the bytes read at the last sweep
	old   int64 // the bytes read at the sweep before that
}

const (
	window   = int64(time.Minute / time.Microsecond)
	heldText = 4 << 20 // bytes; an Entry keeps the block of its text in memory
)

// before is the order of entries. Entries of the same time keep the order of the files.
func before(a, b *Entry) bool {
	if a.Start != b.Start {
		return a.Start < b.Start
	}
	return a.File < b.File || a.File == b.File && a.Line < b.Line
}

// put adds an entry.
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

// clear lets get return the entries from before the previous sweep, and all that are earlier. An
// entry far ahead of all later lines was written by a wrong clock. It counts as late, because
// otherwise all following entries would get its time.
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
	slices.SortFunc(o.heap, func(a, b *Entry) int { // a sorted slice is a heap
		if before(a, b) {
			return -1
		}
		return 1
	})
}

// get removes and returns the earliest entry that no later line can precede, or nil. With all it
// returns every entry, because no line follows.
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
