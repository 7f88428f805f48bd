// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// left is what is left now of a rule's limit for the actor of a request.
type left struct{ remaining, resets string }

// unknownLeft is for a rule that Redis does not count, or that Redis was not asked about.
var unknownLeft = left{"-", "-"}

// leftOfRules returns what is left of each global rule, by the rule's name. d and err are what Peek
// has returned.
func leftOfRules(o *output, d diana.Decision, err error) (map[string]left, error) {
	if err != nil {
		return nil, fmt.Errorf("--peek: %w", err)
	}
	if d.Degraded {
		o.complainf("diana: Redis is out of reach, so what is left of global rules is unknown\n")
		return map[string]left{}, nil
	}
	all := map[string]left{}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Rule.Scope == rule.Global && v.Remaining != limit.Unknown {
			all[v.Rule.Name] = leftOf(v.Outcome)
		}
	}
	return all, nil
}

// leftOf returns the columns of an outcome. Time adds nothing to a counter without a Reset: it is
// full, or it counts concurrent requests.
func leftOf(o limit.Outcome) left {
	l := left{strconv.FormatInt(o.Remaining, 10), "-"}
	if o.Reset > 0 {
		l.resets = (time.Duration(o.Reset) * time.Microsecond).Round(time.Millisecond).String()
	}
	return l
}
