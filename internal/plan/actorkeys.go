// SPDX-License-Identifier: MIT

package plan

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/rule"
)

// ActorKeys returns the keys under which a rule may count the actor that texts name. The texts are
// one of
//
//	ann                          the value of the rule's only actor
//	account=ann ip=192.0.2.1     each actor of the rule, in any order
//	header:X-Account-Id=ann      the same, by one source of account
//	header:X-Account-Id=3:ann;   the key, as diana explain, the log and /status print it
//	all                          the only counter of a rule with actor: all
//
// An account or a device has several keys: one for each source of the identity, and that of the
// client's address if the value is one. The value of an actor that looks like a key needs its name
// in front, as in account=VALUE.
func ActorKeys(s *Set, r *Rule, texts []string) (keys []string, err error) {
	named, err := namedActors(s, r, texts)
	for _, a := range named {
		keys = append(keys, a.key)
	}
	return keys, err
}

// ExplainActor says how a rule would evaluate a request of the actor that texts name, as for [ActorKeys]: once for
// each key. A value that the key has only the hash of matches no exception. at is in microseconds since 1970.
func ExplainActor(s *Set, r *Rule, texts []string, at int64) ([]Explanation, error) {
	named, err := namedActors(s, r, texts)
	explained := make([]Explanation, len(named))
	for i, a := range named {
		explained[i] = Explanation{Rule: r, Key: a.key, Cost: s.CostOf(r, a.client.req)}
		if r.exceptions != nil {
			a.client.At = at
			_, value := appendKey(nil, r.who, a.client)
			explained[i].except(value, a.client)
		}
	}
	return explained, err
}

// WhoIs returns how an exception or an override of a rule names the actor that texts name, as for [ActorKeys].
// For a rule that counts several actors, or all, an address is expected.
func WhoIs(s *Set, r *Rule, texts []string) (rule.Who, error) {
	if len(texts) == 1 && len(r.who) == 0 { // actor all
		if ip, ok := parseAddress(texts[0]); ok {
			return whoAt(ip), nil
		}
	}
	named, err := namedActors(s, r, texts)
	if err != nil {
		return rule.Who{}, err
	}
	for _, a := range named {
		if ip := a.client.ip; ip.IsValid() {
			return whoAt(ip), nil
		}
	}
	if len(r.who) == 1 {
		if _, value := appendKey(nil, r.who, named[0].client); value != "" {
			who := rule.Who{Value: value}
			return who, who.Fits(r.Actor)
		}
	}
	return rule.Who{}, fmt.Errorf("actor %q: rule %q can except it by an address alone, expected one", strings.Join(texts, " "), r.Name)
}

// whoAt returns an address, or the /64 by which rules count IPv6.
func whoAt(ip netip.Addr) rule.Who {
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	return rule.Who{Network: netip.PrefixFrom(ip, bits).Masked()}
}

// namedActor is an actor under one key of a rule, and a client that is this actor.
type namedActor struct {
	key    string
	client *Client
}

// namedActors returns the actors of ActorKeys.
func namedActors(s *Set, r *Rule, texts []string) ([]namedActor, error) {
	n := &actorNamer{rule: r, identity: &s.identity, kinds: s.kinds}
	for _, a := range r.Actor {
		if a != rule.All {
			n.actors = append(n.actors, a)
		}
	}
	if len(n.actors) == 0 {
		if !slices.Equal(texts, []string{rule.All.String()}) {
			return nil, fmt.Errorf("rule %q counts all requests together, expected the actor %q", r.Name, rule.All)
		}
		return []namedActor{{"", n.client(nil, netip.Addr{})}}, nil
	}
	if len(texts) == 1 {
		if key := unquoted(texts[0]); n.isKey(key) {
			return []namedActor{{key, n.clientOf(key)}}, nil
		}
	}
	candidates, err := n.candidates(texts)
	if err != nil {
		return nil, err
	}
	return n.combined(candidates), nil
}

// actorNamer knows how clients are found that a rule counts.
type actorNamer struct {
	rule     *Rule
	actors   []rule.Actor // of the rule, without all
	identity *rule.Identity
	kinds    []rule.ActorKind
}

// candidate is one way in which a request can carry an actor: a value of a source, or an address.
type candidate struct {
	source, value string
	ip            netip.Addr // of the client, if source is empty
}

// candidates returns those of each actor of the rule.
func (n *actorNamer) candidates(texts []string) ([][]candidate, error) {
	of := make([][]candidate, len(n.actors))
	for _, text := range texts {
		i, sources, value := n.match(text)
		if i < 0 || value == "" {
			return nil, fmt.Errorf("actor %q: expected %s", text, n.expected())
		}
		if of[i] != nil {
			return nil, fmt.Errorf("actor %q: %s is given twice", text, n.actors[i])
		}
		of[i] = n.carriers(sources, value)
		if len(of[i]) == 0 {
			return nil, fmt.Errorf("actor %q: expected an IP address", text)
		}
	}
	if i := slices.IndexFunc(of, func(c []candidate) bool { return c == nil }); i >= 0 {
		return nil, fmt.Errorf("actor %s is missing, expected %s", n.actors[i], n.expected())
	}
	return of, nil
}

// match returns which actor of the rule a text names, the sources that may carry it, and its value.
// The index is negative if the text names none.
func (n *actorNamer) match(text string) (index int, sources []rule.Actor, value string) {
	name, value, _ := strings.Cut(text, "=")
	for i, a := range n.actors {
		if strings.EqualFold(name, a.String()) {
			return i, n.sources(a), value
		}
	}
	for i, a := range n.actors {
		for _, s := range n.sources(a) {
			if strings.EqualFold(name, s.String()) {
				return i, []rule.Actor{s}, value
			}
		}
	}
	if len(n.actors) == 1 {
		return 0, n.sources(n.actors[0]), text
	}
	return -1, nil, ""
}

