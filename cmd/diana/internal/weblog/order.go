// SPDX-License-Identifier: MIT

package weblog

import (
	"container/heap"
	"time"
)

// order sorts entries by time. Servers write a line when a request ends, so lines are slightly out
// of order. order holds an entry back until all entries that are up to window older have been read,
// or until heldText of text has been read after it.
type order struct {
	heap  entries
	bar   int64 // get returns entries that are not later
	high  int64 // the latest time since the last sweep
	sweep int64 // the bytes read at the last sweep
	old   int64 // the bytes read at the sweep before that
}

const (
	window   = int64(time.Minute / time.Microsecond)
	heldText = 4 << 20 // bytes; an Entry keeps the block of its text in memory
)

// put adds an entry.
func (o *order) put(e *Entry) {
	heap.Push(&o.heap, e)
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
	heap.Init(&o.heap)
}

// get removes and returns the earliest entry that no later line can precede, or nil. With all it
// returns every entry, because no line follows.
func (o *order) get(all bool) *Entry {
	if len(o.heap) == 0 || !all && o.heap[0].Start > o.bar {
		return nil
	}
	return heap.Pop(&o.heap).(*Entry)
}

// entries is a heap. Lines in order are added to it at no cost.
type entries []*Entry

func (h entries) Len() int      { return len(h) }
func (h entries) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *entries) Push(x any)   { *h = append(*h, x.(*Entry)) }

// Less is the order of entries. Entries of the same time keep the order of the files.
func (h entries) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.Start != b.Start {
		return a.Start < b.Start
	}
	return a.File < b.File || a.File == b.File && a.Line < b.Line
}

func (h *entries) Pop() any {
	n := len(*h) - 1
	last := (*h)[n]
	(*h)[n], *h = nil, (*h)[:n] // the Reader uses the entry again
	return last
}
