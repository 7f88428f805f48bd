// SPDX-License-Identifier: MIT

package trial

import (
	"cmp"
	"slices"
	"strings"
)

// top finds out who comes most often, in bounded memory: it counts up to size of them, and
// when another comes, that one takes over the place and the count of who has come least
// ("space saving", Metwally and others, 2005). So no count is too low, and who has come more
// often than the least is surely there.
//
// It is a heap, the least on top, and an index.
type top struct {
	size  int
	heap  []*comer
	index map[string]*comer
	full  bool // one has taken the place of another
}

type comer struct {
	who   string
	n     int64
	over  int64 // of n, how many may have been another's
	place int   // in the heap
}

// add counts one. who is not kept.
func (t *top) add(who []byte) {
	c := t.index[string(who)]
	switch {
	case c != nil:
	case len(t.heap) < t.size:
		if t.index == nil {
			t.index = map[string]*comer{}
		}
		c = &comer{who: string(who), place: len(t.heap)}
		t.heap = append(t.heap, c)
		t.index[c.who] = c
		t.up(c)
	default:
		t.full = true
		c = t.heap[0]
		delete(t.index, c.who)
		c.who, c.over = string(who), c.n
		t.index[c.who] = c
	}
	c.n++
	t.down(c)
}

// up moves one that is new, and so has 0, to its place.
func (t *top) up(c *comer) {
	for c.place > 0 {
		above := t.heap[(c.place-1)/2]
		if above.n <= c.n {
			return
		}
		t.swap(c, above)
	}
}

func (t *top) down(c *comer) {
	for {
		i := 2*c.place + 1
		if i >= len(t.heap) {
			return
		}
		if i+1 < len(t.heap) && t.heap[i+1].n < t.heap[i].n {
			i++
		}
		if t.heap[i].n >= c.n {
			return
		}
		t.swap(c, t.heap[i])
	}
}

func (t *top) swap(a, b *comer) {
	t.heap[a.place], t.heap[b.place] = b, a
	a.place, b.place = b.place, a.place
}

// most returns who has come most often, the first of them first.
func (t *top) most(n int) []comer {
	var all []comer
	for _, c := range t.heap {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b comer) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.who, b.who))
	})
	return all[:min(n, len(all))]
}
