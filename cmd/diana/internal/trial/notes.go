// SPDX-License-Identifier: MIT

package trial

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/accesslog"
	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/plan"
	"github.com/diana-limiter/diana/rule"
)

// seen is what entries have told, to say in the end what they have not.
type seen struct {
	headers  []bool
	first    int64 // time
	last     int64
	host     bool
	query    bool
	account  bool // as diana serve tells it
	device   bool
	n        int64
	answered int64 // requests that a server in Go answers by itself
	whole    int64 // times in whole seconds
	unending int64 // without a duration
	endless  int64 // of over a day
	homeless int64 // without an address

	unanswered int64 // without a status
	own        int64
}

func (s *seen) look(e *accesslog.Entry, r *diana.Request) {
	if s.n++; s.n == 1 {
		s.first = e.Start
	}
	s.last = e.Start
	for i, value := range e.Headers {
		s.headers[i] = s.headers[i] || value != ""
	}
	s.host = s.host || r.HTTP.Host != ""
	s.query = s.query || r.HTTP.URL.RawQuery != ""
	s.account = s.account || e.Account != ""
	s.device = s.device || e.Device != ""
	if e.Whole {
		s.whole++
	}
	if e.Duration == accesslog.Unknown {
		s.unending++
	}
	if e.Duration > day.Microseconds() {
		s.endless++
	}
	if e.Status == 0 {
		s.unanswered++
	}
	if !plan.ClientIP(&rule.Identity{}, r).IsValid() {
		s.homeless++
	}
	if e.Own {
		s.own++
	}
}

// Headers returns the headers that a configuration looks at.
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

// actors returns what a configuration counts by.
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

// told reports whether a log has told, of any request, what an actor is found by.
func (s *seen) told(a rule.Actor, names *accesslog.Names) bool {
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
	i := slices.Index(names.Headers, header)
	return i >= 0 && s.headers[i]
}

// notes returns what the reader of the result of a configuration must know.
func (c *Comparison) notes(of *Count) (notes []string) {
	s, names := &c.seen, c.requests.names
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	held, global, quick, charged := false, false, false, false
	status := of.trial.limiter.Status().Rules
	for i, r := range rulesOf(of.config) {
		held = held || r.Algorithm.Held
		charged = charged || len(r.Charge) > 0
		global = global || r.Scope == rule.Global
		if r.Wait > 0 {
			add("%q is judged as if it had no wait: who is over the limit is refused.", status[i].Name)
		}
		quick = quick || r.Algorithm.Uses("unit") && r.Limit.Unit < 10*time.Second
		for _, a := range r.Actor {
			if missing := s.missing(a, &of.config.Identity, names); len(missing) > 0 {
				add("%q counts by %s: no line tells %s, so it counts by address.", status[i].Name, a, strings.Join(missing, " or "))
			}
		}
	}
	if global {
		add("Global rules are counted as by one gateway that has the whole limit.")
	}
	if s.whole > 0 && quick {
		add("%d of %d times are in whole seconds: requests of the same second are judged as if they came at once.", s.whole, s.n)
	}
	if s.unending > 0 && held {
		add("%d of %d requests do not tell how long they took: under rules of concurrency they are over at once.", s.unending, s.n)
	}
	if s.unanswered > 0 && charged {
		add("%d of %d requests do not tell their status: they stay counted under rules with charge.", s.unanswered, s.n)
	}
	if of.trial.early > 0 {
		add("More than %d requests were inside at once: %d have been let out before their time.", mostInside, of.trial.early)
	}
	return notes
}

// missing returns what an actor is found by, if a log tells none of it.
func (s *seen) missing(a rule.Actor, id *rule.Identity, names *accesslog.Names) (missing []string) {
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
		if source.Kind == "ip" || s.told(source, names) {
			return nil
		}
		missing = append(missing, source.String())
	}
	return missing
}

// logNotes returns what is to be known about the logs, whatever the configuration.
func (c *Comparison) logNotes(files []accesslog.File) (notes []string) {
	s := &c.seen
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	late := 0
	for _, f := range files {
		late += f.Late
	}
	if late > 0 {
		add("%d of %d requests stand too far from where their time belongs in their file: they are judged at the time of those around them.", late, s.n)
	}
	if s.homeless > 0 {
		add("%d of %d requests come from no address (a name, or nothing): together they count as one address.", s.homeless, s.n)
	}
	if s.endless > 0 {
		add("%d of %d durations are over a day, and their requests came that much earlier: without a unit a duration is read as seconds.", s.endless, s.n)
	}
	if s.answered > 0 {
		add("%d requests are not judged: the gateway would answer them by itself, as their URL cannot be read, or is too long.", s.answered)
	}
	if s.own > 0 {
		add("What diana serve logs as requests is what it has allowed. Its lines on refusals are not replayed, because each stands for many.")
	}
	return notes
}
