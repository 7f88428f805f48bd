// SPDX-License-Identifier: MIT

package upstream

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"

	"github.com/diana-limiter/diana/rule"
)

// forward sets X-Forwarded-For, -Host and -Proto of a request to the upstream. It keeps the values of
// a peer that is a trusted proxy of the configuration. It removes those of any other peer, in every
// spelling, so that the upstream can believe these fields.
//
// The field Forwarded is always removed, because a trusted proxy that does not know this field would
// pass on a forged one.
func forward(pr *httputil.ProxyRequest, identity *rule.Identity) {
	if !trusts(identity, pr.In) {
		dropForwarded(pr.Out.Header)
		pr.SetXForwarded()
		return
	}
	pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	pr.SetXForwarded() // appends the peer to X-Forwarded-For
	for _, field := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := pr.In.Header[field]; len(values) > 0 {
			pr.Out.Header[field] = values
		}
	}
}

// dropForwarded removes the fields that say where a request came from. Many servers read an
// underscore as a hyphen, so it removes both spellings.
func dropForwarded(h http.Header) {
	for field := range h {
		if isForwarded(dashed(field)) {
			delete(h, field)
		}
	}
}

// isForwarded reports whether a field of this canonical name says where a request came from.
func isForwarded(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip"
}

// trusts reports whether the peer of a request is a trusted proxy.
func trusts(identity *rule.Identity, r *http.Request) bool {
	if len(identity.TrustedProxies) == 0 {
		return false
	}
	ip, ok := peer(r)
	if !ok {
		return false
	}
	for _, p := range identity.TrustedProxies {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

func peer(r *http.Request) (netip.Addr, bool) {
	p, err := netip.ParseAddrPort(r.RemoteAddr)
	return p.Addr().Unmap().WithZone(""), err == nil
}
