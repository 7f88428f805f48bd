// SPDX-License-Identifier: MIT

package trial

import (
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/accesslog"
)

// Report is what has come out.
type Report struct {
	Files    []File    `json:"files"`
	From     time.Time `json:"from"` // the first request
	To       time.Time `json:"to"`   // and the last
	Requests int64     `json:"requests"`
	Notes    []string  `json:"notes"`

	Config  *Result `json:"config"`
	Against *Result `json:"against,omitempty"`

	// OnlyConfig is what Config refuses and Against does not, and OnlyAgainst the reverse.
	OnlyConfig  *Difference `json:"only_config,omitempty"`
	OnlyAgainst *Difference `json:"only_against,omitempty"`
}

// File is a log that has been read.
type File struct {
	Name     string `json:"name"`
	Lines    int    `json:"lines"`
	Requests int    `json:"requests"`
	Others   int    `json:"others"` // lines that tell of no request
	Broken   int    `json:"broken"` // and that are not understood
	Late     int    `json:"late"`   // requests that could not be put in order
	Error    string `json:"error,omitempty"`
}

// Result is what a configuration makes of the requests.
type Result struct {
	Source   string   `json:"source"`
	Version  string   `json:"version"`
	Allowed  int64    `json:"allowed"` // those who wait included
	Refused  int64    `json:"refused"`
	Delayed  int64    `json:"delayed"`
	NoRule   int64    `json:"no_rule"` // judged by none
	Rules    []Rule   `json:"rules"`
	Timeline Timeline `json:"timeline"`
	Notes    []string `json:"notes"`
}

// Rule is what one rule makes of them.
type Rule struct {
	diana.RuleStatus // with the scope that is configured
	Refusals
}

// Refusals tells whom a rule refuses, or, in shadow mode, would refuse.
type Refusals struct {
	First *Refused `json:"first,omitempty"`
	Most  []Actor  `json:"most,omitempty"`

	// Actors is how many actors are refused; with Approximate there are more, and the
	// counts of Most may be too high, by Over at most.
	Actors      int  `json:"actors,omitempty"`
	Approximate bool `json:"approximate,omitempty"`
}

// Refused is the first request that is refused.
type Refused struct {
	Time   time.Time `json:"time"`
	Actor  string    `json:"actor"` // "" is everyone
	Method string    `json:"method"`
	Target string    `json:"target"`
	File   string    `json:"file"`
	Line   int       `json:"line"`
}

// Actor is one who is refused.
type Actor struct {
	Actor   string `json:"actor"` // "" is everyone
	Refused int64  `json:"refused"`
	Over    int64  `json:"over,omitempty"` // of Refused, how many may have been others'
}

// Difference is what one configuration refuses and the other does not.
type Difference struct {
	Requests int64            `json:"requests"`
	Rules    []RuleDifference `json:"rules"`
}

// RuleDifference is the part of a rule in it.
type RuleDifference struct {
	Name    string `json:"name"`
	Refused int64  `json:"refused"`
	Refusals
}

// Timeline tells what happens when.
type Timeline struct {
	Seconds int64  `json:"seconds"` // of a span
	Spans   []Span `json:"spans"`
}

// Span is a part of the time.
type Span struct {
	Begin    time.Time `json:"begin"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
	Delayed  int64     `json:"delayed"`

	// ByRule has the refusals of each rule that refuses, by its name, those of shadow
	// mode included.
	ByRule map[string]int64 `json:"by_rule,omitempty"`
}

// Report returns what has come out of the requests in files.
func (c *Comparison) Report(files []accesslog.File) *Report {
	r := &Report{Requests: c.seen.n, Notes: append([]string{}, c.logNotes(files)...)}
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

func (c *Comparison) result(of *Count, files []accesslog.File) *Result {
	status := of.trial.limiter.Status()
	r := &Result{
		Source: status.Config.Source, Version: status.Config.Version,
		Allowed: of.requests - of.refused, Refused: of.refused, Delayed: of.delayed, NoRule: of.unruled,
		Rules: []Rule{}, Timeline: of.timelineReport(status.Rules), Notes: append([]string{}, c.notes(of)...),
	}
	for i, configured := range rulesOf(of.config) {
		s := status.Rules[i]
		s.Scope = configured.Scope.String()
		r.Rules = append(r.Rules, Rule{s, of.rules[i].report(files)})
	}
	return r
}

func (c *Comparison) difference(which int, files []accesslog.File) *Difference {
	d := &Difference{Requests: c.onlyN[which], Rules: []RuleDifference{}}
	for _, r := range c.only[which] {
		if r != nil {
			d.Rules = append(d.Rules, RuleDifference{r.rule.Name, r.n, r.report(files)})
		}
	}
	return d
}

// mostTold is how many of those who are refused most are told.
const mostTold = 10

func (r *refusals) report(files []accesslog.File) (told Refusals) {
	if r == nil {
		return told
	}
	f := r.first
	told.First = &Refused{time.UnixMicro(f.At).UTC(), f.Key, f.Method, f.Target, files[f.File].Name, f.Line}
	told.Actors = r.top.Len()
	for _, c := range r.top.Most(mostTold) {
		told.Most = append(told.Most, Actor{c.Name, c.N, c.Over})
	}
	told.Approximate = r.top.Full()
	return told
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
