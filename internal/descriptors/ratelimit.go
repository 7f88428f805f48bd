// SPDX-License-Identifier: MIT

package descriptors

import (
	"math"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// defaultAlgorithm is what envoyproxy/ratelimit does.
const defaultAlgorithm = "W"

// algorithmKeys are the keys of a rate_limit that only some algorithms use, see limit.Algorithm.Keys.
var algorithmKeys = []string{"burst", "slices", "queue"}

// countedKeys are the keys of a rate_limit that mean nothing beside unlimited.
var countedKeys = []string{"unit", "algo", "burst", "slices", "queue", "on_error", "scope", "debit"}

// modeKeys are the keys of a descriptor that mean nothing without a rate_limit.
var modeKeys = []string{"shadow_mode", "quota_mode", "detailed_metric"}

// limit reads the rate_limit of the descriptor m, if it has one.
func (r *reader) limit(m mapping, at level) {
	l := &Limit{
		Index: -1, FullName: at.fullName, path: at.path, Levels: at.entries, File: r.file,
		Shadow: m.get("shadow_mode").truth(), Quota: m.get("quota_mode").truth(), Detailed: m.get("detailed_metric").truth(),
	}
	v := m.get("rate_limit")
	if !v.given() {
		for _, key := range modeKeys {
			if mode := m.get(key); mode.given() {
				mode.warn(m.fields[key].key, "it means nothing without rate_limit")
			}
		}
		return
	}
	limits, ok := v.mapping(aRateLimit, rateLimitKeys)
	if !ok || r.tooMany(v, l) {
		return
	}
	l.Line = m.fields["rate_limit"].key.Line
	before := len(r.errs)
	l.Unlimited = limits.get("unlimited").truth()
	unknown := len(r.errs) > before // whether it is unlimited
	l.Name, _ = limits.get("name").text()
	l.Replaces = r.replaces(limits.get("replaces"), l.Name)
	requests := limits.get("requests_per_unit")
	l.RequestsPerUnit = uint32(requests.whole(0, math.MaxUint32))
	switch {
	case unknown:
	case l.Unlimited:
		for _, key := range countedKeys {
			if limits.get(key).given() {
				limits.failKey(key, "it means nothing beside unlimited, expected one of them")
			}
		}
		if requests.given() {
			requests.warn(limits.fields["requests_per_unit"].key, "it means nothing beside unlimited")
		}
	default:
		if !requests.given() {
			v.warn(m.fields["rate_limit"].key, "there is no requests_per_unit, so it is 0 and every request is refused")
		}
		l.Unit = readUnit(limits)
		l.Debit = limits.get("debit").truth()
		l.Rule = r.rule(limits, l)
		l.Index = len(r.tree.counted)
		r.tree.counted = append(r.tree.counted, l)
	}
	at.limit = l
	r.tree.limits = append(r.tree.limits, l)
}

// tooMany reports a limit that is one too many.
func (r *reader) tooMany(v value, l *Limit) bool {
	r.names += len(l.FullName)
	switch {
	case len(r.tree.limits) >= bounds.MaxEntries:
		v.fail("expected at most %d limits of all files together, found more", bounds.MaxEntries)
	case r.names > maxNames:
		v.fail("expected at most %d MiB of full names of all limits together, found more", maxNames>>20)
	default:
		return false
	}
	return true
}

// readUnit reads the unit of a limit that is counted.
func readUnit(limits mapping) Unit {
	words := []string{"second", "minute", "hour", "day", "week", "month", "year"}
	v := limits.get("unit")
	text, ok := v.text()
	switch {
	case !ok:
	case text == "":
		limits.fail("a rate_limit lacks unit, expected %s", yamltext.Join(words, "or"))
	default:
		u, known := parseUnit(text)
		if !known {
			v.expected(yamltext.Join(words, "or"), words...)
		}
		return u
	}
	return UnitUnknown
}

// replaces reads the names of the limits that the limit with this name replaces.
func (r *reader) replaces(v value, own string) (names []string) {
	for _, item := range v.list("mappings with a name") {
		m, ok := item.mapping(aReplaces, replacesKeys)
		if !ok {
			continue
		}
		name, ok := m.get("name").text()
		switch {
		case !ok:
		case name == "":
			m.fail("the name is empty, expected the name of another rate_limit")
		case name == own:
			m.get("name").fail("%s is the name of this rate_limit, expected the name of another", quote(name))
		default:
			names = append(names, name)
			r.replaced = append(r.replaced, m.get("name"))
		}
	}
	return names
}

// rule reads how a limit is counted.
func (r *reader) rule(limits mapping, l *Limit) rule.Rule {
	before := len(r.errs)
	made := rule.Rule{
		// The kind of the actor is part of the names of the counters, and nothing looks for the actor.
		Actor: []rule.Actor{{Kind: "header", Name: "Descriptor"}},
		Limit: limit.Limit{
			N:      int64(l.RequestsPerUnit),
			Unit:   l.Unit.Duration(),
			Burst:  limits.get("burst").whole(1, bounds.MaxN),
			Slices: limits.get("slices").whole(bounds.MinSlices, bounds.MaxSlices),
			Queue:  limits.get("queue").whole(0, bounds.MaxN),
		},
		Scope: r.scope(limits.get("scope")),
		OnError: rule.OnError(limits.get("on_error").choice(
			rule.Share.String(), rule.Whole.String(), rule.Open.String(), rule.Closed.String())),
		Shadow: l.Shadow || l.Quota,
	}
	if limits.get("queue").given() && made.Limit.Queue == 0 {
		made.Limit.Queue = -1 // limit.Limit takes 0 for the default
	}
	// A default scope of local is no mistake, because the same file has another where Redis is configured.
	if limits.get("on_error").given() && limits.get("scope").given() && made.Scope == rule.Local {
		limits.failKey("on_error", "it has no meaning for scope local, expected another scope")
	}
	algo, ok := r.algorithm(limits)
	if !ok {
		return made
	}
	made.Algorithm = algo
	r.refuseOtherKeys(limits, algo)
	if len(r.errs) > before || l.Unit == UnitUnknown {
		return made
	}
	if _, err := algo.New(made.Limit); err != nil {
		limits.fail("algo %s cannot keep this limit: %s", algo.Name(), strings.TrimPrefix(err.Error(), "limit: "))
	}
	return made
}

// scope reads the name of a scope.
func (r *reader) scope(v value) rule.Scope {
	if !v.given() {
		return r.options.Scope
	}
	names := []string{string(rule.Local), string(rule.Global)}
	for _, s := range r.words.Scopes {
		if !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	return rule.Scope(names[v.choice(names...)])
}

// algorithm reads the algorithm of a limit.
func (r *reader) algorithm(limits mapping) (limit.Algorithm, bool) {
	v, name := limits.get("algo"), defaultAlgorithm
	if v.given() {
		var ok bool
		if name, ok = v.text(); !ok {
			return limit.Algorithm{}, false
		}
	}
	var names []string
	for _, a := range r.words.Algorithms {
		switch {
		case a.Called(name) && a.Held:
			v.fail("%s limits what is in flight, but nobody says when the request ends, so its slot would stay taken", a.Name())
			return a, false
		case a.Called(name):
			return a, true
		case !a.Held:
			names = append(names, a.Names...)
		}
	}
	if v.given() {
		v.expected(yamltext.Join(names, "or"), names...)
	} else {
		limits.fail("a rate_limit lacks algo, and there is none by default")
	}
	return limit.Algorithm{}, false
}

// refuseOtherKeys reports the keys of a rate_limit that its algorithm does not use.
func (r *reader) refuseOtherKeys(limits mapping, algo limit.Algorithm) {
	for _, key := range algorithmKeys {
		if !limits.get(key).given() || algo.Uses(key) {
			continue
		}
		users := []string{}
		for _, a := range r.words.Algorithms {
			if a.Uses(key) {
				users = append(users, a.Name())
			}
		}
		if len(users) == 0 {
			users = []string{"none that is known"}
		}
		limits.failKey(key, "it has no meaning for algo %s; it is for %s", algo.Name(), yamltext.Join(users, "and"))
	}
}
