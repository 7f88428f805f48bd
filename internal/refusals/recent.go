// SPDX-License-Identifier: MIT

package refusals

import (
	"container/list"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/plan"
)

// recent decides which refusals are reported. It remembers the reported actors, the actor with
// the oldest report first:
//
//	order ──→ [ ann, 58 s ago, 12 since ][ bob, 3 s ago, 0 since ]
//
// At most nine actors are reported in a second, so 540 in a minute. Because 1,024 are remembered,
// a forgotten actor was reported over a minute ago, and no actor is reported twice within a
// minute, whatever names attackers invent. The tenth report of a second is for the number that was
// left out. The zero value is empty. Log.mu guards it.
type recent struct {
	actors  map[actorKey]*list.Element // of order
	order   list.List                  // of *reported
	times   [9]int64                   // moments of the latest reports
	oldest  int                        // of times
	leftOut int64                      // refusals that are in no count
	unsent  int                        // how many of order have a since
}

const (
	maxReported = 1024
	minute      = int64(time.Minute / time.Microsecond)
	second      = int64(time.Second / time.Microsecond)
)

type actorKey struct {
	rule  *Rule
	actor string
}

// reported is an actor whose refusal was reported.
type reported struct {
	key    actorKey
	actor  string // the key as people read it
	latest Refusal
	at     int64 // moment of the last report
	since  int64 // refusals that were noted since

	// Of the rule at the last report: all refusals that were noted, and all there were. Between two
	// reports they tell how many refusals each noted one stands for.
	noted, total int64
}

// note notes a refusal, and returns the report that is due: none if its Count is 0.
func (g *recent) note(now int64, of *Rule, key []byte, r Refusal) Refusal {
	e := g.actors[actorKey{of, string(key)}]
	if e == nil {
		if !g.room(now) {
			g.leftOut++
			return Refusal{}
		}
		e = g.add(actorKey{of, string(key)})
	}
	a := e.Value.(*reported)
	if a.since++; a.since == 1 {
		g.unsent++
	}
	a.latest = r
	switch {
	case a.at == 0: // a new actor, for which there is room
	case now-a.at < minute || !g.room(now):
		return Refusal{}
	}
	return g.take(now, e)
}

// add remembers an actor, and forgets another one if there are too many.
func (g *recent) add(key actorKey) *list.Element {
	if g.order.Len() >= maxReported {
		e := g.order.Front()
		a := e.Value.(*reported)
		if a.since > 0 {
			g.unsent--
			g.leftOut += a.since
		}
		delete(g.actors, a.key)
		g.order.Remove(e)
	}
	if g.actors == nil {
		g.actors = map[actorKey]*list.Element{}
	}
	e := g.order.PushBack(&reported{key: key, actor: plan.ActorText(key.actor)})
	g.actors[key] = e
	return e
}

// take returns the report of an actor. There must be room.
func (g *recent) take(now int64, e *list.Element) Refusal {
	a := e.Value.(*reported)
	noted := a.key.rule.noted
	total := max(a.key.rule.Total(), noted) // the tally counts this one later
	report := a.latest
	report.Actor = a.actor
	report.Method, report.Path = strings.Clone(report.Method), strings.Clone(report.Path)
	report.Count = a.since
	if a.at != 0 {
		report.Count = scaled(a.since, total-a.total, noted-a.noted)
	}
	a.at, a.since, a.noted, a.total = now, 0, noted, total
	g.unsent--
	g.order.MoveToBack(e)
	g.times[g.oldest] = now
	g.oldest = (g.oldest + 1) % len(g.times)
	return report
}

// room reports whether another report is within the bound.
func (g *recent) room(now int64) bool {
	first := g.times[g.oldest]
	return first == 0 || now-first >= second
}

// pending reports whether some refusals are in no report yet.
func (g *recent) pending() bool { return g.leftOut > 0 || g.unsent > 0 }

// due returns the reports that are due although no request has arrived.
func (g *recent) due(now int64) (due []Refusal) {
	if g.leftOut > 0 {
		due = append(due, Refusal{LeftOut: g.leftOut})
		g.leftOut = 0
	}
	for e := g.order.Front(); e != nil && g.unsent > 0; {
		a := e.Value.(*reported)
		if now-a.at < minute || !g.room(now) {
			break // the rest was reported later
		}
		next := e.Next()
		if a.since > 0 {
			due = append(due, g.take(now, e))
		}
		e = next
	}
	return due
}
