// SPDX-License-Identifier: MIT

// Package diff compares two configurations.
package diff

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"unicode"

	"github.com/diana-limiter/diana/config"
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
	before, after := differing(a.Limits, b.Limits)
	return append(c, changedEntries(before, after, a, b)...)
}

// changedEntries returns the changes of entries. before and after are entries of a and b, at least those
// that [differing] returns.
func changedEntries(before, after []rule.Entry, a, b *config.Config) (c Changes) {
	old, now := rulesOf(before, a.Limits), rulesOf(after, b.Limits)
	match(old, now)
	counted := make(map[counters]*placedRule, len(old))
	for _, r := range old {
		counted[r.counters] = r
	}
	entries, moved := movedEntries(before, after), movedRules(old, now)
	entry := -1
	for i, r := range now {
		for entry < r.entry { // entries without rules are not listed
			if entry++; entries[entry] != "" {
				c = append(c, entries[entry])
			}
		}
		if r.partner == nil {
			c = append(c, r.added(countersSince(r, counted)))
		} else if text := r.changed(moved[i], countersSince(r, counted)); text != "" {
			c = append(c, text)
		}
	}
	c = append(c, changedBandwidths(before, after)...)
	for _, r := range old {
		if r.partner == nil {
			c = append(c, fmt.Sprintf("rule %q removed", r.name))
		}
	}
	return c
}

// changedBandwidths returns the changes of bandwidths, in the order of now, and then those of removed
// entries.
func changedBandwidths(old, now []rule.Entry) (c []string) {
	was := map[string]*rule.Bandwidth{}
	for _, e := range old {
		if e.Bandwidth != nil {
			was[e.URL.Same()] = e.Bandwidth
		}
	}
	tell := func(e rule.Entry, is *rule.Bandwidth) {
		if len(was) == 0 && is == nil {
			return
		}
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

// legible returns a text, quoted if it has characters that cannot be printed on one line.
func legible(s string) string {
	if strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return strconv.Quote(s)
	}
	return s
}
