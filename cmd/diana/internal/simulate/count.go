// SPDX-License-Identifier: MIT

package simulate

import (
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
	set        *plan.Set      // of config
	index      map[string]int // of each rule, by its name
	byCounters map[string]*plan.Rule
	config     *config.Config
	key        []byte
	actors     map[string]string // of the current request

	requests, refused, delayed, unruled int64
	rules                               []*refusals // by rule.Index
	timeline                            *timeline
}

// refusals are the requests that a rule refuses, in shadow mode too.
type refusals struct {
	rule  *rule.Rule // nil: none yet
	n     int64
	first First
	top   *top.List
}

// First is the first request that a rule refuses.
type First struct {
	At     int64 // in microseconds since the Unix epoch
	Key    string
	Method string
	Target string
	File   int
	Line   int
}

// Columns of a timeline. The column of a rule is firstRule + Index.
const (
	allRequests = iota
	allRefused
	allDelayed
	firstRule
)

// manyActors bounds how many refused actors a Count remembers, all rules together.
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
	index, byCounters := map[string]int{}, map[string]*plan.Rule{}
	for _, r := range set.Rules {
		index[r.Name], byCounters[r.Counters] = r.Index, r
	}
	n := len(set.Rules)
	return &Count{
		simulation: t, config: c, set: set, index: index, byCounters: byCounters, actors: map[string]string{}, rules: make([]*refusals, n), timeline: newTimeline(firstRule + n),
	}, nil
}

// evaluate evaluates an entry, whose request is r. The caller must call leave afterwards.
func (c *Count) evaluate(e *weblog.Entry, r diana.Request) (diana.Decision, error) {
	r.Actors, r.Costs = c.actorsOf(e), e.Costs
	d, err := c.simulation.Take(e.Start, r)
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

// leave ends a request.
func (c *Count) leave(d *diana.Decision, e *weblog.Entry) {
	c.simulation.Leave(d, responseOf(e))
}

// responseOf returns the response of an entry.
func responseOf(e *weblog.Entry) Response {
	return Response{
		Lasts: max(e.Duration, 0), Status: e.Status, Bytes: e.Bytes, Cost: e.Cost, Milliseconds: e.Milliseconds,
		StatusAfter: e.StatusAfter, SettledAfter: e.SettledAfter,
	}
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

// keyOf returns the key of the actor that a rule counts a request by.
func (c *Count) keyOf(r *rule.Rule, request *diana.Request) []byte {
	client := c.set.Client(request)
	c.key, _ = c.set.Rules[c.index[r.Name]].AppendKey(c.key[:0], &client)
	return c.key
}

func newRefusals(rules int) *refusals {
	return &refusals{top: top.New(min(max(manyActors/rules, 32), 4096))}
}

// add counts a refusal. It copies what it keeps of the entry, because the entry is a part of a
// block of the log.
func (r *refusals) add(by *rule.Rule, key []byte, e *weblog.Entry) {
	if r.n++; r.n == 1 {
		r.rule = by
		r.first = First{
			At: e.Start, Key: string(key), Method: string([]byte(e.Method)), Target: string([]byte(e.Target)),
			File: e.File, Line: e.Line,
		}
	}
	r.top.Add(key)
}
