// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/requestbody"
	"github.com/diana-limiter/diana/rule"
)

// ofBody is the beginning of the text of what a request's body has at a JSON pointer, as an actor and as a
// reservation.
const ofBody = "body:"

// bodyNeeds are what a rule or a bandwidth reads from the body of a request.
type bodyNeeds struct {
	actors  []string // JSON pointers
	reserve string   // a JSON pointer; empty: none
	usage   bool     // the body gets a request for the usage
}

// bodyNeedsOf returns the needs of a rule with these chains and this cost, or nil if it has none.
func bodyNeedsOf(who []chain, c rule.Cost) *bodyNeeds {
	n := bodyNeeds{reserve: strings.TrimPrefix(c.Reserve, ofBody), usage: c.IncludeUsage}
	for _, chain := range who {
		for _, s := range chain {
			if pointer, ok := strings.CutPrefix(s.text, ofBody); ok && s.find == nil {
				n.actors = append(n.actors, pointer)
			}
		}
	}
	if len(n.actors) == 0 && n.reserve == "" && !n.usage {
		return nil
	}
	return &n
}

// ReadsBody reports whether the rule needs the body of a request.
func (r *Rule) ReadsBody() bool { return r.body != nil }

// BodyReading is what the rules and bandwidths of a request read from its body.
type BodyReading struct {
	Pointers []string // JSON pointers, each once; empty: they read nothing
	Enforced bool     // one of them must be able to read it: not all are rules in shadow mode
}

// BodyReading returns what the rules and bandwidths of a Match read from the body of a request. It leaves out
// what the program has given, and the rules that except the client by its address.
func (s *Set) BodyReading(m *Match, client *Client) (b BodyReading) {
	if !s.ReadsBodies {
		return b
	}
	for _, r := range m.Rules {
		if r.body == nil || r.exceptions != nil && r.exceptions.except.find("", client) >= 0 {
			continue
		}
		n := len(b.Pointers)
		b.add(r.body, client.req)
		b.Enforced = b.Enforced || !r.Shadow && len(b.Pointers) > n
	}
	for _, w := range m.Bandwidths {
		if w.body != nil {
			b.add(w.body, client.req)
			b.Enforced = true
		}
	}
	slices.Sort(b.Pointers)
	b.Pointers = slices.Compact(b.Pointers)
	return b
}

// add adds what of the needs is not given by the program.
func (b *BodyReading) add(n *bodyNeeds, req *rule.Request) {
	for _, pointer := range n.actors {
		if req.Actors[ofBody+pointer] == "" {
			b.Pointers = append(b.Pointers, pointer)
		}
	}
	if _, given := req.Costs[ofBody+n.reserve]; n.reserve != "" && !given {
		b.Pointers = append(b.Pointers, n.reserve)
	}
	if n.usage {
		b.Pointers = append(b.Pointers, requestbody.UsagePointers...)
	}
}

// Complete adds to a request the values that its body has at the Pointers. It changes no value that the program has given.
func (b *BodyReading) Complete(req *rule.Request, values []requestbody.Value) {
	if len(values) == 0 {
		return
	}
	actors, costs := maps.Clone(req.Actors), maps.Clone(req.Costs)
	if actors == nil {
		actors = map[string]string{}
	}
	if costs == nil {
		costs = map[string]int64{}
	}
	for i, v := range values {
		text := ofBody + b.Pointers[i]
		if actors[text] == "" && v.Actor != "" {
			actors[text] = v.Actor
		}
		if _, given := costs[text]; !given && v.Count > 0 {
			costs[text] = v.Count
		}
	}
	req.Actors, req.Costs = actors, costs
}

// WithBody adds to a request what its rules read from this body. An empty body has nothing. The error says
// why the body cannot be read.
func (s *Set) WithBody(req *rule.Request, body []byte) error {
	var m Match
	if found := s.Find(&m, req) == nil; !found || len(body) == 0 { // Explain returns the error of a path
		return nil
	}
	client := s.Client(req)
	reading := s.BodyReading(&m, &client)
	if len(reading.Pointers) == 0 {
		return nil
	}
	values, err := requestbody.Read(body, reading.Pointers)
	reading.Complete(req, values)
	return err
}

// checkReserve returns an error if the reservation of a cost cannot be read.
func checkReserve(c rule.Cost) error {
	if c.Reserve != "" && !strings.HasPrefix(c.Reserve, ofBody+"/") {
		return fmt.Errorf("cost: reserve is %q, expected body: and a JSON pointer such as body:/max_tokens", c.Reserve)
	}
	return nil
}
