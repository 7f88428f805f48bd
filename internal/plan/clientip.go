// SPDX-License-Identifier: MIT

package plan

import (
	"net"
	"net/netip"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/rule"
)

// Client is the client of one request. It reads the address at the first use, because many keys do
// not need it. A Client is not safe for concurrent use.
type Client struct {
	req      *rule.Request
	identity *rule.Identity
	ip       netip.Addr
	known    bool // ip is set

	// At is when the rules evaluate the request, in microseconds since 1970. It matters only to overrides that
	// end. Zero means now, by the clock of the system.
	At int64
}

// IP returns the address of the client, see [ClientIP].
func (c *Client) IP() netip.Addr {
	if !c.known {
		c.ip, c.known = ClientIP(c.identity, c.req), true
	}
	return c.ip
}

// ClientIP returns the address of the client that sent the request. It is the TCP peer, unless the
// peer is a trusted proxy. Then it is the first address in X-Forwarded-For, read from the right,
// that is not a trusted proxy. Reading ends at an entry that cannot be parsed, because no trusted
// proxy that Diana understands wrote the entries left of it. Reading also ends after 16 entries.
// Then the last trusted proxy is the client. ClientIP returns the zero Addr for a peer that has no
// address.
func ClientIP(id *rule.Identity, req *rule.Request) netip.Addr {
	if text := req.Actors["ip"]; text != "" {
		ip, _ := parseIP(text)
		return ip
	}
	ip, ok := peerOf(req)
	if !ok || len(id.TrustedProxies) == 0 {
		return ip
	}
	return walkForwards(id, ip, linesOf(req, "X-Forwarded-For"))
}

// peerOf returns the address of the TCP peer of a request. ok is false if the peer has none.
func peerOf(req *rule.Request) (ip netip.Addr, ok bool) {
	peer := ""
	switch {
	case req.HTTP != nil:
		peer = req.HTTP.RemoteAddr
	case req.Native != nil:
		if n, ok := req.Native.(interface{ PeerAddr() net.Addr }); ok { // saves Diana's adapters a text
			if tcp, ok := n.PeerAddr().(*net.TCPAddr); ok {
				ip, ok = netip.AddrFromSlice(tcp.IP)
				return ip.Unmap(), ok
			}
		}
		peer = req.Native.Peer()
	}
	if peer == "" {
		return ip, false
	}
	return parseIP(peer)
}

// Bounds for reading X-Forwarded-For. A client can send 7,000 entries, or one entry of 64 KiB.
const (
	mostForwards = 16  // entries; real chains of proxies are shorter
	longestEntry = 128 // bytes of an entry with the spaces around it; a longer entry cannot be parsed
)

// walkForwards reads the lines of X-Forwarded-For from the right, starting at the peer.
func walkForwards(id *rule.Identity, peer netip.Addr, lines []string) netip.Addr {
	client, read := peer, 0
	for i := len(lines) - 1; i >= 0; i-- {
		rest := lines[i]
		for more := true; more; {
			if read == mostForwards || !trusts(id, client) {
				return client
			}
			entry := rest[max(0, len(rest)-longestEntry-1):]
			if comma := strings.LastIndexByte(entry, ','); comma >= 0 {
				entry = entry[comma+1:]
				rest = rest[:len(rest)-len(entry)-1]
			} else {
				more = false
			}
			ip, ok := parseIP(httptext.Trim(entry))
			if !ok || len(entry) > longestEntry {
				return client
			}
			client = ip
			read++
		}
	}
	return client
}

// trusts reports whether ip is a trusted proxy.
func trusts(id *rule.Identity, ip netip.Addr) bool {
	for _, p := range id.TrustedProxies {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// parseIP parses an address with or without a port. It turns an IPv4 address written as IPv6 into
// IPv4, and drops zones, because they mean nothing on other machines. It chooses the parser by the
// shape of the text, because each failed attempt would allocate an error.
func parseIP(s string) (netip.Addr, bool) {
	if ip, ok := parseIPv4(s); ok {
		return ip, true
	}
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

// parseIPv4 parses the common form of an address, IPv4 with or without a port, in one pass. It reports
// false for all other text, and for text that netip refuses.
func parseIPv4(s string) (ip netip.Addr, ok bool) {
	var b [4]byte
	part, n, digits := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			if digits > 0 && n == 0 { // netip refuses leading zeros
				return ip, false
			}
			if n, digits = n*10+int(c-'0'), digits+1; n > 255 {
				return ip, false
			}
		case digits == 0:
			return ip, false
		case c == '.' && part < 3:
			b[part] = byte(n)
			part, n, digits = part+1, 0, 0
		case c == ':' && part == 3:
			b[3] = byte(n)
			return netip.AddrFrom4(b), isPort(s[i+1:])
		default:
			return ip, false
		}
	}
	b[3] = byte(n)
	return netip.AddrFrom4(b), part == 3 && digits > 0
}

// isPort reports whether s is a port in at most 5 digits.
func isPort(s string) bool {
	if s == "" || len(s) > 5 {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}

// appendIP appends the form of an address that rules count by. It is an IPv4 address in full, or the
// /64 of an IPv6 address, because a subscriber usually has a whole /64.
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

// AppendIP appends the client's address, by which its requests count together.
func (c *Client) AppendIP(key []byte) []byte { return appendIP(key, c.IP()) }
