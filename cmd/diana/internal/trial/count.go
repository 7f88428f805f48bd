// SPDX-License-Identifier: MIT

package trial

import (
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/accesslog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/top"
	"github.com/diana-limiter/diana/rule"
)

// Count plays entries of logs to a configuration, and counts what would become of them.
type Count struct {
	trial  *Trial
	set    *plan.Set      // of config
	index  map[string]int // of each rule, by its name
	config *config.Config
	key    []byte
	actors map[string]string // of the request that is judged

	requests, refused, delayed, unruled int64
	rules                               []*refusals // by rule.Index
	timeline                            *timeline
}

// refusals are what a rule would refuse, or, in shadow mode, would refuse if it were not.
type refusals struct {
	rule  *rule.Rule // nil: nothing yet
	n     int64
	first First
	top   *top.List
}

// First is the first request that was refused.
type First struct {
	At     int64 // in microseconds since the Unix epoch
	Key    string
	Method string
	Target string
	File   int
	Line   int
}

// Columns of a timeline. A rule's is firstRule and its Index.
const (
	allRequests = iota
	allRefused
	allDelayed
	firstRule
)

// manyActors bounds how many actors are remembered of all rules together.
const manyActors = 1 << 17

// NewCount returns a Count of a configuration.
func NewCount(c *config.Config, v config.Vocabulary) (*Count, error) {
	t, err := New(c, v)
	if err != nil {
		return nil, err
	}
	set, err := plan.Compile(c.Limits, c.Identity, c.Paths, v.Actors)
	if err != nil {
		return nil, err
	}
	index := map[string]int{}
	for _, r := range set.Rules {
		index[r.Name] = r.Index
	}
	n := len(set.Rules)
	return &Count{
		trial: t, config: c, set: set, index: index, actors: map[string]string{}, rules: make([]*refusals, n), timeline: newTimeline(firstRule + n),
	}, nil
}

// judge judges an entry, whose request is r. It must be followed by leave.
func (c *Count) judge(e *accesslog.Entry, r diana.Request) (diana.Decision, error) {
	r.Actors = c.actorsOf(e)
	d, err := c.trial.Take(e.Start, r)
	if err != nil {
		return d, err
	}
	span := c.timeline.span(e.Start)
	c.requests++
	c.timeline.add(span, allRequests)
	switch {
	case !d.Allowed:
		c.refused++
		c.timeline.add(span, allRefused)
	case d.Delayed > 0:
		c.delayed++
		c.timeline.add(span, allDelayed)
	}
	if len(d.Verdicts) == 0 {
		c.unruled++
	}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; !v.Allowed {
			index := c.index[v.Rule.Name]
			c.timeline.add(span, firstRule+index)
			if c.rules[index] == nil {
				c.rules[index] = newRefusals(len(c.rules))
			}
			c.rules[index].add(v.Rule, c.keyOf(v.Rule, &r), e)
		}
	}
	return d, nil
}

// leave ends a request when it is finished.
func (c *Count) leave(d *diana.Decision, e *accesslog.Entry) {
	c.trial.Leave(d, max(e.Duration, 0), e.Status)
}

// actorsOf returns who made a request, as a line of diana serve tells. Which of several
// sources it was found in the line does not tell: it is taken for the first.
func (c *Count) actorsOf(e *accesslog.Entry) map[string]string {
	clear(c.actors)
	if e.Account != "" {
		c.actors[firstSource(c.config.Identity.Account, "account")] = e.Account
	}
	if e.Device != "" {
		c.actors[firstSource(c.config.Identity.Device, "device")] = e.Device
	}
	return c.actors
}

// firstSource returns what an account or a device is known by in a request's Actors.
func firstSource(sources []rule.Actor, kind string) string {
	if len(sources) == 0 || sources[0].Kind == "ip" {
		return kind
	}
	return sources[0].String()
}

// keyOf returns who made a request, as a rule counts it.
func (c *Count) keyOf(r *rule.Rule, request *diana.Request) []byte {
	c.key, _ = c.set.Rules[c.index[r.Name]].AppendKey(c.key[:0], request, c.set.ClientIP(request))
	return c.key
}

func newRefusals(rules int) *refusals {
	return &refusals{top: top.New(min(max(manyActors/rules, 32), 4096))}
}

// add counts a refusal. What it keeps of the log is a copy: an entry is a part of a block.
func (r *refusals) add(by *rule.Rule, key []byte, e *accesslog.Entry) {
	if r.n++; r.n == 1 {
		r.rule = by
		r.first = First{
			At: e.Start, Key: string(key), Method: string([]byte(e.Method)), Target: string([]byte(e.Target)),
			File: e.File, Line: e.Line,
		}
	}
	r.top.Add(key)
}

// Comparison plays entries of logs to one configuration, or to two at once.
type Comparison struct {
	counts   []*Count // one or two
	only     [2][]*refusals
	onlyN    [2]int64
	requests *requests
	seen     seen
}

// NewComparison returns a Comparison of one Count, or two.
func NewComparison(names *accesslog.Names, counts ...*Count) *Comparison {
	c := &Comparison{counts: counts, requests: newRequests(names)}
	c.seen.headers = make([]bool, len(names.Headers))
	for i, count := range counts {
		c.only[i] = make([]*refusals, len(count.rules))
	}
	return c
}

// Outcome is what becomes of an entry.
type Outcome struct {
	Judged     bool // the rest is of one that is
	Allowed    bool
	Delayed    time.Duration
	RetryAfter time.Duration
}

// Play has an entry judged, and returns what becomes of it in each Count.
func (c *Comparison) Play(e *accesslog.Entry) (outcomes [2]Outcome, err error) {
	r, ok := c.requests.of(e)
	if !ok || !honest(r.Path) {
		c.seen.answered++
		return outcomes, nil
	}
	c.seen.look(e, &r)
	var decisions [2]diana.Decision
	for i, count := range c.counts {
		if decisions[i], err = count.judge(e, r); err != nil {
			return outcomes, err
		}
		d := &decisions[i]
		outcomes[i] = Outcome{true, d.Allowed, d.Delayed, d.RetryAfter}
	}
	if len(c.counts) == 2 && decisions[0].Allowed != decisions[1].Allowed {
		which := 0
		if decisions[0].Allowed {
			which = 1
		}
		c.onlyRefused(which, &decisions[which], e, &r)
	}
	for i, count := range c.counts {
		count.leave(&decisions[i], e)
	}
	return outcomes, nil
}

// honest reports whether a gateway does not reject a path, whatever paths.strange says.
func honest(path string) bool { return paths.Check(path) == nil }

// onlyRefused counts a request that one of the configurations refuses and the other does not.
func (c *Comparison) onlyRefused(which int, d *diana.Decision, e *accesslog.Entry, r *diana.Request) {
	c.onlyN[which]++
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.Refused() {
			continue
		}
		of := &c.only[which][c.counts[which].index[v.Rule.Name]]
		if *of == nil {
			*of = newRefusals(len(c.only[which]))
		}
		(*of).add(v.Rule, c.counts[which].keyOf(v.Rule, r), e)
	}
}
