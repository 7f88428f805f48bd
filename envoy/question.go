// SPDX-License-Identifier: MIT

package envoy

import (
	"math"
	"net/http"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/descriptors"
	algorithms "github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// question is a request while it is decided. Its memory is used again for others.
type question struct {
	items    []item // by descriptor
	charges  []rule.Charge
	apart    []bool              // by charge: it is under a limit per second, see take
	entries  []descriptors.Entry // memory for those of one descriptor
	key      []byte              // memory for the key of one descriptor
	replaced map[string]bool     // names of limits that do not count
	header   http.Header         // memory for the fields of the response
}

// item is what a question has for one descriptor.
type item struct {
	limit  *limit // nil: there is none
	charge int    // index in charges; -1: none
	hits   int64  // of this descriptor alone
}

// ask finds the limits of a request and makes its charges.
func (q *question) ask(s *RateLimit, a *active, r *rls.RateLimitRequest) error {
	q.items, q.charges = q.items[:0], q.charges[:0]
	clear(q.replaced)
	for i, d := range r.GetDescriptors() {
		l, err := q.find(s, a, r.GetDomain(), d)
		if err != nil {
			return ofDescriptor(i, err)
		}
		it := item{limit: l, charge: -1}
		if l != nil && (l.Limit == nil || !l.Unlimited) {
			it.charge = len(q.charges)
			c := rule.Charge{Rule: l.rule, Key: string(q.key), Debit: s.options.ChargeAll || l.Limit != nil && l.Debit}
			if c.Cost, err = hits(r, d); err != nil {
				return ofDescriptor(i, err)
			}
			it.hits = c.Cost
			if l.Limit != nil && l.Rule.Algorithm.Name() != "W" { // the others' arithmetic has a bound
				c.Cost = min(max(c.Cost, -bounds.MaxN), bounds.MaxN)
			}
			q.charges = append(q.charges, c)
		}
		q.items = append(q.items, it)
	}
	q.replace()
	q.merge()
	return nil
}

// ofDescriptor puts the place of a descriptor before the message of a gRPC error.
func ofDescriptor(i int, err error) error {
	s := status.Convert(err)
	return status.Errorf(s.Code(), "descriptors[%d].%s", i, s.Message())
}

// find returns the limit of a descriptor, or nil, and sets q.key to the key of its counter.
func (q *question) find(s *RateLimit, a *active, domain string, d *common.RateLimitDescriptor) (*limit, error) {
	q.entries = q.entries[:0]
	for _, e := range d.GetEntries() {
		q.entries = append(q.entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	if own := d.GetLimit(); own != nil && a.tree.Has(domain) {
		q.key = descriptors.AppendKey(descriptors.AppendKey(q.key[:0], []descriptors.Entry{{Key: domain}}), q.entries)
		return s.override(own)
	}
	var l *descriptors.Limit
	if l, q.key = a.tree.Find(domain, q.entries, q.key[:0]); l == nil {
		return nil, nil
	}
	return a.limits[l], nil
}

// hits returns the cost of a descriptor. Its own number goes before that of the request, which is 1 if it
// is missing.
func hits(r *rls.RateLimitRequest, d *common.RateLimitDescriptor) (int64, error) {
	n := uint64(max(r.GetHitsAddend(), 1))
	if own := d.GetHitsAddend(); own != nil {
		n = own.GetValue()
	}
	if n > math.MaxUint32 {
		return 0, status.Errorf(codes.InvalidArgument, "hits_addend: expected at most %d, found %d", uint32(math.MaxUint32), n)
	}
	if d.GetIsNegativeHits() {
		return -int64(n), nil
	}
	return int64(n), nil
}

// replace drops the charges under limits that another limit of the request replaces.
func (q *question) replace() {
	for _, it := range q.items {
		if it.limit == nil || it.limit.Limit == nil {
			continue
		}
		for _, name := range it.limit.Replaces {
			if q.replaced == nil {
				q.replaced = map[string]bool{}
			}
			q.replaced[name] = true
		}
	}
	if len(q.replaced) == 0 {
		return
	}
	charges := q.charges
	q.charges = q.charges[:0]
	for i := range q.items {
		it := &q.items[i]
		switch {
		case it.charge < 0:
			continue
		case it.limit.Limit != nil && it.limit.Name != "" && q.replaced[it.limit.Name]:
			it.limit, it.charge = nil, -1
			continue
		}
		q.charges = append(q.charges, charges[it.charge])
		it.charge = len(q.charges) - 1
	}
}

// merge makes one charge of those with the same rule and key.
func (q *question) merge() {
	charges := q.charges
	q.charges = q.charges[:0]
	for i := range q.items {
		it := &q.items[i]
		if it.charge < 0 {
			continue
		}
		c := charges[it.charge]
		it.charge = q.charged(&c)
		if it.charge >= 0 {
			q.charges[it.charge].Cost += c.Cost
			continue
		}
		it.charge = len(q.charges)
		q.charges = append(q.charges, c)
	}
}

// charged returns the index of the charge with the same rule and key, or -1.
func (q *question) charged(c *rule.Charge) int {
	for i := range q.charges {
		if q.charges[i].Key == c.Key && q.charges[i].Rule == c.Rule {
			return i
		}
	}
	return -1
}

// spent makes d a refusal if a limit with debit has refused and was charged all the same. It returns the
// refunds of the charges of the other limits, because a request that is refused is not charged to these. If
// another limit has refused d, nothing was charged.
func (q *question) spent(d *diana.Decision) (refunds []rule.Charge) {
	if !d.Allowed {
		return nil
	}
	for i := range q.charges {
		if q.charges[i].Debit && d.Verdicts[i].Refused() {
			d.Allowed = false
		}
	}
	if d.Allowed {
		return nil
	}
	for i := range q.charges {
		c, v := &q.charges[i], &d.Verdicts[i]
		if c.Debit || c.Cost <= 0 || !v.Allowed {
			continue
		}
		refunds = append(refunds, rule.Charge{Rule: c.Rule, Key: c.Key, Cost: -c.Cost})
		if v.Remaining != algorithms.Unknown {
			v.Remaining += c.Cost
		}
	}
	return refunds
}
