// SPDX-License-Identifier: MIT

package measure

import (
	"testing"
	"time"
)

// A slice counts only if its threads worked side by side.
func TestSliceCounts(t *testing.T) {
	of := func(begin, end time.Duration, suspended int64) slice {
		s := make(slice, 2)
		s[0].end = 100
		s[1].begin, s[1].end, s[1].suspended = begin, end, suspended
		return s
	}
	for _, tc := range []struct {
		name string
		s    slice
		want bool
	}{
		{"one thread, suspended", of(0, 100, 1)[1:], true},
		{"side by side", of(5, 90, 0), true},
		{"late by more than a twentieth", of(6, 90, 0), false},
		{"the last one's end counts too", of(6, 120, 0), true},
		{"suspended", of(0, 100, 1), false},
	} {
		if got := tc.s.counts(); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// Every worker does as many slices on every thread, all threads at once, and its memory is counted.
func TestSlices(t *testing.T) {
	var kept [2][]byte
	var slices [2][2]int
	worker := func(i int) Worker {
		return func(thread int) func(int) {
			return func(n int) {
				slices[i][thread]++
				for range n * i {
					kept[thread] = make([]byte, 64)
				}
			}
		}
	}
	got, err := (&Run{Quick: true}).Slices(2, worker(0), worker(1))
	if err != nil {
		t.Fatal(err)
	}
	if slices[0][1] != 10 || slices[1][1] != 10 {
		t.Errorf("the second thread did %d and %d slices, want 10 of each worker", slices[0][1], slices[1][1])
	}
	if got[0].Allocs != 0 || got[1].Allocs < 1 || got[1].Allocs > 1.5 || got[1].Bytes < 64 {
		t.Errorf("%+v, want 0 and 1 allocations of 64 bytes", got)
	}
}

// Slices continue until each worker has enough. A figure of fewer is marked, and none is invented.
func TestUndisturbed(t *testing.T) {
	for _, tc := range []struct{ each, want int }{{10, 10}, {4, 12}, {1, 10}, {0, 0}} {
		r := &Run{Notes: t.Output(), Origin: &Origin{}}
		all, err := r.undisturbed(2, func() [][]float64 { return [][]float64{make([]float64, tc.each), make([]float64, 20)} })
		if tc.want == 0 != (err != nil) || err == nil && len(all[0]) != tc.want || r.Origin.Noise != "" {
			t.Errorf("%d a try: %d, %v, %q; want %d", tc.each, len(all), err, r.Origin.Noise, tc.want)
		}
	}
	r, few := &Run{Notes: t.Output(), Origin: &Origin{}}, 3
	all, err := r.undisturbed(2, func() [][]float64 {
		few--
		return [][]float64{make([]float64, max(few, 0))}
	})
	if err != nil || len(all[0]) != 3 || r.Origin.Noise != "a figure of 3 slices on 2 threads, expected 10" {
		t.Errorf("%v, %v, %q", all, err, r.Origin.Noise)
	}
}
