// SPDX-License-Identifier: MIT

package redisstore

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
)

// refusals remembers which actors are refused for how long. So an actor that continues to ask
// costs Redis nothing until it could be allowed again. Three events could make that earlier:
// another gateway refunds a charge, an operator deletes keys, or Redis forgets. Therefore no
// refusal is remembered for longer than ten seconds.
//
// The number of cells is fixed, and a new refusal replaces the one in its cell. Reading takes no
// lock.
type refusals struct {
	generation atomic.Uint64 // increases with every refund and reset
	seed       maphash.Seed
	cells      [1 << 13]atomic.Pointer[refusal]
}

const longestRefusal = 10_000_000 // microseconds

// refusal is a remembered refusal. It never changes.
type refusal struct {
	c       *counters
	key     string
	cost    int64
	since   int64 // by the callers' clock
	outcome limit.Outcome
}

// certain reports whether a charge is refused for certain now. If so, it sets all outcomes. The
// outcome of a charge that is not certain is limit.Unknown.
func (r *refusals) certain(now int64, charges []limit.Charge) (refused bool) {
	for i := range charges {
		ch := &charges[i]
		f := r.cell(ch).Load()
		if f == nil || !f.concerns(ch) || f.cost != ch.Cost || ch.Shadow {
			continue
		}
		passed := max(now-f.since, 0)
		if passed >= min(f.outcome.Wait, longestRefusal) {
			continue
		}
		if !refused {
			for k := range charges {
				charges[k].Outcome = limit.Outcome{Allowed: true, Remaining: limit.Unknown}
			}
		}
		refused = true
		ch.Outcome = f.outcome
		ch.Outcome.Wait -= passed
		ch.Outcome.Reset = max(ch.Outcome.Reset-passed, 0)
	}
	return refused
}

// remember stores the charges that Redis has refused. The request arrived at now, when r.generation
// was generation. A refusal that Redis decided before a refund is not certain.
func (r *refusals) remember(now int64, generation uint64, charges []limit.Charge) {
	for i := range charges {
		ch := &charges[i]
		c := ch.Counters.(*counters)
		if o := ch.Outcome; !o.Allowed && !ch.Shadow && !c.fleeting() {
			r.cell(ch).Store(&refusal{c, string(ch.Key), ch.Cost, now, o})
			if r.generation.Load() != generation {
				r.cell(ch).Store(nil)
			}
		}
	}
}

// fleeting reports whether a refused request may be allowed soon. Slots and scheduled times can
// become free at any time, and the next reservation may allow a longer wait.
func (c *counters) fleeting() bool { return c.queue || c.reserver || c.held }

// forget is called when a charge of an actor is refunded, or its counter is reset. The charge can
// have been made under another limit of the same counters than the one that refuses.
func (r *refusals) forget(a actor) {
	r.generation.Add(1)
	p := r.cellOf([]byte(a.key), r.salt(a.name.Value()))
	if f := p.Load(); f != nil && f.c.name == a.name && f.key == a.key {
		p.Store(nil)
	}
}

// forgetAll is called when Redis is reachable again, because it may have lost its memory.
func (r *refusals) forgetAll() {
	for i := range r.cells {
		r.cells[i].Store(nil)
	}
}

func (r *refusals) cell(ch *limit.Charge) *atomic.Pointer[refusal] {
	return r.cellOf(ch.Key, ch.Counters.(*counters).salt)
}

func (r *refusals) cellOf(key []byte, salt uint64) *atomic.Pointer[refusal] {
	return &r.cells[(maphash.Bytes(r.seed, key)^salt)%uint64(len(r.cells))]
}

// salt separates the actors of several counters.
func (r *refusals) salt(counters string) uint64 { return maphash.String(r.seed, counters) }

func (f *refusal) concerns(ch *limit.Charge) bool {
	return f.c == ch.Counters.(*counters) && f.key == string(ch.Key)
}
