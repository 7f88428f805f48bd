// SPDX-License-Identifier: MIT

package decide

import (
	"time"

	"github.com/diana-limiter/diana/internal/credentials"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/redisstore"
)

// A gateway remembers each actor that it counts in another store, so max_keys bounds the counters
// that it makes there too. Every charge to another store goes with a local charge, which comes
// first and refuses nothing. Where the local store has no room for the actor, its overflow counter
// gets the charge, and so does the overflow counter of the other store:
//
//	actor      local store       other store
//	known      its own counter   its own counter
//	no room    overflow          overflow, which all gateways share
//
// The local record lives about as long as the state that this gateway's charges make in the other
// store, because the same algorithm keeps both:
//
//	on_error share, local    the counter that decides without Redis, and so is kept warm
//	on_error closed, open    a counter of the whole limit, which decides nothing
//	concurrency              the counter of the slots that this gateway holds, without a limit
//
// Refunds and releases find the charged counter by the key and by Charge.Shared, also after the
// actor has got a record of its own.

// Limits are a compiled configuration that is bound to its stores. They never change.
type Limits struct {
	Plan

	// DegradedSince is since when some rules are evaluated without their store, or nil.
	DegradedSince *time.Time

	stores []limit.Store // that charges go to; the first is the local one
	local  bool          // the local store alone counts all rules
	last   int           // the index of the local store again, for adaptive rules; 0: there are none
	redis  int           // the index of Redis; 0: there is none
	counts Redis         // counts global rules
	bound  []bound       // by plan.Rule.Slot
}

// Plan is what Limits are made from.
type Plan struct {
	Set     *plan.Set
	MaxKeys int
	Stores  map[string]limit.Store // by scope, beside or in place of the local store and Redis

	Credentials *credentials.Checker // nil: requests have none

	// Attached is for the owner of the Decider, which finds it again by [Evaluation.Limits].
	Attached any
}

// Redis is the state of Redis.
type Redis struct {
	Store    *redisstore.Store // nil: there is no Redis
	Up       bool
	Gateways int   // alive, this one included
	ForgotAt int64 // when Redis was found to have lost its memory; 0: it has not
	BackAt   int64 // when Redis came back, or was found to have lost its memory; 0: never; bounds.EndOfTime: it is down
	WasDown  bool  // it was down before BackAt
	Returns  int64 // how often BackAt has changed
}

// storeSet is a set of stores: a bit for each index of Limits.stores.
type storeSet uint64

func (s storeSet) has(index int) bool { return s&(1<<index) != 0 }

// MaxStores is how many stores beside the local one and Redis a storeSet has room for.
const MaxStores = 62

// bound is how a rule is counted.
type bound struct {
	plain     bool        // plainCharges can evaluate it
	schedules bool        // its meter may schedule requests that it allows
	adapts    bool        // its limit is adaptive, so it is asked last
	allowsOne bool        // its whole limit allows a request of cost 1
	elsewhere bool        // another store than the local one counts it
	store     int         // its index; 0: there is no such store, or it is the local one
	remote    any         // in that store; nil: there is none
	local     any         // decide for a local rule, or while its store is down; nil: every request is allowed
	meter     limit.Meter // of local
	known     any         // local ones that remember the actors of remote, see above; nil: there is no remote
	wait      int64       // the longest wait of a request over the limit, in microseconds
	both      int64       // the moment until which local and remote both decide; 0: they do not
	fresh     any         // decide in place of local while both decide, see [Redis.WasDown]; nil: local does
	next      *nextShare  // fresh of the next return; may be nil
	lowers    bool        // without its store, an actor gets a share of what the store had left
	record    *record
}

// Use puts a plan in force. On an error nothing has changed. Counters that mean the same keep
// their states.
func (d *Decider) Use(p Plan, r Redis, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.useLocked(p, r, now)
}

// UseRedis binds the plan in force again, because the state of Redis has changed.
func (d *Decider) UseRedis(r Redis, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.useLocked(d.limits.Load().Plan, r, now)
}

func (d *Decider) useLocked(p Plan, r Redis, now time.Time) error {
	b := binder{decider: d, limits: &Limits{Plan: p}, redis: r,
		stores: map[string]int{}, records: make(map[string]*record, len(p.Set.Rules)), waits: map[string]bool{}}
	if err := b.bindAll(); err != nil {
		d.retire(b.limits)
		return err
	}
	old := d.limits.Load()
	if b.degraded {
		b.limits.DegradedSince = &now
		if old != nil && old.DegradedSince != nil {
			b.limits.DegradedSince = old.DegradedSince
		}
	}
	b.limits.adoptFullest()
	d.remove(b.records)
	d.local.SetMaxKeys(p.MaxKeys)
	d.room.divide(b.waits)
	d.limits.Store(b.limits)
	d.queues.wakeAll()
	if old != nil {
		d.retire(old)
	}
	return nil
}

// remove replaces the records by next, and keeps the sums of those that are not in next.
func (d *Decider) remove(next map[string]*record) {
	for _, r := range d.removed {
		d.gone = d.gone.Plus(r.tally.decisions())
	}
	d.removed = nil
	for name, r := range d.records {
		if next[name] != r {
			r.fullest.adopt(nil, nil)
			d.removed = append(d.removed, r)
		}
	}
	d.records = next
}

// retire tells the stores that Limits are not in force, or no longer.
func (d *Decider) retire(l *Limits) {
	retire := func(s limit.Store, c any) {
		if c != nil {
			s.Retire(c)
		}
	}
	for _, b := range l.bound {
		retire(d.local, b.local)
		retire(d.local, b.known)
		retire(d.local, b.fresh)
		retire(d.local, b.next.end())
		retire(l.stores[b.store], b.remote)
	}
}
