// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// exceptions are the compiled Except and Overrides of a rule. They never change.
//
// A variant keeps an override: it is a copy of the rule with the other limit. If the states of the
// rule and the variant have the same version, both use the same counters. So the use of an actor
// still counts after an override is added or removed. Overrides with the same limit share one
// variant, so each of thousands of overrides costs only its place in the directory.
type exceptions struct {
	except    directory
	overrides directory
	variants  []*Rule // of each override
}

// choose returns the rule for an actor: r, a variant, or nil.
func (e *exceptions) choose(r *Rule, value string, client *Client) *Rule {
	if e.except.find(value, client) >= 0 {
		return nil
	}
	if i := e.overrides.find(value, client); i >= 0 {
		return e.variants[i]
	}
	return r
}

// addExceptions compiles the exceptions of a rule, and adds its variants to the Set.
func addExceptions(s *Set, r *Rule) error {
	if len(r.Except) == 0 && len(r.Overrides) == 0 {
		return nil
	}
	var e exceptions
	var err error
	if e.except, err = newDirectory(r.Except, r.Actor, r.who); err != nil {
		return fmt.Errorf("except: %w", err)
	}
	list := make([]rule.Who, len(r.Overrides))
	for i, o := range r.Overrides {
		list[i] = o.Who
	}
	if e.overrides, err = newDirectory(list, r.Actor, r.who); err != nil {
		return fmt.Errorf("overrides: %w", err)
	}
	excepted := map[rule.Who]bool{}
	for _, w := range r.Except {
		for _, form := range forms(w, r.who) {
			excepted[form] = true
		}
	}
	known := map[limit.Limit]*Rule{r.Limit: r}
	for _, o := range r.Overrides {
		for _, form := range forms(o.Who, r.who) {
			if excepted[form] {
				return fmt.Errorf("overrides: %v is in except", o.Who)
			}
		}
		l := overridden(r.Limit, &o)
		v := known[l]
		if v == nil {
			if v, err = r.variant(l); err != nil {
				return fmt.Errorf("overrides: %v: %w", o.Who, err)
			}
			known[l] = v
			s.Variants = append(s.Variants, v)
		}
		e.variants = append(e.variants, v)
	}
	r.exceptions = &e
	return nil
}

// overridden returns the limit of a rule with an override.
func overridden(l limit.Limit, o *rule.Override) limit.Limit {
	l.N, l.Burst, l.Queue = o.N, o.Burst, o.Queue
	return l
}
