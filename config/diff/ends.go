// SPDX-License-Identifier: MIT

package diff

import (
	"slices"

	"github.com/diana-limiter/diana/rule"
)

// differing returns two lists of entries without the equal entries at their ends. A configuration can
// have 100,000 entries, and most reloads change a few of them.
//
// An equal entry has no line of its own. It changes no line of another entry, because a rule can only
// take over counters within its own URL.
//
// One equal entry stays at each end. A line names the entry in front of a moved one. A moved entry
// without rules is listed only if a rule follows it.
func differing(old, now []rule.Entry) (before, after []rule.Entry) {
	first, most := 0, min(len(old), len(now))
	for first < most && sameEntry(&old[first], &now[first]) {
		first++
	}
	first = max(first-1, 0)
	last := 0 // how many entries are equal at the end
	for last < most-first && sameEntry(&old[len(old)-1-last], &now[len(now)-1-last]) {
		last++
	}
	for last > 0 {
		last--
		if len(old[len(old)-1-last].Rules) > 0 {
			break
		}
	}
	return old[first : len(old)-last], now[first : len(now)-last]
}

// sameEntry reports whether two entries are equal for sure.
func sameEntry(a, b *rule.Entry) bool {
	if a.URL != b.URL || len(a.Rules) != len(b.Rules) {
		return false
	}
	if a.Bandwidth != b.Bandwidth && bandwidthSetting(a.Bandwidth).is != bandwidthSetting(b.Bandwidth).is {
		return false
	}
	for i := range a.Rules {
		was, is := placedRule{Rule: a.Rules[i], divert: a.Divert, refusal: refusalText(a)}, placedRule{Rule: b.Rules[i], divert: b.Divert, refusal: refusalText(b)}
		if was.Name != is.Name || !slices.Equal(was.Actor, is.Actor) || was.says() != is.says() || !sameStates(&was, &is) {
			return false
		}
	}
	return true
}

// sameStates reports whether the counters of two rules that say the same have equal states. The place
// of its names identifies an algorithm. A program can replace one by another of the same name.
func sameStates(a, b *placedRule) bool {
	if a.Limit != b.Limit || len(a.Algorithm.Names) == 0 || len(b.Algorithm.Names) == 0 {
		return false
	}
	if &a.Algorithm.Names[0] == &b.Algorithm.Names[0] {
		return true
	}
	old, err := a.Algorithm.New(a.Limit)
	if err != nil {
		return false
	}
	now, err := b.Algorithm.New(b.Limit)
	return err == nil && old.StateVersion() == now.StateVersion()
}
