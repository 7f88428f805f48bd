// SPDX-License-Identifier: MIT

package whatif

import (
	"fmt"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/recent"
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
		add("Requests before %s are not remembered. The replay starts with empty counters: a rule refuses fewer requests than the gateway did, until its unit is over.", clock(from))
	}
	if s.Share < 1 {
		add("The gateway remembers all requests of %s of the clients, chosen by %s. Rules that count by it are exact for these clients. All counts are of this share, and rules for all clients or by other actors refuse too few.", percent(s.Share), s.Client)
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
		case e.Kind == recent.Reset:
			resets++
		case e.Kind == recent.Changed:
			changes++
		}
	}
	if resets > 0 {
		add("Counters were reset %d times meanwhile. The replay does not reset them.", resets)
	}
	if changes > 0 {
		add("The configuration has changed %d times meanwhile, at last at %s. The replay evaluates all requests by the one in force. What only the present one reads is not known of earlier requests.", changes, clock(r.since))
	}
	global, waits := false, false
	for _, c := range []*config.Config{now, proposed} {
		for _, e := range c.Limits {
			for i := range e.Rules {
				global = global || e.Rules[i].Scope == rule.Global
				waits = waits || e.Rules[i].Wait > 0 || e.Rules[i].Limit.Queue > 0
			}
		}
	}
	if global {
		add("Global rules are counted as by one gateway with the whole limit. %d gateways are alive, and the requests of the others are not remembered here.", gateways)
	}
	if waits {
		add("Requests that waited are evaluated at their scheduled times: timers are late, and a client may have disconnected while it waited.")
	}
	return notes
}

func clock(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339) }

func percent(share float64) string { return fmt.Sprintf("%.3g %%", share*100) }
