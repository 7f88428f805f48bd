// SPDX-License-Identifier: MIT

package simulate

import "time"

// timeline counts in equal spans of time, at most mostSpans of them. The spans become longer as
// the time grows. Times must not decrease.
type timeline struct {
	width   int   // index in widths
	first   int64 // number of the first span, since the Unix epoch
	spans   int
	columns [][]int64 // mostSpans each; nil: the column has counted nothing
}

const mostSpans = 48

// widths are the lengths of spans, each a multiple of the previous one.
var widths = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 7 * day, 28 * day, 364 * day, 3640 * day,
}

const day = 24 * time.Hour

func newTimeline(columns int) *timeline { return &timeline{columns: make([][]int64, columns)} }

// span returns the span of a time in microseconds since the Unix epoch.
func (t *timeline) span(at int64) int {
	number := at / widths[t.width].Microseconds()
	if t.spans == 0 {
		t.first = number
	}
	for number-t.first >= mostSpans && t.width < len(widths)-1 {
		t.widen()
		number = at / widths[t.width].Microseconds()
	}
	i := int(min(max(number-t.first, 0), mostSpans-1))
	t.spans = max(t.spans, i+1)
	return i
}

// widen uses the next longer spans.
func (t *timeline) widen() {
	times := int64(widths[t.width+1] / widths[t.width])
	first := t.first / times
	for _, column := range t.columns {
		for i := range int64(len(column)) {
			n := column[i]
			column[i] = 0
			column[(t.first+i)/times-first] += n
		}
	}
	t.spans = int((t.first+int64(t.spans)-1)/times-first) + 1
	t.first = first
	t.width++
}

// add adds one to a column of a span.
func (t *timeline) add(span, column int) {
	if t.columns[column] == nil {
		t.columns[column] = make([]int64, mostSpans)
	}
	t.columns[column][span]++
}

// begin returns the start of a span.
func (t *timeline) begin(span int) time.Time {
	return time.UnixMicro((t.first + int64(span)) * widths[t.width].Microseconds()).UTC()
}

// count returns the count of a column in a span.
func (t *timeline) count(span, column int) int64 {
	if t.columns[column] == nil {
		return 0
	}
	return t.columns[column][span]
}
