// SPDX-License-Identifier: MIT

package diana

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// lines are where requests stand that are over a limit whose rule has a wait: one line for
// each actor of a rule, in order of arrival, for as long as someone stands there.
//
// A line reserves nothing. Its first asks for all rules of its request again, by Take, when
// the time has come that it was told; so who goes on is decided as ever, exactly and by
// all rules or none. The others sleep until they are the first. Whoever comes meanwhile
// goes to the end:
//
//	arrives ──→ [ 4 ][ 3 ][ 2 ][ 1 ] ──→ Take, when its moment has come
//
// A request stands in one line, that of the rule that refuses it for longest, and changes
// to another's when that is what it has to wait for. It finds its place there by when it
// arrived. So no request ever waits for one that stands in front of it and waits for
// something else: an actor with too many requests under a rule of its own does not hold up
// everybody in the line of a rule for all. Standing in all lines at once would do that.
//
// There is no deadlock, as the first of a line waits for time alone; and nobody starves
// for longer than the wait of the rule, after which it is refused.
type lines struct {
	room *waitRoom    // where each request in a line has a place
	some atomic.Int64 // requests in all lines; may be read without the lock

	mu       sync.Mutex // guards the rest
	by       map[lineKey]*line
	arrivals uint64
}

// lineKey names a line by what is counted, and so stays the same across configurations.
type lineKey struct{ counters, actor string }

type line struct{ waiters []*waiter } // by arrival, at least one

// waiter is a request in a line. Its memory is used again for others.
type waiter struct {
	began int64         // moment at which it came
	wake  chan struct{} // gets a value when it is to look anew

	// The rest is guarded by lines.mu.

	arrival uint64 // its place among all that came
	key     lineKey
	line    *line // nil: in none
	until   int64 // moment at which it is worth while to ask, once it is the first, or in none
	leaves  int64 // moment at which it gives up, unless it is the first
}

// Microseconds.
const (
	// What those in front may take to go on one after another: for so long one stays on
	// whose wait is over when its turn has just come.
	handover = 10_000

	// How long at least the first of a line leaves Redis alone, or a meter that knows no time. A
	// limit of thousands a second loses nothing by it, as many go on then.
	pause = 1000

	// How often the first of a line asks Redis for a slot, which other gateways release without
	// a word. A slot that this gateway releases wakes it at once.
	askForSlot = 20_000
)

// takeTurn is decide for requests under a rule with a wait: one that is over such a limit,
// or finds others waiting, waits for its turn.
func (j *judgement) takeTurn(ctx context.Context, now int64, d *Decision) error {
	l, lines := j.limiter, &j.limiter.lines
	behind := j.someWait()
	if behind {
		d.Allowed = false
		if err := j.look(ctx, now); err != nil {
			return err
		}
	} else if err := j.decide(ctx, now, d); err != nil || d.Allowed {
		return err
	}
	w := &j.waiter
	lines.arrive(w, now)
	defer lines.leave(w)
	if !j.stand(w, now, behind) {
		return nil
	}
	if hasSmallBody(j.request.HTTP) { // read outside of the line, as it may come slowly
		lines.leave(w)
		if err := readSmallBody(j.request.HTTP); err != nil {
			return err
		}
		lines.arrive(w, w.began)
		gone := behind && !j.someWait() // those that it would wait for
		if !gone && !j.stand(w, now, behind) {
			return nil
		}
	}
	for {
		first, err := lines.await(ctx, w, l.local.Now)
		if err != nil {
			return err
		}
		if !first {
			j.giveUp(w)
			return nil
		}
		now = l.local.Now()
		a, redis := l.inForce()
		if a != j.active {
			j.active = a
			if strange := a.set.Find(&j.match, &j.request); strange != nil {
				d.Allowed = false
				return l.reject(strange)
			}
		}
		d.Degraded, d.Allowed = j.fill(now, redis), true
		err = j.decide(ctx, now, d)
		switch {
		case err != nil:
			d.Allowed = false
			return err
		case d.Allowed:
			if w.key != (lineKey{}) {
				j.waited = w.key.counters
				d.Delayed = time.Duration(now-w.began) * time.Microsecond
			}
			return nil
		case !j.stand(w, now, false):
			return nil
		}
	}
}

// look judges the request by the counters of this process and counts it nowhere: with it
// goes a charge that is always refused. So one that a rule refuses which lets nobody wait
// takes no place in a line. What only Redis knows is not asked.
func (j *judgement) look(ctx context.Context, now int64) error {
	n := len(j.here.list)
	j.here.list = append(j.here.list, limit.Charge{Counters: j.limiter.nobody, Cost: 1})
	_, err := j.limiter.local.Take(ctx, now, j.here.list)
	j.here.list = j.here.list[:n]
	for i := range j.there.list {
		j.there.list[i].Outcome = limit.Outcome{Allowed: true, Remaining: limit.Unknown}
	}
	return err
}

