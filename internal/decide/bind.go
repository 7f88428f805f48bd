// SPDX-License-Identifier: MIT

package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// binder makes Limits.
type binder struct {
	decider  *Decider
	limits   *Limits
	redis    Redis
	stores   map[string]int // by scope, the index in Limits.stores
	records  map[string]*record
	waits    map[string]bool // by Counters, the rules that let requests wait
	degraded bool
}

func (b *binder) bindAll() error {
	l := b.limits
	l.stores, l.local, l.counts = []limit.Store{b.decider.local}, true, b.redis
	all := slices.Concat(l.Set.Rules, l.Set.Variants)
	l.bound = make([]bound, 0, len(all))
	adapts := false
	for _, r := range all {
		bound, err := b.bind(r)
		l.bound = append(l.bound, bound) // so that retire finds what was bound before an error
		if err != nil {
			return err
		}
		l.local = l.local && !bound.elsewhere
		adapts = adapts || bound.adapts
		if letsWait(r) {
			b.waits[r.Counters] = true
		}
	}
	if adapts {
		l.last = len(l.stores)
		l.stores = append(l.stores, b.decider.local)
	}
	return nil
}

// bind binds one rule.
func (b *binder) bind(r *plan.Rule) (n bound, err error) {
	n.wait, n.record, n.schedules = longestWait(r), b.recordOf(r.Name), queues(r) && !r.Shadow
	n.allowsOne = !neverAllows(r, b.decider.local.Now(), 1)
	index, ok := b.storeOf(r)
	n.elsewhere = !ok || index > 0
	if n.local, n.meter, err = b.local(r, n.elsewhere); err != nil {
		return n, err
	}
	_, n.adapts = n.meter.(limit.Adaptive)
	if n.adapts && n.elsewhere {
		return n, fmt.Errorf("algorithm %s learns from the requests of one process, expected scope local", r.Algorithm.Name())
	}
	n.plain = n.countsPlainly(r)
	if n.elsewhere && (!ok || !b.up(index)) {
		b.degraded = true
	}
	if index == 0 {
		return n, nil
	}
	if n.remote, err = b.limits.stores[index].Counters(r.Counters, r.Meter); err != nil {
		return n, err
	}
	n.store = index
	if n.known, err = b.known(r, n.meter); err != nil {
		return n, err
	}
	if index == b.limits.redis {
		n.both = bothUntil(r, b.redis)
		n.lowers = r.OnError == rule.Share && !queues(r) && !r.Algorithm.Held && unitOf(r) > longestBoth
		if n.lowers {
			back := func(nth int64) (any, error) {
				return b.decider.local.Counters(fmt.Sprintf("back %d %s", nth, warmName(r, n.meter)), n.meter)
			}
			if b.redis.BackAt != bounds.EndOfTime {
				n.next = &nextShare{make: func() (any, error) { return back(b.redis.Returns + 1) }}
			}
			if n.both > 0 && !b.redis.WasDown {
				n.fresh, err = back(b.redis.Returns)
			}
		}
	}
	return n, err
}

// recordOf returns the record of a rule, which its variants share.
func (b *binder) recordOf(name string) *record {
	known := b.records[name]
	if known == nil {
		if known = b.decider.records[name]; known == nil {
			known = newRecord(name)
		}
		b.records[name] = known
	}
	return known
}

// storeOf returns the index of the store that counts a rule, and whether there is such a store.
func (b *binder) storeOf(r *plan.Rule) (index int, ok bool) {
	scope := string(r.Scope)
	if index, ok := b.stores[scope]; ok {
		return index, true
	}
	s := b.limits.Stores[scope]
	index = len(b.limits.stores)
	switch {
	case s != nil:
	case r.Scope == rule.Local:
		return 0, true
	case b.redis.Store == nil:
		return 0, false
	default:
		s, b.limits.redis = b.redis.Store, index
	}
	b.limits.stores, b.stores[scope] = append(b.limits.stores, s), index
	return index, true
}

// up reports whether a store can be asked.
func (b *binder) up(index int) bool { return index != b.limits.redis || b.redis.Up }

// local returns the local counters that decide for a rule, alone or while its store is down, and
// their meter.
func (b *binder) local(r *plan.Rule, elsewhere bool) (c any, m limit.Meter, err error) {
	name, m := r.Counters, r.Meter
	switch {
	case !elsewhere:
	case r.OnError == rule.Open:
		return nil, nil, nil
	case r.OnError == rule.Closed:
		none := r.Limit
		none.N, none.Unit, none.Calendar, none.Zone = 0, time.Second, "", "" // Redis may be back soon
		if m, err = r.Algorithm.New(none); err != nil {
			return nil, nil, err
		}
		name = "closed " + name
	default:
		if r.OnError == rule.Share {
			cost := r.Cost.N
			if queues(r) {
				cost = 1 // a scheduled time is never too early for a cost
			}
			if m, err = r.Algorithm.New(share(r.Limit, b.redis.Gateways, cost)); err != nil {
				return nil, nil, err
			}
		}
		name = warmName(r, m)
	}
	c, err = b.decider.local.Counters(name, m)
	return c, m, err
}

// warmName returns the name of the local counters that a Meter of a rule has whose store is not the
// local one.
func warmName(r *plan.Rule, m limit.Meter) string {
	return "global " + m.StateVersion() + " " + r.Counters
}

// known returns the local counters that remember the actors of a rule whose store is not the local
// one. m is the Meter that decides while that store is down, or nil.
func (b *binder) known(r *plan.Rule, m limit.Meter) (any, error) {
	switch {
	case r.Algorithm.Held:
		whole := r.Limit
		whole.N = bounds.MaxN
		var err error
		if m, err = r.Algorithm.New(whole); err != nil {
			return nil, err
		}
	case r.OnError == rule.Closed || r.OnError == rule.Open:
		m = r.Meter
	}
	return b.decider.local.Counters(warmName(r, m), m)
}
