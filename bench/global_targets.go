// SPDX-License-Identifier: MIT

package main

import "fmt"

func globalTargets() []target {
	hot, many := globalName(hotWorkload, 256), globalName(uniformWorkload, 256)
	return []target{
		{"G1", "hot key: at least 20 x redis_rate's decisions/s",
			compare(hot, decisionRate, dianaStore, redisRateName, atLeast(20))},
		{"G1", "hot key: p99 at most a tenth of redis_rate's",
			compare(hot, p99, dianaStore, redisRateName, atMost(0.1))},
		{"G2", "1 M keys uniform: at least 4 x redis_rate's decisions/s",
			compare(many, decisionRate, dianaStore, redisRateName, atLeast(4))},
		{"G2", "1 M keys uniform: at least 1.5 x one EVALSHA each, pipelined",
			compare(many, decisionRate, dianaStore, evalshaRueidis, atLeast(1.5))},
		{"G2", "1 M keys uniform: p99 at most half of redis_rate's",
			compare(many, p99, dianaStore, redisRateName, atMost(0.5))},
		{"G3", "a lone request: 3 rules take at most 1.3 x the p50 of 1 rule",
			compare(aloneWorkload, p50, dianaThree, dianaOne, atMost(1.3))},
		{"G3", "a lone request with 3 rules: 1 round trip", judgeRoundTrips},
		{"G4", "a lone request: at most 1.2 x the p50 of a bare EVALSHA",
			compare(aloneWorkload, p50, dianaOne, bareOne, atMost(1.2))},
		{"G5", "3 processes, 256 callers each: W, TB, SW, SL admit the promise exactly", judgeExact},
		{"G6", "a refused actor costs Redis nothing: calls per 1,000 refusals below 1", judgeRefused},
	}
}

func judgeRoundTrips(r *report) (string, bool, bool) {
	m := r.find(aloneWorkload, dianaThree)
	if m == nil {
		return "", false, false
	}
	calls := m.Figures[requestCalls].Median
	return plainText(calls), calls < 1.05, true // now and then a store asks by itself whether Redis is there
}

func judgeExact(r *report) (string, bool, bool) {
	exact, all := 0, 0
	for _, m := range r.Rows {
		if m.Workload == exactWorkload {
			for i, n := range m.Figures[admitted].Rounds {
				all++
				// A moment's refill may add a token.
				low, high := m.Figures[promised].Rounds[i], m.Figures[promised].Rounds[i]+m.Figures[refilled].Rounds[i]
				if n >= low && n <= high && m.Figures[failures].Rounds[i] == 0 {
					exact++
				}
			}
		}
	}
	return fmt.Sprintf("%d of %d exact", exact, all), exact == all, all > 0
}

func judgeRefused(r *report) (string, bool, bool) {
	m := r.find(refusedWorkload, dianaLimiter)
	if m == nil {
		return "", false, false
	}
	calls := 1000 * m.Figures[refusalCalls].Median / m.Figures[refusals].Median
	return plainText(calls), calls < 1, true
}
