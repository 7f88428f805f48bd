// SPDX-License-Identifier: MIT

package simulate

import (
	"fmt"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/paths"
)

// Comparison evaluates entries of logs under one configuration, or under two.
type Comparison struct {
	counts   []*Count // one or two
	names    *weblog.Names
	requests *requests
	seen     seen
	earlier  *Earlier // nil: the counters begin empty
	n        int      // entries so far
}

// NewComparison returns a Comparison of one Count, or two.
func NewComparison(names *weblog.Names, counts ...*Count) *Comparison {
	return &Comparison{counts: counts, names: names, requests: newRequests(names), seen: seen{found: map[string]bool{}}}
}

// Begin has the counters begin as earlier requests have left them. It must come before the first Play, which then
// gets the entries that Earlier has looked at.
func (c *Comparison) Begin(e *Earlier) { c.earlier = e }

// Outcome is the decision on an entry.
type Outcome struct {
	Evaluated  bool // false: a gateway would answer the request before any rule
	Allowed    bool
	Delayed    time.Duration
	RetryAfter time.Duration
}

// Play evaluates an entry, and returns the outcome of each Count.
func (c *Comparison) Play(e *weblog.Entry) (outcomes [2]Outcome, err error) {
	if c.earlier != nil {
		if err := c.correct(e.Start); err != nil {
			return outcomes, err
		}
	}
	r, ok := c.requests.request(e)
	if !ok || !honest(r.Path) {
		c.seen.answered++
		return outcomes, nil
	}
	c.seen.look(c.names, e, &r)
	var d [2]diana.Decision
	for i, count := range c.counts {
		if d[i], err = count.evaluate(e, &r); err != nil {
			return outcomes, err
		}
		outcomes[i] = Outcome{true, d[i].Allowed, d[i].Delayed, d[i].RetryAfter}
	}
	for i, count := range c.counts {
		if len(c.counts) == 2 && !d[i].Allowed && d[1-i].Allowed {
			count.onlyRefuses(&d[i], e, &r)
		}
		count.leave(&d[i], e.Start, e.Response)
	}
	return outcomes, nil
}

// Unmeasured returns why a rule of adaptive concurrency cannot be evaluated on the log, or "".
func (c *Comparison) Unmeasured() string {
	for _, count := range c.counts {
		for _, r := range count.set.Rules {
			begin := measuresBegin(r.Rule) || count.model != nil
			switch {
			case !r.Algorithm.Uses("measure") || c.seen.n == 0:
			case begin && c.seen.unmeasured == c.seen.n:
				return fmt.Sprintf("%q cannot be evaluated: no request has the time of the upstream alone, expected upstream_header_time of nginx, or response_duration with Envoy's %%RESPONSE_DURATION%%. A total time has that of slow clients in it.", r.Name)
			case !begin && c.seen.unending == c.seen.n:
				return fmt.Sprintf("%q cannot be evaluated: no request has a duration, expected one such as request_time", r.Name)
			}
		}
	}
	return ""
}

// correct corrects the counters before an entry.
func (c *Comparison) correct(at int64) error {
	for _, count := range c.counts {
		count.simulation.advance(at)
		for _, of := range c.earlier.found[c.n] {
			if err := count.correct(of); err != nil {
				return err
			}
		}
	}
	c.n++
	return nil
}

// honest reports whether a gateway accepts a path, whatever paths.strange says.
func honest(path string) bool { return paths.Check(path) == nil }
