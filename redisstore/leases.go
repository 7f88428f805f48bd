// SPDX-License-Identifier: MIT

package redisstore

import (
	"maps"
	"slices"
	"sync"

	"github.com/diana-limiter/diana/limit"
)

// leases are the slots that this gateway holds under rules of concurrency. While the gateway
// lives it renews them now and then, and so keeps them: see limit/concurrency.lua.
//
// The slots that a request takes without Redis are among them. So Redis is told of these
// when it is back.
//
// A lane's lock is held when slots are counted that its calls take or release. A renewal is
// the only call under way, and its numbers are read when it is sent. So a number counts all
// that earlier calls have taken, and nothing that later calls do.
type leases struct {
	mu   sync.Mutex
	held map[actor]slots

	// lost are the actors of calls that have failed: what Redis has counted of them is not
	// known until it has been told a number, which can be none.
	lost map[actor]*counters
}

// slots are those that an actor's requests hold in this gateway.
type slots struct {
	c *counters
	n int64
}

// renewAtOnce is how many actors' slots are renewed, or debts told, in one call: what takes
// Redis a millisecond or two.
const renewAtOnce = 256

// hold counts n more slots, or fewer if n is negative. Other counters than those of
// concurrency hold none.
func (l *leases) hold(c *counters, key []byte, n int64) {
	if !c.held {
		return
	}
	a := actor{c.name, string(key)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if sum := l.held[a].n + n; sum > 0 {
		l.held[a] = slots{c, sum}
	} else {
		delete(l.held, a)
	}
}

// holdGranted counts the slots that a call has taken. The lane's lock is not needed, as the
// call is still under way.
func (l *leases) holdGranted(b *batch) {
	for i := range b.groups {
		g := &b.groups[i]
		if g.granted <= 0 {
			continue
		}
		for k, ch := range b.charges[g.first:g.end] {
			key := &b.keys[ch.key-1]
			if key.c.held {
				l.hold(key.c, []byte(key.key), b.grantedOf(g, k))
			}
		}
	}
}

// any reports whether a slot is held.
func (l *leases) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held) > 0
}

// lose notes the actors of a call that has failed.
func (l *leases) lose(keys []key) {
	for i := range keys {
		if k := &keys[i]; k.c.held {
			l.loseOne(k.actor, k.c)
		}
	}
}

func (l *leases) loseOne(a actor, c *counters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[a] = c
}

// actors returns the actors whose slots are to be renewed: those that hold some, and those
// of failed calls; or these alone.
func (l *leases) actors(lostOnly bool) []actor {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Collect(maps.Keys(l.lost))
	if lostOnly {
		return all
	}
	for a := range l.held {
		if _, lost := l.lost[a]; !lost {
			all = append(all, a)
		}
	}
	return all
}

// number returns how many slots a renewal tells, when the batch is about to be sent: those
// that are held without what the batch itself debits and releases after its renewals.
func (b *batch) number(r *renewal) int64 {
	k := &b.keys[r.key-1]
	l := &b.lane.store.leases
	l.mu.Lock()
	n := l.held[k.actor].n
	l.mu.Unlock()
	for _, g := range b.gives {
		if g.key == r.key {
			n += g.n
		}
	}
	for _, d := range b.debits {
		if d.key == r.key {
			n -= d.n
		}
	}
	return max(n, 0)
}

// renewLeases tells Redis how many slots this gateway holds, of all actors or of those of
// failed calls alone. After an outage it does so before any request is judged: Redis does not
// know what has been taken and released meanwhile.
func (s *Store) renewLeases(lostOnly bool) error {
	for some := range slices.Chunk(s.leases.actors(lostOnly), renewAtOnce) {
		if err := wait(s.renew(some)); err != nil {
			return err
		}
	}
	return nil
}

// renew puts renewals of some actors into batches, which it returns.
func (s *Store) renew(some []actor) map[*batch]bool {
	batches := map[*batch]bool{}
	for _, a := range some {
		c := s.leases.counters(a)
		if c == nil {
			continue // all its requests have ended meanwhile
		}
		ch := limit.Charge{Counters: c, Key: []byte(a.key)}
		if b := s.lane([]limit.Charge{ch}).add(func(b *batch) { b.renew(&ch) }); b != nil {
			batches[b] = true
		}
	}
	return batches
}

// counters returns the counters of an actor that is to be renewed, or nil if there is nothing
// to tell. The number settles what a failed call has left open; if the renewal fails, it is
// open again.
func (l *leases) counters(a actor) *counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.held[a].c
	if c == nil {
		c = l.lost[a]
	}
	delete(l.lost, a)
	return c
}
