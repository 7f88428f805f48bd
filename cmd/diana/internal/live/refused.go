// SPDX-License-Identifier: MIT

package live

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/diana-limiter/diana"
)

// mostRefused is how many of the most refused actors are shown.
const mostRefused = 20

// mostKept is how many counts are kept of a moment. The figure of another actor can then be an estimate.
const mostKept = 200

// spanOfTen is the time between two moments whose counts are kept.
const spanOfTen = 10 * time.Second

// longestRate is the longest time in seconds between two looks that a rate is computed of. An older look says nothing
// about now.
const longestRate = 10

// Refused is an actor that a rule refuses.
type Refused struct {
	Rule        string  `json:"rule"`
	Actor       string  `json:"actor"`  // its key; "" if the rule counts all clients together
	Recent      int64   `json:"recent"` // in the last ten minutes
	RecentExact bool    `json:"recent_exact"`
	Count       int64   `json:"count"` // since the program started
	Exact       bool    `json:"exact"` // Count is no estimate
	PerSecond   float64 `json:"per_second"`
}

// refused has the most refused actors of all rules. The zero value is empty.
type refused struct {
	list []Refused
	at   time.Time
	past []past // every ten seconds, the oldest first
}

// past has the counts of actors at a moment.
type past struct {
	at     time.Time
	counts map[refusedBy]int64
}

type refusedBy struct{ rule, actor string }

// due reports whether the counts of this moment must be kept.
func (f *refused) due(now time.Time) bool {
	return len(f.past) == 0 || now.Sub(f.past[len(f.past)-1].at) >= spanOfTen
}

// keep keeps the counts of this moment, and forgets those that no later call of begin needs.
func (f *refused) keep(now time.Time, counts map[refusedBy]int64) {
	f.past = append(f.past, past{now, counts})
	for len(f.past) > 1 && now.Sub(f.past[1].at) >= tens*spanOfTen {
		f.past = f.past[1:]
	}
}

// begin returns the counts ten minutes ago, or nil if the program is younger.
func (f *refused) begin(now time.Time) map[refusedBy]int64 {
	if len(f.past) == 0 || now.Sub(f.past[0].at) < tens*spanOfTen {
		return nil
	}
	return f.past[0].counts
}

// measure finds the most refused actors. rules are those that have refused requests within ten minutes, the one with most
// refusals first. No actor has more refusals than its rule. So measure stops at a rule with no more than the last actor
// of a full list has.
func (f *refused) measure(now time.Time, rules []refusing, status func(string) (diana.RuleStatus, bool)) {
	before := map[refusedBy]int64{}
	for _, r := range f.list {
		before[refusedBy{r.Rule, r.Actor}] = r.Count
	}
	took := now.Sub(f.at).Seconds()
	begin := f.begin(now)
	counts := map[refusedBy]int64{}
	var list []Refused
	for _, rule := range rules {
		if len(list) == mostRefused && rule.recent <= list[mostRefused-1].Recent {
			break
		}
		s, ok := status(rule.name)
		if !ok {
			continue
		}
		for _, t := range s.TopRefused {
			key := refusedBy{rule.name, t.Actor}
			if len(counts) < mostKept {
				counts[key] = t.Count
			}
			old, known := begin[key]
			if t.Count < old { // the rule was removed, and came back
				old, known = 0, false
			}
			r := Refused{
				Rule: rule.name, Actor: t.Actor, Count: t.Count, Exact: t.Exact,
				Recent: min(t.Count-old, rule.recent), RecentExact: t.Exact && (known || rule.recent == refusals(rule.total)),
			}
			if r.Recent <= 0 {
				continue
			}
			if n, known := before[key]; known && n <= r.Count && took > 0 && took < longestRate {
				r.PerSecond = math.Round(float64(r.Count-n)/took*10) / 10
			}
			list = append(list, r)
		}
		slices.SortStableFunc(list, func(a, b Refused) int { return cmp.Compare(b.Recent, a.Recent) })
		list = list[:min(len(list), mostRefused)]
	}
	if f.due(now) {
		f.keep(now, counts)
	}
	f.list, f.at = list, now
}