// someWait reports whether others wait in a line of the request.
func (j *judgement) someWait() bool {
	l := &j.limiter.lines
	if l.some.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range []*charges{&j.here, &j.there} {
		for i := range c.list {
			if j.wait(c, i) > 0 && l.of(c.of[i].rule.Counters, c.list[i].Key) != nil {
				return true
			}
		}
	}
	return false
}

// wait returns how long the rule of a charge lets requests wait, in microseconds.
func (j *judgement) wait(c *charges, i int) int64 {
	r := c.of[i].rule
	if c == &j.here && r.Scope == rule.Global && r.OnError == rule.Closed {
		return 0 // it is refused for want of Redis, and not for a while
	}
	return j.active.enforced[r.Slot].wait
}

// never reports whether a charge costs more than is ever allowed.
func (j *judgement) never(c *charges, i int, now int64) bool {
	r := c.of[i].rule
	m := r.Meter
	if c == &j.here {
		m = j.active.enforced[r.Slot].meter
	}
	cost := c.list[i].Cost
	return cost > 1 && !m.Peek(limit.State{}, now, cost).Allowed
}

// neverAllows reports whether a rule never allows a request of that cost: its meter refuses a
// client that has used nothing, also after the wait that the meter asks for. It asks the
// meter of the whole limit. The share of a gateway that has lost Redis can be too small for the
// request, but only for a while.
func neverAllows(r *plan.Rule, now, cost int64) bool {
	first := r.Meter.Peek(limit.State{}, now, cost)
	return !first.Allowed && !r.Meter.Peek(limit.State{}, now+first.Wait, cost).Allowed
}

// stand puts a request that was judged at the moment now, and refused, into the line in
// which it has to wait longest. It reports false if a rule refuses it that lets nobody
// wait, or not for so long as it would take, or for ever, or if no more requests may wait; then
// it stands in none. With behind it also counts as refused where others wait.
func (j *judgement) stand(w *waiter, now int64, behind bool) bool {
	l := &j.limiter.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	last, lastWait := int64(-1), int64(0)
	var counters string // of the line in which it stands longest
	var actor []byte
	for _, c := range []*charges{&j.here, &j.there} {
		for i := range c.list {
			ch, wait := &c.list[i], j.wait(c, i)
			refused := !ch.Outcome.Allowed
			if ch.Shadow || !refused && (!behind || wait == 0) {
				continue
			}
			if wait == 0 || refused && j.never(c, i, now) {
				l.leaveLocked(w)
				return false
			}
			turn := int64(-1)
			if refused {
				turn = now + ch.Outcome.Wait
				if c == &j.there || ch.Outcome.Wait == 0 {
					turn = max(turn, now+pause)
				}
				if c.of[i].rule.Algorithm.Held {
					turn = slotTurn(now, w.began+wait, c == &j.there)
				}
			}
			if ahead, first := l.of(c.of[i].rule.Counters, ch.Key).ahead(w); ahead > 0 {
				turn = max(turn, max(first, j.limiter.local.Now())+spacing(c.of[i].rule, ahead))
				refuse(ch, turn-now)
			}
			switch {
			case turn < 0:
			case turn-w.began > wait:
				l.leaveLocked(w)
				return false
			case turn > last:
				last, lastWait, counters, actor = turn, wait, c.of[i].rule.Counters, ch.Key
			}
		}
	}
	if last < 0 { // those in front are gone
		l.leaveLocked(w)
		return true
	}
	if !l.join(w, lineKey{counters, string(actor)}, last) {
		return false
	}
	w.leaves = w.began + lastWait + handover
	return true
}

// slotTurn returns when the first of a line asks for a slot that is not released before: in
// this process at the end of its wait, of Redis now and then until that. Past the end it is
// refused.
func slotTurn(now, end int64, redis bool) int64 {
	if now >= end {
		return end + 1
	}
	if redis {
		return min(now+askForSlot, end)
	}
	return end
}

// giveUp fills in the outcome of a request that leaves before it was the first.
func (j *judgement) giveUp(w *waiter) {
	l := &j.limiter.lines
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range []*charges{&j.here, &j.there} {
		for i := range c.list {
			ch := &c.list[i]
			if c.of[i].rule.Counters == w.key.counters && string(ch.Key) == w.key.actor && !ch.Shadow {
				ahead, first := w.line.ahead(w)
				refuse(ch, max(first-j.limiter.local.Now(), 0)+spacing(c.of[i].rule, ahead))
			}
		}
	}
}

