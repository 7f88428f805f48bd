// SPDX-License-Identifier: MIT

package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Who names those whom a rule treats in another way than the rest: an actor by its value, or
// all clients whose address is in a network.
//
// A Value is compared with what the request carries, each in its canonical form: see
// [ActorKind.Canonical]. It never stands for an address
// that an actor is counted by because the request does not tell: account 192.0.2.1 is not
// whoever comes from there. So rules for ip, for several actors together and for all have
// networks alone. A Network is compared with the client's whole address, whatever the
// rule counts by.
type Who struct {
	Value   string       // empty: Network says who
	Network netip.Prefix // its zero value: Value says who
}

// ParseWho reads an address, a network or a value. What looks like one of the former is a
// value behind "=", which is then no part of it. The error says what was expected.
func ParseWho(text string) (Who, error) {
	if value, ok := strings.CutPrefix(text, "="); ok && value != "" {
		return Who{Value: value}, nil
	}
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return Who{Network: netip.PrefixFrom(ip, ip.BitLen())}, nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		if p != p.Masked() {
			return Who{}, fmt.Errorf("expected the network %v, or the address %v alone", Who{Network: p.Masked()}, p.Addr())
		}
		return Who{Network: unmap(p)}, nil
	}
	switch {
	case text == "" || text == "=":
		return Who{}, errors.New("expected a value, an address or a network, found nothing")
	case likeNetwork(text):
		return Who{}, errors.New("expected a network such as 10.0.0.0/8, an address, or = in front of a value that looks like one")
	}
	return Who{Value: text}, nil
}

// likeNetwork reports whether a text that is neither a network nor an address was meant to
// be one. Few values are, and who is taken for a value by mistake is never met.
func likeNetwork(text string) bool {
	address, bits, slash := strings.Cut(text, "/")
	address, _, _ = strings.Cut(address, "%")
	if strings.Trim(address, "0123456789abcdefABCDEF:.") != "" || strings.Trim(bits, "0123456789/") != "" {
		return false
	}
	return slash && strings.ContainsAny(address, ".:") || strings.Contains(address, "::") ||
		strings.Count(address, ".") == 3 && strings.Trim(address, "0123456789.") == ""
}

// unmap returns an IPv4 network that is written as IPv6 as what it is, as the addresses are
// that it is compared with.
func unmap(p netip.Prefix) netip.Prefix {
	if ip := p.Addr(); ip.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(ip.Unmap(), p.Bits()-96)
	}
	return p
}

// Canonical returns a value that is equal for all networks that contain the same addresses.
func (w Who) Canonical() Who {
	if w.Network.IsValid() {
		w.Network = unmap(w.Network).Masked()
	}
	return w
}

// String returns a text that ParseWho reads.
func (w Who) String() string {
	switch {
	case w.Value == "" && w.Network.IsSingleIP():
		return w.Network.Addr().String()
	case w.Value == "":
		return w.Network.String()
	}
	if same, err := ParseWho(w.Value); err != nil || same != w {
		return "=" + w.Value
	}
	return w.Value
}

// Fits returns an error if no request under a rule for these actors can be from w.
func (w Who) Fits(actor []Actor) error {
	switch {
	case w.Value == "" && !w.Network.IsValid():
		return errors.New("there is neither a value nor a network")
	case w.Value != "" && w.Network.IsValid():
		return errors.New("there is a value and a network, expected one of them")
	case w.Value == "":
		return nil
	case len(actor) > 1:
		return errors.New("several actors count as one, and none of them has a value for itself, expected a network such as 10.0.0.0/8")
	case len(actor) == 0 || actor[0] == All:
		return errors.New("actor all is everyone, expected a network such as 10.0.0.0/8")
	case actor[0].Kind == "ip":
		return errors.New("actor ip is an address, expected one, or a network such as 10.0.0.0/8")
	}
	return nil
}
