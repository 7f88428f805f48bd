// SPDX-License-Identifier: MIT

package simulate

import (
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/internal/paths"
)

// Comparison evaluates entries of logs under one configuration, or under two.
type Comparison struct {
	counts   []*Count // one or two
	only     [2][]*refusals
	onlyN    [2]int64
	requests *requests
	seen     seen
	earlier  *Earlier // nil: the counters begin empty
	n        int      // entries so far
}

// NewComparison returns a Comparison of one Count, or two.
func NewComparison(names *weblog.Names, counts ...*Count) *Comparison {
	c := &Comparison{counts: counts, requests: newRequests(names), seen: newSeen(names)}
	for i, count := range counts {
		c.only[i] = make([]*refusals, len(count.rules))
	}
	return c
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
		if err := c.correct(e); err != nil {
			return outcomes, err
		}
	}
	r, ok := c.requests.request(e)
	if !ok || !honest(r.Path) {
		c.seen.answered++
		return outcomes, nil
	}
	c.seen.look(e, &r)
	var decisions [2]diana.Decision
	for i, count := range c.counts {
		if decisions[i], err = count.evaluate(e, r); err != nil {
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

// correct corrects the counters before an entry.
func (c *Comparison) correct(e *weblog.Entry) error {
	found := c.earlier.found[c.n]
	c.n++
	for i := 0; i < len(c.counts) && len(found) > 0; i++ {
		if err := c.counts[i].correct(e.Start, found); err != nil {
			return err
		}
	}
	return nil
}

// honest reports whether a gateway accepts a path, whatever paths.strange says.
func honest(path string) bool { return paths.Check(path) == nil }

// onlyRefused counts a request that one configuration refuses and the other allows.
func (c *Comparison) onlyRefused(which int, d *diana.Decision, e *weblog.Entry, r *diana.Request) {
	c.onlyN[which]++
	r.Actors = c.counts[which].actorsOf(e)
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
