// SPDX-License-Identifier: MIT

package main

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"

	"github.com/diana-limiter/diana/rule"
)

// forward sets X-Forwarded-For, -Host and -Proto of a request to the upstream. What
// the peer says about where the request came from is believed, and passed on, if it
// is a trusted proxy of the configuration. From anyone else it is dropped, in every
// spelling, so that an upstream can believe what it reads.
//
// The field Forwarded is always dropped: a proxy that does not know of it would pass
// on what a client has forged.
func forward(pr *httputil.ProxyRequest, identity *rule.Identity) {
	if !trusts(identity, pr.In) {
		dropForwarded(pr.Out.Header)
		pr.SetXForwarded()
		return
	}
	pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	pr.SetXForwarded() // appends the peer to X-Forwarded-For
	for _, field := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if said := pr.In.Header[field]; len(said) > 0 {
			pr.Out.Header[field] = said
		}
	}
}

// dropForwarded removes what tells where a request came from. Many servers read an
// underscore as a hyphen, so names are compared that way.
func dropForwarded(h http.Header) {
	for field := range h {
		if saysWhence(http.CanonicalHeaderKey(strings.ReplaceAll(field, "_", "-"))) {
			delete(h, field)
		}
	}
}

// saysWhence reports whether a field of this canonical name tells where a request came from.
func saysWhence(name string) bool {
	return strings.HasPrefix(name, "X-Forwarded-") || name == "Forwarded" || name == "X-Real-Ip"
}

// trusts reports whether the request's peer is a trusted proxy.
func trusts(identity *rule.Identity, r *http.Request) bool {
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
