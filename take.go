// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/redisstore"
	"github.com/diana-limiter/diana/rule"
)

// Take judges a request and counts it, under all rules that cover it or, if one
// refuses, under none. Where a leaky bucket or a rule's wait says so it waits for the
// request's turn.
// For global rules it waits for Redis, for redis.timeout at most, and does without it if
// it is out of reach.
//
// The error is ctx's, if ctx ended while the request waited, or a rule.PathError. Then the request
// is counted nowhere, and the Decision is a refusal without Verdicts that has ended: Done need not
// be called, and does nothing. Without an error the Decision must be ended with Done.
//
// Take does not read the body of Request.HTTP. It does not allocate under
// local rules, unless the request waits, its path is spelled strangely, or the value
// of a cookie, query parameter or host is not in its canonical form.
func (l *Limiter) Take(ctx context.Context, r Request) (Decision, error) {
	d, err := l.take(ctx, r, nil)
	switch {
	case err != nil:
		d.Done()
	case l.options.OnDecision != nil:
		l.observe(d)
	}
	return d, err
}

// take is Take, but a Decision with an error must be ended too, and it does not call OnDecision. If
// the request has to wait, take calls beforeWait first, which may be nil. Its error is returned.
func (l *Limiter) take(ctx context.Context, r Request, beforeWait func(*http.Request) error) (Decision, error) {
	a, redis := l.inForce()
	j := l.judgements.Get().(*judgement)
	j.active, j.request, j.held, j.owed, j.waited = a, r, false, false, ""
	j.beforeWait = beforeWait
	complete(&j.request)
	d := Decision{Allowed: true, j: j, use: j.use.Load()}
	if strange := a.set.Find(&j.match, &j.request); strange != nil {
		d.Allowed = false
		return d, l.reject(strange)
	}
	if len(j.match.Rules) == 0 {
		return d, nil
	}
	now := l.local.Now()
	d.Degraded = j.fill(now, redis)
	if j.queues {
		if err := j.prepareWait(); err != nil {
			d.Allowed = false
			return d, err
		}
	}
	var err error
	if j.waits && l.options.Now == nil {
		err = j.takeTurn(ctx, now, &d)
	} else {
		err = j.decide(ctx, now, &d)
	}
	if err == nil && d.Allowed {
		err = j.await(ctx, now, &d)
	}
	if err == nil && d.Degraded {
		l.fallback.Add(1) // a counter that all cores share costs nothing while Redis counts
	}
	j.report(&d, now, err != nil)
	return d, err
}

// prepareWait calls beforeWait, once.
func (j *judgement) prepareWait() error {
	before := j.beforeWait
	if j.beforeWait = nil; before == nil {
		return nil
	}
	return before(j.request.HTTP)
}

// inForce returns the configuration in force, and whether Redis is within reach. When
// Redis comes back, a configuration in which both stores decide is put in force before
// anyone is told; so the one that was in force before must not be used with a Redis that
// is within reach.
func (l *Limiter) inForce() (a *active, redis bool) {
	for {
		a = l.active.Load()
		redis = a.global != nil && a.global.Up()
		if !redis || a == l.active.Load() {
			return a, redis
		}
	}
}

// Explain returns which rules would judge the request now, in their order, and the
// keys that it would be counted under. It counts nothing. The error is a rule.PathError.
func (l *Limiter) Explain(r Request) ([]rule.Explanation, error) {
	complete(&r)
	return l.active.Load().set.Explain(&r)
}

// Identify returns who makes the request by the identity of the configuration in force: the
// account and the device, "" where the request tells none, and the client's address, whose
// zero value is none.
func (l *Limiter) Identify(r Request) (account, device string, ip netip.Addr) {
	complete(&r)
	return l.active.Load().set.Identify(&r)
}

// charges are those of one store.
type charges struct {
	list []limit.Charge
	of   []origin // of each
}

// origin tells what a charge is for.
type origin struct {
	rule  *rule.Rule // as it holds for who makes the request
	index int        // of its verdict, and in match.Rules
	end   int        // of its key in judgement.keys

	// silent marks a charge that only remembers, see remember.go. When Redis has just come back
	// the counters in this process decide as well.
	silent bool
}

func (c *charges) reset() { c.list, c.of = c.list[:0], c.of[:0] }

// keepAllowed drops the charges whose rule, by the charges that were judged, has refused the
// request as a shadow.
func (c *charges) keepAllowed(judged *charges) {
	list, of := c.list[:0], c.of[:0]
	for i, o := range c.of {
		if !judged.refused(o.index) {
			list, of = append(list, c.list[i]), append(of, o)
		}
	}
	c.list, c.of = list, of
}

