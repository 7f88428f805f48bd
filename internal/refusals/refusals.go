// SPDX-License-Identifier: MIT

// Package refusals records which actors are refused. It has a list of the most refused actors for each
// rule, and the refusals that are worth a line in a log.
//
// A refusal must stay cheap under attack, and recording a refusal costs more than deciding it. So a
// [Sampler], which one core uses most of the time, allows at most 32 records in a millisecond. Each
// further refusal costs a comparison. With that bound one lock for all rules is enough: 64 cores that
// refuse without a pause hold it for a quarter of the time. The tally of a rule has the exact number of
// its refusals, so a [Log] scales up the counts of a sample. A core of a gateway does not reach the
// bound, because HTTP takes longer than that.
package refusals

import (
	"sync"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/top"
	"github.com/diana-limiter/diana/rule"
)

// Refusal is a refusal, or several of one actor, that is worth a line in a log. See
// diana.Refusal, which has the same fields.
type Refusal struct {
	Rule     string
	Actor    string
	Method   string
	Path     string
	Shadow   bool
	Degraded bool
	Count    int64
	LeftOut  int64
}

// Top is an actor, how often a rule has refused it, and whether that count is exact.
type Top struct {
	Actor string
	Count int64
	Exact bool
}

// Rule is what a Log remembers of one rule.
type Rule struct {
	Name  string
	Total func() int64 // how many requests the rule has refused, in shadow mode too

	noted int64     // refusals in list; Log.mu guards it
	list  *top.List // nil: empty; Log.mu guards it
}

// How many actors a Log remembers: of all rules together, and of each rule at least and at most.
const (
	maxActors        = 8192
	minActorsPerRule = 16
	maxActorsPerRule = 1024
	maxTop           = 10
)

// Sampler bounds how many refusals are noted. The zero value is ready. It is not safe for
// concurrent use.
type Sampler struct {
	slice int64 // of about a millisecond
	n     int   // refusals in that slice
}

const (
	maxNoted  = 32
	sliceBits = 10 // of microseconds
)

// Allow reports whether another refusal may be noted now.
func (s *Sampler) Allow(now int64) bool {
	if slice := now >> sliceBits; slice != s.slice {
		s.slice, s.n = slice, 0
	}
	s.n++
	return s.n <= maxNoted
}

// Log notes refusals and reports some of them. It is safe for concurrent use.
type Log struct {
	report func(Refusal) // nil: none are reported
	now    func() int64

	mu     sync.Mutex // guards the rest, and parts of each Rule
	recent recent
	timer  *time.Timer // nil: not yet needed
	armed  bool        // the timer is running
	closed bool
}

// NewLog returns a Log that calls report at most ten times a second. report may be nil. now
// returns the time in microseconds.
func NewLog(report func(Refusal), now func() int64) *Log { return &Log{report: report, now: now} }

// Note records that a rule has refused r of the actor with that key. rules is the number of all rules.
// Note must be called before the tally of the rule counts the refusal. Then a reader of both never
// finds more refusals in the tally than in the list, unless refusals are left out.
func (l *Log) Note(now int64, of *Rule, rules int, key []byte, r *rule.Request, shadow, degraded bool) {
	l.mu.Lock()
	if of.list == nil {
		of.list = top.New(min(max(maxActors/max(rules, 1), minActorsPerRule), maxActorsPerRule))
	}
	of.list.Add(key)
	of.noted++
	var due Refusal
	if l.report != nil {
		due = l.recent.note(now, of, key, Refusal{Rule: of.Name, Method: r.Method, Path: r.Path, Shadow: shadow, Degraded: degraded})
		l.arm()
	}
	l.mu.Unlock()
	if due.Count > 0 {
		l.report(due)
	}
}

// Top returns the actors that a rule has refused most, at most 10.
func (l *Log) Top(of *Rule) []Top {
	total := of.Total() // before the list is read, see Note
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.list == nil {
		return nil
	}
	var most []Top
	for _, e := range of.list.Most(maxTop) {
		most = append(most, Top{
			Actor: plan.ActorText(e.Name),
			Count: scaled(e.N, total, of.noted),
			Exact: e.Over == 0 && total <= of.noted,
		})
	}
	return most
}

// scaled returns how many refusals n of a sample stand for, when noted of total are in the sample.
func scaled(n, total, noted int64) int64 {
	if total <= noted {
		return n
	}
	return int64(float64(n) * float64(total) / float64(noted))
}

// arm starts the timer when refusals are pending, so that they are reported within seconds even if
// no request arrives. l.mu is held.
func (l *Log) arm() {
	if l.armed || l.closed || !l.recent.pending() {
		return
	}
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Second, l.flush)
	} else {
		l.timer.Reset(time.Second)
	}
}

// flush reports the refusals that are due.
func (l *Log) flush() {
	now := l.now()
	l.mu.Lock()
	due := l.recent.due(now)
	l.armed = false
	l.arm()
	l.mu.Unlock()
	for _, r := range due {
		l.report(r)
	}
}

// Close stops the timer, and reports how many refusals were left out.
func (l *Log) Close() {
	l.mu.Lock()
	leftOut := l.recent.leftOut
	l.recent.leftOut, l.closed = 0, true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	if leftOut > 0 {
		l.report(Refusal{LeftOut: leftOut})
	}
}