// expected says how the actors of the rule are named.
func (n *actorNamer) expected() string {
	if len(n.actors) == 1 {
		return fmt.Sprintf("a value of %s, or a key as diana explain prints it", n.actors[0])
	}
	var each []string
	for _, a := range n.actors {
		each = append(each, a.String()+"=VALUE")
	}
	return strings.Join(each, " and ") + ", or a key as diana explain prints it"
}

// ipSource is the source that every actor ends in.
var ipSource = rule.Actor{Kind: "ip"}

// sources returns what an actor is found by, the client's address last.
func (n *actorNamer) sources(a rule.Actor) []rule.Actor {
	sources := []rule.Actor{a} // of account and device too: the program may know them
	switch a.Kind {
	case "ip":
		return sources
	case "account":
		sources = append(sources, n.identity.Account...)
	case "device":
		sources = append(sources, n.identity.Device...)
	}
	return append(slices.DeleteFunc(sources, func(s rule.Actor) bool { return s == ipSource }), ipSource)
}

// carriers returns how requests carry a value by these sources.
func (n *actorNamer) carriers(sources []rule.Actor, value string) (c []candidate) {
	for _, s := range sources {
		if s != ipSource {
			if v := n.canonical(s, value); v != "" {
				c = append(c, candidate{source: s.String(), value: v})
			}
		} else if ip, ok := parseAddress(value); ok {
			c = append(c, candidate{ip: ip})
		}
	}
	return c
}

// canonical returns a value as its source finds it in a request.
func (n *actorNamer) canonical(source rule.Actor, value string) string {
	for _, k := range n.kinds {
		if k.Kind == source.Kind && k.Canonical != nil {
			return k.Canonical(value, source.Name)
		}
	}
	return value
}

// parseAddress reads an address, or a network such as the /64 by which rules count IPv6.
func parseAddress(text string) (netip.Addr, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr(), true
	}
	ip, err := netip.ParseAddr(text)
	return ip.Unmap().WithZone(""), err == nil
}

// client returns a client whose requests carry these actors.
func (n *actorNamer) client(actors map[string]string, ip netip.Addr) *Client {
	return &Client{req: &rule.Request{Actors: actors}, identity: n.identity, ip: ip, known: true}
}

// clientOf returns the client of a whole key, as far as the key has its values.
func (n *actorNamer) clientOf(key string) *Client {
	actors, ip := map[string]string{}, netip.Addr{}
	for key != "" {
		source, rest, ok := cutKey(key)
		if !ok {
			break
		}
		value := strings.TrimSuffix(strings.TrimPrefix(key[:len(key)-len(rest)], source+"="), ";")
		if key = rest; source == ipSource.Kind {
			ip, _ = parseAddress(value)
		} else if _, text, ok := strings.Cut(value, ":"); ok && !strings.HasPrefix(value, hashed) {
			actors[source] = text
		}
	}
	return n.client(actors, ip)
}

// combined returns the actors of all combinations of candidates. The rule itself makes each key, of a
// request that carries the actors.
func (n *actorNamer) combined(of [][]candidate) (named []namedActor) {
	var combine func(of [][]candidate, actors map[string]string, ip netip.Addr)
	combine = func(of [][]candidate, actors map[string]string, ip netip.Addr) {
		if len(of) == 0 {
			client := n.client(actors, ip)
			key, _ := appendKey(nil, n.rule.who, client)
			if !slices.ContainsFunc(named, func(a namedActor) bool { return a.key == string(key) }) {
				named = append(named, namedActor{string(key), client})
			}
			return
		}
		for _, c := range of[0] {
			if c.source == "" {
				if !ip.IsValid() || ip == c.ip { // a request has one address
					combine(of[1:], actors, c.ip)
				}
				continue
			}
			with := map[string]string{c.source: c.value}
			for source, value := range actors {
				with[source] = value
			}
			combine(of[1:], with, ip)
		}
	}
	combine(of, nil, netip.Addr{})
	return named
}

// isKey reports whether a text is a whole key of the rule: for each actor a source and a value.
func (n *actorNamer) isKey(text string) bool {
	for _, a := range n.actors {
		source, rest, ok := cutKey(text)
		if !ok || !slices.ContainsFunc(n.sources(a), func(s rule.Actor) bool { return s.String() == source }) {
			return false
		}
		text = rest
	}
	return text == ""
}

// cutKey returns the source of a key's first part, and the parts behind it.
func cutKey(key string) (source, rest string, ok bool) {
	source, rest, ok = strings.Cut(key, "=")
	if !ok {
		return "", "", false
	}
	if source == "ip" {
		_, rest, ok = strings.Cut(rest, ";")
		return source, rest, ok
	}
	if digest, ok := strings.CutPrefix(rest, hashed); ok {
		digest, rest, ok = strings.Cut(digest, ";")
		sum, err := hex.DecodeString(digest)
		return source, rest, ok && err == nil && len(sum) == 32
	}
	length, rest, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || len(rest) <= n || rest[n] != ';' {
		return "", "", false
	}
	return source, rest[n+1:], true
}

// unquoted returns the key of a text that ActorText has quoted.
func unquoted(text string) string {
	if strings.HasPrefix(text, `"`) {
		if key, err := strconv.Unquote(text); err == nil {
			return key
		}
	}
	return text
}
