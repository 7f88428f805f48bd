// SPDX-License-Identifier: MIT

package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// seen is what the entries of a log contained. The notes say what they lacked.
type seen struct {
	names    *weblog.Names
	headers  []bool // by names.Headers
	first    int64  // time of the first entry
	last     int64
	actors   map[string]bool // that diana.Request.Actors has named
	host     bool
	query    bool
	account  bool // some line of diana serve has it
	device   bool
	n        int64
	answered int64 // requests that a gateway answers before any rule
	whole    int64 // times in whole seconds
	unending int64 // without a duration
	endless  int64 // with a duration of over a day
	homeless int64 // without an address

	unanswered int64 // without a status
	sizeless   int64 // without the size of the answer
	costless   int64 // without a cost of the answer
	own        int64
}

func newSeen(names *weblog.Names) seen {
	return seen{names: names, headers: make([]bool, len(names.Headers)), actors: map[string]bool{}}
}

// look counts an entry, whose request is r.
func (s *seen) look(e *weblog.Entry, r *diana.Request) {
	if s.n++; s.n == 1 {
		s.first = e.Start
	}
	s.last = e.Start
	for i, value := range e.Headers {
		s.headers[i] = s.headers[i] || value != ""
	}
	for text, value := range e.Actors {
		s.actors[text] = s.actors[text] || value != ""
	}
	s.host = s.host || r.HTTP.Host != ""
	s.query = s.query || r.HTTP.URL.RawQuery != ""
	s.account = s.account || e.Account != ""
	s.device = s.device || e.Device != ""
	if e.Whole {
		s.whole++
	}
	if e.Duration == weblog.Unknown {
		s.unending++
	}
	if e.Duration > day.Microseconds() {
		s.endless++
	}
	if e.Status == 0 {
		s.unanswered++
	}
	if e.Bytes == weblog.Unknown {
		s.sizeless++
	}
	if e.Cost == weblog.Unknown {
		s.costless++
	}
	if !plan.ClientIP(&rule.Identity{}, r).IsValid() {
		s.homeless++
	}
	if e.Own {
		s.own++
	}
}

// Headers returns the headers that a configuration reads.
func Headers(c *config.Config) (names []string) {
	for _, a := range actors(c) {
		switch a.Kind {
		case "header":
			names = append(names, a.Name)
		case "cookie":
			names = append(names, "Cookie")
		}
	}
	if len(c.Identity.TrustedProxies) > 0 {
		names = append(names, "X-Forwarded-For")
	}
	for _, r := range rulesOf(c) {
		if r.Cost.Header != "" {
			names = append(names, r.Cost.Header)
		}
	}
	return names
}

// actors returns the actors of a configuration's identity and rules.
func actors(c *config.Config) []rule.Actor {
	all := append(slices.Clone(c.Identity.Account), c.Identity.Device...)
	for _, r := range rulesOf(c) {
		all = append(all, r.Actor...)
	}
	return all
}

// rulesOf returns the rules of a configuration, each at its rule.Index.
func rulesOf(c *config.Config) (all []rule.Rule) {
	for _, e := range c.Limits {
		all = append(all, e.Rules...)
	}
	return all
}

// has reports whether any request of the logs had what an actor is found by.
func (s *seen) has(a rule.Actor) bool {
	if s.actors[a.String()] {
		return true
	}
	header := a.Name
	switch a.Kind {
	case "query":
		return s.query
	case "cookie":
		header = "Cookie"
	case "host":
		return s.host
	case "header":
		if header == "Host" {
			return s.host
		}
	default:
		return true
	}
	i := slices.Index(s.names.Headers, header)
	return i >= 0 && s.headers[i]
}

// notes returns what a reader of a configuration's result must know.
func (s *seen) notes(of *Count) (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	held, global, quick, charged := false, false, false, false
	missing := map[string]int64{} // requests whose cost is unknown, by what the line lacks
	status := of.simulation.limiter.Status().Rules
	for i, r := range rulesOf(of.config) {
		held = held || r.Algorithm.Held
		charged = charged || len(r.Charge) > 0
		global = global || r.Scope == rule.Global
		switch r.Cost.Answer {
		case "":
		case "duration":
			missing["duration"] = s.unending
		case "bytes":
			missing["size of the answer"] = s.sizeless
		default:
			missing["cost of the answer"] = s.costless
		}
		if r.Wait > 0 {
			add("%q is evaluated without its wait: it refuses every request over the limit.", status[i].Name)
		}
		quick = quick || r.Algorithm.Uses("unit") && r.Limit.Calendar == "" && r.Limit.Unit < 10*time.Second
		for _, a := range r.Actor {
			if missing := s.missing(a, &of.config.Identity); len(missing) > 0 {
				add("%q counts by %s: no line has %s, so it counts by address.", status[i].Name, a, strings.Join(missing, " or "))
			}
		}
	}
	if global {
		add("Global rules are counted as by one gateway with the whole limit.")
	}
	if s.whole > 0 && quick {
		add("%d of %d times are in whole seconds: requests of the same second are evaluated as if they came at once.", s.whole, s.n)
	}
	if s.unending > 0 && held {
		add("%d of %d requests have no duration: under rules of concurrency they end at once.", s.unending, s.n)
	}
	if s.unanswered > 0 && charged {
		add("%d of %d requests have no status: they stay counted under rules with charge.", s.unanswered, s.n)
	}
	for _, what := range slices.Sorted(maps.Keys(missing)) {
		if n := missing[what]; n > 0 {
			add("%d of %d requests have no %s: they keep their reservation under rules with answer.", n, s.n, what)
		}
	}
	if of.simulation.early > 0 {
		add("More than %d requests were in flight at once: %d of them were ended too early.", mostInside, of.simulation.early)
	}
	return notes
}

// missing returns what an actor is found by, if the logs have none of it.
func (s *seen) missing(a rule.Actor, id *rule.Identity) (missing []string) {
	sources := []rule.Actor{a}
	switch {
	case s.account && (a.Kind == "account" || a.String() == firstSource(id.Account, "account")),
		s.device && (a.Kind == "device" || a.String() == firstSource(id.Device, "device")):
		return nil
	case a.Kind == "account":
		sources = id.Account
	case a.Kind == "device":
		sources = id.Device
	}
	for _, source := range sources {
		if source.Kind == "ip" || s.has(source) {
			return nil
		}
		missing = append(missing, source.String())
	}
	return missing
}

// logNotes returns what a reader must know about the logs, whatever the configuration.
func (s *seen) logNotes(files []weblog.File) (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	late := 0
	for _, f := range files {
		late += f.Late
	}
	if late > 0 {
		add("%d of %d requests are too far from their place by time in their file: they are evaluated at the time of the lines around them.", late, s.n)
	}
	if s.homeless > 0 {
		add("%d of %d requests have no valid address (a name, or nothing): together they count as one address.", s.homeless, s.n)
	}
	if s.endless > 0 {
		add("%d of %d durations are over a day, and their requests count that much earlier: a duration without a unit is read as seconds.", s.endless, s.n)
	}
	if s.answered > 0 {
		add("%d requests are not evaluated: the gateway would answer them before any rule, because their URL cannot be read or is too long.", s.answered)
	}
	if s.own > 0 {
		add("The request lines of diana serve are requests that it allowed. Its refusal lines are not replayed, because each is for many requests.")
	}
	return notes
}
