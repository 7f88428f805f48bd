// SPDX-License-Identifier: MIT

package history

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// reads is what a configuration reads of a request.
type reads struct {
	id      uint64
	config  *config.Config
	rules   int           // of the configuration
	set     *plan.Set     // of the entries that the ring needs
	sources []actorSource // of actors
	costs   []costSource
	headers []string // of classes, priorities and methods

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

func newReads(c *config.Config, v config.Vocabulary) (*reads, error) {
	r := &reads{config: c, named: map[string]bool{}}
	actors := slices.Concat([]rule.Actor{{Kind: "account"}, {Kind: "device"}}, c.Identity.Account, c.Identity.Device)
	known := map[rule.Actor]bool{}
	uses := map[string]int{}
	client, chosen := "", [2]int{-1} // whose actors choose: their text, and the entry and the number of the first such rule
	for i := range c.Limits {
		r.rules += len(c.Limits[i].Rules)
		for j := range c.Limits[i].Rules {
			p := &c.Limits[i].Rules[j]
			for _, a := range p.Actor {
				if !known[a] {
					known[a] = true
					actors = append(actors, a)
				}
			}
			r.addNames(p, v)
			if plan.CountsAll(p) {
				continue
			}
			// The replay of a rule is exact if its actor chooses the share, because the ring then has all requests
			// of a client or none. So the actor of most rules chooses.
			text := p.ActorText()
			if uses[text]++; chosen[0] < 0 || uses[text] > uses[client] || uses[text] == uses[client] && client == "ip" { // many clients can share an address
				client, chosen = text, [2]int{i, j}
			}
		}
	}
	if err := r.compile(chosen, v); err != nil {
		return nil, err
	}
	for _, p := range r.set.Rules {
		r.addCost(p, p.Cost.Header)
		r.addCost(p, p.Cost.Reserve)
		if p.Cost.Reservation != nil {
			r.addCost(p, p.ReservationKey())
		}
	}
	for name, chooses := range plan.Headers(c.Limits, &c.Identity) {
		if chooses {
			r.headers = append(r.headers, name)
		}
	}
	for _, a := range actors {
		r.addSource(a, v)
	}
	for _, p := range c.Identity.TrustedProxies {
		r.addNetwork(p)
	}
	slices.SortFunc(r.networks, func(a, b netip.Prefix) int { return b.Bits() - a.Bits() })
	return r, nil
}

// compile compiles the entries that the ring needs: those whose costs requests name, and the one with the rule that
// chooses shares. The ring keeps it, so it must be small where the configuration is large.
func (r *reads) compile(chosen [2]int, v config.Vocabulary) (err error) {
	var needed []rule.Entry
	client := -1
	n := 0 // rules of needed
	for i, e := range r.config.Limits {
		if i == chosen[0] {
			client = n + chosen[1]
		} else if !slices.ContainsFunc(e.Rules, namesCost) {
			continue
		}
		needed = append(needed, e)
		n += len(e.Rules)
	}
	if r.set, err = plan.Compile(needed, r.config.Identity, r.config.Paths, v.Actors); err != nil {
		return err
	}
	for i, name := range names.RulesOf(needed, r.config.Limits) { // a made name depends on all entries
		r.set.Rules[i].Name = name
	}
	if client >= 0 {
		r.client = r.set.Rules[client]
	}
	return nil
}

// namesCost reports whether requests name the cost of a rule.
func namesCost(r rule.Rule) bool {
	return r.Cost.Header != "" || r.Cost.Reserve != "" || r.Cost.Reservation != nil
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

// addNames adds the clients that a rule names.
func (r *reads) addNames(p *rule.Rule, v config.Vocabulary) {
	clients := slices.Clone(p.Except)
	for _, o := range p.Overrides {
		clients = append(clients, o.Who)
	}
	for _, w := range clients {
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
