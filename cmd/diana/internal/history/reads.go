// SPDX-License-Identifier: MIT

package history

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// reads is what a configuration reads of a request.
type reads struct {
	id      uint64
	config  *config.Config
	set     *plan.Set
	sources []actorSource // of actors
	costs   []costSource
	headers []string // that name no client: classes, and methods

	client   *plan.Rule      // by whose actors shares of the clients are chosen; nil: by address
	named    map[string]bool // values that the configuration shows
	networks []netip.Prefix  // that the configuration names, the longest first
}

// actorSource finds one part of the identity of a client.
type actorSource struct {
	text string // of the actor
	name string
	find func(*http.Request, string) string // nil: only the program can name it
}

// costSource is a name in rule.Request.Costs, with a rule that reads it.
type costSource struct {
	name string
	rule *plan.Rule
}

func newReads(c *config.Config, v config.Vocabulary) *reads {
	r := &reads{config: c, named: map[string]bool{}}
	var err error
	if r.set, err = plan.Compile(c.Limits, c.Identity, c.Paths, v.Actors); err != nil {
		panic(err) // the configuration is in force
	}
	actors := slices.Concat([]rule.Actor{{Kind: "account"}, {Kind: "device"}}, c.Identity.Account, c.Identity.Device)
	uses := map[string]int{}
	for _, p := range r.set.Rules {
		actors = append(actors, p.Actor...)
		if !p.CountsAll() {
			text := p.ActorText()
			if uses[text]++; r.client == nil || uses[text] > uses[r.client.ActorText()] ||
				uses[text] == uses[r.client.ActorText()] && r.client.ActorText() == "ip" { // many clients can share an address
				r.client = p
			}
		}
		r.addCost(p, p.Cost.Header)
		r.addCost(p, p.Cost.Reserve)
		if p.Cost.Reservation != nil {
			r.addCost(p, p.ReservationKey())
		}
		r.addHeader(p.Class.Name)
		r.addHeader(p.Priority.Name)
		r.addNames(p, v)
		if p.URL.Method != "" {
			for _, name := range plan.MethodOverrides {
				r.addHeader(name)
			}
		}
	}
	for _, a := range actors {
		r.addSource(a, v)
	}
	for _, p := range c.Identity.TrustedProxies {
		r.addNetwork(p)
	}
	slices.SortFunc(r.networks, func(a, b netip.Prefix) int { return b.Bits() - a.Bits() })
	return r
}

func (r *reads) addSource(a rule.Actor, v config.Vocabulary) {
	if a.Kind == "ip" || a == rule.All || slices.ContainsFunc(r.sources, func(s actorSource) bool { return s.text == a.String() }) {
		return
	}
	s := actorSource{text: a.String(), name: a.Name}
	if a.Kind == "header" {
		s.name = http.CanonicalHeaderKey(a.Name)
	}
	for _, k := range v.Actors {
		if k.Kind == a.Kind {
			s.find = k.Find
		}
	}
	r.sources = append(r.sources, s)
}

func (r *reads) addCost(p *plan.Rule, name string) {
	if name != "" && !slices.ContainsFunc(r.costs, func(c costSource) bool { return c.name == name }) {
		r.costs = append(r.costs, costSource{name, p})
	}
}

func (r *reads) addHeader(name string) {
	if name != "" && !slices.Contains(r.headers, name) {
		r.headers = append(r.headers, name)
	}
}

// addNames adds the clients that a rule names.
func (r *reads) addNames(p *plan.Rule, v config.Vocabulary) {
	names := slices.Clone(p.Except)
	for _, o := range p.Overrides {
		names = append(names, o.Who)
	}
	for _, w := range names {
		if w.Network.IsValid() {
			r.addNetwork(w.Canonical().Network)
			continue
		}
		r.named[w.Value] = true
		for _, k := range v.Actors {
			if k.Canonical != nil {
				r.named[k.Canonical(w.Value, "")] = true
			}
		}
	}
}

// addNetwork adds a network, and the /64 around one that is smaller, because rules count by that.
func (r *reads) addNetwork(p netip.Prefix) {
	for _, n := range []netip.Prefix{p, netip.PrefixFrom(p.Addr(), min(p.Bits(), 64)).Masked()} {
		if (n == p || p.Addr().Is6()) && !slices.Contains(r.networks, n) {
			r.networks = append(r.networks, n)
		}
	}
}

// smallest returns the smallest named network with an address; its zero value if there is none.
func (r *reads) smallest(ip netip.Addr) netip.Prefix {
	for _, n := range r.networks {
		if n.Contains(ip) {
			return n
		}
	}
	return netip.Prefix{}
}

// appendClient appends the actor by which shares of the clients are chosen.
func (r *reads) appendClient(key []byte, client *plan.Client) []byte {
	if r.client != nil {
		key, _ = r.client.AppendKey(key, client)
		return key
	}
	return client.IP().AppendTo(key)
}

// keyOf returns the key of the actor by which shares of the clients are chosen, if d has it at hand.
func (r *reads) keyOf(d *diana.Decision) (key []byte, ok bool) {
	if r.client == nil {
		return nil, false
	}
	return d.Key(r.client.Name)
}

// value returns the part of the identity in a request; "" if there is none.
func (s *actorSource) value(r *rule.Request) string {
	if len(r.Actors) > 0 {
		if v := r.Actors[s.text]; v != "" {
			return v
		}
	}
	if r.HTTP == nil || s.find == nil {
		return ""
	}
	return s.find(r.HTTP, s.name)
}
