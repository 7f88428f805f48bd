// SPDX-License-Identifier: MIT

package diana

import (
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/top"
)

// Refusal is what Options.OnRefusal is told. It is called for the first refusal, or shadow
// refusal, of an actor under a rule, and then at most once a minute for the same, with the
// count since. All together it is called at most ten times a second; what does not fit is
// told as LeftOut.
type Refusal struct {
	Rule   string // its name
	Actor  string // its key, as plan.ActorText writes it
	Method string // of the latest request that is counted
	Path   string // the same, as it was sent
	Shadow bool   // the rule is in shadow mode: it has not refused the request

	// Count is how many requests were refused since the call before for the same rule and
	// actor. It is an estimate while a core refuses more than 32 requests in a millisecond.
	Count int64

	// LeftOut is how many refusals were not told, because there were too many. A Refusal with
	// a LeftOut has nothing else.
	LeftOut int64
}

// refusals notes which actors are refused: for the list of each rule, and for OnRefusal.
//
// Refusing is the decision that must stay cheap under attack, and noting one costs more than
// deciding it. So each judgement, which one core uses most of the time, notes at most
// mostNoted refusals in a slice of time and leaves the others out: a flood pays a comparison.
// With that bound a lock is good enough: 64 cores that refuse without end hold it for a
// quarter of the time. How many refusals there were is known exactly from the tally of the
// rule, so counts of a sample are scaled up when they are read. A gateway's core does not
// reach the bound, because HTTP takes longer than that.
type refusals struct {
	mu  sync.Mutex // guards the rest, and the refused of all rules
	log refusalLog
}

// A judgement notes so many refusals in a slice of about a millisecond.
const (
	mostNoted = 32
	sliceBits = 10 // of microseconds
)

// How many actors are remembered: of all rules together, and of each at least and at most.
const (
	mostRefused      = 8192
	fewestRefusedFor = 16
	mostRefusedFor   = 1024
)

// refused is whom a rule has refused.
type refused struct {
	noted int64     // refusals in list
	list  *top.List // nil: none
}

// notes reports whether the judgement may note another refusal now.
func (j *judgement) notes(now int64) bool {
	if slice := now >> sliceBits; slice != j.slice {
		j.slice, j.noted = slice, 0
	}
	j.noted++
	return j.noted <= mostNoted
}

// note notes a refusal of the actor with that key. It comes before the tally counts it: so
// if all refusals are noted, a reader of the tally never finds more there than in the list.
func (l *Limiter) note(now int64, record *record, v *Verdict, key []byte, r *Request) {
	n := &l.refusals
	n.mu.Lock()
	of := &record.refused
	if of.list == nil {
		rules := len(l.active.Load().set.Rules)
		of.list = top.New(min(max(mostRefused/max(rules, 1), fewestRefusedFor), mostRefusedFor))
	}
	of.list.Add(key)
	of.noted++
	var say Refusal
	if l.options.OnRefusal != nil {
		say = n.log.note(now, record, v, key, r)
		l.tellLater()
	}
	n.mu.Unlock()
	if say.Count > 0 {
		l.options.OnRefusal(say)
	}
}

// topRefused returns the list of a rule for Status.
func (l *Limiter) topRefused(r *record) []TopRefused {
	total := r.tally.refusals() // before the list is read, see note
	l.refusals.mu.Lock()
	defer l.refusals.mu.Unlock()
	told := []TopRefused{}
	if r.refused.list == nil {
		return told
	}
	for _, e := range r.refused.list.Most(10) {
		told = append(told, TopRefused{
			Actor: plan.ActorText(e.Name),
			Count: scaled(e.N, total, r.refused.noted),
			Exact: e.Over == 0 && total <= r.refused.noted,
		})
	}
	return told
}

// scaled returns what n of a sample stand for, if noted of total are in the sample.
func scaled(n, total, noted int64) int64 {
	if total <= noted {
		return n
	}
	return int64(float64(n) * float64(total) / float64(noted))
}

// tellLater has what is still to be told told within seconds, also if no request comes.
// l.refusals.mu is held.
func (l *Limiter) tellLater() {
	log := &l.refusals.log
	if log.waiting || log.closed || log.leftOut == 0 && log.untold == 0 {
		return
	}
	log.waiting = true
	if log.timer == nil {
		log.timer = time.AfterFunc(time.Second, l.tell)
	} else {
		log.timer.Reset(time.Second)
	}
}

// tell tells what is due.
func (l *Limiter) tell() {
	now := l.local.Now()
	l.refusals.mu.Lock()
	due := l.refusals.log.due(now)
	l.refusals.log.waiting = false
	l.tellLater()
	l.refusals.mu.Unlock()
	for _, r := range due {
		l.options.OnRefusal(r)
	}
}

// endTelling tells how many refusals were left out, and ends the telling.
func (l *Limiter) endTelling() {
	log := &l.refusals.log
	l.refusals.mu.Lock()
	leftOut := log.leftOut
	log.leftOut, log.closed = 0, true
	if log.timer != nil {
		log.timer.Stop()
	}
	l.refusals.mu.Unlock()
	if leftOut > 0 {
		l.options.OnRefusal(Refusal{LeftOut: leftOut})
	}
}
