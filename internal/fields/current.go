// SPDX-License-Identifier: MIT

package fields

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
)

// Current are what the RateLimit fields say of the rules of a configuration. The windows of the calendar
// differ in length, so the policies are made again when the first of these windows ends.
type Current struct {
	set    *plan.Set
	making sync.Mutex // held to replace now
	now    atomic.Pointer[policiesUntil]
}

// NewCurrent returns the policies of a set at a moment.
func NewCurrent(set *plan.Set, now int64) *Current {
	c := &Current{set: set}
	c.now.Store(newPolicies(set, now))
	return c
}

// policiesUntil are policies, by plan.Rule.Slot, and the moment until which they are right.
type policiesUntil struct {
	Policies
	until int64
}

// At returns the policies of now. Most configurations have no windows of the calendar, and need no clock.
func (c *Current) At(now func() int64) *Policies {
	is := c.now.Load()
	if is.until == math.MaxInt64 || now() < is.until || !c.making.TryLock() {
		return &is.Policies
	}
	defer c.making.Unlock()
	is = newPolicies(c.set, now())
	c.now.Store(is)
	return &is.Policies
}

func newPolicies(set *plan.Set, now int64) *policiesUntil {
	p := &policiesUntil{until: math.MaxInt64}
	p.Grow(len(set.Rules) + len(set.Variants))
	for _, r := range slices.Concat(set.Rules, set.Variants) {
		unit, until := r.UnitAt(now)
		q := Policy{Name: r.Short, Limit: r.Limit.N, Burst: r.Limit.Burst, Unit: unit, Concurrent: r.Algorithm.Held}
		if r.Algorithm.Uses("slices") {
			q.Slices = cmp.Or(r.Limit.Slices, bounds.DefaultSlices)
		}
		p.Add(q)
		p.until = min(p.until, until)
	}
	return p
}
