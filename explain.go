// SPDX-License-Identifier: MIT

package diana

import (
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// Explanation says how one rule would evaluate a request.
type Explanation struct {
	Rule     *rule.Rule   // for this actor: with the Limit of an override, if there is one
	URL      rule.Pattern // of the rule's entry
	Key      string       // of the actor; empty if the rule counts all clients together
	Cost     int64        // of the request
	Excepted bool         // whether the rule skips the request
	By       rule.Who     // the member of Except or Overrides that matches; its zero value means none
}

// Explain returns the rules that would evaluate the request, in order, and the keys of its actors.
// It consumes nothing. The error is a rule.PathError.
func (l *Limiter) Explain(r Request) ([]Explanation, error) {
	complete(&r)
	list, err := plan.Explain(l.decider.Limits().Set, &r)
	explained := make([]Explanation, len(list))
	for i, e := range list {
		explained[i] = Explanation{e.Rule.Rule, e.Rule.URL, e.Key, e.Cost, e.Excepted, e.By}
	}
	return explained, err
}
