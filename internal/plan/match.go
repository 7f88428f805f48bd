// SPDX-License-Identifier: MIT

package plan

import (
	"bytes"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// Match holds the result of Find and the memory that Find reuses for the next request. The zero
// value is ready to use. A Match is not safe for concurrent use.
type Match struct {
	Rules      []*Rule      // set by Find; must not be changed
	Bandwidths []*Bandwidth // set by Find

	rules    []*Rule  // memory for Rules
	methods  []string // of the request; empty if no entry has a method
	entries  []*entry
	spelling paths.Spelling
	visited  []*node
	levels   [2][]*node
	parts    [2][]*node // the same, within an element
	lookups  int
}

// maxLookups is the largest number of segments that Find looks up for a path with several readings.
// An honest path needs a few dozen. If a path needs more, all entries evaluate the request.
const maxLookups = 150

// Find sets m.Rules to the rules of a request, and m.Bandwidths to the bandwidths of its response.
// Entries with fewer segments come first, and then the order of the configuration decides. r.Path
// is escaped, as the client sent it. An empty path and "*" stand for "/".
//
// Find does not allocate once m has grown large enough. An ordinary path costs about 50 ns a
// segment. The worst path that a client can send costs 20 us for 1 KiB.
func (s *Set) Find(m *Match, r *rule.Request) *rule.PathError {
	m.entries, m.rules, m.Bandwidths, m.methods = m.entries[:0], m.rules[:0], m.Bandwidths[:0], m.methods[:0]
	if s.methods {
		m.methods = append(m.methods, r.Method)
		if r.HTTP != nil {
			m.methods = appendOverrides(m.methods, r.HTTP.Header)
		}
	}
	path := r.Path
	if path == "" || path == "*" {
		path = "/"
	}
	if paths.IsPlain(path, !s.paths.ExactCase) {
		s.walk(m, path)
	} else if err := s.read(m, path); err != nil {
		return err
	}
	m.collect()
	return nil
}

// collect sets Rules and Bandwidths to those of the entries. The rules of a single entry need no copy.
func (m *Match) collect() {
	for _, e := range m.entries {
		if e.bandwidth != nil {
			m.Bandwidths = append(m.Bandwidths, e.bandwidth)
		}
	}
	if len(m.entries) == 1 {
		m.Rules = m.entries[0].rules
		return
	}
	for _, e := range m.entries {
		m.rules = append(m.rules, e.rules...)
	}
	m.Rules = m.rules
}

// MethodOverrides are the canonical names of the headers from which many frameworks take the method
// of a request. Find uses all methods that a request has.
var MethodOverrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// appendOverrides appends the methods that frameworks may read from the header. From a list some
// frameworks take the first member, and others the last.
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

// maxMethods is the largest number of methods of a request. If a request has more, all entries
// evaluate it, whatever their method.
const maxMethods = 9

// add adds the entries that cover a method of the request.
func (m *Match) add(entries []*entry) {
	for _, e := range entries {
		if e.url.Method == "" || len(m.methods) > maxMethods || slices.ContainsFunc(m.methods, e.covers) {
			m.entries = append(m.entries, e)
		}
	}
}

// walk adds the entries that cover a plain path, segment by segment.
func (s *Set) walk(m *Match, path string) {
	n, rest := &s.root, path[1:]
	for {
		m.add(n.entries)
		if len(rest) == 0 {
			return
		}
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		child := n.named(segment)
		switch {
		case child == nil && n.wild == nil:
			return
		case child == nil:
			n = n.wild
		case n.wild == nil:
			n = child
		default:
			m.descend(rest, child, n.wild)
			return
		}
	}
}

// descend is walk where a path has reached several nodes. It adds their entries, and then those of
// the nodes below that the rest of the path reaches, level by level.
func (m *Match) descend(rest string, nodes ...*node) {
	level, next := append(m.levels[0][:0], nodes...), m.levels[1][:0]
	for len(level) > 0 {
		first := len(m.entries)
		for _, n := range level {
			m.add(n.entries)
		}
		slices.SortFunc(m.entries[first:], (*entry).compare)
		if len(rest) == 0 {
			break
		}
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		next = next[:0]
		for _, n := range level {
			if child := n.named(segment); child != nil {
				next = append(next, child)
			}
			if n.wild != nil {
				next = append(next, n.wild)
			}
		}
		level, next = next, level
	}
	m.levels[0], m.levels[1] = level, next
}

// read adds the entries that cover a path in any of its readings.
func (s *Set) read(m *Match, path string) *rule.PathError {
	fold := !s.paths.ExactCase
	strange := m.spelling.Read(path, fold, false)
	slashes := path
	if strings.IndexByte(path, '\\') >= 0 { // a URL parser divides at a backslash, but not at %5C
		slashes = strings.ReplaceAll(path, `\`, "/")
		if strange == nil {
			strange = paths.Check(slashes)
		}
	}
	if strange == paths.ErrLong || strange != nil && !s.paths.JudgeStrange {
		return strange
	}
	m.visited, m.lookups = append(m.visited[:0], &s.root), 0
	if strange == nil {
		m.visit(&s.root)
		if m.spelling.Dots { // some servers do not resolve them
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

// visit finds the nodes that any reading of the spelling reaches, and the nodes on the way there.
// It stops after maxLookups.
func (m *Match) visit(root *node) {
	level, next := append(m.levels[0][:0], root), m.levels[1][:0]
	f, ups := front{}, m.spelling.Ups
	for i := range m.spelling.Elements {
		e := &m.spelling.Elements[i]
		next = next[:0]
		once, again := m.spelling.Texts(e)
		switch {
		case e.Up: // any node on the way can be next
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
func (m *Match) element(next, level []*node, text []byte, f front) []*node {
	next = m.segment(next, level, text, f)
	part, text, more := paths.CutDivided(text)
	if !more {
		return next
	}
	from, to := append(m.parts[0][:0], level...), m.parts[1][:0]
	for {
		to = m.segment(to[:0], from, part, f)
		if f.host() || f.hosted { // the whole text up to here may be the host
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

// segment adds to next the nodes that a segment reaches from a level in all its readings. Each
// reading is a prefix of the segment.
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
		case end == 0: // the segment vanishes
			next = appendMissing(next, level)
			continue
		}
		next = m.lookup(next, level, text[:end])
	}
	return m.wild(next, level)
}

// lookup adds to next the children with that name of the nodes in a level.
func (m *Match) lookup(next, level []*node, name []byte) []*node {
	for _, n := range level {
		m.lookups++
		child := n.child
		if n.first != string(name) {
			child = n.children[string(name)]
		}
		if child != nil {
			next = m.reach(next, child)
		}
	}
	return next
}

// wild adds to next the {name} children of the nodes in a level.
func (m *Match) wild(next, level []*node) []*node {
	for _, n := range level {
		if n.wild != nil {
			next = m.reach(next, n.wild)
		}
	}
	return next
}

// reach adds a node to next and to the visited nodes.
func (m *Match) reach(next []*node, n *node) []*node {
	if !slices.Contains(m.visited, n) {
		m.visited = append(m.visited, n)
	}
	if !slices.Contains(next, n) {
		next = append(next, n)
	}
	return next
}

// appendMissing appends the nodes that to does not contain.
func appendMissing(to, nodes []*node) []*node {
	for _, n := range nodes {
		if !slices.Contains(to, n) {
			to = append(to, n)
		}
	}
	return to
}
