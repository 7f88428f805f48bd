// SPDX-License-Identifier: MIT

package convert

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/descriptors"
	"github.com/diana-limiter/diana/rule"
)

// Envoy returns the rules of the descriptors of envoyproxy/ratelimit in a file. actors has the actor of each key of a
// descriptor, because the routes of Envoy say what a key means, and not the file. remote_address is ip if it is missing.
func Envoy(name string, tree *descriptors.Tree, actors map[string]string) Result {
	e := &envoy{actors: actors, rules: map[string]*envoyRule{}}
	e.doc.title = []string{
		"Rules for the descriptors of " + name + ". Each counts the requests for which Envoy sends its descriptor:",
		"its routes say which. Without such a route for all requests, change url. The counters need redis: {url: ...}.",
	}
	valued := slices.Clone(tree.Exempt())
	for _, l := range tree.Limits() {
		if slices.ContainsFunc(l.Levels, func(level descriptors.Entry) bool { return level.Value != "" }) {
			valued = append(valued, l)
		} else {
			e.add(l)
		}
	}
	slices.SortStableFunc(valued, func(a, b *descriptors.Limit) int { return cmp.Compare(a.Line, b.Line) })
	for _, l := range valued { // behind the rules that they are exceptions of
		e.except(l)
	}
	for _, r := range e.order {
		r.finish()
	}
	return e.doc.result()
}

// envoy is a tree of descriptors that is converted.
type envoy struct {
	doc    document
	actors map[string]string
	rules  map[string]*envoyRule // by the keys of the levels
	order  []*envoyRule
}

// envoyRule is the rule of a limit, with its exceptions.
type envoyRule struct {
	*written
	limit     *descriptors.Limit
	actor     string
	except    []string
	overrides []string
}

func (e *envoy) remark(l *descriptors.Limit, format string, args ...any) {
	e.doc.remark(fault(l, format, args...))
}

func fault(l *descriptors.Limit, format string, args ...any) config.Error {
	return config.Error{File: l.File, Line: l.Line, Column: 1, Message: shown(l.FullName) + ": " + fmt.Sprintf(format, args...)}
}

// actorOf returns the actor of a key, or "" after a remark.
func (e *envoy) actorOf(l *descriptors.Limit, key string) string {
	actor := e.actors[key]
	if actor == "" && key == "remote_address" {
		actor = "ip"
	}
	if actor == "" {
		e.remark(l, "only the routes of Envoy say what the key %s is; see --actor", shown(key))
	}
	return actor
}

// add adds the rule of a limit for all values.
func (e *envoy) add(l *descriptors.Limit) {
	if l.Unlimited {
		return // nothing is limited, here as there
	}
	var list []string
	for _, level := range l.Levels {
		actor := e.actorOf(l, level.Key)
		if actor == "" {
			return
		}
		if !slices.Contains(list, actor) {
			list = append(list, actor)
		}
	}
	if len(list) > bounds.MaxActors {
		e.remark(l, "an actor has at most %d parts", bounds.MaxActors)
		return
	}
	unit, ok := unitOf(l)
	if !ok {
		e.remark(l, "no unit of Diana has 365 days; the unit year is a year of the calendar")
		return
	}
	r := &envoyRule{limit: l, actor: list[0], written: &written{name: l.FullName, file: l.File, line: l.Line, shadow: l.Shadow || l.Quota}}
	r.keys = append([]string{"actor: " + yamlList(list), "unit: " + unit, fmt.Sprintf("rpu: %d", l.RequestsPerUnit)}, variantsOf(l)...)
	if len(l.Replaces) > 0 {
		r.remarks = append(r.remarks, fault(l, "replaces: all rules of a request count, so mode: shadow"))
		r.shadow = true
	}
	if l.Debit {
		r.remarks = append(r.remarks, fault(l, "debit: a rule does not count what it refuses"))
	}
	if l.Quota {
		r.remarks = append(r.remarks, fault(l, "quota_mode: a rule in shadow mode sends no metadata"))
	}
	for _, actor := range list {
		if actor != "ip" && actor != "host" && actor != "all" {
			r.shadow = true
			r.remarks = append(r.remarks, fault(l, "Envoy sends no descriptor without %s; the rule counts such a request by its address, so it has mode: shadow", actor))
			break
		}
	}
	entry := e.doc.entry("/")
	entry.rules = append(entry.rules, r.written)
	e.order = append(e.order, r)
	e.rules[keysOf(l)] = r
}

