// SPDX-License-Identifier: MIT

package diana

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/fields"
	"github.com/diana-limiter/diana/internal/plan"
)

// policies are what the RateLimit fields say of the rules of a configuration. The windows of the calendar
// differ in length, so the policies are made again when the first of these windows ends.
type policies struct {
	set     *plan.Set
	making  sync.Mutex // held to replace current
	current atomic.Pointer[policiesUntil]
}

// policiesUntil are policies, by plan.Rule.Slot, and the moment until which they are right.
type policiesUntil struct {
	fields.Policies
	until int64
}

// at returns the policies of now. Most configurations have no windows of the calendar, and need no clock.
func (p *policies) at(now func() int64) *fields.Policies {
	is := p.current.Load()
	if is.until == math.MaxInt64 || now() < is.until || !p.making.TryLock() {
		return &is.Policies
	}
	defer p.making.Unlock()
	is = newPolicies(p.set, now())
	p.current.Store(is)
	return &is.Policies
}

func newPolicies(set *plan.Set, now int64) *policiesUntil {
	p := &policiesUntil{until: math.MaxInt64}
	p.Grow(len(set.Rules) + len(set.Variants))
	for _, r := range slices.Concat(set.Rules, set.Variants) {
		unit, until := unitAt(r, now)
		q := fields.Policy{Name: r.Short, Limit: r.Limit.N, Burst: r.Limit.Burst, Unit: unit, Concurrent: r.Algorithm.Held}
		if r.Algorithm.Uses("slices") {
			q.Slices = cmp.Or(r.Limit.Slices, bounds.DefaultSlices)
		}
		p.Add(q)
		p.until = min(p.until, until)
	}
	return p
}

// unitAt returns the unit of a rule at a moment, and until when it is that. The unit is 0 under concurrency
// and for a total.
func unitAt(r *plan.Rule, now int64) (unit time.Duration, until int64) {
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
