// SPDX-License-Identifier: MIT

// Package top finds the most frequent of many names in bounded memory.
//
// A List counts up to size names. Another name takes over the entry and the
// count of the least frequent one. The algorithm is "space saving" (Metwally, Agrawal and El
// Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005). So
// no count is too low, and every name that is more frequent than the least of the list is in
// the list. All counts are exact until a name takes over the entry of another.
//
// A List is a heap with the least frequent name on top, and an index by name.
package top

import (
	"cmp"
	"slices"
	"strings"
)

// List holds the most frequent names. It is not safe for concurrent use. Make one with New.
type List struct {
	size  int
	heap  []*counted
	index map[string]*counted
	full  bool // a name has taken over the entry of another
}

// Entry is a name and how often it was added.
type Entry struct {
	Name string
	N    int64
	Over int64 // how much of N may have been other names; 0: N is exact
}

type counted struct {
	Entry
	place int // in the heap
}

// New returns a List that counts up to size names; size must be at least 1.
func New(size int) *List { return &List{size: size, index: map[string]*counted{}} }

// Len returns how many names the list counts.
func (l *List) Len() int { return len(l.heap) }

// Full reports whether there have been more names than the list can count.
func (l *List) Full() bool { return l.full }

// Add counts a name once. It copies a name that is new, and otherwise allocates nothing. The
// cost grows with the logarithm of the size.
func (l *List) Add(name []byte) {
	c := l.index[string(name)]
	switch {
	case c != nil:
	case len(l.heap) < l.size:
		c = &counted{Entry{Name: string(name)}, len(l.heap)}
		l.heap = append(l.heap, c)
		l.index[c.Name] = c
		l.up(c)
	default:
		l.full = true
		c = l.heap[0]
		delete(l.index, c.Name)
		c.Name, c.Over = string(name), c.N
		l.index[c.Name] = c
	}
	c.N++
	l.down(c)
}

// up moves an entry that is new, and so has 0, to its place.
func (l *List) up(c *counted) {
	for c.place > 0 {
		above := l.heap[(c.place-1)/2]
		if above.N <= c.N {
			return
		}
		l.swap(c, above)
	}
}

func (l *List) down(c *counted) {
	for {
		i := 2*c.place + 1
		if i >= len(l.heap) {
			return
		}
		if i+1 < len(l.heap) && l.heap[i+1].N < l.heap[i].N {
			i++
		}
		if l.heap[i].N >= c.N {
			return
		}
		l.swap(c, l.heap[i])
	}
}

func (l *List) swap(a, b *counted) {
	l.heap[a.place], l.heap[b.place] = b, a
	a.place, b.place = b.place, a.place
}

// Most returns the n most frequent names, or fewer, the most frequent first.
func (l *List) Most(n int) []Entry {
	var all []Entry
	for _, c := range l.heap {
		all = append(all, c.Entry)
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.N, a.N), strings.Compare(a.Name, b.Name))
	})
	return all[:min(n, len(all))]
}
