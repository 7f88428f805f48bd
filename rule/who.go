// SPDX-License-Identifier: MIT

package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Who names the clients that a rule treats differently from the rest: an actor by its value, or
// all clients whose address is in a network.
//
// Diana compares a Value with the value in the request, both in canonical form, see
// [ActorKind.Canonical]. A Value never matches an address that counts because the request names
// no actor: account 192.0.2.1 is not the client with that address. So rules for ip, for several
// actors together and for all can only have networks. Diana compares a Network with the client's
// whole address, whatever the rule counts by.
type Who struct {
	Value   string       // if empty, Network counts
	Network netip.Prefix // if zero, Value counts
}

// UnmarshalText reads an address, a network or a value. The prefix "=" marks a value that looks like
// an address or a network, and is not part of the value. The error says what was expected.
func (w *Who) UnmarshalText(text []byte) (err error) {
	*w, err = parseWho(string(text))
	return err
}

func parseWho(text string) (Who, error) {
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

// likeNetwork reports whether a text that is neither a network nor an address was probably meant
// to be one. Few values look so, and a misspelled network that became a value would never match.
func likeNetwork(text string) bool {
	address, bits, slash := strings.Cut(text, "/")
	address, _, _ = strings.Cut(address, "%")
	if strings.Trim(address, "0123456789abcdefABCDEF:.") != "" || strings.Trim(bits, "0123456789/") != "" {
		return false
	}
	return slash && strings.ContainsAny(address, ".:") || strings.Contains(address, "::") ||
		strings.Count(address, ".") == 3 && strings.Trim(address, "0123456789.") == ""
}

// unmap turns an IPv4 network that is written as IPv6 into IPv4, because Diana compares it with
// IPv4 addresses.
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

// String returns a text that UnmarshalText reads.
func (w Who) String() string {
	switch {
	case w.Value == "" && w.Network.IsSingleIP():
		return w.Network.Addr().String()
	case w.Value == "":
		return w.Network.String()
	}
	if same, err := parseWho(w.Value); err != nil || same != w {
		return "=" + w.Value
	}
	return w.Value
}

// Fits returns an error if w can match no request under a rule for these actors.
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
		return errors.New("a rule with actor all can only have networks here, such as 10.0.0.0/8")
	case actor[0].Kind == "ip":
		return errors.New("actor ip is an address, expected one, or a network such as 10.0.0.0/8")
	}
	return nil
}
