// SPDX-License-Identifier: MIT

// Package simulate evaluates requests of the past under a configuration, and counts what it
// would have decided.
package simulate

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// Simulation is a limiter with a clock of its own. No request waits: the Decision says for how
// long it would have. The simulation counts global rules itself, as one gateway with the whole
// limit. So it asks neither Redis nor a configuration centre.
type Simulation struct {
	limiter *diana.Limiter
	keeps   bool // some rule keeps something of a request until it ends, see keeps
	now     time.Time
	later   agenda // of responses
	inside  int    // requests in flight
	early   int64  // how many were ended too early, because of mostInside
}

// New returns a Simulation of a configuration.
func New(c *config.Config, v config.Vocabulary) (*Simulation, error) {
	s := &Simulation{}
	for _, r := range Rules(c) {
		s.keeps = s.keeps || keeps(&r)
	}
	l, err := diana.Options{
		Vocabulary: v,
		Logger:     slog.New(slog.DiscardHandler),
		Now:        func() time.Time { return s.now },

		MeasureBegin: true, // as serve does
	}.New(alone(c))
	s.limiter = l
	return s, err
}

// alone returns the configuration with every rule local, and without Redis and remote.
func alone(c *config.Config) *config.Config {
	a := *c
	a.Redis, a.Remote, a.Limits = nil, nil, nil
	for _, e := range c.Limits {
		rules := append([]rule.Rule(nil), e.Rules...)
		for i := range rules {
			rules[i].Scope = rule.Local
		}
		e.Rules = rules
		if e.Divert != nil && e.Divert.File != "" { // it is not needed, and may not exist on this machine
			d := *e.Divert
			d.File, d.Body = "", "in place of the file"
			e.Divert = &d
		}
		a.Limits = append(a.Limits, e)
	}
	return &a
}

// Take evaluates a request at a time in microseconds since the Unix epoch. The caller must call
// Leave before the next Take.
func (s *Simulation) Take(at int64, r diana.Request) (diana.Decision, error) {
	s.advance(at)
	if s.keeps { // the Decision keeps these, which are parts of a block of the log
		r.Method, r.Path = strings.Clone(r.Method), strings.Clone(r.Path)
	}
	return s.limiter.Take(context.Background(), r) // fails only if a request waits
}

// advance does what comes before a moment, and sets the clock to it.
func (s *Simulation) advance(at int64) {
	for s.later.due(at) {
		s.next()
	}
	s.now = time.UnixMicro(at)
}

// next does what comes next, at its own moment: a response is charged for when its cost is known.
func (s *Simulation) next() {
	e := s.later.pop()
	if now := time.UnixMicro(e.at); now.After(s.now) {
		s.now = now
	}
	e.do()
}

// mostInside bounds the requests in flight, each of which takes a few hundred bytes.
const mostInside = 1 << 16

// Leave ends a request with a response, in up to three steps: its status, its cost, and its end. Each changes the
// counters at its own moment, because requests in between find them otherwise.
func (s *Simulation) Leave(d *diana.Decision, r weblog.Response) {
	if unmeasured(d, &r) {
		d.SetStatus(notMeasured)
	}
	began := s.now.UnixMicro() + d.Delayed.Microseconds()
	end := began + max(r.Duration, 0)
	if end <= s.now.UnixMicro() || !holds(d) {
		finish(d, &r)
		return
	}
	if s.inside == mostInside {
		for s.early++; s.inside == mostInside; {
			s.next()
		}
	}
	s.inside++
	of := *d
	s.later.add(end, func() {
		s.inside--
		finish(&of, &r)
	})
	if at := began + r.StatusAfter; r.StatusAfter > 0 && at < end {
		s.later.add(at, func() { setStatus(&of, &r) })
	}
	if at := began + r.SettledAfter; r.SettledAfter > 0 && at < end {
		s.later.add(at, func() { settle(&of, &r) })
	}
}

// notMeasured is the status of a request from whose latency nothing is learned, because it fails at once.
const notMeasured = 599

// unmeasured reports whether rules learn from the latency of an allowed request, and none of them knows it.
func unmeasured(d *diana.Decision, r *weblog.Response) bool {
	adapts := false
	for i := range d.Verdicts {
		switch of := d.Verdicts[i].Rule; {
		case !of.Algorithm.Uses("measure"):
		case measuresBegin(of) && r.StatusAfter != weblog.Unknown, !measuresBegin(of) && r.Duration != weblog.Unknown:
			return false
		default:
			adapts = true
		}
	}
	return adapts && d.Allowed
}

// measuresBegin reports whether a rule that learns from latencies needs the time of the upstream alone. Others need the
// whole time.
func measuresBegin(r *rule.Rule) bool { return r.Measure == "" || r.Measure == "begin" }

// finish ends a request. Telling the status or the cost a second time does nothing.
func finish(d *diana.Decision, r *weblog.Response) {
	setStatus(d, r)
	settle(d, r)
	d.Done()
}

func setStatus(d *diana.Decision, r *weblog.Response) {
	if r.Status != 0 {
		d.SetStatus(r.Status)
	}
}

func settle(d *diana.Decision, r *weblog.Response) {
	for i := range d.Verdicts {
		if of := d.Verdicts[i].Rule; of.Cost.Answer != "" {
			if n := costOf(r, of); n != weblog.Unknown {
				d.Settle(n, of.Name)
			}
		}
	}
}

// costOf returns the cost of a response under a rule, or weblog.Unknown. A failure that names no usage is free.
func costOf(r *weblog.Response, of *rule.Rule) int64 {
	switch kind, _, _ := strings.Cut(of.Cost.Answer, ":"); kind {
	case "duration":
		if r.Milliseconds > 0 {
			return r.Milliseconds
		}
		return (max(r.Duration, 0) + 999) / 1000
	case "bytes":
		return r.Bytes
	case "", "header", "trailer":
	default:
		if r.Cost == weblog.Unknown && r.Status >= 300 && len(of.Charge) == 0 && !of.ChargeAll {
			return 0
		}
	}
	return r.Cost
}

// holds reports whether some rule keeps something of an allowed request until it ends.
func holds(d *diana.Decision) bool {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Allowed && keeps(v.Rule) {
			return d.Allowed
		}
	}
	return false
}

// keeps reports whether a rule keeps something of a request until it ends: a slot, or a charge
// that depends on the answer.
func keeps(r *rule.Rule) bool {
	return r.Algorithm.Held || len(r.Charge) > 0 || r.Cost.Answer != ""
}
