// SPDX-License-Identifier: MIT

package plan

import (
	"bytes"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// Match is room for finding the rules of requests, one after another. The zero
// value is ready. It is not safe for concurrent use.
type Match struct {
	Rules      []*Rule      // found by Find
	Bandwidths []*Bandwidth // the same

	methods  []string // of the request
	entries  []*entry
	spelling paths.Spelling
	visited  []*node
	levels   [2][]*node
	parts    [2][]*node // levels within an element
	lookups  int
}

// maxLookups is how many segments Find looks up in the tree for a path that has several readings.
// An honest path needs a few dozen. When a path needs more, all entries evaluate the request.
const maxLookups = 150

// Find sets m.Rules to the rules of a request, and m.Bandwidths to the bandwidths of its
// answer: those of fewer segments first, then in the order of the configuration. r.Path is
// escaped, as it was sent; an empty one and "*" stand for "/".
//
// Once m has grown to what it needs, Find does not allocate. An ordinary path costs 50 ns and more,
// with each segment; the worst that a client can send costs 20 us for 1 KiB.
func (s *Set) Find(m *Match, r *rule.Request) *rule.PathError {
	m.entries, m.Rules, m.Bandwidths = m.entries[:0], m.Rules[:0], m.Bandwidths[:0]
	m.methods = append(m.methods[:0], r.Method)
	if s.methods && r.HTTP != nil {
		m.methods = appendOverrides(m.methods, r.HTTP.Header)
	}
	path := r.Path
	if path == "" || path == "*" {
		path = "/"
	}
	if paths.IsPlain(path, s.paths.Case == rule.FoldCase) {
		s.walk(m, path)
	} else if err := s.read(m, path); err != nil {
		return err
	}
	for _, e := range m.entries {
		m.Rules = append(m.Rules, e.rules...)
		if e.bandwidth != nil {
			m.Bandwidths = append(m.Bandwidths, e.bandwidth)
		}
	}
	return nil
}

// MethodOverrides are the fields of a request that many frameworks take for its method, by their
// canonical names. Find evaluates a request by all methods that it has.
var MethodOverrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// appendOverrides appends the methods that frameworks may take a request for. Of a list they take
// the first member or the last.
func appendOverrides(methods []string, header map[string][]string) []string {
	for _, field := range MethodOverrides {
		for _, list := range header[field] {
			for method := range strings.SplitSeq(list, ",") {
				methods = append(methods, strings.Trim(method, " \t"))
				if len(methods) > maxMethods {
					return methods
				}
			}
		}
	}
	return methods
}

// maxMethods is how many methods of a request are evaluated. Where there are more, all entries evaluate
// the request, whatever their method.
const maxMethods = 9

// add adds those of a node's entries that cover a method of the request.
func (m *Match) add(entries []*entry) {
	for _, e := range entries {
		if len(m.methods) > maxMethods || slices.ContainsFunc(m.methods, e.covers) {
			m.entries = append(m.entries, e)
		}
	}
}

// walk adds the entries that cover a plain path, level by level.
func (s *Set) walk(m *Match, path string) {
	level, next := append(m.levels[0][:0], &s.root), m.levels[1][:0]
	rest := path[1:]
	for {
		first := len(m.entries)
		for _, n := range level {
			m.add(n.entries)
		}
		if found := m.entries[first:]; len(found) > 1 {
			slices.SortFunc(found, func(a, b *entry) int { return a.order - b.order })
		}
		if len(rest) == 0 {
			break
		}
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		next = next[:0]
		for _, n := range level {
			if child := n.children[segment]; child != nil {
				next = append(next, child)
			}
			if n.wild != nil {
				next = append(next, n.wild)
			}
		}
		if len(next) == 0 {
			break
		}
		level, next = next, level
	}
	m.levels[0], m.levels[1] = level, next
}

// read adds the entries that cover a path in any of its readings.
func (s *Set) read(m *Match, path string) *rule.PathError {
	fold := s.paths.Case == rule.FoldCase
	strange := m.spelling.Read(path, fold, false)
	slashes := path
	if strings.IndexByte(path, '\\') >= 0 { // which divides for a URL parser, while %5C does not
		slashes = strings.ReplaceAll(path, `\`, "/")
		if strange == nil {
			strange = paths.Check(slashes)
		}
	}
	if strange == rule.ErrPathLong || strange != nil && s.paths.Strange == rule.RefuseStrange {
		return strange
	}
	m.visited, m.lookups = append(m.visited[:0], &s.root), 0
	if strange == nil {
		m.visit(&s.root)
		if m.spelling.Dots { // which some servers do not resolve
			_ = m.spelling.Read(path, fold, true)
			m.visit(&s.root)
		}
		if slashes != path {
			_ = m.spelling.Read(slashes, fold, false)
			m.visit(&s.root)
		}
	}
	switch {
	case strange != nil, m.lookups > maxLookups:
		m.add(s.entries)
	default:
		for _, n := range m.visited {
			m.add(n.entries)
		}
		slices.SortFunc(m.entries, (*entry).compare)
	}
	return nil
}

// visit finds the nodes to which any reading of the spelling leads, and those on the way there. It
// stops after maxLookups.
func (m *Match) visit(root *node) {
	level, next := append(m.levels[0][:0], root), m.levels[1][:0]
	f, ups := front{}, m.spelling.Ups
	for i := range m.spelling.Elements {
		e := &m.spelling.Elements[i]
		next = next[:0]
		once, again := m.spelling.Texts(e)
		switch {
		case e.Up: // somewhere on the way
			next = append(next, m.visited...)
			ups--
		case e.Empty():
			next = m.wild(append(next, level...), level)
		case e.Simple && !f.host():
			next = m.wild(m.lookup(next, level, once), level)
		default:
			next = m.element(next, level, once, f)
			if len(again) > 0 {
				next = m.element(next, level, again, f)
			}
		}
		f.pass(e.Vanishes)
		level, next = next, level
		if len(level) == 0 && ups == 0 || m.lookups > maxLookups {
			break
		}
	}
	m.levels[0], m.levels[1] = level, next
}

// front tells whether what comes next can be a host: there were slashes at the front, and nothing
// else. The zero value is the front of a path.
type front struct{ behind, slashes, hosted bool }

// host reports whether the next segment can be a host.
func (f front) host() bool { return f.slashes && !f.behind }

// pass goes by a segment, which is there in each reading unless it vanishes.
func (f *front) pass(vanishes bool) {
	f.slashes = f.slashes || vanishes
	f.behind = f.behind || !vanishes
}

// element adds to next the nodes to which a text of an element leads from those of a level: as one
// segment, and as those into which slashes divide it. Where a parameter is dropped before that, it
// ends with the segment that has the parameter.
func (m *Match) element(next, level []*node, text []byte, f front) []*node {
	next = m.segment(next, level, text, f)
	part, text, more := paths.CutDivided(text)
	if !more {
		return next
	}
	from, to := append(m.parts[0][:0], level...), m.parts[1][:0]
	for {
		to = m.segment(to[:0], from, part, f)
		if f.host() || f.hosted { // the host may be all up to here
			to = appendMissing(to, level)
			f.hosted = true
		}
		if !more || bytes.IndexByte(part, ';') >= 0 {
			next = appendMissing(next, to)
		}
		if !more || m.lookups > maxLookups {
			break
		}
		f.pass(len(paths.WithoutTail(paths.WithoutParameters(part))) == 0)
		from, to = to, from
		part, text, more = paths.CutDivided(text)
	}
	m.parts[0], m.parts[1] = from, to
	return next
}

// segment adds to next the nodes to which a segment leads from those of a level, in all its
// readings. All of these are the beginning of it.
func (m *Match) segment(next, level []*node, text []byte, f front) []*node {
	name := paths.WithoutParameters(text)
	if f.host() {
		next = appendMissing(next, level)
	}
	ends := [...]int{len(text), len(paths.WithoutTail(text)), len(name), len(paths.WithoutTail(name))}
	for i, end := range ends {
		switch {
		case slices.Contains(ends[:i], end):
			continue
		case end == 0: // no segment at all
			next = appendMissing(next, level)
			continue
		}
		next = m.lookup(next, level, text[:end])
	}
	return m.wild(next, level)
}

// lookup adds to next the children of a level with that name.
func (m *Match) lookup(next, level []*node, name []byte) []*node {
	for _, n := range level {
		m.lookups++
		if child := n.children[string(name)]; child != nil {
			next = m.reach(next, child)
		}
	}
	return next
}

// wild adds to next the nodes to which any segment leads.
func (m *Match) wild(next, level []*node) []*node {
	for _, n := range level {
		if n.wild != nil {
			next = m.reach(next, n.wild)
		}
	}
	return next
}

// reach adds a node to next and to those that are visited.
func (m *Match) reach(next []*node, n *node) []*node {
	if !slices.Contains(m.visited, n) {
		m.visited = append(m.visited, n)
	}
	if !slices.Contains(next, n) {
		next = append(next, n)
	}
	return next
}

// appendMissing appends the nodes that are not there yet.
func appendMissing(to, nodes []*node) []*node {
	for _, n := range nodes {
		if !slices.Contains(to, n) {
			to = append(to, n)
		}
	}
	return to
}
