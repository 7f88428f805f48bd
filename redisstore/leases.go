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
	held map[actor]int64
}

// hold counts the places of a request, or with a sign of -1 no longer counts them.
func (l *leases) hold(charges []limit.Charge, sign int64) {
	for i := range charges {
		ch := &charges[i]
		if c := ch.Counters.(*counters); c.held && ch.Outcome.Allowed {
			a := actor{c, string(ch.Key)}
			l.mu.Lock()
			if l.held[a] += sign * ch.Cost; l.held[a] <= 0 {
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
	for a, n := range s.leases.held {
		s.lanes[s.laneOf([]byte(a.key))].add(func(b *batch) { b.renew(a, n, exact) })
	}
}
