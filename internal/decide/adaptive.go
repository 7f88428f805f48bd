// SPDX-License-Identifier: MIT

package decide

import (
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/limit"
)

// A rule with an adaptive limit is asked last, after Redis. The local store counts it, but its charges are in
// a set of their own, the last one. If it refuses the request, the charges of all other sets are refunded.
//
//	sets[0] local ──> sets[1] Redis ──> ... ──> sets[last] adaptive rules, also in the local store
//
// The request tells it how long the upstream took:
//
//	Take ─ sent, the last byte of the request ─ answered, the status ─ first byte of the body ─ Release
//	                       |<──── begin ───────>|
//	                       |<──── byte ────────────────────────────────>|
//	                       |<──── end ────────────────────────────────────────────────────────────>|
//
// Without the first byte of a body, byte is the end.

// course is what an evaluation knows about the course of its request, in microseconds since the Unix epoch.
type course struct {
	sent    int64         // when the request proceeded
	body    *atomic.Int64 // when the upstream last read from the body of the request; nil: it has none
	status  int           // of the response; 0: not known
	flights []limit.Flight
}

// worksFor is how long after a refusal, also one of the upstream, a rule knows the clients of its requests. That
// matters only then, and takes 50 ns.
const worksFor = 30_000_000

// flightOf returns the Flight of a charge under an adaptive rule.
func (e *Evaluation) flightOf(r *plan.Rule, now int64) *limit.Flight {
	set := e.limits.Set
	f := limit.Flight{Level: set.LevelOf(r, &e.client)}
	if last := e.limits.bound[r.Index].record.shedAt.Load(); last > 0 && now-last < worksFor {
		from := len(e.keys)
		e.keys = set.AppendAccount(e.keys, &e.client)
		f.Client = maphash.Bytes(e.decider.salt, e.keys[from:])
		e.keys = e.keys[:from]
	}
	e.course.flights = append(e.course.flights, f)
	return &e.course.flights[len(e.course.flights)-1]
}

// adaptive returns the charges under adaptive rules.
func (e *Evaluation) adaptive() *charges { return &e.sets[e.limits.last] }

// depart notes that the request proceeds to its upstream.
func (e *Evaluation) depart(now int64) {
	if e.Delayed > 0 {
		now = e.decider.local.Now()
	}
	e.course.sent, e.course.body, e.course.status = now, nil, 0
}

// BodySent returns what the reader of the request's body sets to the present moment whenever the upstream has
// read from it, and the clock for that. It is nil if no rule is adaptive.
func (e *Evaluation) BodySent() (at *atomic.Int64, now func() int64) {
	if !e.adapts {
		return nil, nil
	}
	e.course.body = new(atomic.Int64)
	return e.course.body, e.decider.local.Now
}

// Adapts reports whether a rule learns from the latency of the request.
func (e *Evaluation) Adapts() bool { return e.held && e.adapts }

// MeasuresBody reports whether a rule needs to know when the body of the response begins.
func (e *Evaluation) MeasuresBody() bool {
	return e.Adapts() && slices.ContainsFunc(e.adaptive().of, func(o origin) bool { return o.rule.Measure == "byte" })
}

// Answered tells the rules that the response begins, with that status.
func (h *Handle) Answered(status int) {
	if e := h.Evaluation(); e != nil && e.Adapts() && e.course.status == 0 {
		e.course.status = status
		e.reach("begin")
	}
}

// FirstByte tells the rules that the body of the response begins.
func (h *Handle) FirstByte() {
	if e := h.Evaluation(); e != nil && e.Adapts() {
		e.reach("byte")
	}
}

// noResponse is the status of a request without a response.
const noResponse = 599

// measure returns until when a rule measures a request.
func (e *Evaluation) measure(r *plan.Rule) string {
	switch {
	case r.Measure != "":
		return r.Measure
	case e.decider.options.MeasureBegin:
		return "begin"
	}
	return "end"
}

// reach notes that the request has come to a point of its course. It reports the latency to the rules that measure a
// request until this moment, and releases the slots of those that hold none any longer.
func (e *Evaluation) reach(until string) {
	c := e.adaptive()
	for i := range c.list {
		ch, r := &c.list[i], c.of[i].rule
		measured := e.measure(r) == until && !ch.Flight.Reported
		leaves := until == "begin" && r.HoldBegin
		if !ch.Outcome.Allowed || !measured && !leaves {
			continue
		}
		one := [1]limit.Charge{*ch}
		if !leaves {
			one[0].Cost = 0
		}
		if measured {
			e.land(r, ch.Flight)
		}
		e.decider.local.Refund(one[:])
		ch.Flight.Reported, ch.Flight.Measured, ch.Flight.Ended = ch.Flight.Reported || measured, false, 0
		if leaves {
			ch.Cost = 0
			e.decider.queues.wakeFor(r.Counters, ch.Key)
		}
	}
}

// land sets how the request has ended under a rule, and when.
func (e *Evaluation) land(r *plan.Rule, f *limit.Flight) {
	from := e.course.sent
	if e.course.body != nil {
		from = max(from, e.course.body.Load())
	}
	f.Ended = e.decider.local.Now()
	f.Latency = max(f.Ended-from, 0)
	status := e.course.status
	f.Measured = true
	if f.Rejected = status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable; f.Rejected {
		e.limits.bound[r.Index].record.shedAt.Store(f.Ended)
	}
	f.Broken = status >= http.StatusBadRequest || e.left()
}

// left reports whether the client has left. A request whose time is over has an answer: that of a timeout.
func (e *Evaluation) left() bool {
	switch r := &e.request; {
	case r.HTTP != nil:
		return errors.Is(r.HTTP.Context().Err(), context.Canceled)
	case r.Native != nil:
		return errors.Is(r.Native.Context().Err(), context.Canceled)
	}
	return false
}

// landAll sets how the request has ended for the rules to which that was not reported.
func (e *Evaluation) landAll() {
	c := e.adaptive()
	for i := range c.list {
		if f := c.list[i].Flight; !f.Reported {
			e.land(c.of[i].rule, f)
		}
	}
}

// LimitOf returns the limit of the moment of a rule of l for all clients together, and the latency that its unloaded
// upstream has, in microseconds. Both are 0 if the rule is not adaptive.
func (d *Decider) LimitOf(l *Limits, index int) (slots, base int64) {
	b := &l.bound[index]
	if _, adaptive := b.meter.(limit.Adaptive); !adaptive {
		return 0, 0
	}
	var f limit.Flight
	charge := [1]limit.Charge{{Counters: b.local, Cost: 1, Flight: &f}}
	if d.local.Peek(context.Background(), d.local.Now(), charge[:]) != nil {
		return 0, 0
	}
	return f.Limit, f.Base
}

// Shed returns how many requests an adaptive rule of l has refused, in shadow mode too, by the name of their priority, or
// nil for another rule. Without priorities the name is empty.
func (d *Decider) Shed(l *Limits, index int) map[string]int64 {
	b, r := &l.bound[index], l.Set.Rules[index]
	if !b.adapts {
		return nil
	}
	names := r.Priorities
	if len(names) == 0 {
		names = []string{""}
	}
	shed := make(map[string]int64, len(names))
	for level, name := range names {
		shed[name] = b.record.shed[level].Load()
	}
	return shed
}
