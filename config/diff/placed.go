// SPDX-License-Identifier: MIT

package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// A placedRule is a rule with its entry and its counterpart.
type placedRule struct {
	rule.Rule
	url      rule.Pattern
	divert   *rule.Divert
	refusal  string
	name     string // given, or made
	entry    int
	counters counters    // equal in two configurations if the second continues them
	partner  *placedRule // the same rule in the other configuration; nil means none
	next     *placedRule // in a list of matchBy
}

// rulesOf returns the rules of some entries of a configuration. all are the entries of the
// configuration.
func rulesOf(entries, all []rule.Entry) []*placedRule {
	made := names.RulesOf(entries, all)
	placed := make([]placedRule, len(made))
	rules := make([]*placedRule, 0, len(made))
	for i, e := range entries {
		for _, r := range e.Rules {
			p := &placed[len(rules)]
			*p = placedRule{Rule: r, url: e.URL, divert: e.Divert, refusal: refusalText(&e), name: made[len(rules)], entry: i}
			rules = append(rules, p)
		}
	}
	nameCounters(rules, entries)
	return rules
}

// match finds partners, by the most specific key first. Rules with equal keys are matched in order.
func match(old, now []*placedRule) {
	named := func(r *placedRule) bool { return r.Name != "" }
	unnamed := func(r *placedRule) bool { return r.Name == "" }
	loosely := func(r *placedRule) string { return fmt.Sprintf("%q %q %s", r.url.Same(), r.Actor, r.Algorithm.Name()) }
	matchBy(old, now, named, func(r *placedRule) string { return r.Name })
	matchBy(old, now, unnamed, (*placedRule).says)
	matchBy(old, now, func(*placedRule) bool { return true }, (*placedRule).says) // a renamed rule
	matchBy(old, now, unnamed, func(r *placedRule) string { return fmt.Sprint(loosely(r), r.Limit.N, names.UnitOf(r.Limit)) })
	matchBy(old, now, unnamed, loosely)
}

// matchBy makes partners of the rules that have none yet, if among is true for them and their keys are
// equal.
func matchBy[K comparable](old, now []*placedRule, among func(*placedRule) bool, key func(*placedRule) K) {
	single := map[K]*placedRule{} // the first of a list
	for _, r := range slices.Backward(old) {
		if r.partner == nil && among(r) {
			k := key(r)
			r.next, single[k] = single[k], r
		}
	}
	for _, r := range now {
		if len(single) == 0 {
			return
		}
		if r.partner != nil || !among(r) {
			continue
		}
		k := key(r)
		switch first := single[k]; {
		case first == nil:
		case first.next == nil:
			r.partner, first.partner = first, r
			delete(single, k)
		default:
			r.partner, first.partner = first, r
			single[k] = first.next
		}
	}
}

// fields returns all fields of a rule except its name, always the same keys.
func (r *placedRule) fields() []setting {
	l := r.Limit
	unit := ""
	if !unitless(l) {
		unit = names.UnitOf(l)
	}
	return []setting{
		plainSetting("url", r.url.String()),
		plainSetting("actor", r.ActorText()),
		plainSetting("algo", r.Algorithm.Name()),
		plainSetting("rpu", strconv.FormatInt(l.N, 10)),
		plainSetting("unit", unit),
		plainSetting("zone", l.Zone),
		plainSetting("burst", orRPU(l.Burst)),
		plainSetting("queue", orRPU(l.Queue)),
		plainSetting("slices", strconv.FormatInt(cmp.Or(l.Slices, bounds.DefaultSlices), 10)),
		plainSetting("align", wordOf(l.AlignFirst, "clock", "first")),
		plainSetting("warmup", l.Warmup.String()),
		plainSetting("scope", r.Scope.String()),
		plainSetting("on_error", r.OnError.String()),
		plainSetting("mode", r.Mode()),
		plainSetting("cost", r.Cost.String()),
		plainSetting("class", classText(r.Class)),
		plainSetting("charge", chargeText(&r.Rule)),
		plainSetting("wait", waitText(r.Wait)),
		plainSetting("min", strconv.FormatInt(cmp.Or(l.Min, 1), 10)),
		plainSetting("measure", r.Measure),
		plainSetting("hold", wordOf(r.HoldBegin, "end", "begin")),
		plainSetting("keep", percentText(l.Keep, "10%")),
		plainSetting("least", percentText(l.Least, "5%")),
		plainSetting("priority", classText(r.Priority)),
		plainSetting("priorities", strings.Join(r.Priorities, ", ")),
		setting{key: "divert", shown: legible(r.divert.String()), is: divertText(r.divert)},
		plainSetting("refusal", r.refusal),
	}
}

func chargeText(r *rule.Rule) string {
	if r.ChargeAll {
		return "all"
	}
	return strings.Join(numbers(r.Charge), ", ")
}

