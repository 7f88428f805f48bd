// SPDX-License-Identifier: MIT

package plan

import (
	"time"

	"github.com/diana-limiter/diana/rule"
)

// Explanation says how one rule would evaluate a request.
type Explanation struct {
	Rule     *Rule     // for this actor: the rule itself, or a variant
	Key      string    // of the actor; empty if the rule counts all clients together
	Cost     int64     // of the request
	Excepted bool      // whether the rule skips the request
	By       rule.Who  // the member of Except or Overrides that matches; its zero value means none
	Class    string    // of the client, if the rule has a limit for it and no override goes before; else empty
	Until    time.Time // when the override of By ends; the zero time means never
}

// Explain returns the rules that would evaluate the request now, in order. It consumes nothing. The
// error is a [rule.PathError].
func Explain(s *Set, req *rule.Request) ([]Explanation, error) { return ExplainAt(s, req, 0) }

// ExplainAt is Explain for a moment in microseconds since 1970.
func ExplainAt(s *Set, req *rule.Request, at int64) ([]Explanation, error) {
	var m Match
	if err := s.Find(&m, req); err != nil {
		return nil, err
	}
	client, explained := s.Client(req), make([]Explanation, len(m.Rules))
	client.At = at
	for i, r := range m.Rules {
		key, value := appendKey(nil, r.who, &client)
		explained[i] = Explanation{Rule: r, Key: string(key), Cost: s.CostOf(r, req)}
		if r.exceptions != nil {
			explained[i].except(value, &client)
		}
	}
	return explained, nil
}

// except fills in what an exception changes for an actor.
func (x *Explanation) except(value string, client *Client) {
	r, e := x.Rule, x.Rule.exceptions
	if i := e.except.find(value, client); i >= 0 {
		x.Excepted, x.By = true, r.Except[i]
	} else if i := e.overrides.find(value, client); i >= 0 && !e.ended(i, client) {
		x.By, x.Until = r.Overrides[i].Who, r.Overrides[i].Until
		if x.Excepted = r.Overrides[i].Exempt; !x.Excepted {
			x.Rule = e.variants[i]
		}
	} else if len(e.classes) > 0 {
		class := r.classOf(client)
		if v := e.classes[class]; v != nil {
			x.Rule, x.Class = v, class
		}
	}
}

// BandwidthExplanation says how one bandwidth slows the response to a request.
type BandwidthExplanation struct {
	Bandwidth *Bandwidth
	Key       string // of the actor that shares the bandwidth; empty for all clients together, and if it is not shared
}

// ExplainBandwidths returns the bandwidths of the response to the request. All of them apply. It
// returns none for a path that Find refuses.
func ExplainBandwidths(s *Set, req *rule.Request) (explained []BandwidthExplanation) {
	var m Match
	if err := s.Find(&m, req); err != nil {
		return nil
	}
	client := s.Client(req)
	for _, b := range m.Bandwidths {
		explained = append(explained, BandwidthExplanation{b, string(b.AppendKey(nil, &client))})
	}
	return explained
}
