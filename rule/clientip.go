// SPDX-License-Identifier: MIT

package rule

import (
	"net/netip"
	"strings"
)

// ClientIP returns the address of the client that made the request: the TCP peer,
// or, if that is a trusted proxy, the first address that is not trusted when
// X-Forwarded-For is read from the right. An entry that cannot be read ends the
// reading: what stands left of it was not written by a trusted proxy that we
// understand. So do 16 entries of trusted proxies: the last of them is the client then. The
// zero Addr stands for a peer that has no address.
func (id *Identity) ClientIP(req *Request) netip.Addr {
	if text := req.Actors["ip"]; text != "" {
		ip, _ := parseIP(text)
		return ip
	}
	if req.HTTP == nil {
		return netip.Addr{}
	}
	ip, ok := parseIP(req.HTTP.RemoteAddr)
	if !ok || len(id.TrustedProxies) == 0 {
		return ip
	}
	return id.walk(ip, req.HTTP.Header["X-Forwarded-For"])
}

// Bounds of what is read of X-Forwarded-For. A client can send 7,000 entries, and an entry of
// 64 KiB.
const (
	mostForwards = 16  // entries; no chain of proxies is as long
	longestEntry = 128 // bytes of an entry with the spaces around it; a longer one cannot be read
)

// walk goes from the peer to the left through the lines of X-Forwarded-For.
func (id *Identity) walk(peer netip.Addr, lines []string) netip.Addr {
	client, read := peer, 0
	for i := len(lines) - 1; i >= 0; i-- {
		rest := lines[i]
		for more := true; more; {
			if read == mostForwards || !id.trusted(client) {
				return client
			}
			entry := rest[max(0, len(rest)-longestEntry-1):]
			if comma := strings.LastIndexByte(entry, ','); comma >= 0 {
				entry = entry[comma+1:]
				rest = rest[:len(rest)-len(entry)-1]
			} else {
				more = false
			}
			ip, ok := parseIP(trim(entry))
			if !ok || len(entry) > longestEntry {
				return client
			}
			client = ip
			read++
		}
	}
	return client
}

func (id *Identity) trusted(ip netip.Addr) bool {
	for _, p := range id.TrustedProxies {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// parseIP reads an address, with or without a port, and folds an IPv4 address
// written as IPv6 into IPv4. Zones are dropped: they mean nothing to others. What the
// text is shows in its shape; trying one and then another would cost an error each time.
func parseIP(s string) (netip.Addr, bool) {
	var ip netip.Addr
	var err error
	switch n := len(s); {
	case n > 2 && s[0] == '[' && s[n-1] == ']':
		ip, err = netip.ParseAddr(s[1 : n-1])
		if ip.Is4() {
			return netip.Addr{}, false
		}
	case n > 0 && s[0] == '[' || strings.Count(s, ":") == 1:
		var p netip.AddrPort
		p, err = netip.ParseAddrPort(s)
		ip = p.Addr()
	default:
		ip, err = netip.ParseAddr(s)
	}
	return ip.Unmap().WithZone(""), err == nil
}

// appendIP appends an address as rules count it: IPv4 whole, IPv6 by its /64, since that is
// what one subscriber has.
func appendIP(b []byte, ip netip.Addr) []byte {
	switch {
	case !ip.IsValid():
		return append(b, "none"...)
	case ip.Is6():
		p, _ := ip.Prefix(64)
		return p.AppendTo(b)
	}
	return ip.AppendTo(b)
}
