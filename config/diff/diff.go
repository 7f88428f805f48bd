// SPDX-License-Identifier: MIT

// Package diff compares two configurations.
package diff

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
)

// Changes are the differences between two configurations in words, one a line:
//
//	redis.timeout 50ms → 100ms
//	rule "login": rpu 10 → 20, mode enforce → shadow
//	rule "export" added: /export, account, TB 10 per minute
//	entry /b moved behind /c
//	entry /b: bandwidth none → 50k by device
//	rule "quota": renamed "requests", its counters begin anew
//	rule "old" removed
//
// No change shows a secret.
type Changes []string

// maxChanges is the largest number of changes in one line, and maxChange the largest length of a
// change in characters. The text about counters has the same length in addition.
const (
	maxChanges = 10
	maxChange  = 200
)

// String returns the changes for one line of a log: the first ten, and the number of the others. If
// there are more than ten changes, those about counters come first, so that the log has them.
func (c Changes) String() string {
	if len(c) == 0 {
		return "no difference"
	}
	first := []string(c)
	if len(c) > maxChanges {
		first = countersFirst(c)[:maxChanges]
	}
	var shown []string
	for _, change := range first {
		what, counters := cutCounters(change)
		shown = append(shown, shorten(what, maxChange)+shorten(counters, maxChange))
	}
	if more := len(c) - maxChanges; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, "; ")
}

// LogValue implements slog.LogValuer by String.
func (c Changes) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Configs returns the changes that turn a into b: settings first, then rules and entries in the order
// of b, then bandwidths, then rules that only a has.
//
// Two rules are the same if they have the same name or the same fields. A name made from the fields
// changes with them. So rules without a name of their own are also the same if their url, actor and
// algorithm are equal. Several such rules are matched in order. If a rule does not keep its counters,
// its line ends with the reason.
func Configs(a, b *config.Config) Changes {
	var c Changes
	was := settingsOf(a)
	for i, is := range settingsOf(b) {
		c = append(c, was[i].changes(is, "")...)
	}
	old, now := rulesOf(a.Limits), rulesOf(b.Limits)
	match(old, now)
	counted := map[string]*placedRule{}
	for _, r := range old {
		counted[r.counters] = r
	}
	entries, moved := movedEntries(a.Limits, b.Limits), movedRules(old, now)
	entry := -1
	for i, r := range now {
		for entry < r.entry { // entries without rules are not listed
			if entry++; entries[entry] != "" {
				c = append(c, entries[entry])
			}
		}
		if r.partner == nil {
			c = append(c, r.added(r.countersSince(counted)))
		} else if text := r.changed(moved[i], r.countersSince(counted)); text != "" {
			c = append(c, text)
		}
	}
	c = append(c, changedBandwidths(a.Limits, b.Limits)...)
	for _, r := range old {
		if r.partner == nil {
			c = append(c, fmt.Sprintf("rule %q removed", r.name))
		}
	}
	return c
}

// A setting is a key with its value, or a section with keys of its own.
type setting struct {
	key   string
	shown string // the value in messages; empty means not given
	is    string // equal for equal values; never shown, because a URL can contain a password
	below []setting

	secret config.Secret // of a setting that is one
}

// same reports whether two settings with the same key say the same.
func (s setting) same(other setting) bool {
	return s.is == other.is && reflect.DeepEqual(s.secret, other.secret)
}

func plainSetting(key, text string) setting {
	return setting{key: key, shown: legible(text), is: text}
}

func listSetting(key string, list []string) setting {
	return setting{key: key, shown: legible(strings.Join(list, ", ")), is: fmt.Sprintf("%q", list)}
}

func texts[T fmt.Stringer](list []T) []string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = item.String()
	}
	return texts
}

func urlSetting(key, url, shown string) setting {
	return setting{key: key, shown: legible(shown), is: url}
}

func secretSetting(key string, s config.Secret) setting {
	return setting{key: key, shown: legible(s.String()), secret: s}
}

