// SPDX-License-Identifier: MIT

package simulate

import (
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
)

// Report is the result of a Comparison.
type Report struct {
	Files    []File    `json:"files"`
	From     time.Time `json:"from"` // the first request
	To       time.Time `json:"to"`   // and the last
	Requests int64     `json:"requests"`
	Notes    []string  `json:"notes"`

	Config  *Result `json:"config"`
	Against *Result `json:"against,omitempty"`

	// OnlyConfig has the requests that Config refuses and Against allows, OnlyAgainst the reverse.
	OnlyConfig  *Difference `json:"only_config,omitempty"`
	OnlyAgainst *Difference `json:"only_against,omitempty"`
}

// File is a log.
type File struct {
	Name     string `json:"name"`
	Lines    int    `json:"lines"`
	Requests int    `json:"requests"`
	Others   int    `json:"others"` // lines without a request
	Broken   int    `json:"broken"` // lines that could not be read
	Late     int    `json:"late"`   // requests that could not be sorted by time
	Error    string `json:"error,omitempty"`
}

// Result is what a configuration decides on the requests.
type Result struct {
	Source   string   `json:"source"`
	Version  string   `json:"version"`
	Allowed  int64    `json:"allowed"` // delayed ones included
	Refused  int64    `json:"refused"`
	Delayed  int64    `json:"delayed"`
	NoRule   int64    `json:"no_rule"` // evaluated by no rule
	Rules    []Rule   `json:"rules"`
	Timeline Timeline `json:"timeline"`
	Notes    []string `json:"notes"`
}

// Rule is what one rule decides on the requests.
type Rule struct {
	diana.RuleStatus // with the configured scope
	Refusals
}

// Refusals are the actors that a rule refuses, in shadow mode too.
type Refusals struct {
	First *Refused `json:"first,omitempty"`
	Most  []Actor  `json:"most,omitempty"`

	// Actors is the number of refused actors. If Approximate is true there are more, and the
	// counts in Most may be too high, by Over at most.
	Actors      int  `json:"actors,omitempty"`
	Approximate bool `json:"approximate,omitempty"`
}

// Refused is the first refused request.
type Refused struct {
	Time   time.Time `json:"time"`
	Actor  string    `json:"actor"` // its key; "" for actor all
	Method string    `json:"method"`
	Target string    `json:"target"`
	File   string    `json:"file"`
	Line   int       `json:"line"`
}

// Actor is a refused actor.
type Actor struct {
	Actor   string `json:"actor"` // its key; "" for actor all
	Refused int64  `json:"refused"`
	Over    int64  `json:"over,omitempty"` // how many of Refused may belong to other actors
}

// Difference is what one configuration refuses and the other allows.
type Difference struct {
	Requests int64            `json:"requests"`
	Rules    []RuleDifference `json:"rules"`
}

// RuleDifference is the part of a Difference that one rule refuses.
type RuleDifference struct {
	Name    string `json:"name"`
	Refused int64  `json:"refused"`
	Refusals
}

// Timeline has the counts of equal spans of time.
type Timeline struct {
	Seconds int64  `json:"seconds"` // of a span
	Spans   []Span `json:"spans"`
}

// Span is one span of a Timeline.
type Span struct {
	Begin    time.Time `json:"begin"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
	Delayed  int64     `json:"delayed"`

	// ByRule has the number of refusals, in shadow mode too, of each rule that refuses.
	ByRule map[string]int64 `json:"by_rule,omitempty"`
}

// Report returns the result for the requests in files.
func (c *Comparison) Report(files []weblog.File) *Report {
	r := &Report{Requests: c.seen.n, Notes: append([]string{}, c.seen.logNotes(files)...)}
	for _, f := range files {
		file := File{f.Name, f.Lines, f.Requests, f.Others, f.Broken, f.Late, ""}
		if f.Err != nil {
			file.Error = f.Err.Error()
		}
		r.Files = append(r.Files, file)
	}
	r.From, r.To = time.UnixMicro(c.seen.first).UTC(), time.UnixMicro(c.seen.last).UTC()
	r.Config = c.result(c.counts[0], files)
	if len(c.counts) == 2 {
		r.Against = c.result(c.counts[1], files)
		r.OnlyConfig, r.OnlyAgainst = c.difference(0, files), c.difference(1, files)
	}
	return r
}

func (c *Comparison) result(of *Count, files []weblog.File) *Result {
	status := of.simulation.limiter.Status()
	r := &Result{
		Source: status.Config.Source, Version: status.Config.Version,
		Allowed: of.requests - of.refused, Refused: of.refused, Delayed: of.delayed, NoRule: of.unruled,
		Rules: []Rule{}, Timeline: of.timelineReport(status.Rules), Notes: append([]string{}, c.seen.notes(of)...),
	}
	for i, configured := range rulesOf(of.config) {
		s := status.Rules[i]
		s.Scope = configured.Scope.String()
		r.Rules = append(r.Rules, Rule{s, of.rules[i].report(files)})
	}
	return r
}

func (c *Comparison) difference(which int, files []weblog.File) *Difference {
	d := &Difference{Requests: c.onlyN[which], Rules: []RuleDifference{}}
	for _, r := range c.only[which] {
		if r != nil {
			d.Rules = append(d.Rules, RuleDifference{r.rule.Name, r.n, r.report(files)})
		}
	}
	return d
}

// mostListed is the length of Refusals.Most.
const mostListed = 10

func (r *refusals) report(files []weblog.File) (list Refusals) {
	if r == nil {
		return list
	}
	f := r.first
	list.First = &Refused{time.UnixMicro(f.At).UTC(), f.Key, f.Method, f.Target, files[f.File].Name, f.Line}
	list.Actors = r.top.Len()
	for _, c := range r.top.Most(mostListed) {
		list.Most = append(list.Most, Actor{c.Name, c.N, c.Over})
	}
	list.Approximate = r.top.Full()
	return list
}

func (c *Count) timelineReport(rules []diana.RuleStatus) Timeline {
	t := Timeline{Seconds: int64(widths[c.timeline.width] / time.Second), Spans: []Span{}}
	for i := range c.timeline.spans {
		s := Span{
			Begin: c.timeline.begin(i), Requests: c.timeline.count(i, allRequests),
			Refused: c.timeline.count(i, allRefused), Delayed: c.timeline.count(i, allDelayed),
		}
		for j, r := range rules {
			if n := c.timeline.count(i, firstRule+j); n > 0 {
				if s.ByRule == nil {
					s.ByRule = map[string]int64{}
				}
				s.ByRule[r.Name] = n
			}
		}
		t.Spans = append(t.Spans, s)
	}
	return t
}
