// SPDX-License-Identifier: MIT

package trial

import (
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/accesslog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// Count plays entries of logs to a configuration, and counts what would become of them.
type Count struct {
	trial  *Trial
	config *config.Config
	key    []byte

	requests, refused, delayed, unruled int64
	rules                               []*refusals // by rule.Index
	timeline                            *timeline
}

// refusals are what a rule would refuse, or, in shadow mode, would refuse if it were not.
type refusals struct {
	rule  *rule.Rule // nil: nothing yet
	n     int64
	first First
	top   top
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
func NewCount(c *config.Config, v rule.Vocabulary) (*Count, error) {
	t, err := New(c, v)
	if err != nil {
		return nil, err
	}
	n := len(t.limiter.Status().Rules)
	return &Count{
		trial: t, config: c, rules: make([]*refusals, n), timeline: newTimeline(firstRule + n),
	}, nil
}

// judge judges an entry, whose request is r. It must be followed by leave.
func (c *Count) judge(e *accesslog.Entry, r diana.Request) (diana.Decision, error) {
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
			index := v.Rule.Index
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

// keyOf returns who made a request, as a rule counts it.
func (c *Count) keyOf(r *rule.Rule, request *diana.Request) []byte {
	c.key, _ = r.AppendKey(c.key[:0], request, c.config.Identity.ClientIP(request))
	return c.key
}

func newRefusals(rules int) *refusals {
	return &refusals{top: top{size: min(max(manyActors/rules, 32), 4096)}}
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
	r.top.add(key)
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
func honest(path string) bool { return rule.CheckPath(path) == nil }

// onlyRefused counts a request that one of the configurations refuses and the other does not.
func (c *Comparison) onlyRefused(which int, d *diana.Decision, e *accesslog.Entry, r *diana.Request) {
	c.onlyN[which]++
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.Refused() {
			continue
		}
		of := &c.only[which][v.Rule.Index]
		if *of == nil {
			*of = newRefusals(len(c.only[which]))
		}
		(*of).add(v.Rule, c.counts[which].keyOf(v.Rule, r), e)
	}
}