// refuse fills in that a charge is refused for a while, by those who wait.
func refuse(ch *limit.Charge, wait int64) {
	wait = max(wait, 1)
	ch.Outcome = limit.Outcome{Wait: wait, Reset: wait}
}

// spacing returns how long after the first of a line the one gets its turn, at the
// earliest, that has so many in front: what has a burst comes back one by one, and a
// window whole.
func spacing(r *plan.Rule, ahead int64) int64 {
	unit := r.Limit.Unit.Microseconds()
	if r.Algorithm.Held {
		return 0 // slots are released at any time
	}
	if r.Algorithm.Uses("burst") {
		return ahead * unit / r.Limit.N
	}
	return ahead / r.Limit.N * unit
}

// arrive makes a waiter the last of all that came.
func (l *lines) arrive(w *waiter, began int64) {
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
	}
	select {
	case <-w.wake: // meant for who had its memory before
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrivals++
	w.arrival, w.began, w.key, w.until = l.arrivals, began, lineKey{}, 0
}

// of returns the line of an actor, or nil. l.mu is held.
func (l *lines) of(counters string, actor []byte) *line {
	return l.by[lineKey{counters, string(actor)}] // which copies nothing
}

// ahead returns how many stand in front of w in a line, or would, and until when the
// first of them waits. Nobody stands in nil.
func (l *line) ahead(w *waiter) (n, until int64) {
	if l == nil {
		return 0, 0
	}
	return int64(l.place(w)), l.waiters[0].until
}

// place returns how many of a line came before w.
func (l *line) place(w *waiter) int {
	for i := len(l.waiters); i > 0; i-- { // most come to the end
		if l.waiters[i-1].arrival < w.arrival {
			return i
		}
	}
	return 0
}

// join puts w into a line, or leaves it there. turn is when it is worth while to ask, if
// it is the first; otherwise it asks when it becomes that. It reports false, and w is in no
// line, if no more requests may wait. l.mu is held.
func (l *lines) join(w *waiter, key lineKey, turn int64) bool {
	if w.line == nil || w.key != key {
		l.leaveLocked(w)
		if !l.room.enter(key.counters) {
			return false
		}
		if w.line = l.by[key]; w.line == nil {
			w.line = &line{}
			if l.by == nil {
				l.by = map[lineKey]*line{}
			}
			l.by[key] = w.line
		}
		w.key = key
		w.line.waiters = slices.Insert(w.line.waiters, w.line.place(w), w)
		l.some.Add(1)
	}
	w.until = turn
	if w.line.waiters[0] != w {
		w.until = 0
	}
	return true
}

// leave takes w out of its line.
func (l *lines) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(w)
}

// leaveLocked takes w out of its line, and wakes the one that becomes the first.
func (l *lines) leaveLocked(w *waiter) {
	if w.line == nil {
		return
	}
	line := w.line
	w.line = nil
	i := slices.Index(line.waiters, w)
	line.waiters = slices.Delete(line.waiters, i, i+1)
	l.some.Add(-1)
	l.room.leave(w.key.counters)
	if len(line.waiters) == 0 {
		delete(l.by, w.key)
	} else if i == 0 {
		line.waiters[0].look()
	}
}

// look wakes a waiter, which finds out why.
func (w *waiter) look() {
	select {
	case w.wake <- struct{}{}:
	default: // it has been woken already
	}
}

// wakeAll has the first of each line ask at once, as the rules may have changed.
func (l *lines) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.by {
		line.ask()
	}
}

// ask has the first of a line ask at once.
func (l *line) ask() {
	l.waiters[0].until = 0
	l.waiters[0].look()
}

// freed has those ask at once who are first where charges of the request have been given
// back: those to the rules for which back says so.
func (j *judgement) freed(c *charges, back func(*plan.Rule) bool) {
	l := &j.limiter.lines
	if l.some.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range c.list {
		r := c.of[i].rule
		if c.of[i].silent || !c.list[i].Outcome.Allowed || !back(r) {
			continue
		}
		if line := l.of(r.Counters, c.list[i].Key); line != nil {
			line.ask()
		}
	}
}

// always is for freed: everything has been given back.
func always(*plan.Rule) bool { return true }

// await waits until w is the first of its line and its moment has come, or until its wait
// is over.
func (l *lines) await(ctx context.Context, w *waiter, now func() int64) (first bool, err error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait, first := l.position(w, now())
		if wait <= 0 {
			return first, nil
		}
		timer.Reset(time.Duration(wait) * time.Microsecond)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// position tells how long w has to wait, and whether it is the first of its line.
func (l *lines) position(w *waiter, now int64) (wait int64, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.line == nil || w.line.waiters[0] == w {
		return w.until - now, true
	}
	return w.leaves - now, false
}
