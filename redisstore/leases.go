// SPDX-License-Identifier: MIT

package redisstore

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
)

// leases are the places that this gateway holds under rules of concurrency. While it
// lives it says so now and then, and so keeps them: see limit/concurrency.lua.
//
// After an outage Redis knows it by another name. A call that was given up can come to Redis
// long after, when the network has it at last; what it takes is in a name then that nobody
// renews, and not for ever.
type leases struct {
	name, former atomic.Int64 // now, and when Redis was last in use; over 0

	mu   sync.Mutex
	held map[actor]places

	// lost are those of whom a call has failed: what Redis has counted of them is not
	// known until it has been told an exact number, which can be none.
	lost map[actor]*counters
}

// places are those that an actor's requests hold in this gateway.
type places struct {
	c *counters
	n int64
}

// rename gives this gateway another name.
func (l *leases) rename() { l.name.Store(1 + rand.Int64N(1<<53-1)) }

// renewAtOnce is how many actors' places are renewed in one call: what takes Redis a
// millisecond or two.
const renewAtOnce = 256

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

// any reports whether a place is held.
func (l *leases) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held) > 0
}

// lose notes of whom a call has failed.
func (l *leases) lose(keys []key) {
	for i := range keys {
		if k := &keys[i]; k.c.held {
			l.mu.Lock()
			l.lost[k.actor] = k.c
			l.mu.Unlock()
		}
	}
}

// actors returns whose places are to be renewed.
func (l *leases) actors(exact bool) []actor {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []actor
	for a := range l.held {
		all = append(all, a)
	}
	if exact {
		for a := range l.lost {
			if _, held := l.held[a]; !held {
				all = append(all, a)
			}
		}
	}
	return all
}

// renewLeases says that this gateway still holds what it holds. After an outage, before
// any request is judged, the numbers are exact: what has been given back meanwhile was
// not heard of.
func (s *Store) renewLeases(exact bool) error { return s.renewAll(s.leases.actors(exact), exact) }

// renewLost says the exact numbers of those of whom a call has failed since, as one does that
// comes when the numbers have been told and Redis is not in use yet.
func (s *Store) renewLost() error {
	l := &s.leases
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.lost))
	l.mu.Unlock()
	return s.renewAll(all, true)
}

func (s *Store) renewAll(all []actor, exact bool) error {
	for some := range slices.Chunk(all, renewAtOnce) {
		for b := range s.renew(some, exact) {
			if <-b.done; b.err != nil {
				return b.err
			}
		}
	}
	return nil
}

// renew puts the numbers of some actors into batches, which it returns. A number and what
// is given back after it come to Redis in this order.
func (s *Store) renew(some []actor, exact bool) map[*batch]bool {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	batches := map[*batch]bool{}
	for _, a := range some {
		p := l.held[a]
		if p.c == nil {
			if p.c = l.lost[a]; p.c == nil || !exact {
				continue // it has left meanwhile
			}
		}
		if exact {
			delete(l.lost, a) // and again there if this fails
		}
		b := s.lanes[s.laneOf([]byte(a.key))].add(func(b *batch) { b.renew(p.c, a.key, p.n, exact) })
		if b != nil {
			batches[b] = true
		}
	}
	return batches
}
