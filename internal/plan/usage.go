// SPDX-License-Identifier: MIT

package plan

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/rule"
)

// weights are what tokens cost, in millionths, so that a sum is exact.
type weights struct{ input, output, cached, write, writeHour, request uint64 }

const millionths = 1_000_000

func newWeights(w *rule.Weights) weights {
	exact := func(w float64) uint64 { return uint64(w*millionths + 0.5) }
	all := weights{exact(w.Input), exact(w.Output), exact(w.Cached), exact(w.CacheWrite), exact(w.CacheWrite1h), exact(w.Request)}
	if all.write == 0 {
		all.write = all.input
	}
	if all.writeHour == 0 {
		all.writeHour = all.write
	}
	return all
}

// dearest returns the larger weight of each kind.
func (w weights) dearest(v weights) weights {
	return weights{
		max(w.input, v.input), max(w.output, v.output), max(w.cached, v.cached),
		max(w.write, v.write), max(w.writeHour, v.writeHour), max(w.request, v.request),
	}
}

// in returns the dearest weight of a token of the request.
func (w *weights) in() uint64 { return max(w.input, w.cached, w.write, w.writeHour) }

// price is what the tokens of a model cost.
type price struct {
	weights
	above []above // ascending
}

// above are the weights of requests with more tokens of input.
type above struct {
	tokens int64
	weights
}

func newPrice(w *rule.Weights) price {
	p := price{weights: newWeights(w)}
	for i := range w.Above {
		p.above = append(p.above, above{w.Above[i].Tokens, newWeights(&w.Above[i])})
	}
	return p
}

// of returns the weights of a request with so many tokens of input.
func (p *price) of(input int64) weights {
	w := p.weights
	for i := range p.above {
		if input > p.above[i].tokens {
			w = p.above[i].weights
		}
	}
	return w
}

// upTo returns the dearest weights of a request with at most so many tokens of input.
func (p *price) upTo(input int64) weights {
	w := p.weights
	for i := range p.above {
		if input > p.above[i].tokens {
			w = w.dearest(p.above[i].weights)
		}
	}
	return w
}

// prices are those of a rule, by the model.
type prices struct {
	by     string // in rule.Request.Actors; empty: one price for all
	models []model
	other  price // of other models: the dearest
}

// model is a model with its price, or all whose names begin with a text.
type model struct {
	name   string
	prefix bool
	price
}

// unweighted are the prices of most rules.
var unweighted = &prices{other: price{weights: weights{millionths, millionths, millionths, millionths, millionths, 0}}}

func newPrices(c *rule.Cost) *prices {
	if c.Weights == nil {
		return unweighted
	}
	if c.Weights.By == "" {
		return &prices{other: newPrice(c.Weights)}
	}
	p := &prices{by: c.Weights.By}
	for text, w := range c.Weights.Models {
		name, prefix := strings.CutSuffix(text, "*")
		p.models = append(p.models, model{name, prefix, newPrice(&w)})
	}
	slices.SortFunc(p.models, func(a, b model) int { // the first that fits counts
		if a.prefix != b.prefix {
			return map[bool]int{true: 1, false: -1}[a.prefix]
		}
		return len(b.name) - len(a.name)
	})
	for i := range p.models {
		p.other = p.other.dearest(&p.models[i].price)
	}
	return p
}

// dearest returns a price that is nowhere below two others.
func (p *price) dearest(q *price) price {
	d := price{weights: p.weights.dearest(q.weights)}
	for _, a := range slices.Concat(p.above, q.above) {
		d.above = append(d.above, above{a.tokens, p.upTo(a.tokens + 1).dearest(q.upTo(a.tokens + 1))})
	}
	slices.SortFunc(d.above, func(a, b above) int { return cmp.Compare(a.tokens, b.tokens) })
	return d
}

// has reports whether a model has a price.
func (p *prices) has(name string) bool { return p.find(name) != nil }

func (p *prices) find(name string) *price {
	for i := range p.models {
		if m := &p.models[i]; name == m.name && !m.prefix || m.prefix && strings.HasPrefix(name, m.name) {
			return &m.price
		}
	}
	return nil
}

// of returns the price of the model that a request names.
func (p *prices) of(req *rule.Request) *price {
	if p.by != "" {
		if of := p.find(req.Actors[p.by]); of != nil {
			return of
		}
	}
	return &p.other
}

// CostOfUsage returns the cost of the response to a request under the rule, rounded up, and at most
// bounds.MaxSettled.
func (r *Rule) CostOfUsage(req *rule.Request, u answer.Usage) int64 {
	if !r.Source().HasParts() {
		return min(u.Output, bounds.MaxSettled)
	}
	if u == (answer.Usage{}) {
		return 0
	}
	input := min(u.Input+u.Cached+u.CacheWrite+u.CacheWrite1h, bounds.MaxSettled)
	w := r.prices.of(req).of(input)
	var s sum
	s.add(u.Input, w.input)
	s.add(u.Output, w.output)
	s.add(u.Cached, w.cached)
	s.add(u.CacheWrite, w.write)
	s.add(u.CacheWrite1h, w.writeHour)
	s.add(1, w.request)
	return s.total()
}

// sum is an exact sum in millionths.
type sum struct{ high, low uint64 }

func (s *sum) add(n int64, weight uint64) {
	h, l := bits.Mul64(uint64(max(n, 0)), weight)
	var carry uint64
	s.low, carry = bits.Add64(s.low, l, 0)
	s.high += h + carry
}

// total returns the sum, rounded up.
func (s *sum) total() int64 {
	low, carry := bits.Add64(s.low, millionths-1, 0)
	high := s.high + carry
	if high >= millionths {
		return bounds.MaxSettled
	}
	n, _ := bits.Div64(high, low, millionths)
	return int64(min(n, bounds.MaxSettled))
}
