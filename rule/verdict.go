// SPDX-License-Identifier: MIT

package rule

import "github.com/diana-limiter/diana/limit"

// Verdict is what one rule decides about a request.
type Verdict struct {
	Rule *Rule // as it holds for the actor: with the Limit of an override
	limit.Outcome

	// Reserved says that the rule refuses the request only because of what requests in flight have reserved, see
	// Cost. They may cost less, so Wait is a few seconds.
	Reserved bool
}

// Refused reports whether the rule is a reason for a refusal. A rule in shadow mode is none.
func (v *Verdict) Refused() bool { return !v.Allowed && !v.Rule.Shadow }
