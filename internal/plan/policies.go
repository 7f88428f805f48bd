// SPDX-License-Identifier: MIT

package plan

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/fields"
)

// Policies are what the RateLimit fields say of the rules of a configuration. The windows of the calendar
// differ in length, so the policies are made again when the first of these windows ends. They are safe for
// concurrent use.
type Policies struct {
	set    *Set
	making sync.Mutex // held to replace now
	now    atomic.Pointer[policiesUntil]
}

// Policies returns what the RateLimit fields say of the rules of a set from a moment on.
func (s *Set) Policies(now int64) *Policies {
	p := &Policies{set: s}
	p.now.Store(policiesAt(s, now))
	return p
}

// policiesUntil are policies, by Rule.Slot, and the moment until which they are right.
type policiesUntil struct {
	*fields.Policies
	until int64
}

// At returns the policies of now. Most configurations have no windows of the calendar, and need no clock.
func (p *Policies) At(now func() int64) *fields.Policies {
	is := p.now.Load()
	if is.until == math.MaxInt64 || now() < is.until || !p.making.TryLock() {
		return is.Policies
	}
	defer p.making.Unlock()
	is = policiesAt(p.set, now())
	p.now.Store(is)
	return is.Policies
}

// policiesAt returns the policies of a moment.
func policiesAt(set *Set, now int64) *policiesUntil {
	until := int64(math.MaxInt64)
	for _, all := range [][]*Rule{set.Rules, set.Variants} {
		for _, r := range all {
			_, end := r.UnitAt(now)
			until = min(until, end)
		}
	}
	return &policiesUntil{fields.NewPolicies(len(set.Rules)+len(set.Variants), func(slot int) fields.Policy {
		return set.Rule(slot).policyAt(now)
	}), until}
}

// policyAt returns what the RateLimit fields say of the rule at a moment.
func (r *Rule) policyAt(now int64) fields.Policy {
	unit, _ := r.UnitAt(now)
	p := fields.Policy{Name: r.Short, Limit: r.Limit.N, Burst: r.Limit.Burst, Unit: unit, Concurrent: r.Algorithm.Held}
	if r.Algorithm.Uses("slices") {
		p.Slices = cmp.Or(r.Limit.Slices, bounds.DefaultSlices)
	}
	return p
}
