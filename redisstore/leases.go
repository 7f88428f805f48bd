// SPDX-License-Identifier: MIT

package redisstore

import (
	"sync"

	"github.com/diana-limiter/diana/limit"
)

// leases are the places that this gateway holds under rules of concurrency. While it
// lives it says so now and then, and so keeps them: see limit/concurrency.lua.
type leases struct {
	mu   sync.Mutex
	held map[actor]places
}

// places are those that an actor's requests hold in this gateway.
type places struct {
	c *counters
	n int64
}

// hold counts the places of a request, or with a sign of -1 no longer counts them.
func (l *leases) hold(charges []limit.Charge, sign int64) {
	for i := range charges {
		ch := &charges[i]
		if c := ch.Counters.(*counters); c.held && ch.Outcome.Allowed {
			a := actor{c.name, string(ch.Key)}
			l.mu.Lock()
			p := places{c, l.held[a].n + sign*ch.Cost}
			if p.n > 0 {
				l.held[a] = p
			} else {
				delete(l.held, a)
			}
			l.mu.Unlock()
		}
	}
}

// renewLeases says that this gateway still holds what it holds. After an outage, before
// any request is judged, the numbers are exact: what has been given back meanwhile was
// not heard of.
func (s *Store) renewLeases(exact bool) {
	s.leases.mu.Lock()
	defer s.leases.mu.Unlock()
	for a, p := range s.leases.held {
		s.lanes[s.laneOf([]byte(a.key))].add(func(b *batch) { b.renew(p.c, a.key, p.n, exact) })
	}
}
