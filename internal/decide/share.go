// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/memstore"
	"github.com/diana-limiter/diana/rule"
)

// After Redis has lost its memory, both stores decide for a rule for one unit. Otherwise clients
// could use the limit again that they had used before. For longer units both decide until the other gateways are
// back too, because these put back what they remember and debit what they have allowed alone.
const longestBoth = 10 * time.Second

// fleetBack is how long after one gateway the last one uses Redis again.
const fleetBack = 2 * time.Second

// detectionGap is how long after one gateway the last one detects that Redis has lost its memory.
const detectionGap = time.Second

// bothForSlots is how long both stores decide for slots: until all gateways are connected again
// and have told Redis which slots they hold.
const bothForSlots = 3 * time.Second

// bothUntil returns the moment until which both stores decide for a rule, or 0.
func bothUntil(r *plan.Rule, redis Redis) int64 {
	unit := unitOf(r)
	if r.Algorithm.Held {
		unit = bothForSlots - detectionGap
	}
	switch {
	case r.OnError != rule.Share || queues(r):
		return 0
	case unit > longestBoth:
		if redis.BackAt == 0 {
			return 0
		}
		return redis.BackAt + fleetBack.Microseconds()
	case redis.ForgotAt == 0:
		return 0
	}
	return redis.ForgotAt + (unit + detectionGap).Microseconds()
}

// unitOf returns the unit of a rule. For a unit of the calendar it returns one that is longer than any
// wait.
func unitOf(r *plan.Rule) time.Duration {
	if r.Limit.Calendar != "" {
		return bounds.MaxUnit
	}
	return r.Limit.Unit
}

// share returns the part of a limit that one of so many gateways may use: at least one request of
// that cost.
func share(l limit.Limit, gateways int, cost int64) limit.Limit {
	if gateways < 2 {
		return l
	}
	part := func(n *int64, least int64) {
		if *n > 0 {
			*n = max(*n/int64(gateways), min(*n, least))
		}
	}
	if part(&l.Burst, cost); l.Burst > 0 {
		cost = 1 // the burst has room for it, so the rate needs no more
	}
	part(&l.N, cost)
	part(&l.Queue, 1)
	return l
}

// lowerShare reduces the share of an actor to this gateway's part of what Redis had left, as far as the gateway
// remembers that. So all gateways together allow what is left, and a limit that was used up stays used up. c is the
// counters of the share.
func (l *Limits) lowerShare(local *memstore.Store, b *bound, c any, key []byte, now int64) {
	l.counts.Store.Left(b.remote, key, c, func(left int64) (at int64) {
		share := []limit.Charge{{Counters: c, Key: key, Cost: 1}}
		if local.Peek(context.Background(), now, share) != nil {
			return 0 // the local store has no errors of its own
		}
		over := share[0].Outcome.Remaining - left/int64(max(l.counts.Gateways, 1))
		if over <= 0 {
			return 0
		}
		share[0].Cost = over
		local.Debit(now, share)
		return local.Now()
	})
}

// nextShare is the counters of the share that applies after the next loss without an outage. The requests that this gateway
// allows alone before it knows of the loss count there, too. They take room, so they are made when they are needed.
type nextShare struct {
	make func() (any, error)

	mu    sync.Mutex // guards the rest
	made  any
	ended bool
}

// counters returns nil if there are none.
func (n *nextShare) counters() any {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.made == nil && !n.ended {
		n.made, _ = n.make() // its meter is good, because the rule has it
	}
	return n.made
}

// end returns the counters to retire, or nil. Later requests have none.
func (n *nextShare) end() any {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
	return n.made
}

// queues reports whether the meter of a rule schedules requests.
func queues(r *plan.Rule) bool {
	_, ok := r.Meter.(limit.Queue)
	return ok
}

// longestWait returns how long a request may wait under a rule, in microseconds. No request waits
// under a limit of 0, because no wait helps, and none in shadow mode, because none is refused.
func longestWait(r *plan.Rule) int64 {
	if r.Limit.N == 0 || r.Shadow {
		return 0
	}
	return r.Wait.Microseconds()
}

// letsWait reports whether requests can wait under a rule.
func letsWait(r *plan.Rule) bool {
	return longestWait(r) > 0 || queues(r) && !r.Shadow
}