// refused reports whether a charge of that rule was not allowed.
func (c *charges) refused(index int) bool {
	for i, o := range c.of {
		if o.index == index && !c.list[i].Outcome.Allowed {
			return true
		}
	}
	return false
}

func (c *charges) add(counters limit.Counters, cost int64, shadow bool, o origin) {
	c.list = append(c.list, limit.Charge{Counters: counters, Cost: cost, Shadow: shadow})
	c.of = append(c.of, o)
}

// fill makes the charges of the request: those for Redis if it is within reach, and
// those for this process. It reports whether a global rule is judged without Redis.
//
// What goes to Redis is also charged here: see remember.go. What this process allows without
// Redis is told to Redis: see judgement.debts.
func (j *judgement) fill(now int64, redis bool) (degraded bool) {
	j.here.reset()
	j.there.reset()
	j.debts.reset()
	j.verdicts, j.keys, j.starts = j.verdicts[:0], j.keys[:0], j.starts[:0]
	j.queues, j.waits, j.excepted = false, false, false
	var ip netip.Addr
	haveIP := false
	for i, r := range j.match.Rules {
		j.starts = append(j.starts, len(j.keys))
		if !r.CountsAll() {
			if !haveIP {
				ip, haveIP = j.active.set.ClientIP(&j.request), true
			}
			if j.keys, r = r.AppendKey(j.keys, &j.request, ip); r == nil {
				j.verdicts, j.excepted = append(j.verdicts, Verdict{}), true
				continue
			}
		}
		inRedis := redis && r.Scope == rule.Global
		degraded = degraded || r.Scope == rule.Global && !inRedis
		j.verdicts = append(j.verdicts, Verdict{Rule: r, Outcome: limit.Outcome{Allowed: true, Remaining: limit.Unknown}})
		e := &j.active.enforced[r.Slot]
		j.waits = j.waits || e.wait > 0
		cost := r.Cost.N
		if r.Cost.Header != "" {
			cost = j.active.set.CostOf(r, &j.request)
		}
		shadow := r.Mode == rule.Shadow
		o := origin{r, i, len(j.keys), false}
		silent := o
		silent.silent = true
		switch {
		case inRedis:
			j.there.add(e.global, cost, shadow, o)
			if now <= e.both {
				j.here.add(e.counters, cost, shadow, silent)
			} else {
				j.here.add(e.known, cost, true, silent)
			}
		case e.counters != nil:
			j.here.add(e.counters, cost, shadow, o)
		case e.known != nil && r.Algorithm.Held: // on_error is open: Redis is told of the slots
			j.here.add(e.known, cost, true, silent)
		}
		if r.Scope == rule.Global && !inRedis && e.global != nil && (e.counters != nil || r.Algorithm.Held) {
			j.debts.add(e.global, cost, shadow, o)
		}
		j.queues = j.queues || !shadow && queues(r)
	}
	for _, c := range []*charges{&j.here, &j.there, &j.debts} {
		j.setKeys(c)
	}
	return degraded
}

// setKeys gives the charges their keys, when j.keys no longer moves.
func (j *judgement) setKeys(c *charges) {
	for i, o := range c.of {
		c.list[i].Key = j.keys[j.starts[o.index]:o.end]
	}
}

// decide asks the stores: this process first, and Redis only for what that lets pass.
// What Redis refuses is given back here. If Redis cannot be asked, the request is judged
// once more, without it.
func (j *judgement) decide(ctx context.Context, now int64, d *Decision) (err error) {
	local := j.limiter.local
	if len(j.here.list) > 0 {
		if d.Allowed, err = local.Take(ctx, now, j.here.list); err != nil || !d.Allowed {
			j.there.reset() // not asked
			j.debts.reset()
			return err
		}
	}
	if len(j.there.list) == 0 {
		j.debit(now)
		return nil
	}
	j.remember(&j.there)
	if d.Allowed, err = j.active.global.Take(ctx, now, j.there.list); err == nil && d.Allowed {
		return nil
	}
	local.Refund(j.here.list)
	if !errors.Is(err, redisstore.ErrUnavailable) {
		j.freed(&j.here, always)
		j.here.restore()
		return err
	}
	j.limiter.countRedisError(err)
	j.failed, j.there = j.there, j.failed
	d.Degraded = j.fill(now, false)
	for i, o := range j.debts.of { // whether Redis has made them is known by the call that failed
		for k, failed := range j.failed.of {
			if failed.index == o.index {
				j.debts.list[i].Ticket = j.failed.list[k].Ticket
			}
		}
	}
	j.failed.reset()
	d.Allowed = true
	return j.decide(ctx, now, d)
}

// debit tells Redis what this process has allowed by itself.
func (j *judgement) debit(now int64) {
	if j.debts.keepAllowed(&j.here); len(j.debts.list) > 0 {
		j.remember(&j.debts)
		j.active.global.Debit(now, j.debts.list)
	}
}

