// SPDX-License-Identifier: MIT

package rule

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/diana-limiter/diana/limit"
)

// Override is another limit for some.
type Override struct {
	Who
	N, Burst, Queue int64 // of limit.Limit, instead of all three of the rule's
}

// limit returns that of a rule with an override.
func (o *Override) limit(l limit.Limit) limit.Limit {
	l.N, l.Burst, l.Queue = o.N, o.Burst, o.Queue
	return l
}

// exceptions are a rule's Except and Overrides, as they are found. They never change.
//
// An override is kept by a variant: a copy of the rule with the other limit. It judges the
// actor by the counters that the rule would, as far as their states have the same layout; so
// what has been used counts on when an override comes or goes. Overrides of the same limit
// have the same variant: thousands of them cost a place in the directory each.
type exceptions struct {
	except    directory
	overrides directory
	variants  []*Rule // of each override
}

// of returns the rule as it holds for an actor.
func (e *exceptions) of(r *Rule, value string, ip netip.Addr) *Rule {
	if e.except.find(value, ip) >= 0 {
		return nil
	}
	if i := e.overrides.find(value, ip); i >= 0 {
		return e.variants[i]
	}
	return r
}

// except fills in what an exception changes for an actor.
func (x *Explanation) except(value string, ip netip.Addr) {
	r, e := x.Rule, x.Rule.exceptions
	if i := e.except.find(value, ip); i >= 0 {
		x.Excepted, x.By = true, r.Except[i]
	} else if i := e.overrides.find(value, ip); i >= 0 {
		x.Rule, x.By = e.variants[i], r.Overrides[i].Who
	}
}

// except compiles the exceptions of a rule.
func (s *Set) except(r *Rule) error {
	if len(r.Except) == 0 && len(r.Overrides) == 0 {
		return nil
	}
	var e exceptions
	var err error
	if e.except, err = newDirectory(r.Except, r.Actor, r.who); err != nil {
		return fmt.Errorf("except: %w", err)
	}
	list := make([]Who, len(r.Overrides))
	for i, o := range r.Overrides {
		list[i] = o.Who
	}
	if e.overrides, err = newDirectory(list, r.Actor, r.who); err != nil {
		return fmt.Errorf("overrides: %w", err)
	}
	excepted := map[Who]bool{}
	for _, w := range r.Except {
		for _, form := range w.forms(r.who) {
			excepted[form] = true
		}
	}
	known := map[limit.Limit]*Rule{r.Limit: r}
	for _, o := range r.Overrides {
		for _, form := range o.forms(r.who) {
			if excepted[form] {
				return fmt.Errorf("overrides: %v is in except", o.Who)
			}
		}
		l := o.limit(r.Limit)
		v := known[l]
		if v == nil {
			if v, err = r.variant(l); err != nil {
				return fmt.Errorf("overrides: %v: %w", o.Who, err)
			}
			known[l] = v
			s.Variants = append(s.Variants, v)
		}
		e.variants = append(e.variants, v)
	}
	r.exceptions = &e
	return nil
}

// variant returns the rule with another limit.
func (r *Rule) variant(l limit.Limit) (*Rule, error) {
	v := *r
	v.Limit, v.Except, v.Overrides = l, nil, nil
	var err error
	if v.Meter, err = v.Algorithm.New(l); err != nil {
		return nil, err
	}
	v.Counters = countersName(v.identity, v.Meter)
	return &v, nil
}

// directory finds who is meant in a list of any length: a value by its hash, a network by
// binary search. The networks are cut into ranges that do not overlap, each of which is
// the longest network's that holds it:
//
//	10.0.0.0/8     |-----------------------|
//	10.2.0.0/16        |------|
//	10.2.3.0/24           |-|
//	starts         ^   ^  ^ ^ ^            ^
//	owners         /8 /16/24/16 /8         none
type directory struct {
	values map[string]int32
	v4, v6 ranges
}

type ranges struct {
	starts []netip.Addr // each range goes to where the next begins
	owners []int32      // -1: none
}

// newDirectory returns the directory of a list, for a rule of these actors and their chains.
// Nobody may be in it twice.
func newDirectory(list []Who, actor []Actor, chains []chain) (d directory, err error) {
	known := map[Who]bool{}
	owner := map[netip.Prefix]int32{}
	var v4, v6 []netip.Prefix
	d.values = map[string]int32{}
	for i, w := range list {
		if err := w.Fits(actor); err != nil {
			return d, err
		}
		w = w.canonical()
		forms := w.forms(chains)
		for _, form := range forms {
			if known[form] {
				return d, fmt.Errorf("%v is there twice", w)
			}
		}
		for _, form := range forms {
			known[form] = true
			switch {
			case form.Value != "":
				d.values[form.Value] = int32(i)
			case form.Network.Addr().Is4():
				v4 = append(v4, form.Network)
				owner[form.Network] = int32(i)
			default:
				v6 = append(v6, form.Network)
				owner[form.Network] = int32(i)
			}
		}
	}
	d.v4, d.v6 = newRanges(v4, owner), newRanges(v6, owner)
	return d, nil
}

// newRanges cuts networks of one family into ranges.
func newRanges(networks []netip.Prefix, owner map[netip.Prefix]int32) (r ranges) {
	slices.SortFunc(networks, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	begin := func(at netip.Addr, owner int32) {
		if n := len(r.starts); n > 0 && r.starts[n-1] == at { // what began there is over, or goes on inside
			r.owners[n-1] = owner
			return
		}
		r.starts, r.owners = append(r.starts, at), append(r.owners, owner)
	}
	var inside []netip.Prefix // those that have begun and not ended, each inside the one before
	leave := func() {
		last := inside[len(inside)-1]
		inside = inside[:len(inside)-1]
		next := lastOf(last).Next()
		switch {
		case !next.IsValid(): // there is nothing behind
		case len(inside) > 0:
			begin(next, owner[inside[len(inside)-1]])
		default:
			begin(next, -1)
		}
	}
	for _, p := range networks {
		for len(inside) > 0 && !inside[len(inside)-1].Contains(p.Addr()) {
			leave()
		}
		inside = append(inside, p)
		begin(p.Addr(), owner[p])
	}
	for len(inside) > 0 {
		leave()
	}
	return r
}

// lastOf returns the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// find returns the index of the entry that an actor is meant by: its value, else the longest
// network. It is below 0 if there is none.
func (d *directory) find(value string, ip netip.Addr) int {
	if value != "" {
		if i, ok := d.values[value]; ok {
			return int(i)
		}
	}
	r := &d.v6
	if ip.Is4() {
		r = &d.v4
	}
	from, to := 0, len(r.starts) // the first range that begins behind ip is among them
	for from < to {
		if mid := (from + to) / 2; r.starts[mid].Compare(ip) <= 0 {
			from = mid + 1
		} else {
			to = mid
		}
	}
	if from == 0 {
		return -1
	}
	return int(r.owners[from-1])
}
