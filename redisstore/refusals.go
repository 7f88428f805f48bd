// SPDX-License-Identifier: MIT

package redisstore

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/diana-limiter/diana/limit"
)

// refusals remembers who has been refused for how long, so that an actor that goes on
// asking costs Redis nothing until it could be allowed again. Only what other gateways give
// back, an operator who deletes keys, or a Redis that has forgotten could make that
// earlier, so nothing is believed for longer than ten seconds.
//
// It has a fixed number of places, and who is remembered later takes the place of who was
// there. Looking takes no lock.
type refusals struct {
	given  atomic.Uint64 // goes up when something is given back
	seed   maphash.Seed
	places [1 << 13]atomic.Pointer[refusal]
}

const longestRefusal = 10_000_000 // microseconds

// refusal is what is remembered. It never changes.
type refusal struct {
	c       *counters
	key     string
	cost    int64
	since   int64 // by the clock of those who ask
	outcome limit.Outcome
}

// certain reports whether a charge is surely refused now. Then it fills in the outcomes:
// those of charges of which that is not certain are limit.Unknown.
func (r *refusals) certain(now int64, charges []limit.Charge) (refused bool) {
	for i := range charges {
		ch := &charges[i]
		f := r.place(ch).Load()
		if f == nil || !f.of(ch) || f.cost != ch.Cost || ch.Shadow {
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

// remember notes the charges that Redis has refused to a request that came at now, when
// r.given was given: what Redis has judged before something was given back is not certain.
func (r *refusals) remember(now int64, given uint64, charges []limit.Charge) {
	for i := range charges {
		ch := &charges[i]
		c := ch.Counters.(*counters)
		if o := ch.Outcome; !o.Allowed && !ch.Shadow && !c.fleeting() {
			r.place(ch).Store(&refusal{c, string(ch.Key), ch.Cost, now, o})
			if r.given.Load() != given {
				r.place(ch).Store(nil)
			}
		}
	}
}

// fleeting says that what is refused may be allowed soon: places and turns are given back
// at any time, and who reserves may be willing to wait for longer.
func (c *counters) fleeting() bool { return c.queue || c.reserver || c.held }

// forget is called when something of an actor is given back, or all is reset. What is given back
// can have been taken under another limit of the same counters than the one that refuses.
func (r *refusals) forget(a actor) {
	r.given.Add(1)
	p := r.placeOf([]byte(a.key), r.salt(a.name.Value()))
	if f := p.Load(); f != nil && f.c.name == a.name && f.key == a.key {
		p.Store(nil)
	}
}

// forgetAll is called when Redis has come back, and may have forgotten.
func (r *refusals) forgetAll() {
	for i := range r.places {
		r.places[i].Store(nil)
	}
}

func (r *refusals) place(ch *limit.Charge) *atomic.Pointer[refusal] {
	return r.placeOf(ch.Key, ch.Counters.(*counters).salt)
}

func (r *refusals) placeOf(key []byte, salt uint64) *atomic.Pointer[refusal] {
	return &r.places[(maphash.Bytes(r.seed, key)^salt)%uint64(len(r.places))]
}

// salt spreads the actors of several counters apart.
func (r *refusals) salt(counters string) uint64 { return maphash.String(r.seed, counters) }

func (f *refusal) of(ch *limit.Charge) bool {
	return f.c == ch.Counters.(*counters) && f.key == string(ch.Key)
}
