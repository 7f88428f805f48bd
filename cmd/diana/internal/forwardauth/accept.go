// SPDX-License-Identifier: MIT

package forwardauth

import (
	"fmt"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// Accept returns an error for a configuration whose rules need to learn how a request ends. Nobody tells
// Diana about the end of a request that another gateway asks about. The error is config.Errors, with the
// place of each such rule.
func Accept(c *config.Config) error {
	var errs config.Errors
	for i, e := range c.Limits {
		for j := range e.Rules {
			if why := needsEnd(&e.Rules[j]); why != "" {
				at, ok := c.EndPlace(i, j)
				if !ok { // the program has built this configuration
					at.File, at.Line, at.Column = c.Source, 1, 1
				}
				if name := e.Rules[j].Name; name != "" {
					why = fmt.Sprintf("rule %q: %s", name, why)
				}
				at.Message = fmt.Sprintf("url %q: %s", e.URL, why)
				errs = append(errs, at).First()
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs
}

// needsEnd says why a rule needs to learn how a request ends, or returns "".
func needsEnd(r *rule.Rule) string {
	switch {
	case r.Algorithm.Held:
		return "algorithm " + r.Algorithm.Name() + " cannot be used with --check, because slots are released when a request ends"
	case len(r.Charge) > 0:
		return "charge cannot be used with --check, because the status of the response stays unknown"
	}
	return ""
}