// section returns a setting with others below it. The settings of a missing section are zero values.
func section(key string, given bool, below ...setting) setting {
	s := setting{key: key, below: below}
	if given {
		s.shown, s.is = "{}", "given"
	}
	return s
}

// or returns the value that p points to, or the zero value.
func or[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

// settingsOf returns all settings, always the same keys in the same order.
func settingsOf(c *config.Config) []setting {
	redis, remote := or(c.Redis), or(c.Remote)
	sentinel := or(redis.Sentinel)
	return []setting{
		section("redis", c.Redis != nil,
			urlSetting("url", redis.URL, redis.Where()),
			listSetting("cluster", redis.Cluster),
			section("sentinel", redis.Sentinel != nil,
				plainSetting("master", sentinel.Master),
				listSetting("addresses", sentinel.Addresses),
				plainSetting("username", sentinel.Username),
				secretSetting("password", sentinel.Password),
			),
			plainSetting("username", redis.Username),
			secretSetting("password", redis.Password),
			tlsSetting(redis.TLS),
			plainSetting("timeout", redis.Timeout.String()),
			plainSetting("prefix", redis.Prefix),
		),
		section("remote", c.Remote != nil,
			urlSetting("url", remote.URL, remote.Where()),
			plainSetting("username", remote.Username),
			secretSetting("password", remote.Password),
			secretSetting("token", remote.Token),
			tlsSetting(remote.TLS),
			plainSetting("snapshot", remote.Snapshot),
		),
		section("identity", true,
			listSetting("account", texts(c.Identity.Account)),
			listSetting("device", texts(c.Identity.Device)),
			listSetting("trusted_proxies", texts(c.Identity.TrustedProxies)),
		),
		section("paths", true,
			plainSetting("strange", wordOf(c.Paths.JudgeStrange, "refuse", "judge")),
			plainSetting("case", wordOf(c.Paths.ExactCase, "fold", "exact")),
		),
		section("response", true,
			plainSetting("status", strconv.Itoa(c.Response.Status)),
			plainSetting("headers", strconv.FormatBool(!c.Response.OmitHeaders)),
		),
		plainSetting("max_keys", strconv.Itoa(c.MaxKeys)),
	}
}

func tlsSetting(t *config.TLS) setting {
	files := or(t)
	return section("tls", t != nil,
		plainSetting("ca", files.CA),
		plainSetting("certificate", files.Certificate),
		plainSetting("key", files.Key),
		plainSetting("server_name", files.ServerName),
	)
}

// changes returns the changes from was to now, which have the same key.
func (was setting) changes(now setting, path string) (c []string) {
	key := path + was.key
	switch {
	case was.below != nil && was.same(now):
		for i := range was.below {
			c = append(c, was.below[i].changes(now.below[i], key+".")...)
		}
	case was.same(now):
	case was.below != nil && was.shown == "":
		c = append(c, key+" added: "+now.summary())
	case was.below != nil:
		c = append(c, key+" removed")
	case was.shown == now.shown:
		c = append(c, key+" changed, in what is not shown")
	default:
		c = append(c, fmt.Sprintf("%s %s → %s", key, cmp.Or(was.shown, "none"), cmp.Or(now.shown, "none")))
	}
	return c
}

// summary returns the settings in a section.
func (s setting) summary() string {
	var parts []string
	for _, b := range s.below {
		switch {
		case b.shown == "":
		case b.below != nil:
			parts = append(parts, b.key+" ("+b.summary()+")")
		default:
			parts = append(parts, b.key+" "+b.shown)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), s.shown)
}

// A placedRule is a rule with its entry and its counterpart.
type placedRule struct {
	rule.Rule
	url      rule.Pattern
	divert   *rule.Divert
	name     string // given, or made
	entry    int
	counters string      // equal in two configurations if the second continues them
	partner  *placedRule // the same rule in the other configuration; nil means none
}

func rulesOf(entries []rule.Entry) []*placedRule {
	made := names.Rules(entries)
	var rules []*placedRule
	for i, e := range entries {
		for _, r := range e.Rules {
			rules = append(rules, &placedRule{Rule: r, url: e.URL, divert: e.Divert, name: made[len(rules)], entry: i})
		}
	}
	nameCounters(rules, entries)
	return rules
}

// match finds partners, by the most specific key first. Rules with equal keys are matched in order.
func match(old, now []*placedRule) {
	unnamed := func(key func(*placedRule) string) func(*placedRule) string {
		return func(r *placedRule) string {
			if r.Name != "" {
				return ""
			}
			return key(r)
		}
	}
	loosely := func(r *placedRule) string { return fmt.Sprintf("%q %q %s", r.url.Same(), r.Actor, r.Algorithm.Name()) }
	for _, key := range []func(*placedRule) string{
		func(r *placedRule) string { return r.Name },
		unnamed((*placedRule).says),
		(*placedRule).says, // a renamed rule
		unnamed(func(r *placedRule) string { return fmt.Sprint(loosely(r), r.Limit.N, r.Limit.Unit) }),
		unnamed(loosely),
	} {
		single := map[string][]*placedRule{}
		for _, r := range old {
			if k := key(r); k != "" && r.partner == nil {
				single[k] = append(single[k], r)
			}
		}
		for _, r := range now {
			k := key(r)
			if list := single[k]; len(list) > 0 && r.partner == nil {
				r.partner, list[0].partner = list[0], r
				single[k] = list[1:]
			}
		}
	}
}

// fields returns all fields of a rule except its name, always the same keys.
func (r *placedRule) fields() []setting {
	l := r.Limit
	unit := ""
	if l.Unit != 0 {
		unit = names.Unit(l.Unit)
	}
	return []setting{
		plainSetting("url", r.url.String()),
		plainSetting("actor", r.ActorText()),
		plainSetting("algo", r.Algorithm.Name()),
		plainSetting("rpu", strconv.FormatInt(l.N, 10)),
		plainSetting("unit", unit),
		plainSetting("burst", orRPU(l.Burst)),
		plainSetting("queue", orRPU(l.Queue)),
		plainSetting("slices", strconv.FormatInt(cmp.Or(l.Slices, bounds.DefaultSlices), 10)),
		plainSetting("align", wordOf(l.AlignFirst, "clock", "first")),
		plainSetting("warmup", l.Warmup.String()),
		plainSetting("scope", r.Scope.String()),
		plainSetting("on_error", r.OnError.String()),
		plainSetting("mode", r.Mode()),
		plainSetting("cost", r.Cost.String()),
		plainSetting("charge", strings.Join(numbers(r.Charge), ", ")),
		plainSetting("wait", waitText(r.Wait)),
		setting{key: "divert", shown: legible(r.divert.String()), is: divertText(r.divert)},
	}
}

// orRPU returns a burst or queue in the words of a configuration.
func orRPU(n int64) string {
	switch n {
	case 0:
		return "rpu"
	case limit.NoQueue:
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
	return fmt.Sprintf("%d %q %q %q %v", d.Status, d.Type, d.Body, d.File, d.Upstream)
}

// says returns a text that is equal for two rules whose fields are equal, except for their names.
func (r *placedRule) says() string {
	var b strings.Builder
	for _, f := range r.fields() {
		b.WriteString(f.is)
		b.WriteByte(0)
	}
	b.WriteString(r.treats())
	return b.String()
}

// added returns the line for a new rule. A name that was made from the fields already says most.
func (r *placedRule) added(counters string) string {
	var parts []string
	if r.Name != "" {
		rate := fmt.Sprintf("%s %d per %s", r.Algorithm.Name(), r.Limit.N, names.Unit(r.Limit.Unit))
		if r.Limit.Unit == 0 {
			rate = fmt.Sprintf("%s %d at once", r.Algorithm.Name(), r.Limit.N)
		}
		parts = append(parts, legible(r.url.String()), legible(r.ActorText()), rate)
	}
	usual := placedRule{url: r.url, Rule: rule.Rule{
		Actor: r.Actor, Algorithm: r.Algorithm, Limit: limit.Limit{N: r.Limit.N, Unit: r.Limit.Unit},
	}}
	fields := r.fields()
	for i, f := range usual.fields() {
		if fields[i].is != f.is {
			parts = append(parts, f.key+" "+fields[i].shown)
		}
	}
	parts = append(parts, r.treatedSince(&usual)...)
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
	was := r.partner.fields()
	for i, is := range r.fields() {
		parts = append(parts, was[i].changes(is, "")...)
	}
	parts = append(parts, r.treatedSince(r.partner)...)
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

// changedBandwidths returns the changes of bandwidths, in the order of now, and then those of removed
// entries.
func changedBandwidths(old, now []rule.Entry) (c []string) {
	was := map[string]*rule.Bandwidth{}
	for _, e := range old {
		was[e.URL.Same()] = e.Bandwidth
	}
	tell := func(e rule.Entry, is *rule.Bandwidth) {
		c = append(c, bandwidthSetting(was[e.URL.Same()]).changes(bandwidthSetting(is), "entry "+legible(e.URL.String())+": ")...)
		delete(was, e.URL.Same())
	}
	for _, e := range now {
		tell(e, e.Bandwidth)
	}
	for _, e := range old {
		tell(e, nil)
	}
	return c
}

func bandwidthSetting(b *rule.Bandwidth) setting {
	if b == nil {
		return plainSetting("bandwidth", "")
	}
	return plainSetting("bandwidth", b.String())
}

// movedEntries returns, for each entry of now, a line if its place among the entries in both
// configurations changed.
func movedEntries(old, now []rule.Entry) []string {
	place := map[string]int{}
	for i, e := range old {
		place[e.URL.Same()] = i
	}
	var both, places []int
	for i, e := range now {
		if p, ok := place[e.URL.Same()]; ok {
			both, places = append(both, i), append(places, p)
		}
	}
	moved := make([]string, len(now))
	stays := longestRise(places)
	for j, i := range both {
		if !stays[j] {
			moved[i] = "entry " + legible(now[i].URL.String()) + " moved to the front"
			if i > 0 {
				moved[i] = fmt.Sprintf("entry %s moved behind %s", legible(now[i].URL.String()), legible(now[i-1].URL.String()))
			}
		}
	}
	return moved
}

// movedRules returns, for each rule of now, a text if its place among the rules in both versions of
// its entry changed. A rule in another entry has another url instead.
func movedRules(old, now []*placedRule) []string {
	place := map[*placedRule]int{}
	for i, r := range old {
		place[r] = i
	}
	moved := make([]string, len(now))
	for first := 0; first < len(now); {
		entry := now[first].entry
		var both, places []int
		next := first
		for ; next < len(now) && now[next].entry == entry; next++ {
			if p := now[next].partner; p != nil && p.url.Same() == now[next].url.Same() {
				both, places = append(both, next), append(places, place[p])
			}
		}
		stays := longestRise(places)
		for j, i := range both {
			switch {
			case stays[j]:
			case i == first:
				moved[i] = "moved to the front"
			default:
				moved[i] = fmt.Sprintf("moved behind %q", now[i-1].name)
			}
		}
		first = next
	}
	return moved
}

// longestRise reports which numbers belong to a longest rising subsequence. Everything outside of it
// has moved, so this counts the fewest moves.
func longestRise(numbers []int) []bool {
	var ends []int // by length minus one: the end of the sequence with the lowest end
	before := make([]int, len(numbers))
	for i, n := range numbers {
		length, _ := slices.BinarySearchFunc(ends, n, func(end, n int) int { return cmp.Compare(numbers[end], n) })
		before[i] = -1
		if length > 0 {
			before[i] = ends[length-1]
		}
		if length == len(ends) {
			ends = append(ends, i)
		}
		ends[length] = i
	}
	rising := make([]bool, len(numbers))
	if len(ends) > 0 {
		for i := ends[len(ends)-1]; i >= 0; i = before[i] {
			rising[i] = true
		}
	}
	return rising
}

// legible returns a text, quoted if it has characters that cannot be printed in a line.
func legible(s string) string {
	if strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strconv.Quote(s)
	}
	return s
}