// await waits until the request's turns have come. If no more requests may wait, it refuses the
// request.
func (j *judgement) await(ctx context.Context, now int64, d *Decision) (err error) {
	c, i := &j.here, j.here.last()
	if j.there.wait() > j.here.wait() {
		c, i = &j.there, j.there.last()
	}
	if i < 0 {
		return nil
	}
	if j.limiter.options.Now != nil { // no timer knows when that gets there
		d.Delayed = c.wait()
		return nil
	}
	room, counters := &j.limiter.room, c.of[i].rule.Counters
	if !room.enter(counters) {
		j.undo()
		d.Allowed = false
		refuse(&c.list[i], c.list[i].Outcome.Wait)
		return nil
	}
	defer room.leave(counters)
	// First the wait whose length is known, as the line of this process goes by the clock:
	// so the request waits for the longer, and not for the sum.
	if j.there.wait() > 0 {
		err = j.active.global.Wait(ctx, j.there.list)
	}
	if err == nil && j.here.wait() > 0 {
		err = j.limiter.local.Wait(ctx, j.here.list)
	}
	if err != nil {
		j.undo()
		d.Allowed = false
		return err
	}
	d.Delayed = time.Duration(j.limiter.local.Now()-now) * time.Microsecond
	return nil
}

// undo gives back all that the request was charged, which then is not allowed.
func (j *judgement) undo() {
	j.limiter.local.Refund(j.here.list)
	j.giveThere(j.there.list)
	j.giveThere(j.debts.list)
	j.freed(&j.here, always)
	j.freed(&j.there, always)
	for _, c := range []*charges{&j.here, &j.there} {
		c.restore()
	}
}

// restore adds to what remains what has been given back.
func (c *charges) restore() {
	for i := range c.list {
		if ch := &c.list[i]; ch.Outcome.Allowed && ch.Outcome.Remaining != limit.Unknown {
			ch.Outcome.Remaining += ch.Cost
		}
	}
}

// last returns the charge that was allowed with the longest wait, or -1 if there is none.
func (c *charges) last() int {
	last := -1
	for i := range c.list {
		o := &c.list[i].Outcome
		if o.Allowed && !c.list[i].Shadow && o.Wait > 0 && (last < 0 || o.Wait > c.list[last].Outcome.Wait) {
			last = i
		}
	}
	return last
}

// wait returns how long the longest wait is that a charge was allowed with.
func (c *charges) wait() time.Duration {
	if i := c.last(); i >= 0 {
		return time.Duration(c.list[i].Outcome.Wait) * time.Microsecond
	}
	return 0
}

// report fills in the decision from the charges, and the tallies. A request whose
// caller left is in none.
func (j *judgement) report(d *Decision, now int64, left bool) {
	never := false
	for _, c := range []*charges{&j.here, &j.there} {
		for i := range c.list {
			if c.list[i].Shared && !left {
				j.overflowed(c.of[i].rule, now)
			}
			if c.of[i].silent && (c.list[i].Shadow || c.list[i].Outcome.Allowed) {
				continue // Redis' word counts
			}
			v := &j.verdicts[c.of[i].index]
			if !v.Allowed {
				continue // the share of this process has refused already
			}
			v.Outcome = c.list[i].Outcome
			never = never || v.Refused() && neverAllows(v.Rule, now, c.list[i].Cost)
			if !left {
				if !v.Allowed && j.notes(now) {
					j.limiter.note(now, j.active.enforced[v.Rule.Index].record, v, c.list[i].Key, &j.request)
				}
				j.count(d, v)
			}
		}
	}
	if never {
		d.RetryAfter = 0
	}
	if j.excepted {
		j.verdicts = slices.DeleteFunc(j.verdicts, func(v Verdict) bool { return v.Rule == nil })
	}
	d.Verdicts = j.verdicts
}

// count adds a verdict to the tally of its rule.
func (j *judgement) count(d *Decision, v *Verdict) {
	t := j.part(v.Rule)
	switch {
	case v.Refused():
		d.RetryAfter = max(d.RetryAfter, time.Duration(max(v.Wait, 1))*time.Microsecond)
		t.refused.Add(1)
	case !v.Allowed:
		t.shadowRefused.Add(1)
	case !d.Allowed: // another rule refused: this one has not been charged
	case v.Wait > 0 && v.Rule.Mode == rule.Enforce, j.waited != "" && j.waited == v.Rule.Counters:
		t.delayed.Add(1)
	default:
		t.allowed.Add(1)
	}
	if d.Allowed && v.Allowed {
		j.held = j.held || v.Rule.Algorithm.Held
		j.owed = j.owed || len(v.Rule.Charge) > 0
	}
}
