// SPDX-License-Identifier: MIT

package main

import "strings"

func localLines() []line {
	hot1, hot2 := threadsName(localHot, 1), threadsName(localHot, 2)
	plenty1, plenty2 := threadsName(localPlenty, 1), threadsName(localPlenty, 2)
	one, ten := fillingName(1), fillingName(10)
	return []line{
		compare(hot1, hot1, nsDecision, dianaMemory, casFloor).must("L1", ratioAtMost(1.6)),
		compare(hot2, hot2, nsDecision, dianaMemory, xTimeName).must("L1", ratioAtLeast(4.5)),
		compare(hot2, hot2, nsDecision, dianaMemory, bestRival).must("L1", ratioAtLeast(3)),
		compare(plenty1, plenty1, nsDecision, dianaMemory, casFloor).must("L1", ratioAtMost(1.8)),
		compare(plenty2, plenty2, nsDecision, dianaMemory, casFloor).must("L1", ratioAtMost(1.5)),
		compare("1 M keys, 1 thread", threadsName(localUniform, 1), nsDecision, dianaMemory, bestRival).must("L2", ratioAtLeast(1.7)),
		compare("1 M keys, 2 threads", threadsName(localUniform, 2), nsDecision, dianaMemory, bestRival).must("L2", ratioAtLeast(2.3)),
		compare("10 M keys, 2 threads", threadsName(localTen, 2), nsDecision, dianaMemory, bestRival),
		compare("bytes a key, 1 M keys", one, bytesKey, dianaMemory, bestRival).must("L3", atMost(bytesKey, 32)),
		compare("the same, W", one, bytesKey, memstoreName("W")).must("L3", atMost(bytesKey, 32)),
		compare("the same, LB", one, bytesKey, memstoreName("LB")).must("L3", atMost(bytesKey, 32)),
		compare("the same, SW with 10 slices", one, bytesKey, memstoreName("SW")).must("L3", atMost(bytesKey, 32+4*10)),
		compare("bytes a key, 10 M keys", ten, bytesKey, dianaMemory, bestRival).must("L3", atMost(bytesKey, 32)),
		compare("time that 1 M keys add to a full GC", one, gcTime, dianaMemory, bestRival).must("L3", atMost(gcTime, 0.005)),
		compare("slowest decision while filling 10 M keys", ten, slowest, dianaMemory, bestRival).must("L4", atMost(slowest, 0.005)),
		custom("allocations of any local decision", measureAllocs).must("L5", atMost(allocs, 0)),
		compare("Limiter, "+hot1, hot1, nsDecision, dianaLimiter).must("L6", atMost(nsDecision, 110)),
		compare("Limiter, "+plenty1, plenty1, nsDecision, dianaLimiter).must("L6", atMost(nsDecision, 110)),
		compare("Limiter, which makes the key, "+hot2, hot2, nsDecision, dianaLimiter, bestRival).must("L6", ratioAtLeast(1)),
	}
}

// measureAllocs returns the most allocations of a local decision. It ignores decisions for new
// keys, because a table may have to grow for them.
func measureAllocs(r *report) (m measured, ok bool) {
	for _, w := range r.Rows {
		if s := w.series(allocs); w.Group == "local" && strings.HasPrefix(w.System, "Diana") && s != nil {
			m.value, ok = max(m.value, s.Median), true
		}
	}
	// The run itself allocates a little, but never once in a hundred decisions.
	if m.diana = fewText(m.value); m.diana == "0" {
		m.value = 0
	}
	return m, ok
}
