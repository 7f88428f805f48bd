// SPDX-License-Identifier: MIT

package plan

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/requestbody"
	"github.com/diana-limiter/diana/rule"
)

// ReservationKey is the key in rule.Request.Costs of what a request reserves under the rule by its whole body.
func (r *Rule) ReservationKey() string { return "reserve:" + r.Name }

// inputKey is the key of the part of a reservation that is for the input.
func (r *Rule) inputKey() string { return "input:" + r.Name }

// reservation returns what a request with a body reserves under the rule, and the part of the input. Both are weighted.
func (r *Rule) reservation(req *rule.Request, body *requestbody.Reading) (all, input int64) {
	v, d := r.Cost.Reservation, r.body.demand
	output := int64(0)
	for _, name := range d.Names {
		output = max(output, req.Costs[ofBody+name])
	}
	if output == 0 {
		output = d.Or
	}
	_, times := requestbody.Names(r.Cost.Answer)
	for _, pointer := range times {
		output = multiply(output, req.Costs[ofBody+pointer])
	}
	output = multiply(output, body.Prompts)
	tokens := int64(0)
	switch v.Input {
	case "estimate":
		tokens = (int64(body.Size) + 3) / 4
	case "bytes":
		tokens = int64(body.Size)*max(v.Expand, 1) + v.Add
	}
	return r.weigh(req, output, tokens)
}

// weigh returns what tokens of output and input reserve, and the part of the input.
func (r *Rule) weigh(req *rule.Request, output, tokens int64) (all, input int64) {
	w := r.prices.of(req).upTo(tokens)
	var of, both sum
	of.add(tokens, w.in())
	of.add(1, w.request)
	both = of
	both.add(output, w.output)
	return max(both.total(), r.Cost.Reservation.Min, 1), of.total()
}

// multiply returns a product, at most bounds.MaxSettled. A factor of 0 was not given.
func multiply(n, times int64) int64 {
	if times <= 1 {
		return n
	}
	if n > math.MaxInt64/times {
		return bounds.MaxSettled
	}
	return min(n*times, bounds.MaxSettled)
}

// reserved returns the reservation of a request whose rule reserves by the whole body.
func (r *Rule) reserved(req *rule.Request) int64 {
	n, ok := req.Costs[r.ReservationKey()]
	if !ok { // there is no body
		n, _ = r.weigh(req, max(r.Cost.Reservation.Or, 1), 0)
	}
	return min(max(n, 1), bounds.MaxSettled)
}

// CostOfUnknown returns the least cost of a response that does not say what it has cost. That is the input as it was
// reserved, and so many bytes of text.
func (r *Rule) CostOfUnknown(req *rule.Request, content int64) int64 {
	if !r.Source().HasParts() {
		return 0
	}
	w := r.prices.of(req).weights
	if r.Cost.Reservation != nil {
		w = r.prices.of(req).upTo(req.Costs[r.inputKey()])
	}
	var s sum
	s.add(content, w.output)
	return min(s.total()+req.Costs[r.inputKey()], bounds.MaxSettled)
}

// ChangesBody reports whether the rule may change the body of a request.
func (r *Rule) ChangesBody() bool {
	return r != nil && !r.Shadow && (r.Cost.IncludeUsage || r.Cost.Reservation != nil && r.Cost.Reservation.Set)
}

// ChangeBody returns the body of a request as rules want it, and whether it now asks for a usage that the client has
// not asked for.
func ChangeBody(rules []*Rule, body []byte) (changed []byte, usage bool) {
	var set []*requestbody.Demand
	for _, r := range rules {
		if !r.ChangesBody() {
			continue
		}
		usage = usage || r.Cost.IncludeUsage
		if d := r.body.demand; d != nil && d.Set {
			set = append(set, d)
		}
	}
	// The smallest number first, because another rule then finds it, and has reserved at least as much.
	slices.SortStableFunc(set, func(a, b *requestbody.Demand) int { return cmp.Compare(a.Or, b.Or) })
	for _, d := range set {
		body = requestbody.SetMost(body, d)
	}
	if !usage {
		return body, false
	}
	changed = requestbody.IncludeUsage(body)
	return changed, !bytes.Equal(changed, body)
}

// Free reports whether a response with that status costs nothing under the rule, unless it names a usage. 101 is no
// failure, because the connection stays open.
func (r *Rule) Free(status int) bool {
	return status >= 300 && r.Source().InBody() && len(r.Charge) == 0 && !r.ChargeAll
}
