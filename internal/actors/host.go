// SPDX-License-Identifier: MIT

package actors

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/diana-limiter/diana/rule"
)

// LongestHost is the longest Host header, in bytes, that names an actor. A name in DNS has at most
// 253 bytes.
const LongestHost = 512

func hostValue(r *http.Request, _ string) string { return hostOf(r.Host) }

func askHost(r rule.Native, _ string) string { return hostOf(r.Host()) }

func hostOf(host string) string {
	if len(host) > LongestHost {
		return rule.Unclear
	}
	return Host(host)
}

func canonicalHost(value, _ string) string { return Host(value) }

// Host returns the canonical form of a host with or without a port. The form is in lower case and
// has no trailing dot. An IPv6 address has the form of [netip.Addr], and a port has no leading zeros.
// Host drops the ports 80 and 443 for any scheme, because a gateway behind another proxy does not
// know which scheme the client used. Host allocates only if the host is not in canonical form.
func Host(host string) string {
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		if digits := strings.TrimLeft(host[i+1:], "0"); strings.Trim(digits, "0123456789") == "" {
			name, port = host[:i], digits
		}
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]") {
		if ip, err := netip.ParseAddr(name[1 : len(name)-1]); err == nil && ip.Is6() && ip.String() != name[1:len(name)-1] {
			name = "[" + ip.String() + "]"
		}
	}
	switch {
	case port == "" || port == "80" || port == "443":
		return name
	case len(name)+len(":")+len(port) == len(host) && host[:len(name)] == name:
		return host
	}
	return name + ":" + port
}
