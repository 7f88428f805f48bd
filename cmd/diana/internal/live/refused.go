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

// longestRate is the longest time in seconds between two looks that a rate is computed of. An older look says nothing
// about now.
const longestRate = 10

// Refused is an actor that a rule refuses.
type Refused struct {
	Rule      string  `json:"rule"`
	Actor     string  `json:"actor"` // its key; "" if the rule counts all clients together
	Count     int64   `json:"count"` // since the program started
	Exact     bool    `json:"exact"` // Count is no estimate
	PerSecond float64 `json:"per_second"`
}

// refused has the most refused actors of all rules. The zero value is empty.
type refused struct {
	list []Refused
	at   time.Time
}

// measure finds the most refused actors. rules are those that refuse, the one with most refusals first. No actor has
// more refusals than its rule. So measure stops at a rule with fewer than the last actor of a full list has.
func (f *refused) measure(now time.Time, rules []*ruleHistory, status func(string) (diana.RuleStatus, bool)) {
	type key struct{ rule, actor string }
	before := map[key]int64{}
	for _, r := range f.list {
		before[key{r.Rule, r.Actor}] = r.Count
	}
	took := now.Sub(f.at).Seconds()
	var list []Refused
	for _, rule := range rules {
		if len(list) == mostRefused && rule.total.refused+rule.total.shadow < list[mostRefused-1].Count {
			break
		}
		s, ok := status(rule.name)
		if !ok {
			continue
		}
		for _, t := range s.TopRefused {
			r := Refused{Rule: rule.name, Actor: t.Actor, Count: t.Count, Exact: t.Exact}
			if n, known := before[key{r.Rule, r.Actor}]; known && n <= r.Count && took > 0 && took < longestRate {
				r.PerSecond = math.Round(float64(r.Count-n)/took*10) / 10
			}
			list = append(list, r)
		}
		slices.SortStableFunc(list, func(a, b Refused) int { return cmp.Compare(b.Count, a.Count) })
		list = list[:min(len(list), mostRefused)]
	}
	f.list, f.at = list, now
}
