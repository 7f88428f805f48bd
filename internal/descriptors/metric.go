// SPDX-License-Identifier: MIT

package descriptors

import (
	"slices"
	"strings"
)

// metricName returns the name for entries that match a limit. A level of the name depends on how its entry
// matched:
//
//	match          level
//	value          key_value
//	wildcard       key_pattern; with value_to_metric key_value; with share_threshold key_pattern again
//	key            key; with value_to_metric key_value
//
// If the limit has detailed_metric, each level is key_value, and key_pattern with share_threshold.
func metricName(domain string, entries []Entry, matches []match) string {
	detailed := matches[len(matches)-1].limit.Detailed
	shared := slices.ContainsFunc(matches, match.shared)
	var b strings.Builder
	b.WriteString(domain)
	for i, m := range matches {
		e := &entries[i]
		value := m.metricValue(e)
		if detailed {
			value = m.counted(e)
		}
		b.WriteString("." + e.Key)
		// Without a shared level, envoyproxy/ratelimit ends a detailed level without a value in "_".
		if value != "" || detailed && !shared {
			b.WriteString("_" + value)
		}
	}
	return b.String()
}

// metricValue returns the value of an entry in a name that is not detailed, or "" for none.
func (m match) metricValue(e *Entry) string {
	switch {
	case m.way == ByWildcard && (m.share || !m.valueToMetric):
		return m.patternOf(e)
	case m.way == ByKey && !m.valueToMetric:
		return ""
	}
	return e.Value
}
