// SPDX-License-Identifier: MIT

package whatif

import (
	"slices"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/cmd/diana/internal/simulate"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// notes returns what the report cannot know.
func (w *WhatIf) notes(r *replay, now, proposed *config.Config) (notes simulate.Notes) {
	s, status := r.requests, w.options.Status()
	from, some := s.First()
	notes.When(r.compared > 0, "Under the configuration in force the replay makes %d of the gateway's %d decisions (%.2f %%).",
		r.same, r.compared, float64(r.same)/float64(r.compared)*100)
	notes.When(s.Whole, "The gateway remembers every request since its start at %s, so the counters are those of the gateway.", clock(s.Started))
	if !s.Whole && some {
		notes.When(true, "Requests before %s are not remembered. What they had used is known from what the remembered requests of the same clients have met. A counter that the proposed configuration names otherwise, or that has another unit or algorithm, begins empty.", clock(from))
		unknownAtStart(&notes, simulate.Rules(now))
	}
	since := ""
	if some && s.Since > from {
		since = ", since " + clock(s.Since) + ", when it had no more room for all. The replay leaves the others out from the start"
	}
	notes.When(s.Share < 1, "The gateway remembers all requests of %.3g %% of the clients, chosen by %s%s. Rules that count by it are exact for these clients. All counts are of this share, and rules for all clients or by other actors refuse too few.", s.Share*100, s.Client, since)
	notes.When(s.Hashed, "Clients are remembered by hashes. Addresses stay in the networks that the configuration in force names, and in no others: start diana serve with --recent-actors plain to try other networks.")
	resets, _ := s.Happened(history.Reset)
	notes.When(resets > 0, "Counters were reset %d times meanwhile. The replay does not reset them.", resets)
	changes, latest := s.Happened(history.Changed)
	notes.When(changes > 0, "The configuration has changed %d times meanwhile, at last at %s. The replay evaluates all requests by the one in force. What only the present one reads is not known of earlier requests.", changes, clock(latest))
	ofRules(&notes, slices.Concat(simulate.Rules(now), simulate.Rules(proposed)), status.Gateways)
	notes.When(s.Degraded > 0, "%d decisions were made without Redis. The replay does not know the outage.", s.Degraded)
	notes.When(s.Running > 0, "%d requests are still in flight: they hold their slots until the end, and what they cost is not known.", s.Running)
	notes.When(s.Oversized > 0, "%d requests were too large to remember.", s.Oversized)
	rejected := int64(0)
	for _, n := range w.options.Rejected() {
		rejected += n
	}
	notes.When(rejected > 0, "%d requests since the start were rejected before any rule, because of their path or body. They are not remembered.", rejected)
	answers := map[string]bool{"": true} // also that of rules without one
	for _, of := range simulate.Rules(now) {
		answers[of.Cost.Answer] = true
	}
	notes.When(len(answers) > 2, "The gateway remembers the cost of a response for the first rule that charges for it. The costs for other rules are known from its duration and size, about as the gateway has charged them.")
	for _, of := range status.Rules {
		notes.When(of.Unsettled > 0, "%q: %d responses had no cost that could be read.", of.Name, of.Unsettled)
	}
	notes.When(true, "What the gateway has refused has no response: if the proposed configuration allows such a request, its status, duration and cost are unknown.")
	notes.When(true, "A client that is refused may come again later, or not at all. The replay has each request once, at its own time.")
	return notes
}

// ofRules adds the notes on what happens elsewhere, or later than a request is decided.
func ofRules(notes *simulate.Notes, rules []rule.Rule, gateways int) {
	notes.When(count(rules, func(r *rule.Rule) bool { return r.Scope == rule.Global }) > 0,
		"Global rules are counted as by one gateway with the whole limit. %d gateways are alive, and the requests of the others are not remembered here.", gateways)
	notes.When(count(rules, func(r *rule.Rule) bool { return r.Algorithm.Uses("queue") && r.Limit.Queue >= 0 }) > 0,
		"Late timers, and clients that disconnected, have moved the scheduled times of leaky buckets. The replay moves them by as much, also under the proposed configuration. There they would have moved otherwise.")
	notes.When(count(rules, func(r *rule.Rule) bool { return r.Wait > 0 }) > 0,
		"A request that waited under a rule with wait is evaluated when it was decided, and waits no further. So the replay allows some that were refused because others waited. Under the proposed configuration a request may have to wait for longer, or less.")
}

// unknownAtStart adds the notes on what the outcomes do not say of the counters at the first request.
func unknownAtStart(notes *simulate.Notes, rules []rule.Rule) {
	cold := count(rules, func(r *rule.Rule) bool { return r.Limit.Warmup > 0 })
	notes.When(cold > 0, "%d rules have a warmup. How warm their counters were at the start is not known: they begin cold.", cold)
	late := count(rules, func(r *rule.Rule) bool { return r.Cost.Answer != "" || len(r.Charge) > 0 })
	notes.When(late > 0, "%d rules charge by the response. The responses to requests before the start are known from later outcomes only, so a few decisions after the start may differ.", late)
	debts := count(rules, func(r *rule.Rule) bool { return r.Cost.Answer != "" && !r.Algorithm.Uses("burst") })
	notes.When(debts > 0, "%d rules can let a client go far over its limit, because of what a response costs. How far it was at the start is not known.", debts)
}

// count returns of how many rules something is true.
func count(rules []rule.Rule, is func(*rule.Rule) bool) (n int) {
	for i := range rules {
		if is(&rules[i]) {
			n++
		}
	}
	return n
}

func clock(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339) }
