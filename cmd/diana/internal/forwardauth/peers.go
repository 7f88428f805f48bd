// SPDX-License-Identifier: MIT

package forwardauth

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// peers says which addresses may ask: the proxies that the configuration trusts, and this machine.
type peers struct {
	config func() *config.Config
	latest atomic.Pointer[trusted]
}

// trusted is the identity of a configuration, with this machine among its trusted proxies.
type trusted struct {
	config   *config.Config
	identity rule.Identity
}

var thisMachine = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// identity returns the identity of the configuration in force, with this machine among its trusted
// proxies.
func (p *peers) identity() *rule.Identity {
	c := p.config()
	t := p.latest.Load()
	if t == nil || t.config != c {
		t = &trusted{c, c.Identity}
		t.identity.TrustedProxies = slices.Concat(c.Identity.TrustedProxies, thisMachine)
		p.latest.Store(t)
	}
	return &t.identity
}

// trusts reports whether a peer may ask.
func trusts(identity *rule.Identity, peer string) bool {
	at, err := netip.ParseAddrPort(peer)
	return err == nil && slices.ContainsFunc(identity.TrustedProxies, func(p netip.Prefix) bool {
		return p.Contains(at.Addr().Unmap().WithZone(""))
	})
}
