// SPDX-License-Identifier: MIT

package whatif

import (
	"fmt"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// notes returns what the report cannot know.
func (w *WhatIf) notes(r *replay, now, proposed *config.Config) (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	s, status := r.requests, w.options.Status()
	if r.compared > 0 {
		add("Under the configuration in force the replay makes %d of the gateway's %d decisions (%.2f %%).",
			r.same, r.compared, float64(r.same)/float64(r.compared)*100)
	}
	if s.Whole {
		add("The gateway remembers every request since its start at %s, so the counters are those of the gateway.", clock(s.Started))
	} else if from, ok := s.Moment(0); ok {
		add("Requests before %s are not remembered. What they had used is known from what the remembered requests of the same clients have met. A counter that the proposed configuration names otherwise, or that has another unit or algorithm, begins empty.", clock(from))
		notes = append(notes, unknownAtStart(now)...)
	}
	if s.Share < 1 {
		add("The gateway remembers all requests of %s of the clients, chosen by %s%s. Rules that count by it are exact for these clients. All counts are of this share, and rules for all clients or by other actors refuse too few.", percent(s.Share), s.Client, since(s))
	}
	if s.Hashed {
		add("Clients are remembered by hashes. Addresses stay in the networks that the configuration in force names, and in no others: start diana serve with --recent-actors plain to try other networks.")
	}
	notes = append(notes, w.ofPlace(r, now, proposed, status.Gateways)...)
	if s.Degraded > 0 {
		add("%d decisions were made without Redis. The replay does not know the outage.", s.Degraded)
	}
	if s.Running > 0 {
		add("%d requests are still in flight: they hold their slots until the end, and what they cost is not known.", s.Running)
	}
	if s.Oversized > 0 {
		add("%d requests were too large to remember.", s.Oversized)
	}
	rejected := int64(0)
	for _, n := range w.options.Rejected() {
		rejected += n
	}
	if rejected > 0 {
		add("%d requests since the start were rejected before any rule, because of their path or body. They are not remembered.", rejected)
	}
	if answers(now) > 1 {
		add("The gateway remembers the cost of a response for the first rule that charges for it. The costs for other rules are known from its duration and size, about as the gateway has charged them.")
	}
	for _, of := range status.Rules {
		if of.Unsettled > 0 {
			add("%q: %d responses had no cost that could be read.", of.Name, of.Unsettled)
		}
	}
	add("What the gateway has refused has no response: if the proposed configuration allows such a request, its status, duration and cost are unknown.")
	add("A client that is refused may come again later, or not at all. The replay has each request once, at its own time.")
	return notes
}

// ofPlace returns the notes about what happened to the counters, and elsewhere.
func (w *WhatIf) ofPlace(r *replay, now, proposed *config.Config, gateways int) (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	from, _ := r.requests.Moment(0)
	resets, changes := 0, 0
	for _, e := range r.requests.Events {
		switch {
		case e.At < from:
		case e.Kind == history.Reset:
			resets++
		case e.Kind == history.Changed:
			changes++
		}
	}
	if resets > 0 {
		add("Counters were reset %d times meanwhile. The replay does not reset them.", resets)
	}
	if changes > 0 {
		add("The configuration has changed %d times meanwhile, at last at %s. The replay evaluates all requests by the one in force. What only the present one reads is not known of earlier requests.", changes, clock(r.since))
	}
	global, buckets, waits := false, false, false
	for _, c := range []*config.Config{now, proposed} {
		for _, e := range c.Limits {
			for i := range e.Rules {
				global = global || e.Rules[i].Scope == rule.Global
				waits = waits || e.Rules[i].Wait > 0
				buckets = buckets || e.Rules[i].Algorithm.Uses("queue") && e.Rules[i].Limit.Queue >= 0
			}
		}
	}
	if global {
		add("Global rules are counted as by one gateway with the whole limit. %d gateways are alive, and the requests of the others are not remembered here.", gateways)
	}
	if buckets {
		add("Late timers, and clients that disconnected, have moved the scheduled times of leaky buckets. The replay moves them by as much, also under the proposed configuration. There they would have moved otherwise.")
	}
	if waits {
		add("A request that waited under a rule with wait is evaluated when it was decided, and waits no further. So the replay allows some that were refused because others waited. Under the proposed configuration a request may have to wait for longer, or less.")
	}
	return notes
}

// answers returns in how many ways the rules of a configuration charge for responses.
func answers(c *config.Config) int {
	kinds := map[string]bool{}
	for _, e := range c.Limits {
		for i := range e.Rules {
			if answer := e.Rules[i].Cost.Answer; answer != "" {
				kinds[answer] = true
			}
		}
	}
	return len(kinds)
}

// since says since when the gateway takes its share of the clients.
func since(s *history.Snapshot) string {
	if first, ok := s.Moment(0); ok && s.Since > first {
		return ", since " + clock(s.Since) + ", when it had no more room for all. The replay leaves the others out from the start"
	}
	return ""
}

// unknownAtStart returns what the outcomes do not say of the counters at the first request.
func unknownAtStart(c *config.Config) (notes []string) {
	cold, debts, late := 0, 0, 0
	for _, e := range c.Limits {
		for i := range e.Rules {
			r := &e.Rules[i]
			if r.Limit.Warmup > 0 {
				cold++
			}
			if r.Cost.Answer != "" && !r.Algorithm.Uses("burst") {
				debts++
			}
			if r.Cost.Answer != "" || len(r.Charge) > 0 {
				late++
			}
		}
	}
	if cold > 0 {
		notes = append(notes, fmt.Sprintf("%d rules have a warmup. How warm their counters were at the start is not known: they begin cold.", cold))
	}
	if late > 0 {
		notes = append(notes, fmt.Sprintf("%d rules charge by the response. The responses to requests before the start are known from later outcomes only, so a few decisions after the start may differ.", late))
	}
	if debts > 0 {
		notes = append(notes, fmt.Sprintf("%d rules can let a client go far over its limit, because of what a response costs. How far it was at the start is not known.", debts))
	}
	return notes
}

func clock(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339) }

func percent(share float64) string { return fmt.Sprintf("%.3g %%", share*100) }