func refusalText(e *rule.Entry) string {
	if e.CallStatus != 0 {
		return fmt.Sprintf("%s with status %d", e.Refusal, e.CallStatus)
	}
	return e.Refusal
}

// unitless reports whether a limit counts concurrent requests.
func unitless(l limit.Limit) bool { return l.Unit == 0 && l.Calendar == "" }

// percentText returns a percentage of a limit in the words of a configuration.
func percentText(p int64, otherwise string) string {
	switch p {
	case 0:
		return otherwise
	case -1:
		return "0%"
	}
	return strconv.FormatInt(p, 10) + "%"
}

// orRPU returns a burst or queue in the words of a configuration.
func orRPU(n int64) string {
	switch n {
	case 0:
		return "rpu"
	case -1: // no queue
		return "0"
	}
	return strconv.FormatInt(n, 10)
}

// wordOf returns the word of a configuration for a setting with two values.
func wordOf(on bool, off, word string) string {
	if on {
		return word
	}
	return off
}

// shorten returns the first characters of a text.
func shorten(s string, most int) string {
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i] + "..."
		}
	}
	return s
}

func numbers(list []int) (texts []string) {
	for _, n := range list {
		texts = append(texts, strconv.Itoa(n))
	}
	return texts
}

// classText returns the header of a class, or "".
func classText(a rule.Actor) string {
	if a == (rule.Actor{}) {
		return ""
	}
	return a.String()
}

func waitText(wait time.Duration) string {
	if wait == 0 {
		return ""
	}
	return wait.String()
}

func divertText(d *rule.Divert) string {
	if d == nil {
		return ""
	}
	return fmt.Sprintf("%d %q %q %q %v %#v", d.Status, d.Type, d.Body, d.File, d.Upstream, d.Values)
}

// saying has all fields of a rule except its name. Two sayings are equal if all fields are equal.
type saying struct {
	url                  rule.Pattern
	actor, algo          string
	limit                limit.Limit
	scope, onError, cost string
	shadow               bool
	wait                 time.Duration
	others               string // the fields that few rules have
}

// says returns what a rule says. It makes no text of the fields that nearly every rule has.
func (r *placedRule) says() saying {
	s := saying{
		url: r.url, actor: r.ActorText(), algo: r.Algorithm.Name(), limit: r.Limit,
		scope: r.Scope.String(), onError: r.OnError.String(), cost: r.Cost.String(), shadow: r.Shadow, wait: r.Wait,
	}
	s.limit.Slices = cmp.Or(s.limit.Slices, bounds.DefaultSlices)
	if chargeText(&r.Rule) != "" || r.divert != nil || r.refusal != "" || r.Measure != "" || r.HoldBegin || len(r.Priorities) > 0 || len(r.Except) > 0 || len(r.Overrides) > 0 || len(r.Classes) > 0 {
		s.others = strings.Join([]string{chargeText(&r.Rule), divertText(r.divert), r.refusal, classText(r.Class), treats(&r.Rule),
			r.Measure, wordOf(r.HoldBegin, "end", "begin"), classText(r.Priority), strings.Join(r.Priorities, ", ")}, "\x00")
	}
	return s
}

// added returns the line for a new rule. A name that was made from the fields already says most.
func (r *placedRule) added(counters string) string {
	var parts []string
	if r.Name != "" {
		parts = append(parts, legible(r.url.String()), legible(r.ActorText()), r.Algorithm.Name()+" "+amount(r.Limit))
	}
	usual := placedRule{url: r.url, Rule: rule.Rule{
		Actor: r.Actor, Algorithm: r.Algorithm, Limit: limit.Limit{N: r.Limit.N, Unit: r.Limit.Unit, Calendar: r.Limit.Calendar},
	}}
	fields := r.fields()
	for i, f := range usual.fields() {
		if fields[i].is != f.is {
			parts = append(parts, f.key+" "+fields[i].shown)
		}
	}
	parts = append(parts, treatedSince(&r.Rule, &usual.Rule)...)
	if counters != "" {
		parts = append(parts, counters)
	}
	if len(parts) == 0 {
		return fmt.Sprintf("rule %q added", r.name)
	}
	return fmt.Sprintf("rule %q added: %s", r.name, strings.Join(parts, ", "))
}

// changed returns the line for the differences from the partner, or "" if there are none.
func (r *placedRule) changed(moved, counters string) string {
	var parts []string
	if was := r.partner; was.Name != r.Name {
		parts = append(parts, fmt.Sprintf("renamed %q", r.name))
	}
	if r.says() != r.partner.says() {
		was := r.partner.fields()
		for i, is := range r.fields() {
			parts = append(parts, was[i].changes(is, "")...)
		}
	}
	parts = append(parts, treatedSince(&r.Rule, &r.partner.Rule)...)
	for _, text := range []string{moved, counters} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("rule %q: %s", r.partner.name, strings.Join(parts, ", "))
}
