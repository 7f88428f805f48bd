// SPDX-License-Identifier: MIT

package simulate

import (
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/internal/top"
	"github.com/diana-limiter/diana/rule"
)

// Count evaluates entries of logs under a configuration, and counts the decisions.
type Count struct {
	simulation *Simulation
	config     *config.Config
	set        *plan.Set // of config
	byCounters map[string]*plan.Rule
	key        []byte
	actors     map[string]string // of the current request

	requests, refused, delayed, unruled int64
	timeline                            Timeline
	byRule                              []*refusals // by rule.Index; in shadow mode too. nil: none
	only                                int64       // refused requests that the other Count of a Comparison allows
	onlyByRule                          []*refusals // of these

	learned map[*plan.Rule]Learned // of the rules of adaptive concurrency that have one limit
	looked  int64                  // the second of the log in which they were looked at
	model   *servers               // of the upstream; nil: what the log says
}

// Learned are the limits that a rule of adaptive concurrency has had.
type Learned struct {
	Least int64 `json:"least"`
	Most  int64 `json:"most"`
}

// refusals are the requests that a rule refuses.
type refusals struct {
	name  string // of the rule
	n     int64
	first Refused
	top   *top.List
}

// manyActors bounds how many refused actors a Count remembers, all rules together.
const manyActors = 1 << 17

// NewCount returns a Count of a configuration.
func NewCount(c *config.Config, v config.Vocabulary) (*Count, error) {
	s, err := New(c, v)
	if err != nil {
		return nil, err
	}
	set, err := plan.Compile(c.Limits, c.Identity, c.Paths, v.Actors)
	if err != nil {
		return nil, err
	}
	n := len(set.Rules)
	count := &Count{
		simulation: s, config: c, set: set, byCounters: map[string]*plan.Rule{}, actors: map[string]string{},
		timeline: newTimeline(), learned: map[*plan.Rule]Learned{}, byRule: make([]*refusals, n), onlyByRule: make([]*refusals, n),
	}
	for _, r := range set.Rules {
		count.byCounters[r.Counters] = r
		if r.Algorithm.Uses("measure") && r.Actor[0] == rule.All {
			count.learned[r] = Learned{}
		}
	}
	return count, nil
}

// evaluate evaluates an entry, whose request is r. The caller must end the Decision by Simulation.Leave.
func (c *Count) evaluate(e *weblog.Entry, r *diana.Request) (diana.Decision, error) {
	r.Actors, r.Costs = c.actorsOf(e), e.Costs
	d, err := c.simulation.Take(e.Start, *r)
	if err != nil {
		return d, err
	}
	c.learn(e.Start)
	span := c.timeline.span(e.Start)
	c.requests++
	span.Requests++
	switch {
	case !d.Allowed:
		c.refused++
		span.Refused++
	case d.Delayed > 0:
		c.delayed++
		span.Delayed++
	}
	if len(d.Verdicts) == 0 {
		c.unruled++
	}
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; !v.Allowed {
			span.refuse(v.Rule.Name, 1)
			c.add(c.byRule, v.Rule, e, r)
		}
	}
	return d, nil
}

// learn looks at what adaptive rules have learned, once in each second of the log.
func (c *Count) learn(at int64) {
	if at/micros == c.looked {
		return
	}
	c.looked = at / micros
	for r, seen := range c.learned {
		s, _ := c.simulation.limiter.RuleStatus(r.Name) // it is one of this configuration
		if seen.Most == 0 {
			seen.Least = s.Limit
		}
		c.learned[r] = Learned{min(seen.Least, s.Limit), max(seen.Most, s.Limit)}
	}
}

// Model has the upstream be a model of so many servers, which refused requests do not burden.
func (c *Count) Model(n int) { c.model = newServers(n) }

// leave ends a request that came at a moment, in microseconds since the Unix epoch.
func (c *Count) leave(d *diana.Decision, came int64, r weblog.Response) {
	if c.model != nil {
		r = c.model.respond(came+d.Delayed.Microseconds(), d.Allowed, r)
	}
	c.simulation.Leave(d, r)
}

// onlyRefuses counts a refused request that the other Count of a Comparison allows.
func (c *Count) onlyRefuses(d *diana.Decision, e *weblog.Entry, r *diana.Request) {
	c.only++
	r.Actors = c.actorsOf(e)
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Refused() {
			c.add(c.onlyByRule, v.Rule, e, r)
		}
	}
}

// add adds a refusal to those of its rule. It copies what it keeps of the entry, because the entry is a part of a
// block of the log.
func (c *Count) add(to []*refusals, by *rule.Rule, e *weblog.Entry, r *diana.Request) {
	of, _ := c.set.Named(by.Name) // it is one of this configuration
	client := c.set.Client(r)
	c.key, _ = of.AppendKey(c.key[:0], &client)
	list := to[of.Index]
	if list == nil {
		list = &refusals{name: by.Name, top: top.New(min(max(manyActors/len(to), 32), 4096))}
		list.first = Refused{
			Time: time.UnixMicro(e.Start).UTC(), Actor: string(c.key),
			Method: strings.Clone(e.Method), Target: strings.Clone(e.Target), Line: e.Line, file: e.File,
		}
		to[of.Index] = list
	}
	list.n++
	list.top.Add(c.key)
}

// actorsOf returns the actors that a line of diana serve names. The line does not name the source
// of an account or a device, so actorsOf takes the first source of the configuration.
func (c *Count) actorsOf(e *weblog.Entry) map[string]string {
	if e.Actors != nil {
		return e.Actors
	}
	clear(c.actors)
	if e.Account != "" {
		c.actors[firstSource(c.config.Identity.Account, "account")] = e.Account
	}
	if e.Device != "" {
		c.actors[firstSource(c.config.Identity.Device, "device")] = e.Device
	}
	return c.actors
}

// firstSource returns the key of an account or a device in a request's Actors.
func firstSource(sources []rule.Actor, kind string) string {
	if len(sources) == 0 || sources[0].Kind == "ip" {
		return kind
	}
	return sources[0].String()
}
