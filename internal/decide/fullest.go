// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"sync"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// fullest is the actor that has spent the largest share of its limit under a rule, as far as this process knows by its
// own requests. It remembers one actor, so its memory and the labels of metrics have a bound. Its zero value knows none.
//
// For a local rule the store is asked about the actor. For other rules these numbers count, because a scrape must not
// cost calls of Redis.
type fullest struct {
	mu           sync.Mutex
	of           *plan.Rule // as it holds for the actor; nil: there is none
	key          string
	spent, until int64 // without what is reserved, and the moment when nothing of it counts any more
}

// most returns how much an actor that has spent nothing may spend at once.
func most(r *plan.Rule) int64 {
	if r.Algorithm.Uses("burst") && r.Limit.Burst > 0 {
		return r.Limit.Burst
	}
	return r.Limit.N
}

// shareOf returns which share of a limit is spent, 0 to 1.
func shareOf(r *plan.Rule, spent int64) float64 {
	if n := most(r); n > 0 {
		return min(max(float64(spent)/float64(n), 0), 1)
	}
	return 0
}

// decided notes what a decision about an actor says of what it has spent. reserved is the sum of the reservations of the
// actor, the charge included.
func (f *fullest) decided(r *plan.Rule, ch *limit.Charge, reserved, now int64) (spent, until int64) {
	if ch.Outcome.Remaining == limit.Unknown {
		return 0, 0
	}
	spent, until = max(most(r)-ch.Outcome.Remaining-reserved, 0), now+ch.Outcome.Reset
	if ch.Outcome.Reset == 0 { // no time renews a total
		until = now + bounds.Forever
	}
	f.note(r, string(ch.Key), spent, until, now)
	return spent, until
}

// settled notes what a request has cost.
func (f *fullest) settled(s *spending, now int64) {
	f.mu.Lock()
	same := f.of != nil && f.of.Counters == s.rule.Counters && f.key == s.key.actor && now < f.until
	if same {
		f.spent += s.n - s.noted
	}
	s.noted = s.n
	f.mu.Unlock()
	if !same && s.until > 0 {
		f.note(s.rule, s.key.actor, s.spent+s.n, s.until, now)
	}
}

// forget forgets an actor whose counter was reset.
func (f *fullest) forget(key []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key == string(key) {
		f.of = nil
	}
}

func (f *fullest) note(r *plan.Rule, key string, spent, until, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of != nil && f.key != key && now < f.until && shareOf(f.of, f.spent) >= shareOf(r, spent) {
		return
	}
	f.of, f.key, f.spent, f.until = r, key, spent, until
}

// adoptFullest makes each fullest actor one of these Limits, so that it keeps no earlier configuration in memory.
func (l *Limits) adoptFullest() {
	variants := map[*record][]*plan.Rule{}
	for _, v := range l.Set.Variants {
		of := l.bound[v.Slot].record
		variants[of] = append(variants[of], v)
	}
	for _, r := range l.Set.Rules {
		of := l.bound[r.Slot].record
		of.fullest.adopt(r, variants[of])
	}
}

// adopt replaces the rule, or the variant, by the one of other Limits. It forgets the actor if the rule has new counters,
// and if its limit was that of a variant and no variant has this limit. A nil rule has gone.
func (f *fullest) adopt(r *plan.Rule, variants []*plan.Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.of
	if f.of = nil; of == nil || r == nil {
		return
	}
	for _, v := range append(variants, r) {
		if v.Counters == of.Counters && (v.Limit == of.Limit || v == r && of.Slot == of.Index) {
			f.of = v
			return
		}
	}
}

// Spent returns what a rule was charged since the start by the costs of responses, and what requests in flight of this
// process have reserved. It also returns which share of its limit the fullest actor has spent, and the key of this actor.
func (d *Decider) Spent(l *Limits, index int) (cost, reserved int64, share float64, key string) {
	record := l.bound[index].record
	cost, reserved = record.cost.Load(), record.reserved.Load()
	f := &record.fullest
	f.mu.Lock()
	r, spent, until := f.of, f.spent, f.until
	key = f.key
	f.mu.Unlock()
	switch {
	case r == nil:
		return cost, reserved, 0, ""
	case l.has(r) && l.bound[r.Slot].store == 0:
		o, err := d.PeekKey(context.Background(), l, r, []byte(key))
		if err != nil || o.Remaining == limit.Unknown {
			return cost, reserved, 0, ""
		}
		spent = most(r) - o.Remaining - d.ReservedBy(r, []byte(key))
	case d.local.Now() >= until:
		spent = 0
	}
	if share = shareOf(r, spent); share == 0 {
		key = ""
	}
	return cost, reserved, share, key
}

// has reports whether a rule, or a variant of one, is one of these Limits.
func (l *Limits) has(r *plan.Rule) bool {
	if n := len(l.Set.Rules); r.Slot < n {
		return l.Set.Rules[r.Slot] == r
	} else if i := r.Slot - n; i < len(l.Set.Variants) {
		return l.Set.Variants[i] == r
	}
	return false
}
