// SPDX-License-Identifier: MIT

package main

import (
	"testing"
	"time"

	"github.com/diana-limiter/diana/bench/measure"
	"github.com/diana-limiter/diana/bench/rivals"
)

// A system is accused only of what is certain, and of all of that.
func TestPromises(t *testing.T) {
	q := rivals.Quota{N: 10, Per: time.Second}
	began := time.Unix(1_000_000, 0) // at the edge of a window
	const ms = time.Millisecond
	// answers are n of a kind, all sent and answered in an interval.
	answers := func(n int, kind answerKind, sent, received time.Duration) (all []answer) {
		for range n {
			all = append(all, answer{sent, received, kind})
		}
		return all
	}
	allowed := func(n int, sent, received time.Duration) []answer { return answers(n, answerAllowed, sent, received) }
	refused := func(sent, received time.Duration) []answer { return answers(1, answerRefused, sent, received) }
	bucket, clock, first := bucketPromise, clockWindowPromise, firstWindowPromise
	log := logPromise
	for _, tc := range []struct {
		name          string
		p             promise
		answers       [][]answer
		beyond, short float64
	}{
		{"a bucket's capacity", bucket, [][]answer{allowed(10, 300*ms, 301*ms), refused(302*ms, 303*ms)}, 0, 0},
		{"a bucket's capacity and 1", bucket, [][]answer{allowed(11, 300*ms, 301*ms)}, 1, 0},
		{"which slow answers may explain", bucket, [][]answer{allowed(11, 300*ms, 450*ms)}, 0, 0},
		{"the excess of a later interval", bucket, [][]answer{allowed(1, 0, 1*ms), allowed(13, 900*ms, 901*ms)}, 3, 0},
		{"a bucket's needless refusal", bucket, [][]answer{allowed(8, 300*ms, 301*ms), refused(310*ms, 311*ms)}, 0, 1},
		{"a refusal while requests are in flight", bucket, [][]answer{allowed(10, 300*ms, 400*ms), refused(301*ms, 302*ms)}, 0, 0},
		{"after half of the unit", bucket, [][]answer{allowed(10, 300*ms, 301*ms), refused(810*ms, 811*ms)}, 0, 4},

		{"two windows of the clock", clock, [][]answer{allowed(10, 990*ms, 991*ms), allowed(10, 1010*ms, 1011*ms), refused(1012*ms, 1013*ms)}, 0, 0},
		{"one window of the clock", clock, [][]answer{allowed(12, 500*ms, 501*ms)}, 2, 0},
		{"at the edge of the clock's windows", clock, [][]answer{allowed(12, 999*ms, 1000*ms)}, 0, 0},
		{"a refusal in a new window", clock, [][]answer{allowed(10, 500*ms, 501*ms), refused(1100*ms, 1101*ms)}, 0, 10},
		{"a refusal at the edge", clock, [][]answer{allowed(10, 500*ms, 501*ms), refused(999*ms, 1005*ms)}, 0, 0},

		{"a window from the first request", first, [][]answer{allowed(10, 500*ms, 501*ms), allowed(10, 1510*ms, 1511*ms)}, 0, 0},
		{"which ends a unit later", first, [][]answer{allowed(10, 500*ms, 501*ms), allowed(2, 1400*ms, 1401*ms)}, 2, 0},
		{"a refusal in the second window", first, [][]answer{allowed(10, 500*ms, 501*ms), refused(1600*ms, 1601*ms)}, 0, 10},
		{"a refusal as it begins", first, [][]answer{allowed(10, 500*ms, 501*ms), refused(1502*ms, 1503*ms)}, 0, 0},

		{"a refusal after a silence", first, [][]answer{
			allowed(10, 500*ms, 501*ms), allowed(10, 1600*ms, 1601*ms), refused(2550*ms, 2551*ms),
		}, 0, 0},

		{"a log over two windows", log, [][]answer{allowed(10, 990*ms, 991*ms), allowed(1, 1900*ms, 1901*ms)}, 1, 0},
		{"a log after a unit", log, [][]answer{allowed(10, 500*ms, 501*ms), allowed(10, 1600*ms, 1601*ms), refused(1700*ms, 1701*ms)}, 0, 0},
		{"a log's needless refusal", log, [][]answer{allowed(10, 500*ms, 501*ms), refused(1600*ms, 1601*ms)}, 0, 10},
	} {
		var all []answer
		for _, a := range tc.answers {
			all = append(all, a...)
		}
		h := newHistory(began, all)
		if b, s := h.beyond(tc.p, q), h.short(tc.p, q); b != tc.beyond || s != tc.short {
			t.Errorf("%s: %v beyond and %v short, want %v and %v", tc.name, b, s, tc.beyond, tc.short)
		}
	}
}

// A cell of the table tells the worst round, and the answers during an outage.
func TestExactCell(t *testing.T) {
	m := &measure.Row{Figures: map[string]*measure.Series{}}
	for _, v := range []float64{0, 3, 1} {
		m.Add(beyond, v)
	}
	m.Add(short, 2)
	m.Add(failures, 5)
	if got, want := exactCell(m), "**+3**, **-2**, 5 errors"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i, f := range meanwhile {
		m.Add(f, float64(i))
	}
	if got, want := exactCell(m), "**+3**, **-2**, 1 refused, 2 errors, 3 unanswered"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
