// SPDX-License-Identifier: MIT

package main

func middlewareTargets() []target {
	plain, fields := dianaHandler(1000, false), dianaHandler(1000, true)
	return []target{
		{"M1", "3 rules of 1,000 URLs: at most 500 ns over bare", judgeMost(middlewareWorkload, plain, nsOver, 500)},
		{"M1", "3 rules of 1,000 URLs: no allocation over bare", judgeMost(middlewareWorkload, plain, allocsOver, 0.01)},
		{"M1", "the same with RateLimit fields: at most 900 ns over bare", judgeMost(middlewareWorkload, fields, nsOver, 900)},
		{"M1", "the same with RateLimit fields: at most 4 allocations over bare", judgeMost(middlewareWorkload, fields, allocsOver, 4.01)},
		{"M2", "10,000 URLs: at most 1.3 x the time over bare of 10 URLs",
			compare(middlewareWorkload, nsOver, dianaHandler(10_000, false), dianaHandler(10, false), atMost(1.3))},
		{"M2", "the same with RateLimit fields",
			compare(middlewareWorkload, nsOver, dianaHandler(10_000, true), dianaHandler(10, true), atMost(1.3))},
	}
}
