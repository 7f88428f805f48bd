// SPDX-License-Identifier: MIT

package measure

import (
	"testing"
	"time"
)

var p50x = Figure{Name: "p50", Format: SecondsText}

func TestHistogram(t *testing.T) {
	var h Histogram
	for us := range 100_000 {
		h.Add(time.Duration(us) * time.Microsecond)
	}
	for _, tc := range []struct {
		q    float64
		want time.Duration
	}{{0, 0}, {0.5, 50 * time.Millisecond}, {0.99, 99 * time.Millisecond}, {1, 99_999 * time.Microsecond}} {
		if got := h.Quantile(tc.q); got < tc.want || float64(got) > 1.04*float64(tc.want) {
			t.Errorf("quantile %v: %v, want %v or 3 %% more", tc.q, got, tc.want)
		}
	}
	for d := time.Duration(1); d < time.Hour; d += d/7 + 1 {
		if b := bucketOf(d); upper(b) < d || b > 0 && upper(b-1) >= d {
			t.Fatalf("%v is in bucket %d, which holds %v to %v", d, b, upper(b-1)+1, upper(b))
		}
	}
}

// A ratio compares round by round, so a disturbance of a whole round does not change it.
func TestRatio(t *testing.T) {
	row := func(values ...float64) *Row {
		m := &Row{Figures: map[string]*Series{}}
		for _, v := range values {
			m.Add(p50x, v)
		}
		return m
	}
	if got := Ratio(row(10, 40, 10), row(5, 20, 1), p50x); got != 2 {
		t.Errorf("ratio %v, want 2", got)
	}
	if got := Ratio(row(10, 20, 30), row(10), p50x); got != 2 {
		t.Errorf("ratio to another run's median %v, want 2", got)
	}
	if got := Ratio(row(1), row(), p50x); got != 0 {
		t.Errorf("ratio to nothing %v, want 0", got)
	}
}
