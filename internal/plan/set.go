// SPDX-License-Identifier: MIT

// Package plan compiles a configuration. A compiled [Set] finds the rules of a request, reads its
// path as servers do, and makes the keys of its actors.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"weak"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Set is a compiled configuration. It finds the rules of a request. It never changes and is safe
// for concurrent use.
type Set struct {
	Rules      []*Rule      // by Index
	Variants   []*Rule      // of the rules, for their Overrides; by Slot, which continues that of Rules
	Bandwidths []*Bandwidth // by Index

	ReadsBodies bool // a rule or a bandwidth needs the body of a request
	Ends        bool // an override of a rule ends

	identity rule.Identity
	kinds    []rule.ActorKind
	paths    rule.Paths
	account  chain
	accounts []chain // account alone
	device   chain
	root     node
	entries  []*entry // all, sorted
	methods  bool     // whether any entry has a method
	longest  int      // bytes of the longest name of a node

	self weak.Pointer[Set] // for a Prepared, which compares it

	index sync.Once
	named map[string]*Rule // by name; made by index

	// Of all entries, in their order. A path with too many readings then costs no more under more entries.
	every          []*Rule
	everyBandwidth []*Bandwidth
}

// Rule returns the rule or variant with that Slot.
func (s *Set) Rule(slot int) *Rule {
	if slot < len(s.Rules) {
		return s.Rules[slot]
	}
	return s.Variants[slot-len(s.Rules)]
}

// node is a segment of the tree of URLs. Its children have names: the segment, percent-decoded, and
// in lower case unless the case is exact. Most nodes have one child at most, so they need no map.
type node struct {
	first    string // name of the first child; empty: there is none
	child    *node
	children map[string]*node // the others, by name
	wild     *node
	entries  *entry // the first one; entry.next is the next
}

// grow returns the child with a name, which it makes if there is none.
func (n *node) grow(name string) *node {
	if n.child == nil {
		n.first, n.child = name, &node{}
	}
	if n.first == name {
		return n.child
	}
	if n.children == nil {
		n.children = map[string]*node{}
	}
	if n.children[name] == nil {
		n.children[name] = &node{}
	}
	return n.children[name]
}

// named returns the child with a name, or nil.
func (n *node) named(name string) *node {
	if n.first == name {
		return n.child
	}
	return n.children[name]
}

type entry struct {
	*rule.Entry
	depth, order int32 // segments, and place in the configuration
	first, end   int32 // Index of its first rule, and behind its last one

	bandwidth *Bandwidth // nil: none
	next      *entry     // of the same node, in the order of the configuration; nil: none
}

// covers reports whether the entry applies to a method. Letter case does not matter, because some
// servers ignore it.
func (e *entry) covers(method string) bool {
	own := e.URL.Method
	return own == "" || own == method || strings.EqualFold(own, method) ||
		own == "GET" && strings.EqualFold(method, "HEAD")
}

// compare orders entries by their number of segments, and then as configured.
func (e *entry) compare(other *entry) int {
	return cmp.Or(cmp.Compare(e.depth, other.depth), cmp.Compare(e.order, other.order))
}

// compiler has what the rules of a Set share.
type compiler struct {
	resolver
	known  map[rule.Actor][]chain // of the rules with one actor
	meters map[limited]limit.Meter

	special special // of the rule that is being compiled
}

// limited is a limit under an algorithm, which the place of its names identifies.
type limited struct {
	names *string
	limit limit.Limit
}

// meterOf returns the Meter of a rule. Rules with the same algorithm and limit share it, because a
// Meter has no memory.
func (v *compiler) meterOf(r *rule.Rule) (limit.Meter, error) {
	key := limited{&r.Algorithm.Names[0], r.Limit}
	if m := v.meters[key]; m != nil {
		return m, nil
	}
	m, err := r.Algorithm.New(r.Limit)
	if err == nil {
		v.meters[key] = m
	}
	return m, err
}

// chainsOf returns the chain of each actor of a rule. Rules with the same actor share them.
func (v *compiler) chainsOf(actor []rule.Actor) ([]chain, error) {
	if len(actor) != 1 {
		return v.chains(actor)
	}
	who, ok := v.known[actor[0]]
	if ok {
		return who, nil
	}
	who, err := v.chains(actor)
	if err == nil {
		v.known[actor[0]] = who
	}
	return who, err
}

