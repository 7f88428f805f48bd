// SPDX-License-Identifier: MIT

package descriptors

import (
	"strconv"
	"strings"
)

// node is a descriptor, or the root of a domain.
//
// Its composite key is the key alone, or the key, "_" and the value. So the descriptor with the key a_b
// matches the entry a=b. envoyproxy/ratelimit has this ambiguity, and files can rely on it.
type node struct {
	below map[string]*node // by composite key
	wild  []wildcard       // of the composite keys in below that end in "*", in the order of the files
	limit *Limit           // nil means none

	share, valueToMetric bool

	at place // of the first key, for messages
}

// wildcard is a composite key that ends in "*".
type wildcard struct {
	prefix, key string // key without "*", and whole
	node        *node
}

// Way says how an entry matched a descriptor.
type Way int

// The ways, in the order in which Find tries them.
const (
	ByValue    Way = iota // the composite key is that of the entry
	ByWildcard            // the composite key without its "*" is the beginning of that of the entry
	ByKey                 // the composite key is the key of the entry
)

func (w Way) String() string { return [...]string{"value", "wildcard", "key"}[w] }

// match is the descriptor that an entry matches. Its node is nil if there is none.
type match struct {
	*node
	way     Way
	pattern string // ByWildcard: the composite key
}

// match returns what an entry matches below n. It uses the memory behind scratch, and returns it.
func (n *node) match(e *Entry, scratch []byte) (match, []byte) {
	if len(n.below) == 0 {
		return match{}, scratch
	}
	start := len(scratch)
	scratch = append(append(append(scratch, e.Key...), '_'), e.Value...)
	composite := scratch[start:]
	if found := n.below[string(composite)]; found != nil {
		return match{found, ByValue, ""}, scratch[:start]
	}
	for i := range n.wild {
		if w := &n.wild[i]; len(composite) >= len(w.prefix) && string(composite[:len(w.prefix)]) == w.prefix {
			return match{w.node, ByWildcard, w.key}, scratch[:start]
		}
	}
	return match{n.below[e.Key], ByKey, ""}, scratch[:start]
}

// counted returns the value by which an entry is counted: its own, or the pattern of a descriptor with
// share_threshold.
func (m match) counted(e *Entry) string {
	if m.shared() {
		return m.patternOf(e)
	}
	return e.Value
}

func (m match) shared() bool { return m.way == ByWildcard && m.share }

// patternOf returns the pattern without the key of the entry. A pattern that begins with another key
// is the whole one.
func (m match) patternOf(e *Entry) string {
	if rest, ok := strings.CutPrefix(m.pattern, e.Key); ok && strings.HasPrefix(rest, "_") {
		return rest[1:]
	}
	return m.pattern
}

// Find returns the limit of the descriptor that the entries describe. It returns nil if the domain is
// unknown, if an entry matches nothing, or if the descriptor of the last entry has no limit.
//
// For each entry, Find tries the composite key with the value, then the wildcards in the order of the
// files, then the key alone. It does not go back: a later way that matches deeper does not count.
//
// Find appends the key of the counter to key, see AppendKey, or nothing if there is no limit. The value of
// an entry that matches a descriptor with share_threshold by its wildcard is the pattern. Find does not
// allocate if key has room for twice the descriptor.
func (t *Tree) Find(domain string, entries []Entry, key []byte) (*Limit, []byte) {
	n, start := t.domains[domain], len(key)
	if n == nil || len(entries) == 0 {
		return nil, key
	}
	for i := range entries {
		var m match
		if m, key = n.match(&entries[i], key); m.node == nil {
			return nil, key[:start]
		}
		key = appendEntry(key, entries[i].Key, m.counted(&entries[i]))
		n = m.node
	}
	if n.limit == nil {
		return nil, key[:start]
	}
	return n.limit, key
}

// AppendKey appends the key of a counter: the keys and values of the entries, each behind its length. So
// two lists of entries never have one key.
func AppendKey(key []byte, entries []Entry) []byte {
	for i := range entries {
		key = appendEntry(key, entries[i].Key, entries[i].Value)
	}
	return key
}

func appendEntry(b []byte, key, value string) []byte {
	return appendText(appendText(b, key), value)
}

func appendText(b []byte, text string) []byte {
	b = strconv.AppendInt(b, int64(len(text)), 10)
	return append(append(b, ':'), text...)
}

// Step is how one entry of a descriptor matched.
type Step struct {
	Entry   Entry
	Way     Way
	Key     string // the composite key of the descriptor that matched
	Counted string // the value of the entry in the key of the counter
	Limited bool   // the descriptor that matched has a limit
}

// Trace returns the steps of Find, up to the first entry that matches nothing.
func (t *Tree) Trace(domain string, entries []Entry) (steps []Step) {
	for i, m := range t.matches(domain, entries) {
		e := &entries[i]
		steps = append(steps, Step{*e, m.way, m.composite(e), m.counted(e), m.limit != nil})
	}
	return steps
}

// MetricName returns the name under which envoyproxy/ratelimit counts a descriptor in its metrics, or ""
// if the descriptor has no limit. The name can contain values of requests, so unlike the full name of a
// limit it has no bound.
func (t *Tree) MetricName(domain string, entries []Entry) string {
	matches := t.matches(domain, entries)
	if n := len(matches); n == 0 || n < len(entries) || matches[n-1].limit == nil {
		return ""
	}
	return metricName(domain, entries, matches)
}

// matches returns what the entries match, up to the first entry that matches nothing.
func (t *Tree) matches(domain string, entries []Entry) (list []match) {
	n := t.domains[domain]
	for i := 0; n != nil && i < len(entries); i++ {
		m, _ := n.match(&entries[i], nil)
		if n = m.node; n != nil {
			list = append(list, m)
		}
	}
	return list
}

// composite returns the composite key of the descriptor that an entry matched.
func (m match) composite(e *Entry) string {
	switch m.way {
	case ByValue:
		return e.Key + "_" + e.Value
	case ByWildcard:
		return m.pattern
	}
	return e.Key
}
