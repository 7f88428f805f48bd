// SPDX-License-Identifier: MIT

package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/answer"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Rule is a compiled rule. A variant of a rule has the limit of some of its overrides or classes: its
// declaration is a copy with that limit and without exceptions.
type Rule struct {
	*rule.Rule  // of the configuration, without a made name
	*rule.Entry // its URL, Divert, Refusal and CallStatus are those of the rule

	Name     string      // its own, or made from its other fields
	Index    int         // in Set.Rules; a variant has the Index of its rule
	Slot     int         // unique among rules and variants: Index, or a number behind all rules
	Short    string      // the name that clients read; unique
	Meter    limit.Meter // for Limit
	Counters string      // name of the counters: equal in two Sets if the counts mean the same

	declared atomic.Pointer[rule.Rule] // see Declared
	who      []chain
	*special
}

// special is what few rules have. Most rules share usual.
type special struct {
	source     *answer.Source // of Cost.Answer; nil: none
	prices     *prices
	exceptions *exceptions // nil: none
	body       *bodyNeeds  // nil: none

	class, priority *finder // of a credential that names them; nil: a header does
	proved          bool    // the actor, the class or the priority needs a credential
}

var usual = special{prices: unweighted}

// compile makes c, which is zero, the compiled form of a rule, except for its exceptions. The rule must not change.
func (c *Rule) compile(v *compiler, e *rule.Entry, r *rule.Rule, name, identity string) (err error) {
	if r.Scope == "" || r.Cost.N < 1 {
		filled := *r
		filled.Scope, filled.Cost.N = cmp.Or(r.Scope, rule.Local), max(r.Cost.N, 1)
		r = &filled
	}
	v.special = special{prices: newPrices(&r.Cost)}
	c.Rule, c.Entry, c.Name, c.special = r, e, name, &v.special
	if r.Algorithm.New == nil {
		return fmt.Errorf("there is no algorithm")
	}
	if c.Meter, err = v.meterOf(r); err != nil {
		return err
	}
	if r.Wait < 0 || r.Wait > bounds.MaxWait || r.Wait > 0 && !r.Algorithm.Uses("wait") {
		return fmt.Errorf("wait is %v, expected 0 to %v, and 0 for an algorithm without it", r.Wait, bounds.MaxWait)
	}
	if err := checkAdaptive(r); err != nil {
		return err
	}
	if (len(r.Charge) > 0 || r.ChargeAll) && !r.Algorithm.Uses("charge") {
		return fmt.Errorf("charge is %v, expected none for an algorithm without it", r.Charge)
	}
	if r.Cost.Answer != "" {
		source, err := answer.ParseSource(r.Cost.Answer)
		if err != nil {
			return fmt.Errorf("cost: answer: %w", err)
		}
		source = source.Scaled(r.Cost.Scale)
		c.source = &source
	}
	c.Counters = names.CountersOf(identity, c.Meter)
	if c.who, err = v.chainsOf(r.Actor); err != nil {
		return err
	}
	if len(r.Classes) > 0 {
		if c.class, err = v.naming("class", &r.Class); err != nil {
			return err
		}
	}
	if len(r.Priorities) > 0 {
		if c.priority, err = v.naming("priority", &r.Priority); err != nil {
			return err
		}
	}
	for _, named := range []*finder{c.class, c.priority} {
		c.proved = c.proved || named != nil && named.proof != ""
	}
	for _, who := range c.who {
		c.proved = c.proved || slices.ContainsFunc(who, func(f finder) bool { return f.proof != "" })
	}
	c.body = bodyNeedsOf(c.who, c)
	if c.special = &usual; v.special != usual {
		own := v.special
		c.special = &own
	}
	return checkReserve(r.Cost)
}

// Declared returns the rule as a program sees it, with its name. The first call copies a rule with a made name,
// because a configuration can have 100,000 rules that few requests reach.
func (r *Rule) Declared() *rule.Rule {
	if declared := r.declared.Load(); declared != nil {
		return declared
	}
	return r.declare()
}

func (r *Rule) declare() *rule.Rule {
	declared := r.Rule
	if declared.Name != r.Name {
		named := *declared
		named.Name = r.Name
		declared = &named
	}
	r.declared.CompareAndSwap(nil, declared)
	return r.declared.Load()
}

// Source returns the place of the cost in a response, or the zero value.
func (r *Rule) Source() answer.Source {
	if r.source == nil {
		return answer.Source{}
	}
	return *r.source
}

// NeedsProof reports whether the rule needs the credentials of a request.
func (r *Rule) NeedsProof() bool { return r.proved }

// variant returns the rule with another limit.
func (r *Rule) variant(l limit.Limit) (*Rule, error) {
	declared := *r.Rule
	declared.Name, declared.Limit, declared.Except, declared.Overrides, declared.Classes = r.Name, l, nil, nil, nil
	m, err := r.Algorithm.New(l)
	if err != nil {
		return nil, err
	}
	identity := strings.TrimSuffix(r.Counters, names.CountersOf("", r.Meter))
	own := *r.special
	return &Rule{
		Rule: &declared, Entry: r.Entry, Name: r.Name, Index: r.Index, Slot: r.Slot, Short: r.Short,
		Meter: m, Counters: names.CountersOf(identity, m),
		who: r.who, special: &own,
	}, nil
}

// CountsAll reports whether the rule counts all clients together and has no exceptions.
func (r *Rule) CountsAll() bool { return len(r.who) == 0 && r.exceptions == nil }

// CountsAll reports the same of a rule that is not compiled.
func CountsAll(r *rule.Rule) bool {
	one := func(a rule.Actor) bool { return a != rule.All }
	return !slices.ContainsFunc(r.Actor, one) && len(r.Except)+len(r.Overrides)+len(r.Classes) == 0
}

// AppendKey appends the key of the actor that the rule counts a client's request by. The key of all
// clients together is empty. Different actors have different keys, because each part of a key names
// its source and its length.
//
// AppendKey also returns the rule for this actor. That is nil if the rule excepts the actor, one of
// Set.Variants if the actor has an override or the client a class, and otherwise r itself.
func (r *Rule) AppendKey(key []byte, client *Client) ([]byte, *Rule) {
	key, value := appendKey(key, r.who, client)
	if r.exceptions != nil {
		r = r.exceptions.choose(r, value, client)
	}
	return key, r
}

// UnitAt returns the unit of a rule at a moment, and until when it is that. The unit is 0 under concurrency
// and for a total.
func (r *Rule) UnitAt(now int64) (unit time.Duration, until int64) {
	switch l := r.Limit; {
	case r.Algorithm.Held:
		return 0, math.MaxInt64
	case l.Calendar == "" && l.Zone == "":
		return l.Unit, math.MaxInt64
	default:
		begin, end := l.Window(time.UnixMicro(now))
		if end.IsZero() { // a total, or UTC
			return l.Unit, math.MaxInt64
		}
		return end.Sub(begin), end.UnixMicro()
	}
}
