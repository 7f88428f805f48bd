// SPDX-License-Identifier: MIT

package simulate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// Notes say what a reader of a result must know.
type Notes []string

// When adds a note if it applies.
func (n *Notes) When(applies bool, format string, args ...any) {
	if applies {
		*n = append(*n, fmt.Sprintf(format, args...))
	}
}

// seen is what the entries of a log contained. The notes say what they lacked.
type seen struct {
	found    map[string]bool // actors that entries have named, headers, "Host", "query", "account" and "device"
	first    int64           // time of the first entry
	last     int64
	n        int64
	answered int64 // requests that a gateway answers before any rule
	whole    int64 // times in whole seconds
	unending int64 // without a duration
	endless  int64 // with a duration of over a day
	homeless int64 // without an address

	unmeasured int64 // without the time of the upstream alone
	unanswered int64 // without a status
	sizeless   int64 // without the size of the answer
	costless   int64 // without a cost of the answer
	own        int64
}

// look counts an entry, whose request is r. names are the headers of entries.
func (s *seen) look(names *weblog.Names, e *weblog.Entry, r *diana.Request) {
	if s.n++; s.n == 1 {
		s.first = e.Start
	}
	s.last = e.Start
	find := func(what, value string) {
		if value != "" {
			s.found[what] = true
		}
	}
	for i, value := range e.Headers {
		find(names.Headers[i], value)
	}
	for text, value := range e.Actors {
		find(text, value)
	}
	find("Host", r.HTTP.Host)
	find("query", r.HTTP.URL.RawQuery)
	find("account", e.Account)
	find("device", e.Device)
	count := func(n *int64, is bool) {
		if is {
			*n++
		}
	}
	count(&s.whole, e.Whole)
	count(&s.unending, e.Duration == weblog.Unknown)
	count(&s.endless, e.Duration > day*micros)
	count(&s.unmeasured, e.StatusAfter == weblog.Unknown)
	count(&s.unanswered, e.Status == 0)
	count(&s.sizeless, e.Bytes == weblog.Unknown)
	count(&s.costless, e.Cost == weblog.Unknown)
	count(&s.homeless, !plan.ClientIP(&rule.Identity{}, r).IsValid())
	count(&s.own, e.Own)
}

// Rules returns the rules of a configuration, each at its rule.Index.
func Rules(c *config.Config) (all []rule.Rule) {
	for _, e := range c.Limits {
		all = append(all, e.Rules...)
	}
	return all
}

// has reports whether any request of the logs had what an actor is found by.
func (s *seen) has(a rule.Actor) bool {
	if s.found[a.String()] {
		return true
	}
	switch a.Kind {
	case "query":
		return s.found["query"]
	case "cookie":
		return s.found["Cookie"]
	case "host":
		return s.found["Host"]
	case "header":
		return s.found[http.CanonicalHeaderKey(a.Name)]
	}
	return a == rule.All // no log has a body or a credential
}

// missing returns what an actor is found by, if the logs have none of it.
func (s *seen) missing(a rule.Actor, id *rule.Identity) (missing []string) {
	sources := []rule.Actor{a}
	for kind, chain := range map[string][]rule.Actor{"account": id.Account, "device": id.Device} {
		switch {
		case s.found[kind] && (a.Kind == kind || a.String() == firstSource(chain, kind)):
			return nil
		case a.Kind == kind:
			sources = chain
		}
	}
	for _, source := range sources {
		if source.Kind == "ip" || s.has(source) {
			return nil
		}
		missing = append(missing, source.String())
	}
	return missing
}

// notes returns the notes on the result of a configuration.
func (s *seen) notes(of *Count) Notes {
	notes, rules := Notes{}, Rules(of.config)
	for i, status := range of.simulation.limiter.Status().Rules {
		notes.When(rules[i].Wait > 0, "%q is evaluated without its wait: it refuses every request over the limit.", status.Name)
		adapts := rules[i].Algorithm.Uses("measure")
		notes.When(adapts && of.model == nil, "%q learns from the latencies in the log, whoever caused them: requests that it refuses have no effect on the others.", status.Name)
		n, what := s.unmeasured, "time of the upstream alone"
		if !measuresBegin(&rules[i]) {
			n, what = s.unending, "duration"
		}
		notes.When(adapts && n > 0, "%q learns nothing from %d of %d requests, which have no %s.", status.Name, n, s.n, what)
		for _, a := range rules[i].Actor {
			missing := s.missing(a, &of.config.Identity)
			notes.When(len(missing) > 0, "%q counts by %s: no line has %s, so it counts by address.", status.Name, a, strings.Join(missing, " or "))
		}
	}
	some := func(is func(r rule.Rule) bool) bool { return slices.ContainsFunc(rules, is) }
	notes.When(some(func(r rule.Rule) bool { return r.Scope == rule.Global }),
		"Global rules are counted as by one gateway with the whole limit.")
	notes.When(s.whole > 0 && some(func(r rule.Rule) bool {
		return r.Algorithm.Uses("unit") && r.Limit.Calendar == "" && r.Limit.Unit < 10*time.Second
	}), "%d of %d times are in whole seconds: requests of the same second are evaluated as if they came at once.", s.whole, s.n)
	notes.When(s.unending > 0 && some(func(r rule.Rule) bool { return r.Algorithm.Held }),
		"%d of %d requests have no duration: under rules of concurrency they end at once.", s.unending, s.n)
	notes.When(s.unanswered > 0 && some(func(r rule.Rule) bool { return len(r.Charge) > 0 }),
		"%d of %d requests have no status: they stay counted under rules with charge.", s.unanswered, s.n)
	const reserved = "%d of %d requests have no %s: they keep their reservation under rules with answer."
	notes.When(s.costless > 0 && some(func(r rule.Rule) bool {
		return r.Cost.Answer != "" && r.Cost.Answer != "duration" && r.Cost.Answer != "bytes"
	}), reserved, s.costless, s.n, "cost of the answer")
	notes.When(s.unending > 0 && some(func(r rule.Rule) bool { return r.Cost.Answer == "duration" }), reserved, s.unending, s.n, "duration")
	notes.When(s.sizeless > 0 && some(func(r rule.Rule) bool { return r.Cost.Answer == "bytes" }), reserved, s.sizeless, s.n, "size of the answer")
	notes.When(of.simulation.early > 0,
		"More than %d requests were in flight at once: %d of them were ended too early.", mostInside, of.simulation.early)
	return notes
}

// logNotes returns the notes on the logs, whatever the configuration.
func (s *seen) logNotes(files []weblog.File) Notes {
	notes, late := Notes{}, 0
	for _, f := range files {
		late += f.Late
	}
	notes.When(late > 0, "%d of %d requests are too far from their place by time in their file: they are evaluated at the time of the lines around them.", late, s.n)
	notes.When(s.homeless > 0, "%d of %d requests have no valid address (a name, or nothing): together they count as one address.", s.homeless, s.n)
	notes.When(s.endless > 0, "%d of %d durations are over a day, and their requests count that much earlier: a duration without a unit is read as seconds.", s.endless, s.n)
	notes.When(s.answered > 0, "%d requests are not evaluated: the gateway would answer them before any rule, because their URL cannot be read or is too long.", s.answered)
	notes.When(s.own > 0, "The request lines of diana serve are requests that it allowed. Its refusal lines are not replayed, because each is for many requests.")
	return notes
}
