// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// left is what is left now of a rule's limit for the actor of a request.
type left struct{ remaining, resets string }

// unknownLeft is for a rule that Redis does not count, or that Redis was not asked about.
var unknownLeft = left{"-", "-"}

// left returns what is left of each global rule, by the rule's name. d and err are what Peek has
// returned.
func (o *output) left(d diana.Decision, err error) (map[string]left, error) {
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

// openPeek returns a limiter that is connected to the Redis of the settings, and the configuration
// in force, which the configuration centre may have.
func (o *output) openPeek(s settings) (*diana.Limiter, *config.Config, error) {
	limiter, err := s.open(diana.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, o.faults(s, err)
	}
	return limiter, limiter.Config(), nil
}
