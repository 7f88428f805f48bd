// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"strings"
)

func localTargets() []target {
	hot1, hot2 := threadsName(localHot, 1), threadsName(localHot, 2)
	plenty1, plenty2 := threadsName(localPlenty, 1), threadsName(localPlenty, 2)
	return []target{
		{"L1", "hot key, mostly refused, 1 thread: at most 1.6 x the floor",
			compare(hot1, nsDecision, dianaMemory, casFloor, atMost(1.6))},
		{"L1", "hot key, mostly refused, 2 threads: 5 x faster than x/time/rate",
			compare(hot2, nsDecision, xTimeName, dianaMemory, atLeast(5))},
		{"L1", "hot key, mostly refused, 2 threads: 3 x faster than the best rival",
			compareBest(hot2, atLeast(3))},
		{"L1", "hot key, all allowed, 1 thread: at most 1.6 x the floor",
			compare(plenty1, nsDecision, dianaMemory, casFloor, atMost(1.6))},
		{"L1", "hot key, all allowed, 2 threads: 5 x faster than x/time/rate",
			compare(plenty2, nsDecision, xTimeName, dianaMemory, atLeast(5))},
		{"L1", "hot key, all allowed, 2 threads: 3 x faster than the best rival",
			compareBest(plenty2, atLeast(3))},
		{"L2", "1 M keys uniform, 1 thread: 2.3 x faster than the best rival",
			compareBest(threadsName(localUniform, 1), atLeast(2.3))},
		{"L2", "1 M keys uniform, 2 threads: 2.3 x faster than the best rival",
			compareBest(threadsName(localUniform, 2), atLeast(2.3))},
		{"L3", "1 M keys: at most 32 bytes each", judgeMost(fillingName(1), dianaMemory, bytesKey, 32)},
		{"L3", "1 M keys: at most 32 bytes each, W", judgeMost(fillingName(1), dianaMemory+", W", bytesKey, 32)},
		{"L3", "1 M keys: at most 32 bytes each, LB", judgeMost(fillingName(1), dianaMemory+", LB", bytesKey, 32)},
		{"L3", "1 M keys: at most 72 bytes each, SW with 10 slices", judgeMost(fillingName(1), dianaMemory+", SW", bytesKey, 32+4*10)},
		{"L3", "10 M keys: at most 32 bytes each", judgeMost(fillingName(10), dianaMemory, bytesKey, 32)},
		{"L3", "1 M keys: a full GC takes at most 5 ms more", judgeMost(fillingName(1), dianaMemory, gcTime, 0.005)},
		{"L4", "filling 10 M keys: the slowest decision under 5 ms", judgeMost(fillingName(10), dianaMemory, slowest, 0.005)},
		{"L5", "no allocation on any local decision", judgeAllocs},
	}
}

// judgeMost judges a figure by a bound.
func judgeMost(workload, system, figure string, most float64) func(*report) (string, bool, bool) {
	return func(r *report) (string, bool, bool) {
		m := r.find(workload, system)
		if m == nil {
			return "", false, false
		}
		v := m.Figures[figure].Median
		return formatOf(figure)(v), v <= most, true
	}
}

// compareBest judges how many times faster than the fastest rival Diana's store is.
func compareBest(workload string, met func(float64) bool) func(*report) (string, bool, bool) {
	return func(r *report) (string, bool, bool) {
		ours, least, name := r.find(workload, dianaMemory), math.Inf(1), ""
		for _, m := range r.Rows {
			if m.Workload == workload && m.Kind == rival {
				if v := ratio(m, ours, nsDecision); v < least {
					least, name = v, m.System
				}
			}
		}
		return fmt.Sprintf("%s x, %s", plainText(least), name), met(least), name != ""
	}
}

// judgeAllocs judges all local decisions but those that bring a key for the first time,
// for which a table may have to grow.
func judgeAllocs(r *report) (string, bool, bool) {
	most, any := 0.0, false
	for _, m := range r.Rows {
		if m.Group == "local" && strings.HasPrefix(m.System, "Diana") && m.Figures[allocs] != nil {
			most, any = max(most, m.Figures[allocs].Median), true
		}
	}
	// A run has some of its own, of goroutines and of measuring, but never one for each of
	// a hundred decisions.
	return fmt.Sprintf("at most %.4f", most), most < 0.01, any
}
