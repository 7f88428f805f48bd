// SPDX-License-Identifier: MIT

package live

import (
	"cmp"
	"iter"
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
type counts = minutes.Counts

// since returns how many decisions were made since earlier. A rule with a count that is smaller than it was has
// started from 0 again.
func since(c, earlier counts) counts {
	if more := c.Since(earlier); earlier.Plus(more) == c {
		return more
	}
	return c
}

// refusals returns how many requests were refused, in shadow mode too.
func refusals(c counts) int64 { return c.Refused + c.ShadowRefused }

// latest has a value for each of the latest spans of time. It has no values without slots.
type latest[T any] struct {
	slots []T   // by the span since 1970, modulo their number
	span  int64 // the latest one
}

// at returns the value of a span, which becomes the latest one. Those in between get no value.
func (l *latest[T]) at(span int64) *T {
	var none T
	n := int64(len(l.slots))
	for next := max(l.span, span-n) + 1; next <= span; next++ {
		l.slots[next%n] = none
	}
	l.span = max(l.span, span)
	return &l.slots[span%n]
}

// until returns the values up to a span, which may be later than the latest one, the oldest first.
func (l *latest[T]) until(span int64) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		n := int64(len(l.slots))
		for i := range n {
			var value T
			if at := span - n + 1 + i; at <= l.span && at > l.span-n {
				value = l.slots[at%n]
			}
			if !yield(int(i), value) {
				return
			}
		}
	}
}

// history has what was decided in each second. The zero value is empty.
type history struct {
	bySecond latest[counts]
	byMinute minutes.Ledger
	total    counts  // since the program started
	took     float64 // seconds between the latest two samples
	now      time.Time

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

	refusedByTen latest[uint32] // refusals in each ten seconds; without slots: none for ten minutes
	lastRefusal  int64          // the latest ten seconds with a refusal
}

// begin begins a sample.
func (h *history) begin(now time.Time) {
	if h.rules == nil {
		h.rules = map[string]*ruleHistory{}
	}
	h.took = 0
	if !h.now.IsZero() {
		h.took = now.Sub(h.now).Seconds()
	}
	h.now = now
	if h.bySecond.slots == nil || now.Unix() < h.bySecond.span-longestStep { // the slots belong to a later time
		h.bySecond = latest[counts]{slots: make([]counts, seconds)}
	}
	h.bySecond.at(max(now.Unix(), h.bySecond.span))
	h.order = h.order[:0]
	h.samples++
}

// count takes the counts of a rule since the program started.
func (h *history) count(name string, total counts) {
	r := h.nextBefore()
	if r == nil || r.name != name {
		r = h.rules[name]
	}
	if r == nil {
		r = &ruleHistory{name: name}
		h.rules[name] = r
	}
	r.latest, r.total, r.sample = since(total, r.total), total, h.samples
	h.order = append(h.order, r)
	second := h.bySecond.at(h.bySecond.span)
	*second = second.Plus(r.latest)
	h.total = h.total.Plus(r.latest)
	r.refuse(h.ten(), refusals(r.latest))
}

// nextBefore returns the rule that had the next place in the sample before, or nil. It is mostly the next one again, and
// so costs a tenth of the search by name.
func (h *history) nextBefore() *ruleHistory {
	if n := len(h.order); n < cap(h.order) {
		return h.order[:n+1][n]
	}
	return nil
}

// ten returns the ten seconds of the latest sample.
func (h *history) ten() int64 { return h.bySecond.span / 10 }

// refuse adds n refusals to ten seconds. A rule that refuses nothing takes no memory for them.
func (r *ruleHistory) refuse(ten, n int64) {
	by := &r.refusedByTen
	if ten < by.span || ten-r.lastRefusal >= tens { // the clock was set back, or nothing in the slots is within ten minutes
		*by = latest[uint32]{}
	}
	if n > 0 {
		if r.lastRefusal = ten; by.slots == nil {
			*by = latest[uint32]{make([]uint32, tens), ten}
		}
	}
	if by.slots != nil {
		slot := by.at(ten)
		*slot = uint32(min(int64(*slot)+n, math.MaxUint32))
	}
}

// end ends a sample. It keeps the totals of rules that are gone, because a later configuration can have them
// again with the counts that they had. It keeps about as many of them as there are rules.
func (h *history) end() {
	h.byMinute.Note(h.now, h.total)
	clear(h.order[len(h.order):cap(h.order)]) // what has no place any more
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
	for i, n := range r.refusedByTen.until(h.ten()) {
		list[i] = n
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
			cmp.Compare(refusals(b.latest), refusals(a.latest)),
			cmp.Compare(refusals(b.total), refusals(a.total)),
			cmp.Compare(b.latest.Allowed, a.latest.Allowed),
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
		recent := int64(0)
		for _, n := range r.refusedByTen.until(h.ten()) {
			recent += int64(n)
		}
		if recent > 0 {
			list = append(list, refusing{r, recent})
		}
	}
	slices.SortStableFunc(list, func(a, b refusing) int { return cmp.Compare(b.recent, a.recent) })
	return list
}
