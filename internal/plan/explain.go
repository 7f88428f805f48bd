// SPDX-License-Identifier: MIT

package plan

import (
	"net/netip"

	"github.com/diana-limiter/diana/rule"
)

// Explanation tells how one rule judges a request.
type Explanation struct {
	Rule     *Rule    // as it holds for who makes the request
	Key      string   // of who makes the request; empty for All
	Cost     int64    // of the request
	Excepted bool     // it does not judge the request
	By       rule.Who // of the rule's Except or Overrides; its zero value: none
}

// Explain returns how the request would be judged, in order. It counts nothing. The error is a
// [PathError].
func (s *Set) Explain(req *rule.Request) ([]Explanation, error) {
	var m Match
	if err := s.Find(&m, req); err != nil {
		return nil, err
	}
	explained := make([]Explanation, len(m.Rules))
	for i, r := range m.Rules {
		key, value := appendKey(nil, r.who, req, s.ClientIP(req))
		explained[i] = Explanation{Rule: r, Key: string(key), Cost: s.CostOf(r, req)}
		if r.exceptions != nil {
			explained[i].except(value, s.ClientIP(req))
		}
	}
	return explained, nil
}

// except fills in what an exception changes for an actor.
func (x *Explanation) except(value string, ip netip.Addr) {
	r, e := x.Rule, x.Rule.exceptions
	if i := e.except.find(value, ip); i >= 0 {
		x.Excepted, x.By = true, r.Except[i]
	} else if i := e.overrides.find(value, ip); i >= 0 {
		x.Rule, x.By = e.variants[i], r.Overrides[i].Who
	}
}

// BandwidthExplanation tells how one bandwidth slows the answer to a request.
type BandwidthExplanation struct {
	Bandwidth *Bandwidth
	Key       string // of who shares it; empty for All, and if it is not shared
}

// ExplainBandwidths returns which bandwidths the answer to the request would have. All of
// them hold. There are none for a path that Find refuses.
func (s *Set) ExplainBandwidths(req *rule.Request) (explained []BandwidthExplanation) {
	var m Match
	if err := s.Find(&m, req); err != nil {
		return nil
	}
	for _, b := range m.Bandwidths {
		explained = append(explained, BandwidthExplanation{b, string(b.AppendKey(nil, req, s.ClientIP(req)))})
	}
	return explained
}