// Compile makes a Set. actors are the kinds of actors that the entries and identity use. The error
// names every rule that cannot be compiled.
func Compile(entries []rule.Entry, identity rule.Identity, paths rule.Paths, actors []rule.ActorKind) (*Set, error) {
	s := &Set{identity: identity, kinds: actors, paths: paths}
	s.self = weak.Make(s)
	v := &compiler{resolver: resolver{identity, actors}, known: map[rule.Actor][]chain{}, meters: map[limited]limit.Meter{}}
	who, err := v.chains([]rule.Actor{{Kind: "account"}, {Kind: "device"}})
	if err != nil {
		return nil, err
	}
	s.account, s.accounts, s.device = who[0], who[:1], who[1]
	errs := duplicates(entries)
	all, short, identities := names.Rules(entries), names.Short(entries), names.Identities(entries)
	s.Rules, s.entries = make([]*Rule, 0, len(all)), make([]*entry, 0, len(entries))
	places, rules := make([]entry, len(entries)), make([]Rule, len(all))
	for order := range entries {
		e, compiled := &entries[order], &places[order]
		compiled.Entry, compiled.order = e, int32(order)
		compiled.first = int32(len(s.Rules))
		for i := range e.Rules {
			c := &rules[0]
			err := c.compile(v, e, &e.Rules[i], all[0], identities[0])
			if err == nil {
				c.Short, c.Index, c.Slot = short[0], len(s.Rules), len(s.Rules)
				err = addExceptions(s, c)
			}
			rules, all, short, identities = rules[1:], all[1:], short[1:], identities[1:]
			if err != nil {
				errs = append(errs, fmt.Errorf("rule %q: %w", c.Name, err))
				continue
			}
			s.Rules, s.ReadsBodies = append(s.Rules, c), s.ReadsBodies || c.body != nil
		}
		compiled.end = int32(len(s.Rules))
		if of := s.rulesOf(compiled); e.Divert != nil && e.Divert.Values != nil && len(of) == len(e.Rules) && !slices.ContainsFunc(of, (*Rule).ReadsBody) {
			errs = append(errs, fmt.Errorf("url %q: divert changes the body, which no rule of the entry reads, expected one such as {actor: [account, \"body:/model\"]}", e.URL))
		}
		if e.Bandwidth != nil {
			b, err := newBandwidth(v, e)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			b.Index, compiled.bandwidth = len(s.Bandwidths), b
			s.Bandwidths, s.ReadsBodies = append(s.Bandwidths, b), s.ReadsBodies || b.body != nil
		}
		s.entries, s.methods = append(s.entries, compiled), s.methods || e.URL.Method != ""
	}
	for _, e := range slices.Backward(s.entries) {
		s.insert(e)
	}
	slices.SortFunc(s.entries, (*entry).compare)
	s.every = make([]*Rule, 0, len(s.Rules))
	for _, e := range s.entries {
		s.every = append(s.every, s.rulesOf(e)...)
		if e.bandwidth != nil {
			s.everyBandwidth = append(s.everyBandwidth, e.bandwidth)
		}
	}
	for i, v := range s.Variants {
		v.Slot = len(s.Rules) + i
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// rulesOf returns the rules of an entry.
func (s *Set) rulesOf(e *entry) []*Rule { return s.Rules[e.first:e.end:e.end] }

// duplicates returns an error for each URL and each name that entries have twice.
func duplicates(entries []rule.Entry) (errs []error) {
	urls, given := make(map[string]bool, len(entries)), map[string]bool{}
	for _, e := range entries {
		if same := e.URL.Same(); urls[same] {
			errs = append(errs, fmt.Errorf("two entries have the url %q", e.URL))
		} else {
			urls[same] = true
		}
		for i := range e.Rules {
			name := e.Rules[i].Name
			if name == "" {
				continue
			}
			if given[name] {
				errs = append(errs, fmt.Errorf("two rules have the name %q", name))
			}
			given[name] = true
		}
	}
	return errs
}

// insert puts an entry into the tree, in front of those of the same node.
func (s *Set) insert(e *entry) {
	n := &s.root
	for clean := range strings.SplitSeq(strings.TrimPrefix(e.URL.Path, "/"), "/") {
		if clean == "" {
			break // the root
		}
		e.depth++
		if httptext.IsWild(clean) {
			if n.wild == nil {
				n.wild = &node{}
			}
			n = n.wild
			continue
		}
		segment := s.segment(clean)
		s.longest = max(s.longest, len(segment))
		n = n.grow(segment)
	}
	e.next, n.entries = n.entries, e
}

// segment returns the name of a node for a segment of a clean path. Most segments are that name.
func (s *Set) segment(clean string) string {
	if strings.IndexByte(clean, '%') < 0 && (s.paths.ExactCase || strings.ToLower(clean) == clean) {
		return clean
	}
	segment := httptext.Unescape(nil, clean)
	if !s.paths.ExactCase {
		paths.Lower(segment)
	}
	return string(segment)
}

// maxListed is how many rules an error lists.
const maxListed = 20

// Named returns the rule with a name. The error lists the names. The first call makes the index of names.
func (s *Set) Named(name string) (*Rule, error) {
	s.index.Do(func() {
		s.named = make(map[string]*Rule, len(s.Rules))
		for _, r := range s.Rules {
			s.named[r.Name] = r
		}
	})
	if r := s.named[name]; r != nil {
		return r, nil
	}
	all := make([]string, len(s.Rules))
	for i, r := range s.Rules {
		all[i] = strconv.Quote(r.Name)
	}
	slices.Sort(all)
	if len(all) > maxListed {
		all = append(all[:maxListed], "...")
	}
	return nil, fmt.Errorf("no rule has the name %q, expected one of %s", name, strings.Join(all, ", "))
}

// Client returns the client of a request.
func (s *Set) Client(req *rule.Request) Client { return Client{req: req, identity: &s.identity} }

// ClientIP returns the address of the client that sent the request.
func (s *Set) ClientIP(req *rule.Request) netip.Addr { return ClientIP(&s.identity, req) }

// CostOf returns the cost of a request under a rule, see [rule.Cost].
func (s *Set) CostOf(r *Rule, req *rule.Request) int64 {
	if r.Cost.Reservation != nil {
		return r.reserved(req)
	}
	return costOf(r.Cost, &s.identity, req)
}

// Identify returns the account and the device of a request, "" if the request names none, and the
// address of the client.
func (s *Set) Identify(req *rule.Request) (account, device string, ip netip.Addr) {
	account, _ = s.account.value(req)
	device, _ = s.device.value(req)
	return account, device, s.ClientIP(req)
}
