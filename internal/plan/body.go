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
	actors  []string            // JSON pointers
	reserve string              // a JSON pointer; empty: none
	costs   []string            // more JSON pointers that the cost needs
	demand  *requestbody.Demand // nil: none
	rule    *Rule               // whose reservation is by the whole body; nil: none
	anyBody bool                // nothing depends on what is read
}

// bodyNeedsOf returns the needs of a rule with these chains, or nil if it has none. The rule is nil for a bandwidth.
func bodyNeedsOf(who []chain, r *Rule) *bodyNeeds {
	n := bodyNeeds{}
	for _, chain := range who {
		for _, s := range chain {
			if pointer, ok := strings.CutPrefix(s.text, ofBody); ok && s.find == nil {
				n.actors = append(n.actors, pointer)
			}
		}
	}
	if r != nil && r.Cost.Answer != "" {
		n.addCost(r)
	}
	n.anyBody = r != nil && r.Cost.AnyBody && len(n.actors) == 0 && n.reserve == "" && n.rule == nil
	if len(n.actors)+len(n.costs) == 0 && n.reserve == "" && n.rule == nil {
		return nil
	}
	found := n // so that only what is returned is allocated
	return &found
}

// addCost adds what the cost of a rule reads.
func (n *bodyNeeds) addCost(r *Rule) {
	c := &r.Cost
	n.reserve = strings.TrimPrefix(c.Reserve, ofBody)
	if c.IncludeUsage {
		n.costs = append(n.costs, requestbody.UsagePointers...)
	}
	d := requestbody.Demand{Format: c.Answer}
	if w := c.Weights; w != nil && w.By != "" {
		model := strings.TrimPrefix(w.By, ofBody)
		n.actors = append(n.actors, model)
		if n.demand = &d; !w.Dearest {
			d.Model, d.Priced = model, r.prices.has
		}
	}
	if v := c.Reservation; v != nil {
		names, times := requestbody.Names(c.Answer)
		if d.Names, d.Auto = v.Output, v.Auto; v.Auto {
			d.Names = names
		}
		d.Or = max(v.Or, 1)
		d.Set, d.Strict, d.Most = v.Set, v.Strict, max(v.Most, d.Or)
		n.costs, n.demand, n.rule = slices.Concat(n.costs, d.Names, times), &d, r
	}
}

// ReadsBody reports whether the rule needs the body of a request.
func (r *Rule) ReadsBody() bool { return r.body != nil }

// BodyReading is what the rules and bandwidths of a request read from its body.
type BodyReading struct {
	requestbody.Query         // without Pointers: they read nothing
	Enforced          bool    // one of them must be able to read it: not all are rules in shadow mode
	reserve           []*Rule // whose reservations are by the whole body
}

// BodyReading returns what the rules and bandwidths of a Match read from the body of a request. It leaves out
// what the program has given, and the rules that except the client by its address.
func (s *Set) BodyReading(m *Match, client *Client) (b BodyReading) {
	if !s.ReadsBodies {
		return b
	}
	b.Optional = true
	for _, r := range m.Rules {
		if r.body == nil || r.exceptions != nil && r.exceptions.except.find("", client) >= 0 {
			continue
		}
		n := len(b.Pointers)
		b.add(r.body, client.req)
		if !r.Shadow && len(b.Pointers) > n {
			b.Enforced, b.Optional = true, b.Optional && r.body.anyBody
		}
		if d := r.body.demand; d != nil && !r.Shadow {
			b.Demands = append(b.Demands, *d)
		}
	}
	for _, w := range m.Bandwidths {
		if w.body != nil {
			b.add(w.body, client.req)
			b.Enforced, b.Optional = true, false
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
	b.Pointers = append(b.Pointers, n.costs...)
	if n.rule != nil {
		b.reserve = append(b.reserve, n.rule)
	}
}

// Complete adds to a request what its body says. It changes no value that the program has given.
func (b *BodyReading) Complete(req *rule.Request, body *requestbody.Reading) {
	if len(body.Values) == 0 {
		return
	}
	actors, costs := maps.Clone(req.Actors), maps.Clone(req.Costs)
	if actors == nil {
		actors = map[string]string{}
	}
	if costs == nil {
		costs = map[string]int64{}
	}
	for i, v := range body.Values {
		text := ofBody + b.Pointers[i]
		if actors[text] == "" && v.Actor != "" {
			actors[text] = v.Actor
		}
		if _, given := costs[text]; !given && v.Count > 0 {
			costs[text] = v.Count
		}
	}
	req.Actors, req.Costs = actors, costs
	for _, r := range b.reserve {
		if _, given := costs[r.ReservationKey()]; !given {
			costs[r.ReservationKey()], costs[r.inputKey()] = r.reservation(req, body)
		}
	}
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
	read, err := requestbody.Read(body, &reading.Query)
	reading.Complete(req, &read)
	return err
}

// checkReserve returns an error if the reservation of a cost cannot be read.
func checkReserve(c rule.Cost) error {
	if c.Reserve != "" && !strings.HasPrefix(c.Reserve, ofBody+"/") {
		return fmt.Errorf("cost: reserve is %q, expected body: and a JSON pointer such as body:/max_tokens", c.Reserve)
	}
	return nil
}
