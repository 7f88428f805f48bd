// SPDX-License-Identifier: MIT

package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Set is a compiled configuration: it finds the rules of a request. It never
// changes and is safe for concurrent use.
type Set struct {
	Rules      []*Rule      // by Index
	Variants   []*Rule      // the rules with the limits of their Overrides; by Slot, behind Rules
	Bandwidths []*Bandwidth // by Index
	identity   Identity
	account    chain
	device     chain
	root       node
}

// Rule returns the rule, or the variant of one, with that Slot.
func (s *Set) Rule(slot int) *Rule {
	if slot < len(s.Rules) {
		return s.Rules[slot]
	}
	return s.Variants[slot-len(s.Rules)]
}

// node is a segment of the tree of URLs.
type node struct {
	children map[string]*node
	wild     *node
	entries  []*entry
}

type entry struct {
	url   Pattern
	depth int // segments
	order int // in the configuration
	rules []*Rule

	bandwidth *Bandwidth // nil: none
}

// Compile makes a Set. The error names every rule that cannot be kept. v is the
// vocabulary that the entries were written in.
func Compile(entries []Entry, identity Identity, v Vocabulary) (*Set, error) {
	s := &Set{identity: identity}
	var errs []error
	who, err := identity.chains(v, []Actor{{Kind: "account"}, {Kind: "device"}})
	if err != nil {
		return nil, err
	}
	s.account, s.device = who[0], who[1]
	urls, given := map[string]bool{}, map[string]bool{}
	names, counters := Names(entries), identities(entries)
	for order, e := range entries {
		if same := e.URL.Same(); urls[same] {
			errs = append(errs, fmt.Errorf("two entries have the url %q", e.URL))
		} else {
			urls[same] = true
		}
		compiled := &entry{url: e.URL, order: order}
		for _, r := range e.Rules {
			r.URL, r.Divert = e.URL, e.Divert
			r.Index, r.Slot = len(s.Rules), len(s.Rules)
			if r.Name != "" && given[r.Name] {
				errs = append(errs, fmt.Errorf("two rules have the name %q", r.Name))
			}
			given[r.Name] = true
			r.Name, names = names[0], names[1:]
			r.identity, counters = counters[0], counters[1:]
			if err := s.bind(&r, v); err != nil {
				errs = append(errs, fmt.Errorf("rule %q: %w", r.Name, err))
				continue
			}
			r.Counters = countersName(r.identity, r.Meter)
			if err := s.except(&r); err != nil {
				errs = append(errs, fmt.Errorf("rule %q: %w", r.Name, err))
			}
			s.Rules = append(s.Rules, &r)
			compiled.rules = append(compiled.rules, &r)
		}
		if e.Bandwidth != nil {
			b := *e.Bandwidth
			b.URL, compiled.bandwidth = e.URL, &b
			if err := s.bindBandwidth(&b, v); err != nil {
				errs = append(errs, err)
			}
		}
		s.insert(compiled)
	}
	for i, v := range s.Variants {
		v.Slot = len(s.Rules) + i
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// Names returns the names of all rules, in the order of the entries: those that are given,
// and for the others those that are made of what the rule says.
func Names(entries []Entry) []string {
	taken, made := map[string]bool{}, map[string]int{}
	for _, e := range entries {
		for _, r := range e.Rules {
			taken[r.Name] = true
		}
	}
	var names []string
	for _, e := range entries {
		for _, r := range e.Rules {
			r.URL = e.URL
			if r.Name == "" {
				r.Name = unusedName(taken, made, r.defaultName())
			}
			names = append(names, r.Name)
		}
	}
	return names
}

// unusedName returns name, or name and a number where that is taken, by a name that was
// given or by one made before. made counts how often each was made.
func unusedName(names map[string]bool, made map[string]int, name string) string {
	for {
		made[name]++
		next := name
		if n := made[name]; n > 1 {
			next = fmt.Sprintf("%s #%d", name, n)
		}
		if !names[next] {
			names[next] = true
			return next
		}
	}
}

// bind gives a rule its meter and its actors' sources.
func (s *Set) bind(r *Rule, v Vocabulary) (err error) {
	if r.Meter, err = r.Algorithm.New(r.Limit); err != nil {
		return err
	}
	r.Cost.N = max(r.Cost.N, 1)
	if r.Wait < 0 || r.Wait > MaxWait || r.Wait > 0 && !r.Algorithm.Uses("wait") {
		return fmt.Errorf("wait is %v, expected 0 to %v, and 0 for an algorithm without it", r.Wait, MaxWait)
	}
	if len(r.Charge) > 0 && !r.Algorithm.Uses("charge") {
		return fmt.Errorf("charge is %v, expected none for an algorithm without it", r.Charge)
	}
	r.who, err = s.identity.chains(v, r.Actor)
	return err
}

func (s *Set) insert(e *entry) {
	n := &s.root
	for segment := range strings.SplitSeq(strings.TrimPrefix(e.url.Path, "/"), "/") {
		if segment == "" {
			break // the root
		}
		e.depth++
		if wild(segment) {
			if n.wild == nil {
				n.wild = &node{}
			}
			n = n.wild
			continue
		}
		if n.children == nil {
			n.children = map[string]*node{}
		}
		child := n.children[segment]
		if child == nil {
			child = &node{}
			n.children[segment] = child
		}
		n = child
	}
	n.entries = append(n.entries, e)
}

// Match is room for finding the rules of requests, one after another. The zero
// value is ready. It is not safe for concurrent use.
type Match struct {
	Rules      []*Rule      // found by Find
	Bandwidths []*Bandwidth // the same

	entries []*entry
	nodes   [2][]*node
	path    []byte
	last    []byte
}

// Find sets m.Rules to the rules of a request, and m.Bandwidths to the bandwidths of its
// answer: those of fewer segments first, then in the order of the configuration. path is
// escaped, as it was sent. Once m has grown to what it needs, only a path that is spelled
// strangely allocates.
func (s *Set) Find(m *Match, method, path string) {
	m.entries, m.Rules, m.Bandwidths = m.entries[:0], m.Rules[:0], m.Bandwidths[:0]
	if plain(path) {
		s.walk(m, method, path)
	} else {
		s.walkSpellings(m, method, path)
		if rest, ok := strings.CutPrefix(path, "//"); ok {
			if slash := strings.IndexByte(rest, '/'); slash >= 0 {
				s.walkSpellings(m, method, rest[slash:])
			}
		}
		slices.SortFunc(m.entries, func(a, b *entry) int {
			if a.depth != b.depth {
				return a.depth - b.depth
			}
			return a.order - b.order
		})
	}
	var previous *entry
	for _, e := range m.entries {
		if e != previous {
			m.Rules = append(m.Rules, e.rules...)
			if e.bandwidth != nil {
				m.Bandwidths = append(m.Bandwidths, e.bandwidth)
			}
		}
		previous = e
	}
}

// walkSpellings walks every reading of a path, and of what may have been made of it before
// it is decoded.
func (s *Set) walkSpellings(m *Match, method, path string) {
	s.walkReadings(m, method, path, false)
	if !strings.ContainsAny(path, `%\`) {
		return
	}
	dots := resolved(path, false)
	if dots != path {
		s.walkReadings(m, method, dots, true)
	}
	if all := resolved(path, true); all != path && all != dots {
		s.walkReadings(m, method, all, true)
	}
}

// walkReadings walks every reading of a path, or those alone in which encoded slashes divide.
func (s *Set) walkReadings(m *Match, method, path string, split bool) {
	params := strings.Contains(path, ";")
	m.last = m.last[:0]
	for _, r := range readings {
		if split && !r.split || r.early && !params {
			continue
		}
		m.path = appendClean(m.path[:0], path, r)
		if string(m.path) != string(m.last) {
			m.last = append(m.last[:0], m.path...)
			s.walk(m, method, string(m.path))
		}
	}
}

// walk adds the entries that cover a clean path, level by level.
func (s *Set) walk(m *Match, method, path string) {
	level, next := append(m.nodes[0][:0], &s.root), m.nodes[1][:0]
	rest := path[1:]
	for {
		first := len(m.entries)
		for _, n := range level {
			for _, e := range n.entries {
				if e.url.covers(method) {
					m.entries = append(m.entries, e)
				}
			}
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
	m.nodes[0], m.nodes[1] = level, next
}

// ClientIP returns the address of the request's client.
func (s *Set) ClientIP(req *Request) netip.Addr { return s.identity.ClientIP(req) }

// Identify returns who makes a request: account and device, "" where the request tells none,
// and the client's address, see [Identity.ClientIP].
func (s *Set) Identify(req *Request) (account, device string, ip netip.Addr) {
	account, _ = s.account.value(req)
	device, _ = s.device.value(req)
	return account, device, s.ClientIP(req)
}

// Explanation tells how one rule judges a request.
type Explanation struct {
	Rule     *Rule  // as it holds for who makes the request
	Key      string // of who makes the request; empty for All
	Cost     int64  // of the request
	Excepted bool   // it does not judge the request
	By       Who    // of the rule's Except or Overrides; its zero value: none
}

// Explain returns how the request would be judged, in order. It counts nothing.
func (s *Set) Explain(req *Request) []Explanation {
	var m Match
	s.Find(&m, req.Method, req.Path)
	explained := make([]Explanation, len(m.Rules))
	for i, r := range m.Rules {
		key, value := appendKey(nil, r.who, req, s.ClientIP(req))
		explained[i] = Explanation{Rule: r, Key: string(key), Cost: s.CostOf(r, req)}
		if r.exceptions != nil {
			explained[i].except(value, s.ClientIP(req))
		}
	}
	return explained
}
