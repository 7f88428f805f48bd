// SPDX-License-Identifier: MIT

package rule

import (
	"cmp"
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
	paths      Paths
	account    chain
	device     chain
	root       node
	entries    []*entry // all, sorted
	methods    bool     // an entry has a method
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
	children map[string]*node // by the segment, percent-decoded, and small unless case is exact
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

// compare orders entries as they evaluate a request: fewer segments first, then as configured.
func (e *entry) compare(other *entry) int {
	return cmp.Or(cmp.Compare(e.depth, other.depth), cmp.Compare(e.order, other.order))
}

// Compile makes a Set. The error names every rule that cannot be kept. v is the
// vocabulary that the entries were written in.
func Compile(entries []Entry, identity Identity, paths Paths, v Vocabulary) (*Set, error) {
	s := &Set{identity: identity, paths: paths}
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
	slices.SortFunc(s.entries, (*entry).compare)
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

// insert puts an entry into the tree.
func (s *Set) insert(e *entry) {
	s.entries, s.methods = append(s.entries, e), s.methods || e.url.Method != ""
	n := &s.root
	for clean := range strings.SplitSeq(strings.TrimPrefix(e.url.Path, "/"), "/") {
		if clean == "" {
			break // the root
		}
		e.depth++
		if wild(clean) {
			if n.wild == nil {
				n.wild = &node{}
			}
			n = n.wild
			continue
		}
		segment := unescaped(nil, clean)
		if s.paths.Case == FoldCase {
			lower(segment)
		}
		if n.children == nil {
			n.children = map[string]*node{}
		}
		child := n.children[string(segment)]
		if child == nil {
			child = &node{}
			n.children[string(segment)] = child
		}
		n = child
	}
	n.entries = append(n.entries, e)
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

// Explain returns how the request would be judged, in order. It counts nothing. The error is a
// [PathError].
func (s *Set) Explain(req *Request) ([]Explanation, error) {
	var m Match
	if err := s.Find(&m, req); err != nil {
		return nil, err
	}
	explained := make([]Explanation, len(m.Rules))
	for i, r := range m.Rules {
		key, value := appendKey(nil, r.who, req, s.ClientIP(req))
		explained[i] = Explanation{Rule: r, Key: string(key), Cost: s.CostOf(r, req)}
		if r.exceptions != nil {
			explained[i].except(value, s.ClientIP(req))
		}
	}
	return explained, nil
}
