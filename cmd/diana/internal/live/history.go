// SPDX-License-Identifier: MIT

package live

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/diana-limiter/diana/internal/minutes"
)

const (
	seconds = 600 // of the history of all rules together
	tens    = 60  // spans of ten seconds of the history of a rule

	longestStep = 60 // seconds by which the clock can go back while the latest second lasts
)

// counts are decisions by their kind.
type counts struct{ allowed, refused, shadow, delayed int64 }

func (c counts) plus(d counts) counts {
	return counts{c.allowed + d.allowed, c.refused + d.refused, c.shadow + d.shadow, c.delayed + d.delayed}
}

// since returns how many decisions were made since earlier. A count that is smaller than it was has started from 0 again.
func (c counts) since(earlier counts) counts {
	if c.allowed < earlier.allowed || c.refused < earlier.refused || c.shadow < earlier.shadow || c.delayed < earlier.delayed {
		return c
	}
	return counts{c.allowed - earlier.allowed, c.refused - earlier.refused, c.shadow - earlier.shadow, c.delayed - earlier.delayed}
}

// history has what was decided in each second. The zero value is empty.
type history struct {
	bySecond [seconds]counts // by the second since 1970, modulo seconds
	byMinute minutes.Ledger
	total    minutes.Counts // since the program started
	second   int64          // the latest one, since 1970
	took     float64        // seconds between the latest two samples
	at       time.Time

	rules   map[string]*ruleHistory
	order   []*ruleHistory // of the latest sample, in the order of the configuration
	samples int64
}

// ruleHistory is the history of one rule.
type ruleHistory struct {
	name   string
	total  counts
	latest counts // between the latest two samples
	sample int64  // the latest sample that had the rule

	refusedByTen []uint32 // refused, in shadow mode too, by the ten seconds since 1970, modulo tens; nil: none for ten minutes
	ten          int64    // the latest one
	lastRefusal  int64    // the latest one with a refusal
}

// begin begins a sample.
func (h *history) begin(now time.Time) {
	if h.rules == nil {
		h.rules = map[string]*ruleHistory{}
	}
	h.took = 0
	if !h.at.IsZero() {
		h.took = now.Sub(h.at).Seconds()
	}
	h.at = now
	second := now.Unix()
	switch {
	case h.second == 0:
		h.second = second - 1
	case second < h.second-longestStep: // the clock was set back by far: the slots belong to a later time
		h.bySecond = [seconds]counts{}
		h.second = second - 1
	case second < h.second:
		second = h.second
	}
	for n := max(h.second+1, second-seconds+1); n <= second; n++ {
		h.bySecond[n%seconds] = counts{}
	}
	h.second = second
	h.order = h.order[:0]
	h.samples++
}

// count takes the counts of a rule since the program started.
func (h *history) count(name string, total counts) {
	r := h.rules[name]
	if r == nil {
		r = &ruleHistory{name: name}
		h.rules[name] = r
	}
	r.latest, r.total, r.sample = total.since(r.total), total, h.samples
	h.order = append(h.order, r)
	h.bySecond[h.second%seconds] = h.bySecond[h.second%seconds].plus(r.latest)
	h.total = h.total.Plus(minutes.Counts{Allowed: r.latest.allowed, Refused: r.latest.refused, ShadowRefused: r.latest.shadow, Delayed: r.latest.delayed})
	r.refuse(h.second/10, r.latest.refused+r.latest.shadow)
}

// refuse adds n refusals to ten seconds.
func (r *ruleHistory) refuse(ten, n int64) {
	if ten < r.ten || ten-r.lastRefusal >= tens {
		r.refusedByTen = nil
	}
	if n > 0 {
		if r.lastRefusal = ten; r.refusedByTen == nil {
			r.refusedByTen, r.ten = make([]uint32, tens), ten
		}
	}
	if r.refusedByTen == nil {
		return
	}
	for ; r.ten < ten; r.ten++ {
		r.refusedByTen[(r.ten+1)%tens] = 0
	}
	sum := int64(r.refusedByTen[ten%tens]) + n
	r.refusedByTen[ten%tens] = uint32(min(sum, math.MaxUint32))
}

// end ends a sample. It keeps the totals of rules that are gone, because a later configuration can have them
// again with the counts that they had. It keeps about as many of them as there are rules.
func (h *history) end() {
	h.byMinute.Note(h.at, h.total)
	if len(h.rules) <= 2*len(h.order)+1000 {
		return
	}
	for name, r := range h.rules {
		if r.sample != h.samples {
			delete(h.rules, name)
		}
	}
}

// perSecond returns a count of the latest sample as a rate.
func (h *history) perSecond(n int64) float64 {
	if h.took <= 0 {
		return 0
	}
	return math.Round(float64(n)/h.took*10) / 10
}

// byTen returns the refusals of a rule, the oldest first.
func (h *history) byTen(r *ruleHistory) []uint32 {
	list := make([]uint32, tens)
	now := h.second / 10
	for i := range list {
		at := now - tens + 1 + int64(i)
		if r.refusedByTen != nil && at <= r.ten && at > r.ten-tens {
			list[i] = r.refusedByTen[at%tens]
		}
	}
	return list
}

// busiest returns the rules of the latest sample that keep accepts, the one that refuses most first.
func (h *history) busiest(keep func(*ruleHistory) bool) []*ruleHistory {
	var list []*ruleHistory
	for _, r := range h.order {
		if keep(r) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b *ruleHistory) int {
		return cmp.Or(
			cmp.Compare(b.latest.refused+b.latest.shadow, a.latest.refused+a.latest.shadow),
			cmp.Compare(b.total.refused+b.total.shadow, a.total.refused+a.total.shadow),
			cmp.Compare(b.latest.allowed, a.latest.allowed),
		)
	})
	return list
}

// refusing is a rule that has refused requests within ten minutes.
type refusing struct {
	*ruleHistory
	recent int64 // how many
}

// refusing returns the rules that have refused requests within ten minutes, the one with most refusals first.
func (h *history) refusing() []refusing {
	var list []refusing
	for _, r := range h.order {
		if n := h.recent(r); n > 0 {
			list = append(list, refusing{r, n})
		}
	}
	slices.SortStableFunc(list, func(a, b refusing) int { return cmp.Compare(b.recent, a.recent) })
	return list
}

// recent returns the refusals of a rule within ten minutes.
func (h *history) recent(r *ruleHistory) int64 {
	if r.refusedByTen == nil {
		return 0
	}
	var sum int64
	for at := max(h.second/10-tens, r.ten-tens) + 1; at <= r.ten; at++ {
		sum += int64(r.refusedByTen[at%tens])
	}
	return sum
}