// keysOf returns the keys of the levels of a limit.
func keysOf(l *descriptors.Limit) string {
	var keys []string
	for _, level := range l.Levels {
		keys = append(keys, level.Key)
	}
	return strings.Join(keys, "\x00")
}

// except adds the limit of a value to the rule for all values. If an override cannot say it, the rule must not refuse
// requests with this value.
func (e *envoy) except(l *descriptors.Limit) {
	last := l.Levels[len(l.Levels)-1]
	r := e.rules[keysOf(l)]
	if r == nil {
		if !l.Unlimited && e.actorOf(l, last.Key) != "" {
			e.remark(l, "there is no rule: a rule limits all actors but its exceptions, and no limit is for all values")
		}
		return
	}
	if len(l.Levels) > 1 || strings.HasSuffix(last.Value, "*") {
		r.remarks = append(r.remarks, fault(l, "the rule counts such requests too, because an exception is for one value of one actor, so it has mode: shadow"))
		r.shadow = true
		return
	}
	value := last.Value
	if _, err := netip.ParseAddr(value); r.actor == "ip" && err != nil {
		e.remark(l, "no client has the address %s", shown(value))
		return
	}
	if who := new(rule.Who); r.actor != "ip" && (who.UnmarshalText([]byte(value)) != nil || who.Network.IsValid()) {
		value = "=" + value // it looks like an address
	}
	if text := plain(value); l.Unlimited {
		r.except = append(r.except, text)
	} else if l.Unit == r.limit.Unit && slices.Equal(variantsOf(l), variantsOf(r.limit)) && l.Shadow == r.limit.Shadow && l.Quota == r.limit.Quota && l.Debit == r.limit.Debit && len(l.Replaces) == 0 {
		r.overrides = append(r.overrides, fmt.Sprintf("%s: {rpu: %d}", text, l.RequestsPerUnit))
	} else {
		r.except = append(r.except, text)
		r.remarks = append(r.remarks, fault(l, "an override has only other numbers than its rule, so the rule exempts %s", shown(value)))
	}
}

// finish adds the exceptions to the keys.
func (r *envoyRule) finish() {
	if len(r.except) > 0 {
		r.keys = append(r.keys, "except: ["+strings.Join(r.except, ", ")+"]")
	}
	if len(r.overrides) > 0 {
		r.keys = append(r.keys, "overrides: {"+strings.Join(r.overrides, ", ")+"}")
	}
}

// unitOf returns the unit of a limit as a rule has it. A week or a month of envoyproxy/ratelimit is a number of days,
// and not one of the calendar.
func unitOf(l *descriptors.Limit) (string, bool) {
	switch l.Unit {
	case descriptors.Week, descriptors.Month:
		return fmt.Sprintf("%dh", int(l.Unit.Duration().Hours())), true
	case descriptors.Year:
		return "", false
	}
	return l.Unit.String(), true
}

// variantsOf returns the keys of a rule besides its actor, unit and number.
func variantsOf(l *descriptors.Limit) (keys []string) {
	r := &l.Rule
	keys = append(keys, "algo: "+r.Algorithm.Name())
	if r.Limit.Burst > 0 {
		keys = append(keys, fmt.Sprintf("burst: %d", r.Limit.Burst))
	}
	if r.Limit.Slices > 0 {
		keys = append(keys, fmt.Sprintf("slices: %d", r.Limit.Slices))
	}
	if r.Limit.Queue != 0 { // -1 means none
		keys = append(keys, fmt.Sprintf("queue: %d", max(r.Limit.Queue, 0)))
	}
	if r.Scope == rule.Global {
		keys = append(keys, "scope: global")
		if text := r.OnError.String(); text != "share" {
			keys = append(keys, "on_error: "+text)
		}
	}
	return keys
}
