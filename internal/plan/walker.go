// SPDX-License-Identifier: MIT

package plan

import (
	"bytes"

	"github.com/diana-limiter/diana/internal/paths"
)

// walker finds the nodes that the readings of a path reach, and the nodes on the way there. It walks
// the tree with the set of all nodes that some reading has reached, the level. A set has each node
// once, so the cost grows with the nodes and not with the readings.
//
// The tree belongs to all goroutines. So the marks that say which sets have a node are in visited.
type walker struct {
	visited []reached // the root is the first
	levels  [2]level
	parts   [2]level // the same, within an element
	lookups int      // of segments, those that no node can have included
	steps   int      // nodes that sets were asked for: the cost, which tests bound
	longest int      // bytes of the longest name of a node
}

// reached is a node that some reading reaches. The others that it mentions are indices in visited; 0
// means none, because no node leads to the root.
type reached struct {
	node  *node
	wild  int32     // its {name} child
	child int32     // the last of its other children that was reached
	next  int32     // the one of the same parent that was reached before
	in    [4]uint32 // the mark of each level that has the node
}

// level is a set of reached nodes, as indices in visited.
type level struct {
	nodes []int32
	own   int    // its place in reached.in
	mark  uint32 // a node is in the set if it has this mark
}

// maxLookups is the largest number of segments that Find looks up for a path with several readings.
// An honest path needs a few dozen. If a path needs more, all entries evaluate the request.
const maxLookups = 150

// begin forgets the path before.
func (w *walker) begin(s *Set) {
	w.visited = append(w.visited[:0], reached{node: &s.root})
	w.lookups, w.steps, w.longest = 0, 0, s.longest
	for i, l := range [...]*level{&w.levels[0], &w.levels[1], &w.parts[0], &w.parts[1]} {
		l.own, l.mark = i, 0
	}
}

// visit finds the nodes that any reading of the elements reaches from the root. It stops after
// maxLookups.
func (w *walker) visit(spelling *paths.Spelling, elements []paths.Element) {
	from, to := &w.levels[0], &w.levels[1]
	from.clear()
	w.add(from, 0)
	f, ups := front{}, 0
	for i := range elements {
		if elements[i].Up {
			ups++
		}
	}
	done := 0 // nodes of from whose {name} children are in it too
	for i := range elements {
		e := &elements[i]
		switch {
		case e.Up: // any node on the way can be next
			ups--
			for i := 0; len(from.nodes) < len(w.visited); i++ {
				w.add(from, int32(i))
			}
		case e.Empty(): // the nodes stay, so that a run of empty segments costs each of them once
			end := len(from.nodes)
			w.wild(from, from.nodes[done:])
			done = end
		default:
			to.clear()
			once, again := spelling.Texts(e)
			if e.Simple && !f.host() {
				w.lookup(to, from, once)
				w.wild(to, from.nodes)
			} else {
				w.element(to, from, once, f)
				if len(again) > 0 {
					w.element(to, from, again, f)
				}
			}
			from, to, done = to, from, 0
		}
		f.pass(e.Vanishes)
		if len(from.nodes) == 0 && ups == 0 || w.lookups > maxLookups {
			return
		}
	}
}

// front is the state that decides whether the next segment can be a host. It can be one if only
// slashes come before it. The zero value is the front of a path.
type front struct{ behind, slashes, hosted bool }

// host reports whether the next segment can be a host.
func (f front) host() bool { return f.slashes && !f.behind }

// pass moves f behind a segment. A segment that vanishes is missing in some reading.
func (f *front) pass(vanishes bool) {
	f.slashes = f.slashes || vanishes
	f.behind = f.behind || !vanishes
}

// element adds to next the nodes that the text of an element reaches from a level: as one segment,
// and as the segments into which slashes divide it. In a reading that drops parameters before
// dividing, the element ends with the segment that has a parameter.
func (w *walker) element(next, from *level, text []byte, f front) {
	w.segment(next, from, text, f)
	part, text, more := paths.CutDivided(text)
	if !more {
		return
	}
	begin, at, to := from, &w.parts[0], &w.parts[1]
	at.clear()
	w.addAll(at, begin)
	done := 0 // nodes of at whose {name} children are in it too
	for {
		host := f.host() || f.hosted // the whole text up to here may be the host
		f.hosted = host
		if len(part) == 0 { // the nodes stay, and those of begin are among them if it may be the host
			end := len(at.nodes)
			w.wild(at, at.nodes[done:])
			done = end
		} else {
			to.clear()
			w.segment(to, at, part, f)
			if host {
				w.addAll(to, begin)
			}
			at, to, done = to, at, 0
		}
		if !more || bytes.IndexByte(part, ';') >= 0 {
			w.addAll(next, at)
		}
		if !more || w.lookups > maxLookups {
			return
		}
		f.pass(len(paths.WithoutTail(paths.WithoutParameters(part))) == 0)
		part, text, more = paths.CutDivided(text)
	}
}

// segment adds to next the nodes that a segment reaches from a level in all its readings. Each
// reading is a prefix of the segment.
func (w *walker) segment(next, from *level, text []byte, f front) {
	name := paths.WithoutParameters(text)
	if f.host() {
		w.addAll(next, from)
	}
	ends := [...]int{len(text), len(paths.WithoutTail(text)), len(name), len(paths.WithoutTail(name))}
	for i, end := range ends {
		switch {
		case i > 0 && end == ends[0], i > 1 && end == ends[1], i > 2 && end == ends[2]:
			continue
		case end == 0: // the segment vanishes
			w.addAll(next, from)
			continue
		}
		w.lookup(next, from, text[:end])
	}
	w.wild(next, from.nodes)
}

// lookup adds to next the children with that name of the nodes in a level.
func (w *walker) lookup(next, from *level, name []byte) {
	w.lookups += len(from.nodes)
	if len(name) > w.longest {
		return // without a hash of a name that may have 8 KiB
	}
	for _, i := range from.nodes {
		n := w.visited[i].node
		child := n.child // not by n.named, for which a long name would have to be copied
		if n.first != string(name) {
			child = n.children[string(name)]
		}
		if child != nil {
			w.add(next, w.reach(i, child))
		}
	}
}

// reach returns the index of a child, which it adds to the visited nodes.
func (w *walker) reach(parent int32, child *node) int32 {
	for i := w.visited[parent].child; i > 0; i = w.visited[i].next {
		if w.steps++; w.visited[i].node == child {
			return i
		}
	}
	i := int32(len(w.visited))
	w.visited = append(w.visited, reached{node: child, next: w.visited[parent].child})
	w.visited[parent].child = i
	return i
}

// wild adds to next the {name} children of nodes.
func (w *walker) wild(next *level, nodes []int32) {
	w.steps += len(nodes)
	for _, i := range nodes {
		r := &w.visited[i]
		if r.node.wild == nil {
			continue
		}
		wild := r.wild
		if wild == 0 {
			wild = int32(len(w.visited))
			r.wild = wild
			w.visited = append(w.visited, reached{node: r.node.wild})
		}
		w.add(next, wild)
	}
}

// clear empties a level.
func (l *level) clear() { l.nodes, l.mark = l.nodes[:0], l.mark+1 }

// add adds a node to a level.
func (w *walker) add(to *level, i int32) {
	w.steps++
	if mark := &w.visited[i].in[to.own]; *mark != to.mark {
		*mark = to.mark
		to.nodes = append(to.nodes, i)
	}
}

// addAll adds the nodes of a level to another one.
func (w *walker) addAll(to, from *level) {
	for _, i := range from.nodes {
		w.add(to, i)
	}
}
