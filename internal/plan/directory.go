// SPDX-License-Identifier: MIT

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/diana-limiter/diana/rule"
)

// directory finds the member of a list that matches an actor: a value by its hash, a network by
// binary search. For that the networks are cut into ranges that do not overlap. Each range belongs
// to the longest network that contains it:
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
	starts []netip.Addr // each range ends where the next one begins
	owners []int32      // -1: none
}

// newDirectory returns the directory of a list, for a rule with these actors and their chains. A
// list that names a client twice is an error.
func newDirectory(list []rule.Who, actor []rule.Actor, chains []chain) (d directory, err error) {
	owner := map[netip.Prefix]int32{}
	var v4, v6 []netip.Prefix
	d.values = map[string]int32{}
	for i, w := range list {
		if err := w.Fits(actor); err != nil {
			return d, err
		}
		w = w.Canonical()
		forms := forms(w, chains)
		for _, form := range forms {
			_, value := d.values[form.Value]
			_, network := owner[form.Network]
			if value || network {
				return d, fmt.Errorf("%v is there twice", w)
			}
		}
		for _, form := range forms {
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
		if n := len(r.starts); n > 0 && r.starts[n-1] == at { // the range that began here is empty
			r.owners[n-1] = owner
			return
		}
		r.starts, r.owners = append(r.starts, at), append(r.owners, owner)
	}
	var inside []netip.Prefix // networks that contain the current address, each inside the one before
	leave := func() {
		last := inside[len(inside)-1]
		inside = inside[:len(inside)-1]
		next := lastOf(last).Next()
		switch {
		case !next.IsValid(): // the network ends with the last address
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

// find returns the index of the member that matches an actor, by value or else by the longest
// network. It returns a negative number if no member matches.
func (d *directory) find(value string, client *Client) int {
	if value != "" {
		if i, ok := d.values[value]; ok {
			return int(i)
		}
	}
	if len(d.v4.starts) == 0 && len(d.v6.starts) == 0 {
		return -1
	}
	ip, r := client.IP(), &d.v6
	if ip.Is4() {
		r = &d.v4
	}
	from, to := 0, len(r.starts) // the first range that begins behind ip lies between them
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

// forms returns the canonical forms of w under a rule with these chains. They are the network, or
// the value as it is written, because the program itself may name an actor so, and the value in the
// canonical form of each source.
func forms(w rule.Who, chains []chain) []rule.Who {
	w = w.Canonical()
	list := []rule.Who{w}
	if w.Value == "" {
		return list
	}
	for _, c := range chains {
		for i := range c {
			if s := &c[i]; s.canonical != nil {
				if form := (rule.Who{Value: s.canonical(w.Value, s.name)}); form.Value != "" && !slices.Contains(list, form) {
					list = append(list, form)
				}
			}
		}
	}
	return list
}
