// SPDX-License-Identifier: MIT

package simulate

import "time"

// Timeline has the counts of equal spans of time, at most mostSpans of them. Make one with newTimeline.
type Timeline struct {
	Seconds int64  `json:"seconds"` // of a span
	Spans   []Span `json:"spans"`

	width int   // index in widths
	first int64 // number of the first span, since the Unix epoch
}

// Span is one span of a Timeline.
type Span struct {
	Begin    time.Time `json:"begin"`
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
	Delayed  int64     `json:"delayed"`

	// ByRule has the number of refusals, in shadow mode too, of each rule that refuses.
	ByRule map[string]int64 `json:"by_rule,omitempty"`
}

const mostSpans = 48

// widths are the lengths of spans in seconds, each a multiple of the previous one.
var widths = []int64{
	1, 5, 10, 30, minute, 5 * minute, 10 * minute, 30 * minute, hour, 2 * hour, 6 * hour, 12 * hour,
	day, 7 * day, 28 * day, 364 * day, 3640 * day,
}

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
	micros = 1_000_000 // in a second
)

func newTimeline() Timeline { return Timeline{Seconds: widths[0], Spans: []Span{}} }

// span returns the span of a time in microseconds since the Unix epoch. Times must not decrease. When there would be
// too many spans, they become longer.
func (t *Timeline) span(at int64) *Span {
	if len(t.Spans) == 0 {
		t.first = at / micros / t.Seconds
	}
	for at/micros/t.Seconds-t.first >= mostSpans && t.width < len(widths)-1 {
		t.widen()
	}
	i := int(min(max(at/micros/t.Seconds-t.first, 0), mostSpans-1))
	for len(t.Spans) <= i {
		t.Spans = append(t.Spans, Span{Begin: time.Unix((t.first+int64(len(t.Spans)))*t.Seconds, 0).UTC()})
	}
	return &t.Spans[i]
}

// widen joins spans to the next longer ones.
func (t *Timeline) widen() {
	old := *t
	t.width++
	t.Seconds = widths[t.width]
	t.Spans = nil
	for i, s := range old.Spans {
		sum := t.span((old.first + int64(i)) * old.Seconds * micros)
		sum.Requests, sum.Refused, sum.Delayed = sum.Requests+s.Requests, sum.Refused+s.Refused, sum.Delayed+s.Delayed
		for name, n := range s.ByRule {
			sum.refuse(name, n)
		}
	}
}

// refuse counts refusals of a rule.
func (s *Span) refuse(rule string, n int64) {
	if s.ByRule == nil {
		s.ByRule = map[string]int64{}
	}
	s.ByRule[rule] += n
}
