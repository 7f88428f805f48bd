// SPDX-License-Identifier: MIT

package simulate

import (
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
)

// Report is the result of a Comparison.
type Report struct {
	Files    []weblog.File `json:"files"`
	From     time.Time     `json:"from"` // the first request
	To       time.Time     `json:"to"`   // and the last
	Requests int64         `json:"requests"`
	Notes    Notes         `json:"notes"`

	Config  *Result `json:"config"`
	Against *Result `json:"against,omitempty"`

	// OnlyConfig has the requests that Config refuses and Against allows, OnlyAgainst the reverse.
	OnlyConfig  *Difference `json:"only_config,omitempty"`
	OnlyAgainst *Difference `json:"only_against,omitempty"`
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
	Model    *Model   `json:"model,omitempty"` // of the upstream
	Notes    Notes    `json:"notes"`
}

// Rule is what one rule decides on the requests.
type Rule struct {
	diana.RuleStatus          // with the configured scope
	Learned          *Learned `json:"learned,omitempty"`
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

	file int // index of File
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

// Report returns the result for the requests in files.
func (c *Comparison) Report(files []weblog.File) *Report {
	r := &Report{
		Files: files, From: time.UnixMicro(c.seen.first).UTC(), To: time.UnixMicro(c.seen.last).UTC(), Requests: c.seen.n,
		Notes: c.seen.logNotes(files), Config: c.result(c.counts[0], files),
	}
	if len(c.counts) == 2 {
		r.Against = c.result(c.counts[1], files)
		r.OnlyConfig, r.OnlyAgainst = c.counts[0].difference(files), c.counts[1].difference(files)
	}
	return r
}

func (c *Comparison) result(of *Count, files []weblog.File) *Result {
	status := of.simulation.limiter.Status()
	r := &Result{
		Source: status.Config.Source, Version: status.Config.Version,
		Allowed: of.requests - of.refused, Refused: of.refused, Delayed: of.delayed, NoRule: of.unruled,
		Rules: []Rule{}, Timeline: of.timeline, Model: of.model.fit(), Notes: c.seen.notes(of),
	}
	for i, configured := range Rules(of.config) {
		s := status.Rules[i]
		s.Scope = configured.Scope.String()
		rule := Rule{RuleStatus: s, Refusals: of.byRule[i].report(files)}
		if learned := of.learned[of.set.Rules[i]]; learned.Most > 0 {
			rule.Learned = &learned
		}
		r.Rules = append(r.Rules, rule)
	}
	return r
}

func (c *Count) difference(files []weblog.File) *Difference {
	d := &Difference{Requests: c.only, Rules: []RuleDifference{}}
	for _, r := range c.onlyByRule {
		if r != nil {
			d.Rules = append(d.Rules, RuleDifference{r.name, r.n, r.report(files)})
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
	first := r.first
	first.File = files[first.file].Name
	list = Refusals{First: &first, Actors: r.top.Len(), Approximate: r.top.Full()}
	for _, c := range r.top.Most(mostListed) {
		list.Most = append(list.Most, Actor{c.Name, c.N, c.Over})
	}
	return list
}
