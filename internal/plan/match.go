// SPDX-License-Identifier: MIT

package plan

import (
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
	all      bool // all entries evaluate the request, and entries is empty
	levels   [2][]*node
	spelling paths.Spelling
	slashed  paths.Spelling // of the path with slashes in place of its backslashes
	walker   walker
}

// Find sets m.Rules to the rules of a request, and m.Bandwidths to the bandwidths of its response.
// Entries with fewer segments come first, and then the order of the configuration decides. r.Path
// is escaped, as the client sent it. An empty path and "*" stand for "/".
//
// Find does not allocate once m has grown large enough. An ordinary path costs about 50 ns a
// segment. The worst path that a client can send costs 20 us for 1 KiB.
func (s *Set) Find(m *Match, r *rule.Request) *rule.PathError {
	m.entries, m.rules, m.Bandwidths, m.methods, m.all = m.entries[:0], m.rules[:0], m.Bandwidths[:0], m.methods[:0], false
	if s.methods {
		m.methods = append(append(m.methods, r.Method), r.OtherMethods...)
		if r.HTTP != nil || r.Native != nil {
			m.methods = appendOverrides(m.methods, r)
		}
	}
	if err := s.find(m, r.Path); err != nil {
		return err
	}
	if len(r.OtherPaths) > 0 {
		if err := s.findOthers(m, r.OtherPaths); err != nil {
			return err
		}
	}
	m.collect(s)
	return nil
}

// Reading returns the method and the path by which a rule evaluates a request that has several. It costs
// about as much as Find, and allocates.
func (s *Set) Reading(of *Rule, r *rule.Request) (method, path string) {
	method, path = r.Method, r.Path
	one := rule.Request{Method: r.Method, OtherMethods: r.OtherMethods, HTTP: r.HTTP, Native: r.Native}
	for _, one.Path = range append([]string{r.Path}, r.OtherPaths...) {
		var m Match
		covers := func(found *Rule) bool { return found.Index == of.Index }
		if s.Find(&m, &one) == nil && slices.ContainsFunc(m.Rules, covers) {
			path = one.Path
			break
		}
	}
	for _, other := range r.OtherMethods {
		if strings.EqualFold(other, of.URL.Method) {
			method = other
		}
	}
	return method, path
}

// find adds the entries of one path, or sets m.all.
func (s *Set) find(m *Match, path string) *rule.PathError {
	if path == "" || path == "*" {
		path = "/"
	}
	if paths.IsPlain(path, !s.paths.ExactCase) {
		s.walk(m, path)
		return nil
	}
	return s.read(m, path)
}

// findOthers adds the entries of further paths, each entry once.
func (s *Set) findOthers(m *Match, others []string) *rule.PathError {
	all := m.all
	for _, path := range others {
		m.all = false
		if err := s.find(m, path); err != nil {
			return err
		}
		all = all || m.all
	}
	if m.all = all; all {
		m.entries = m.entries[:0]
		return nil
	}
	slices.SortFunc(m.entries, (*entry).compare)
	m.entries = slices.Compact(m.entries)
	return nil
}

// collect sets Rules and Bandwidths to those of the entries. The rules of a single entry, and those of
// all entries, need no copy.
func (m *Match) collect(s *Set) {
	if m.all && !s.methods {
		m.Rules, m.Bandwidths = s.every, append(m.Bandwidths, s.everyBandwidth...)
		return
	}
	if m.all {
		for _, e := range s.entries {
			m.addCovering(e)
		}
	}
	if len(m.entries) == 1 {
		e := m.entries[0]
		if m.Rules = s.rulesOf(e); e.bandwidth != nil {
			m.Bandwidths = append(m.Bandwidths, e.bandwidth)
		}
		return
	}
	for _, e := range m.entries {
		if e.bandwidth != nil {
			m.Bandwidths = append(m.Bandwidths, e.bandwidth)
		}
		m.rules = append(m.rules, s.rulesOf(e)...)
	}
	m.Rules = m.rules
}

// MethodOverrides are the canonical names of the headers from which many frameworks take the method
// of a request. Find uses all methods that a request has.
var MethodOverrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// appendOverrides appends the methods that frameworks may read from the header of a request. From a list some
// frameworks take the first member, and others the last.
func appendOverrides(methods []string, r *rule.Request) []string {
	for _, field := range MethodOverrides {
		for _, list := range linesOf(r, field) {
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

// add adds the entries of a node that cover a method of the request.
func (m *Match) add(n *node) {
	for e := n.entries; e != nil; e = e.next {
		m.addCovering(e)
	}
}

func (m *Match) addCovering(e *entry) {
	if e.URL.Method == "" || len(m.methods) > maxMethods || slices.ContainsFunc(m.methods, e.covers) {
		m.entries = append(m.entries, e)
	}
}

// walk adds the entries that cover a plain path, segment by segment.
func (s *Set) walk(m *Match, path string) {
	n, rest := &s.root, path[1:]
	for {
		m.add(n)
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
			m.add(n)
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
	slashes := strings.IndexByte(path, '\\') >= 0 // a URL parser divides at a backslash, but not at %5C
	if slashes && strange == nil {
		strange = m.slashed.Read(path, fold, true)
	}
	if strange == paths.ErrLong || strange != nil && !s.paths.JudgeStrange {
		return strange
	}
	m.all = strange != nil || m.visit(s, slashes) > maxLookups
	if !m.all {
		first := len(m.entries)
		for i := range m.walker.visited {
			m.add(m.walker.visited[i].node)
		}
		slices.SortFunc(m.entries[first:], (*entry).compare)
	}
	return nil
}

// visit finds the nodes of all readings of a path, and returns how many look-ups that took.
func (m *Match) visit(s *Set, slashes bool) (lookups int) {
	m.walker.begin(s)
	m.walker.visit(&m.spelling, m.spelling.Elements)
	if m.spelling.Literal != nil { // some servers do not resolve dot segments
		m.walker.visit(&m.spelling, m.spelling.Literal)
	}
	if slashes {
		m.walker.visit(&m.slashed, m.slashed.Elements)
	}
	return m.walker.lookups
}
