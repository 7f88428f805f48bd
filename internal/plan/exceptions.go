// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// exceptions are the compiled Except, Overrides and Classes of a rule. They never change.
//
// A variant keeps an override or a class: it is a copy of the rule with the other limit. If the states of the
// rule and the variant have the same version, both use the same counters. So the use of an actor
// still counts after an override is added or removed. Overrides with the same limit share one
// variant, so each of thousands of overrides costs only its place in the directory.
type exceptions struct {
	except    directory
	overrides directory
	variants  []*Rule          // of each override; nil for one that exempts
	until     []int64          // of each override, in microseconds since 1970; 0: it does not end. Nil: none ends
	classes   map[string]*Rule // by name of the class; nil: there are none
}

// choose returns the rule for an actor: r, a variant, or nil.
func (e *exceptions) choose(r *Rule, value string, client *Client) *Rule {
	if e.except.find(value, client) >= 0 {
		return nil
	}
	if i := e.overrides.find(value, client); i >= 0 && !e.ended(i, client) {
		return e.variants[i]
	}
	if len(e.classes) > 0 {
		if v := e.classes[r.classOf(client)]; v != nil {
			return v
		}
	}
	return r
}

// ended reports whether an override has ended.
func (e *exceptions) ended(i int, client *Client) bool {
	if e.until == nil || e.until[i] == 0 {
		return false
	}
	at := client.At
	if at == 0 {
		at = time.Now().UnixMicro()
	}
	return at >= e.until[i]
}

// addExceptions compiles the exceptions of a rule, and adds its variants to the Set.
func addExceptions(s *Set, r *Rule) error {
	if len(r.Except) == 0 && len(r.Overrides) == 0 && len(r.Classes) == 0 {
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
	if len(list) > 0 {
		for _, w := range r.Except {
			for _, form := range forms(w, r.who) {
				excepted[form] = true
			}
		}
	}
	known := map[limit.Limit]*Rule{r.Limit: r}
	e.variants = make([]*Rule, 0, len(list))
	for _, o := range r.Overrides {
		for _, form := range forms(o.Who, r.who) {
			if excepted[form] {
				return fmt.Errorf("overrides: %v is in except", o.Who)
			}
		}
		var v *Rule
		if !o.Exempt {
			var err error
			if v, err = variantFor(s, r, &o, known); err != nil {
				return fmt.Errorf("overrides: %v: %w", o.Who, err)
			}
		}
		e.variants = append(e.variants, v)
	}
	if e.until = ends(r.Overrides); e.until != nil {
		s.Ends = true
	}
	if e.classes, err = newClasses(s, r, known); err != nil {
		return err
	}
	own := *r.special
	own.exceptions = &e
	r.special = &own
	return nil
}

// ends returns when each override ends, or nil if none does.
func ends(overrides []rule.Override) (until []int64) {
	for i, o := range overrides {
		if o.Until.IsZero() {
			continue
		}
		if until == nil {
			until = make([]int64, len(overrides))
		}
		until[i] = max(1, o.Until.UnixMicro())
	}
	return until
}

// variantFor returns the variant of a rule for an override. It takes it from known, by its limit, or makes
// it and adds it to known and to the Set.
func variantFor(s *Set, r *Rule, o *rule.Override, known map[limit.Limit]*Rule) (*Rule, error) {
	l := overridden(r.Limit, o)
	if v := known[l]; v != nil {
		return v, nil
	}
	v, err := r.variant(l)
	if err != nil {
		return nil, err
	}
	known[l] = v
	s.Variants = append(s.Variants, v)
	return v, nil
}

// overridden returns the limit of a rule with an override.
func overridden(l limit.Limit, o *rule.Override) limit.Limit {
	l.N, l.Burst, l.Queue = o.N, o.Burst, o.Queue
	return l
}
