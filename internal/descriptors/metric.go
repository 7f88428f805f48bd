// SPDX-License-Identifier: MIT

package descriptors

import "strings"

// MetricName returns the name under which envoyproxy/ratelimit counts a descriptor in its metrics, or ""
// if no limit matches. A level of the name depends on how its entry matched:
//
//	match          level
//	value          key_value
//	wildcard       key_pattern; with value_to_metric key_value; with share_threshold key_pattern again
//	key            key; with value_to_metric key_value
//
// If the limit has detailed_metric, each level is key_value, and key_pattern with share_threshold.
//
// The name can contain values of requests. So it has no bound, unlike the full name of a limit.
func (t *Tree) MetricName(domain string, entries []Entry) string {
	n := t.domains[domain]
	if n == nil || len(entries) == 0 {
		return ""
	}
	matches, shared := make([]match, len(entries)), false
	for i := range entries {
		if matches[i], _ = n.match(&entries[i], nil); matches[i].node == nil {
			return ""
		}
		n, shared = matches[i].node, shared || matches[i].shared()
	}
	if n.limit == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString(domain)
	for i, m := range matches {
		e := &entries[i]
		value := m.metricValue(e)
		if n.limit.Detailed {
			value = m.counted(e)
		}
		b.WriteString("." + e.Key)
		// Without a shared level, envoyproxy/ratelimit ends a detailed level without a value in "_".
		if value != "" || n.limit.Detailed && !shared {
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
