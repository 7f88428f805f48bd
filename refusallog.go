// SPDX-License-Identifier: MIT

package diana

import (
	"container/list"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// refusalLog decides which refusals are told. It remembers the actors that were told of, the
// one told of longest ago first:
//
//	order ──→ [ ann, 58 s ago, 12 since ][ bob, 3 s ago, 0 since ]
//
// At most nine are told in a second, so 540 in a minute. As 1,024 are remembered, one that is
// forgotten was told of over a minute ago, and no actor is told twice within a minute, whatever
// names attackers invent. The tenth call of a second is for the number that was left out.
// refusals.mu guards it. The zero value is empty.
type refusalLog struct {
	actors  map[toldKey]*list.Element // of order
	order   list.List                 // of *toldOf
	recent  [9]int64                  // moments of the latest calls
	oldest  int                       // of recent
	leftOut int64                     // refusals that are in no count
	untold  int                       // how many of order have a since

	timer   *time.Timer // nil: not yet needed
	waiting bool        // for the timer
	closed  bool
}

const (
	mostTold = 1024
	minute   = int64(time.Minute / time.Microsecond)
	second   = int64(time.Second / time.Microsecond)
)

type toldKey struct {
	record *record
	actor  string
}

// toldOf is an actor that was told of.
type toldOf struct {
	key    toldKey
	latest Refusal
	at     int64 // moment of the last call
	since  int64 // refusals that were noted since

	// Of the rule at the last call: all that were noted, and all there were. Between two calls
	// they tell how many refusals one that was noted stands for.
	noted, total int64
}

// note takes note of a refusal, and returns what is to be told: nothing if its Count is 0.
func (g *refusalLog) note(now int64, record *record, v *Verdict, key []byte, r *Request) Refusal {
	e := g.actors[toldKey{record, string(key)}]
	if e == nil {
		if !g.room(now) {
			g.leftOut++
			return Refusal{}
		}
		e = g.add(toldKey{record, string(key)})
	}
	of := e.Value.(*toldOf)
	if of.since++; of.since == 1 {
		g.untold++
	}
	of.latest = Refusal{Rule: v.Rule.Name, Actor: of.latest.Actor, Method: r.Method, Path: r.Path, Shadow: v.Rule.Mode == rule.Shadow}
	switch {
	case of.at == 0: // a new one, for which there is room
	case now-of.at < minute || !g.room(now):
		return Refusal{}
	}
	return g.take(now, e)
}

// add remembers an actor, and forgets another if there are too many.
func (g *refusalLog) add(key toldKey) *list.Element {
	if g.order.Len() >= mostTold {
		e := g.order.Front()
		of := e.Value.(*toldOf)
		if of.since > 0 {
			g.untold--
			g.leftOut += of.since
		}
		delete(g.actors, of.key)
		g.order.Remove(e)
	}
	if g.actors == nil {
		g.actors = map[toldKey]*list.Element{}
	}
	of := &toldOf{key: key, latest: Refusal{Actor: plan.ActorText(key.actor)}}
	e := g.order.PushBack(of)
	g.actors[key] = e
	return e
}

// take returns what is told of an actor now. There must be room.
func (g *refusalLog) take(now int64, e *list.Element) Refusal {
	of := e.Value.(*toldOf)
	noted := of.key.record.refused.noted
	total := max(of.key.record.tally.refusals(), noted) // the tally counts this one later
	told := of.latest
	told.Method, told.Path = strings.Clone(told.Method), strings.Clone(told.Path)
	told.Count = of.since
	if of.at != 0 {
		told.Count = scaled(of.since, total-of.total, noted-of.noted)
	}
	of.at, of.since, of.noted, of.total = now, 0, noted, total
	g.untold--
	g.order.MoveToBack(e)
	g.recent[g.oldest] = now
	g.oldest = (g.oldest + 1) % len(g.recent)
	return told
}

// room reports whether another call is within the bound.
func (g *refusalLog) room(now int64) bool {
	first := g.recent[g.oldest]
	return first == 0 || now-first >= second
}

// due returns what is to be told though no request has come.
func (g *refusalLog) due(now int64) (due []Refusal) {
	if g.leftOut > 0 {
		due = append(due, Refusal{LeftOut: g.leftOut})
		g.leftOut = 0
	}
	for e := g.order.Front(); e != nil && g.untold > 0; {
		of := e.Value.(*toldOf)
		if now-of.at < minute || !g.room(now) {
			break // those behind were told of later
		}
		next := e.Next()
		if of.since > 0 {
			due = append(due, g.take(now, e))
		}
		e = next
	}
	return due
}
