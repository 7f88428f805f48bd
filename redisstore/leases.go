// SPDX-License-Identifier: MIT

package redisstore

import (
	"maps"
	"slices"
	"sync"

	"github.com/diana-limiter/diana/limit"
)

// leases are the slots that this gateway holds under rules of concurrency. While the gateway
// lives it renews them regularly, and so keeps them: see limit/concurrency.lua.
//
// They include the slots that requests take without Redis. Redis learns of these when it is
// reachable again.
//
// When a batcher's calls take or release slots, its lock is held while they are counted. A
// renewal is the only call in flight, and its numbers are read when it is sent. So a number
// counts all that earlier calls have taken, and nothing that later calls take.
type leases struct {
	batchers batchers // that send the renewals

	mu   sync.Mutex // guards the rest
	held map[actor]slots

	// lost are the actors of failed calls. It is not known what Redis has counted of them, until
	// it receives a number, which can be 0.
	lost map[actor]*counters
}

// slots are the slots that an actor's requests hold in this gateway.
type slots struct {
	c *counters
	n int64
}

func (l *leases) init(all batchers) {
	l.batchers, l.held, l.lost = all, map[actor]slots{}, map[actor]*counters{}
}

// renewAtOnce is the number of actors in one call of renewals or debts. It takes Redis a millisecond
// or two.
const renewAtOnce = 256

// hold counts n more slots, or fewer if n is negative. Only counters of concurrency have slots.
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

// holdGranted counts the slots that a call has taken. It does not need the batcher's lock, because
// the call is still in flight.
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

// lose records the actors of a failed call.
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

// actors returns the actors to renew: those of failed calls, and unless lostOnly those that hold
// slots.
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

// number returns the number of slots for a renewal when the batch is about to be sent. It is the
// number of held slots without what the batch itself debits and releases after its renewals.
func (l *leases) number(b *batch, r *renewal) int64 {
	k := &b.keys[r.key-1]
	l.mu.Lock()
	n := l.held[k.actor].n
	l.mu.Unlock()
	for _, g := range b.refunds {
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

// renewAll sends Redis the number of slots that this gateway holds: of all actors, or only of
// those of failed calls. After an outage this happens before Redis evaluates any request, because
// Redis does not know what was taken and released meanwhile.
func (l *leases) renewAll(lostOnly bool) error {
	for some := range slices.Chunk(l.actors(lostOnly), renewAtOnce) {
		if err := wait(l.renew(some)); err != nil {
			return err
		}
	}
	return nil
}

// renew adds renewals of some actors to batches, and returns these.
func (l *leases) renew(some []actor) map[*batch]bool {
	batches := map[*batch]bool{}
	for _, a := range some {
		c := l.counters(a)
		if c == nil {
			continue // all its requests have ended
		}
		ch := limit.Charge{Counters: c, Key: []byte(a.key)}
		if b := l.batchers.batcher(&ch).add(func(b *batch) { b.renew(&ch) }); b != nil {
			batches[b] = true
		}
	}
	return batches
}

// counters returns the counters of an actor to renew, or nil if nothing must be sent. The renewal
// settles what a failed call has left open. If the renewal fails, it is open again.
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
