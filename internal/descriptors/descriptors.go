// SPDX-License-Identifier: MIT

// Package descriptors reads the YAML files of envoyproxy/ratelimit, and finds the limit of a
// descriptor as that program does.
//
// A file has a domain and a tree of descriptors. A request names a domain and a list of entries, each a
// key and a value. Each entry goes one level down in the tree. The limit of the last level is the
// limit of the request, see [Tree.Find].
//
// Reading is stricter than envoyproxy/ratelimit: a key in the wrong mapping, a key that is given twice
// and a second document are mistakes. A rate_limit can also have keys of Diana: algo, burst, slices,
// queue, on_error, scope and debit.
package descriptors

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/rule"
)

// Entry is one level of the descriptor of a request.
type Entry struct{ Key, Value string }

// Tree is the descriptors of all domains. It never changes, so goroutines can share it.
type Tree struct {
	// Warnings name parts that are valid but probably not what the author meant.
	Warnings config.Errors

	domains map[string]*node
	limits  []*Limit
	counted []*Limit // by Limit.Index
	exempt  []*Limit
}

// None returns the descriptors of no file.
func None() *Tree { return &Tree{domains: map[string]*node{}} }

// Limit is a rate_limit of a file.
type Limit struct {
	// Index is the index of the entry in Tree.Entries. It is -1 if Unlimited.
	Index int

	// FullName is the domain and the composite keys of the levels, such as "shop.path_/cart.user". Two
	// limits can have one full name, because keys can contain dots and underscores.
	FullName string

	// Levels are the keys and values of the levels, as the file has them. An empty Value matches any.
	Levels []Entry

	Name      string   // for Replaces; empty means none
	Replaces  []string // names of limits that do not count in a request that also matches this one
	Unlimited bool     // every request is allowed and none is counted; then Rule is empty
	Shadow    bool     // shadow_mode: the answer is OK also over the limit
	Quota     bool     // quota_mode: the same, and the response names the descriptor
	Debit     bool     // the request is counted also over the limit
	Detailed  bool     // detailed_metric, see MetricName

	RequestsPerUnit uint32
	Unit            Unit // UnitUnknown if Unlimited

	// Rule says how the limit is counted. Its Name is FullName, or FullName and a number if another
	// limit has that name. Shadow is set for a limit in quota mode too.
	Rule rule.Rule

	// File and Line are the place of the rate_limit.
	File string
	Line int

	path []string // the domain and the composite keys
}

// Unit is a unit of time. The values have the numbers of the enumeration
// envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit.
type Unit int

// The units.
const (
	UnitUnknown Unit = iota
	Second
	Minute
	Hour
	Day
	Month // 30 days
	Year  // 365 days
	Week
)

var unitNames = [...]string{"unknown", "second", "minute", "hour", "day", "month", "year", "week"}

func (u Unit) String() string {
	if u < 0 || int(u) >= len(unitNames) {
		return "unit " + strconv.Itoa(int(u))
	}
	return unitNames[u]
}

// Duration returns the length of a unit, or 0 for a Unit that is not one of the constants. Windows
// begin at multiples of it since 1970, so a week begins on Thursday.
func (u Unit) Duration() time.Duration {
	const day = 24 * time.Hour
	switch u {
	case Second:
		return time.Second
	case Minute:
		return time.Minute
	case Hour:
		return time.Hour
	case Day:
		return day
	case Week:
		return 7 * day
	case Month:
		return 30 * day
	case Year:
		return 365 * day
	}
	return 0
}

// parseUnit returns the unit with that name in any letter case.
func parseUnit(name string) (Unit, bool) {
	u := Unit(slices.Index(unitNames[:], strings.ToLower(name)))
	return max(u, UnitUnknown), u > UnitUnknown
}

// Limits returns the limits in the order of the files. The caller must not change them.
func (t *Tree) Limits() []*Limit { return t.limits }

// Exempt returns the descriptors that have a value and no rate_limit, as limits that are Unlimited. A request with such a
// value has no limit, also if another descriptor limits all values. They are in the order of the files, and not among
// Limits.
func (t *Tree) Exempt() []*Limit { return t.exempt }

// Domains returns how many domains there are.
func (t *Tree) Domains() int { return len(t.domains) }

// Has reports whether there is a domain of that name. A limit that a request brings applies only in such
// a domain.
func (t *Tree) Has(domain string) bool { return t.domains[domain] != nil }

// Near returns the domain whose name is nearest to name, or "" if none is near. The cost grows with the
// number of domains.
func (t *Tree) Near(name string) string {
	return yamltext.Nearest(name, slices.Sorted(maps.Keys(t.domains)))
}

// Entries returns an entry with one rule for each limit that is counted, in the order of Limit.Index.
//
// The URL of an entry is made from the domain and the composite keys. It is part of the name of the
// counters, so a reload that moves a descriptor keeps its counters. No request is found by it: the
// caller evaluates the rule that Limit.Index says, for the key that Find appends.
func (t *Tree) Entries() []rule.Entry {
	entries := make([]rule.Entry, len(t.counted))
	for i, l := range t.counted {
		entries[i] = rule.Entry{URL: l.url(), Rules: []rule.Rule{l.Rule}}
	}
	return entries
}

// url escapes twice, because a pattern is in its clean form: escaped once, it would be decoded.
func (l *Limit) url() rule.Pattern {
	var b strings.Builder
	for _, level := range l.path {
		escaped := url.PathEscape(level)
		if level == "." || level == ".." {
			escaped = strings.ReplaceAll(level, ".", "%2E")
		}
		b.WriteString("/" + strings.ReplaceAll(escaped, "%", "%25"))
	}
	return rule.Pattern{Path: b.String()}
}

// name gives each counted limit the name of its rule.
func (t *Tree) name() {
	taken := make(map[string]bool, len(t.counted))
	for _, l := range t.counted {
		taken[l.FullName] = true
	}
	used := make(map[string]int, len(t.counted)) // how many limits have that full name
	for _, l := range t.counted {
		name := l.FullName
		for used[l.FullName]++; used[l.FullName] > 1; used[l.FullName]++ {
			if name = l.FullName + " #" + strconv.Itoa(used[l.FullName]); !taken[name] {
				break
			}
		}
		taken[name] = true
		l.Rule.Name = name
	}
}
